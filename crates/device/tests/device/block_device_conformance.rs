//! One suite over every back end of `BlockDevice`: file, `io_uring`, overlay, a pool, modelled SSD.

use std::collections::HashMap;
use std::sync::Arc;

use lapis_device::{ModelledSsd, SsdConfig, SsdProfile};
use lapis_pmem::{
    BLOCK_BYTES, BlockBuffer, BlockDevice, BlockError, BlockOperation, Completion, DirectTransfers,
    FileDevice, OverlayDevice, Pool, PoolDevice, Request,
};
#[cfg(target_os = "linux")]
use lapis_pmem::{BlockOpenError, IoUringDevice};
use proptest::prelude::*;

const BLOCKS: u64 = 64;

/// Runs a test on every back end that there is here.
fn on_every_device(test: impl Fn(&dyn BlockDevice)) {
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    test(&PoolDevice::create_named(&pool, "device", BLOCKS).unwrap());
    on_every_device_that_grows(test);
}

fn on_every_device_that_grows(test: impl Fn(&dyn BlockDevice)) {
    let directory = tempfile::tempdir().unwrap();
    for (name, direct) in
        [("cached", DirectTransfers::Never), ("direct", DirectTransfers::IfPossible)]
    {
        test(&FileDevice::create(&directory.path().join(name), BLOCKS, direct).unwrap());
        #[cfg(target_os = "linux")]
        match IoUringDevice::create(&directory.path().join(format!("ring-{name}")), BLOCKS, direct)
        {
            Ok(device) => test(&device),
            Err(BlockOpenError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let base = FileDevice::create(&directory.path().join("base"), 3, DirectTransfers::Never);
    let overlay = OverlayDevice::over(Arc::new(base.unwrap()));
    overlay.grow_to(BLOCKS).unwrap();
    test(&overlay);
    let timed = SsdProfile {
        read_latency_ns: 80_000,
        write_latency_ns: 20_000,
        flush_latency_ns: 100_000,
        read_gb_s: 3.0,
        write_gb_s: 2.0,
        queue_depth: 8,
    };
    for config in [
        SsdConfig::default(),
        SsdConfig { profile: timed, ..SsdConfig::default() },
        SsdConfig { profile: timed, reorder_seed: Some(1), ..SsdConfig::default() },
        SsdConfig { reorder_seed: Some(2), ..SsdConfig::default() },
    ] {
        test(&ModelledSsd::new(BLOCKS, config).unwrap());
    }
}

fn filled(byte: u8, blocks: usize) -> Vec<u8> {
    vec![byte; blocks * BLOCK_BYTES]
}

fn read(device: &dyn BlockDevice, first_block: u64, blocks: usize) -> Vec<u8> {
    let mut into = filled(0xEE, blocks);
    device.read_blocks(first_block, &mut into).unwrap();
    into
}

fn write_request(tag: u64, first_block: u64, byte: u8) -> Request {
    Request::Write { tag, first_block, buffer: BlockBuffer::copy_of(&filled(byte, 1)) }
}

fn read_request(tag: u64, first_block: u64) -> Request {
    Request::Read { tag, first_block, buffer: BlockBuffer::zeroed(1) }
}

#[test]
fn blocks_are_zero_until_they_are_written() {
    on_every_device(|device| {
        assert_eq!(device.capacity_blocks(), BLOCKS);
        assert_eq!(read(device, 0, BLOCKS as usize), filled(0, BLOCKS as usize));
    });
}

#[test]
fn reads_return_what_was_written_last() {
    on_every_device(|device| {
        device.write_blocks(3, &filled(1, 4)).unwrap();
        device.write_blocks(4, &filled(2, 2)).unwrap();
        let expected = [filled(0, 1), filled(1, 1), filled(2, 2), filled(1, 1), filled(0, 1)];
        assert_eq!(read(device, 2, 6), expected.concat());
        device.flush().unwrap();
        assert_eq!(read(device, 2, 6), expected.concat(), "a flush changes nothing that is seen");
    });
}

#[test]
fn runs_beyond_the_end_are_refused_and_change_nothing() {
    on_every_device(|device| {
        for (first_block, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1)] {
            let error = device.write_blocks(first_block, &filled(9, blocks)).unwrap_err();
            assert!(matches!(error, BlockError::OutOfRange { capacity_blocks: BLOCKS, .. }));
            let error = device.read_blocks(first_block, &mut filled(0, blocks)).unwrap_err();
            assert!(matches!(error, BlockError::OutOfRange { .. }));
            let error = device.discard(first_block, blocks as u64).unwrap_err();
            assert!(matches!(error, BlockError::OutOfRange { .. }));
        }
        assert_eq!(read(device, BLOCKS - 1, 1), filled(0, 1));
        assert_eq!(device.counts().writes, 0, "what is refused is not counted");
    });
}

#[test]
fn buffers_that_are_not_whole_blocks_are_refused() {
    on_every_device(|device| {
        for bytes in [1, BLOCK_BYTES - 1, BLOCK_BYTES + 512] {
            let error = device.write_blocks(0, &vec![0; bytes]).unwrap_err();
            assert!(matches!(error, BlockError::Misaligned { bytes: found } if found == bytes));
            let error = device.read_blocks(0, &mut vec![0; bytes]).unwrap_err();
            assert!(matches!(error, BlockError::Misaligned { .. }));
        }
    });
}

#[test]
fn runs_of_no_blocks_succeed_up_to_the_end() {
    on_every_device(|device| {
        device.write_blocks(BLOCKS, &[]).unwrap();
        device.read_blocks(BLOCKS, &mut []).unwrap();
        device.discard(BLOCKS, 0).unwrap();
        assert!(device.read_blocks(BLOCKS + 1, &mut []).is_err());
    });
}

#[test]
fn discarded_blocks_are_zero_and_can_be_written_again() {
    on_every_device(|device| {
        device.write_blocks(0, &filled(5, 8)).unwrap();
        device.discard(2, 3).unwrap();
        let expected = [filled(5, 2), filled(0, 3), filled(5, 3)].concat();
        assert_eq!(read(device, 0, 8), expected);
        device.write_blocks(3, &filled(6, 1)).unwrap();
        assert_eq!(read(device, 3, 1), filled(6, 1));
    });
}

#[test]
fn a_device_grows_by_zeroed_blocks_and_never_shrinks() {
    on_every_device_that_grows(|device| {
        device.write_blocks(BLOCKS - 1, &filled(5, 1)).unwrap();
        device.grow_to(BLOCKS + 3).unwrap();
        device.grow_to(BLOCKS).unwrap();
        assert_eq!(device.capacity_blocks(), BLOCKS + 3);
        assert_eq!(read(device, BLOCKS - 1, 4), [filled(5, 1), filled(0, 3)].concat());
        device.write_blocks(BLOCKS + 2, &filled(6, 1)).unwrap();
        assert!(device.write_blocks(BLOCKS + 3, &filled(6, 1)).is_err());
        assert!(matches!(device.grow_to(u64::MAX), Err(BlockError::NoSpace { .. })));
    });
}

#[test]
fn requests_and_bytes_are_counted() {
    on_every_device(|device| {
        device.write_blocks(0, &filled(1, 3)).unwrap();
        read(device, 0, 2);
        read(device, 0, 1);
        device.flush().unwrap();
        device.discard(0, 1).unwrap();
        let mut queue = device.queue(4).unwrap();
        let mut requests =
            vec![write_request(0, 0, 1), read_request(1, 9), Request::Flush { tag: 2 }];
        queue.submit(&mut requests).unwrap();
        queue.complete(3, &mut Vec::new()).unwrap();
        let counts = device.counts();
        assert_eq!((counts.reads, counts.read_bytes), (3, 4 * BLOCK_BYTES as u64));
        assert_eq!((counts.writes, counts.written_bytes), (2, 4 * BLOCK_BYTES as u64));
        assert_eq!((counts.flushes, counts.discards, counts.failures), (2, 1, 0));
    });
}

#[test]
fn a_queue_answers_every_request_once_with_its_tag_and_buffer() {
    on_every_device(|device| {
        let mut queue = device.queue(16).unwrap();
        let mut requests: Vec<_> =
            (0..16).map(|block| write_request(100 + block, block, block as u8 + 1)).collect();
        assert_eq!(queue.submit(&mut requests).unwrap(), 16);
        assert_eq!(queue.in_flight(), 16);
        let mut completions: Vec<Completion> = Vec::new();
        while queue.in_flight() > 0 {
            let before = completions.len();
            let given = queue.complete(1, &mut completions).unwrap();
            assert!(given >= 1);
            assert_eq!(completions.len(), before + given as usize);
        }
        completions.sort_by_key(|completion| completion.tag);
        assert_eq!(completions.len(), 16);
        for (block, completion) in completions.into_iter().enumerate() {
            assert_eq!(completion.tag, 100 + block as u64);
            assert_eq!(completion.operation, BlockOperation::Write);
            completion.outcome.unwrap();
            assert_eq!(completion.buffer.unwrap()[..], filled(block as u8 + 1, 1));
            assert_eq!(read(device, block as u64, 1), filled(block as u8 + 1, 1));
        }
    });
}

#[test]
fn a_queue_takes_no_more_than_its_depth() {
    on_every_device(|device| {
        assert!(matches!(device.queue(0), Err(BlockError::QueueDepth { asked: 0, .. })));
        assert!(matches!(device.queue(u32::MAX), Err(BlockError::QueueDepth { .. })));
        let mut queue = device.queue(3).unwrap();
        assert_eq!(queue.depth(), 3);
        let mut requests: Vec<_> = (0..5).map(|block| read_request(block, block)).collect();
        assert_eq!(queue.submit(&mut requests).unwrap(), 3);
        assert_eq!(requests.len(), 2, "the others stay with the caller");
        assert_eq!(queue.submit(&mut requests).unwrap(), 0);
        let mut completions = Vec::new();
        let given = queue.complete(1, &mut completions).unwrap();
        assert_eq!(queue.submit(&mut requests).unwrap(), given.min(2));
        queue.complete(u32::MAX, &mut completions).unwrap();
        assert_eq!(queue.in_flight(), 0);
        assert_eq!(queue.complete(1, &mut completions).unwrap(), 0, "nothing to wait for");
    });
}

#[test]
fn what_is_wrong_with_a_request_is_in_its_completion() {
    on_every_device(|device| {
        let mut queue = device.queue(4).unwrap();
        let mut requests = vec![write_request(1, BLOCKS, 1), read_request(2, 0)];
        assert_eq!(queue.submit(&mut requests).unwrap(), 2);
        let mut completions = Vec::new();
        queue.complete(2, &mut completions).unwrap();
        completions.sort_by_key(|completion| completion.tag);
        let Err(BlockError::OutOfRange { first_block: BLOCKS, .. }) = completions[0].outcome else {
            panic!("{:?}", completions[0].outcome);
        };
        assert!(completions[0].buffer.is_some(), "the buffer comes back all the same");
        completions[1].outcome.as_ref().unwrap();
    });
}

#[test]
fn requests_of_several_blocks_may_be_in_flight() {
    on_every_device(|device| {
        let mut queue = device.queue(2).unwrap();
        let contents: Vec<u8> = (0..20 * BLOCK_BYTES).map(|at| (at / 7) as u8).collect();
        let buffer = BlockBuffer::copy_of(&contents);
        queue.submit(&mut vec![Request::Write { tag: 0, first_block: 40, buffer }]).unwrap();
        let mut completions = Vec::new();
        queue.complete(1, &mut completions).unwrap();
        let mut buffer = completions.pop().unwrap().buffer.unwrap();
        buffer.fill(0);
        queue.submit(&mut vec![Request::Read { tag: 1, first_block: 40, buffer }]).unwrap();
        queue.complete(1, &mut completions).unwrap();
        assert_eq!(completions.pop().unwrap().buffer.unwrap()[..], contents);
    });
}

#[test]
fn several_threads_use_one_device_each_with_a_queue_of_its_own() {
    on_every_device(|device| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    let mut queue = device.queue(4).unwrap();
                    let mut completions = Vec::new();
                    for round in 1..=8 {
                        let mut requests: Vec<_> = (0..4)
                            .map(|at| write_request(at, thread * 16 + at, round + thread as u8))
                            .collect();
                        queue.submit(&mut requests).unwrap();
                        queue.complete(4, &mut completions).unwrap();
                    }
                    assert!(completions.iter().all(|completion| completion.outcome.is_ok()));
                });
            }
        });
        for thread in 0..4_u64 {
            assert_eq!(read(device, thread * 16, 4), filled(8 + thread as u8, 4));
        }
    });
}

#[test]
fn a_queue_keeps_its_device_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ssd");
    let device = FileDevice::create(&path, 4, DirectTransfers::Never).unwrap();
    let mut queue = device.queue(1).unwrap();
    drop(device);
    queue.submit(&mut vec![write_request(0, 1, 7), Request::Flush { tag: 1 }]).unwrap();
    queue.complete(1, &mut Vec::new()).unwrap();
    drop(queue);
    let device = FileDevice::open(&path, DirectTransfers::Never).unwrap();
    assert_eq!(read(&device, 1, 1), filled(7, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Write { first_block: u64, byte: u8, blocks: usize },
    Discard { first_block: u64, blocks: u64 },
    Queued { blocks: Vec<u64>, byte: u8 },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..BLOCKS - 4, any::<u8>(), 1..4usize)
            .prop_map(|(first_block, byte, blocks)| Step::Write { first_block, byte, blocks }),
        (0..BLOCKS - 4, 1..4u64)
            .prop_map(|(first_block, blocks)| Step::Discard { first_block, blocks }),
        (prop::collection::hash_set(0..BLOCKS, 1..8), any::<u8>())
            .prop_map(|(blocks, byte)| Step::Queued { blocks: blocks.into_iter().collect(), byte }),
        Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_device_behaves_like_an_array_of_blocks(steps in prop::collection::vec(step(), 1..40)) {
        on_every_device(|device| {
            let mut expected: HashMap<u64, u8> = HashMap::new();
            let mut queue = device.queue(4).unwrap();
            let mut completions = Vec::new();
            for step in &steps {
                match step {
                    Step::Write { first_block, byte, blocks } => {
                        device.write_blocks(*first_block, &filled(*byte, *blocks)).unwrap();
                        for block in *first_block..first_block + *blocks as u64 {
                            expected.insert(block, *byte);
                        }
                    }
                    Step::Discard { first_block, blocks } => {
                        device.discard(*first_block, *blocks).unwrap();
                        (*first_block..first_block + blocks).for_each(|at| _ = expected.remove(&at));
                    }
                    Step::Queued { blocks, byte } => {
                        let mut requests: Vec<_> =
                            blocks.iter().map(|&block| write_request(block, block, *byte)).collect();
                        while !requests.is_empty() || queue.in_flight() > 0 {
                            queue.submit(&mut requests).unwrap();
                            queue.complete(1, &mut completions).unwrap();
                        }
                        blocks.iter().for_each(|&block| _ = expected.insert(block, *byte));
                    }
                    Step::Flush => device.flush().unwrap(),
                }
            }
            assert!(completions.iter().all(|completion| completion.outcome.is_ok()));
            for block in 0..BLOCKS {
                let byte = expected.get(&block).copied().unwrap_or(0);
                assert_eq!(read(device, block, 1), filled(byte, 1), "block {block}");
            }
        });
    }
}

#[test]
fn units_are_written_where_they_lie_and_others_are_refused() {
    on_every_device(|device| {
        let unit = device.unit_bytes();
        assert!(BLOCK_BYTES.is_multiple_of(unit) && unit.is_multiple_of(8));
        device.write_blocks(2, &filled(1, 2)).unwrap();
        let at = 3 * BLOCK_BYTES - unit;
        device.write_units(at as u64, &vec![2; 2 * unit]).unwrap();
        let mut expected = filled(1, 2);
        expected[BLOCK_BYTES - unit..BLOCK_BYTES + unit].fill(2);
        assert_eq!(read(device, 2, 2), expected);
        for (at, bytes) in [(unit as u64 / 2, unit), (0, unit / 2)] {
            let error = device.write_units(at, &vec![3; bytes]).unwrap_err();
            assert!(matches!(error, BlockError::NotWholeUnits { .. }), "{error}");
        }
        let end = BLOCKS * BLOCK_BYTES as u64;
        for at in [end, end - unit as u64, u64::MAX - u64::MAX % unit as u64] {
            let error = device.write_units(at, &vec![3; 2 * unit]).unwrap_err();
            assert!(matches!(error, BlockError::OutOfRange { .. }), "{error}");
        }
    });
}
