//! Litmus tests of the modelled SSD: each states the exact set of contents that a power cut may
//! leave, by the rules D1 to D6 of `lapis_pmem::block_device`.

use std::collections::{BTreeMap, BTreeSet};

use std::slice::from_ref;

use lapis_device::{BlockDamage, ImageBudget, ModelledSsd, SsdConfig, SsdFaults, SsdProfile};
use lapis_pmem::{
    BLOCK_BYTES, BlockBuffer, BlockDevice, BlockError, BlockOperation, Request, SECTOR_BYTES,
};
use proptest::prelude::*;

use Step::{Discard, Flush, Write};

fn ssd() -> ModelledSsd {
    ModelledSsd::new(16, SsdConfig::default()).unwrap()
}

/// A block whose first sector is of one byte; the others are zero, as they are on a new device.
fn block(byte: u8) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    block[..SECTOR_BYTES].fill(byte);
    block
}

fn whole(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_BYTES]
}

fn first_byte(device: &ModelledSsd, number: u64) -> u8 {
    let mut into = whole(0xEE);
    device.read_blocks(number, &mut into).unwrap();
    into[0]
}

/// What the first bytes of `blocks` are in each state that a power cut now may leave.
fn outcomes<const N: usize>(device: &ModelledSsd, blocks: [u64; N]) -> BTreeSet<[u8; N]> {
    let states = device.crash_states();
    let after = device.after_power_cut();
    let images = states.images(ImageBudget { exhaustive_limit: 1 << 20, samples: 0, seed: 0 });
    assert!(images.is_exhaustive() && states.is_exact());
    images
        .map(|image| {
            states.apply_to_devices(&image, from_ref(&after));
            let found = blocks.map(|number| first_byte(&after, number));
            after.revert();
            found
        })
        .collect()
}

/// What a program does: writes a block of a byte, discards one, flushes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64, u8),
    Discard(u64),
    Flush,
}

impl Step {
    fn run(self, device: &ModelledSsd) {
        match self {
            Write(number, byte) => device.write_blocks(number, &block(byte)).unwrap(),
            Discard(number) => device.discard(number, 1).unwrap(),
            Flush => device.flush().unwrap(),
        }
    }
}

/// Litmus tests, a program each: what the first bytes of some blocks may be after a power cut.
macro_rules! litmus {
    ($($name:ident: $steps:expr, $blocks:expr => $legal:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let ssd = ssd();
                $steps.into_iter().for_each(|step: Step| step.run(&ssd));
                assert_eq!(outcomes(&ssd, $blocks), BTreeSet::from($legal));
            }
        )*
    };
}

litmus! {
    a_write_without_a_flush_is_there_or_not:
        [Write(1, 1)], [1] => [[0], [1]];
    a_flushed_write_is_there:
        [Write(1, 1), Flush], [1] => [[1]];
    writes_to_different_blocks_persist_in_any_order:
        [Write(1, 1), Write(2, 2)], [1, 2] => [[0, 0], [0, 2], [1, 0], [1, 2]];
    a_flush_between_two_writes_orders_them:
        [Write(1, 1), Flush, Write(2, 2)], [1, 2] => [[1, 0], [1, 2]];
    an_overwritten_sector_may_still_hold_any_version_since_the_flush:
        [Write(1, 1), Write(1, 2), Write(1, 3)], [1] => [[0], [1], [2], [3]];
    a_flush_forgets_the_versions_before_the_last:
        [Write(1, 1), Write(1, 2), Flush, Write(1, 3)], [1] => [[2], [3]];
    a_discard_without_a_flush_leaves_old_or_zero:
        [Write(1, 1), Flush, Discard(1)], [1] => [[0], [1]];
    a_flushed_discard_leaves_zero:
        [Write(1, 1), Flush, Discard(1), Flush], [1] => [[0]];
}

#[test]
fn a_write_tears_at_sectors_and_nowhere_else() {
    let ssd = ssd();
    ssd.write_blocks(1, &whole(7)).unwrap();
    let states = ssd.crash_states();
    assert_eq!(states.image_count(), 1 << 8);
    let after = ssd.after_power_cut();
    let mut seen = BTreeSet::new();
    for image in states.images(ImageBudget::default()) {
        states.apply_to_devices(&image, from_ref(&after));
        let mut found = whole(0xEE);
        after.read_blocks(1, &mut found).unwrap();
        let mut pattern = 0_u8;
        for (at, sector) in found.chunks(SECTOR_BYTES).enumerate() {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is torn");
            assert!(matches!(sector[0], 0 | 7));
            pattern |= u8::from(sector[0] == 7) << at;
        }
        seen.insert(pattern);
        after.revert();
    }
    assert_eq!(seen.len(), 256, "any subset of the sectors");
}

#[test]
fn reads_see_writes_that_are_not_durable() {
    let ssd = ssd();
    ssd.write_blocks(1, &block(1)).unwrap();
    assert_eq!(first_byte(&ssd, 1), 1);
    assert_eq!(outcomes(&ssd, [1]), BTreeSet::from([[0], [1]]), "reading persists nothing");
}

#[test]
fn a_write_in_flight_may_persist_before_it_completes() {
    let ssd = ssd();
    let mut queue = ssd.queue(4).unwrap();
    let buffer = BlockBuffer::copy_of(&block(1));
    queue.submit(&mut vec![Request::Write { tag: 0, first_block: 1, buffer }]).unwrap();
    assert_eq!(outcomes(&ssd, [1]), BTreeSet::from([[0], [1]]));
    assert_eq!(first_byte(&ssd, 1), 0, "and is not visible yet");
}

#[test]
fn a_flush_covers_no_write_that_is_in_flight_when_it_is_submitted() {
    let ssd = ssd();
    let mut queue = ssd.queue(4).unwrap();
    let buffer = BlockBuffer::copy_of(&block(1));
    ssd.write_blocks(2, &block(2)).unwrap();
    let mut requests =
        vec![Request::Write { tag: 0, first_block: 1, buffer }, Request::Flush { tag: 1 }];
    queue.submit(&mut requests).unwrap();
    queue.complete(2, &mut Vec::new()).unwrap();
    assert_eq!(outcomes(&ssd, [1, 2]), BTreeSet::from([[0, 2], [1, 2]]), "D2");
    ssd.flush().unwrap();
    assert_eq!(outcomes(&ssd, [1, 2]), BTreeSet::from([[1, 2]]));
}

#[test]
fn a_flush_that_has_not_completed_promises_nothing() {
    let ssd = ssd();
    ssd.write_blocks(1, &block(1)).unwrap();
    let mut queue = ssd.queue(1).unwrap();
    queue.submit(&mut vec![Request::Flush { tag: 0 }]).unwrap();
    assert_eq!(outcomes(&ssd, [1]), BTreeSet::from([[0], [1]]));
    queue.complete(1, &mut Vec::new()).unwrap();
    assert_eq!(outcomes(&ssd, [1]), BTreeSet::from([[1]]));
}

#[test]
fn a_failed_flush_promises_nothing() {
    let ssd = ssd();
    ssd.write_blocks(1, &block(1)).unwrap();
    ssd.fail_after(BlockOperation::Flush, 0);
    assert!(matches!(ssd.flush(), Err(BlockError::Io { operation: BlockOperation::Flush, .. })));
    assert_eq!(outcomes(&ssd, [1]), BTreeSet::from([[0], [1]]));
    assert!(matches!(ssd.flush(), Err(BlockError::WritesLost { .. })), "and no later one does");
    assert!(matches!(ssd.write_blocks(2, &block(2)), Err(BlockError::WritesLost { .. })));
    let mut queue = ssd.queue(1).unwrap();
    queue.submit(&mut vec![Request::Flush { tag: 0 }]).unwrap();
    let mut completions = Vec::new();
    queue.complete(1, &mut completions).unwrap();
    assert!(matches!(completions[0].outcome, Err(BlockError::WritesLost { .. })));
    assert_eq!(first_byte(&ssd, 1), 1, "reads go on");
    assert_eq!(outcomes(&ssd, [1, 2]), BTreeSet::from([[0, 0], [1, 0]]));
}

#[test]
fn a_failed_write_leaves_each_sector_old_or_new() {
    let mut seen = BTreeSet::new();
    for seed in 0..8 {
        let faults = SsdFaults { seed, ..SsdFaults::default() };
        let ssd = ModelledSsd::new(4, SsdConfig { faults, ..SsdConfig::default() }).unwrap();
        ssd.fail_after(BlockOperation::Write, 0);
        let error = ssd.write_blocks(1, &whole(7)).unwrap_err();
        assert!(matches!(error, BlockError::Io { block: 1, .. }), "{error}");
        let mut found = whole(0xEE);
        ssd.read_blocks(1, &mut found).unwrap();
        for sector in found.chunks(SECTOR_BYTES) {
            assert!(sector == [0; SECTOR_BYTES] || sector == [7; SECTOR_BYTES]);
        }
        seen.insert(found);
    }
    assert!(seen.len() > 2, "and not always the same ones");
}

#[test]
fn what_a_power_cut_left_stays_in_the_next_one() {
    let ssd = ssd();
    ssd.write_blocks(1, &block(1)).unwrap();
    ssd.write_blocks(2, &block(2)).unwrap();
    let states = ssd.crash_states();
    let after = ssd.after_power_cut();
    for image in states.images(ImageBudget::default()) {
        states.apply_to_devices(&image, from_ref(&after));
        let left = [first_byte(&after, 1), first_byte(&after, 2)];
        assert_eq!(outcomes(&after, [1, 2]), BTreeSet::from([left]));
        after.write_blocks(1, &block(9)).unwrap();
        assert_eq!(outcomes(&after, [1, 2]), BTreeSet::from([left, [9, left[1]]]));
        after.revert();
    }
}

#[test]
fn reverting_puts_back_what_recovery_did() {
    let ssd = ssd();
    ssd.write_blocks(1, &block(1)).unwrap();
    ssd.flush().unwrap();
    ssd.write_blocks(1, &block(2)).unwrap();
    let states = ssd.crash_states();
    let after = ssd.after_power_cut();
    states.apply_to_devices(&states.everything(), from_ref(&after));
    assert_eq!(first_byte(&after, 1), 2);
    after.write_blocks(5, &block(5)).unwrap();
    after.discard(1, 1).unwrap();
    after.flush().unwrap();
    after.grow_to(100).unwrap();
    after.revert();
    assert_eq!(after.capacity_blocks(), 16);
    assert_eq!(outcomes(&after, [1, 5]), BTreeSet::from([[1, 0]]));
    assert_eq!(first_byte(&ssd, 1), 2, "the device itself is not concerned");
}

#[test]
fn bit_rot_changes_data_without_an_error() {
    let ssd = ssd();
    ssd.write_blocks(1, &whole(7)).unwrap();
    ssd.flush().unwrap();
    ssd.rot(1, 3, 42);
    let mut found = whole(0);
    ssd.read_blocks(1, &mut found).unwrap();
    let flipped: u32 = found.iter().map(|byte| (byte ^ 7).count_ones()).sum();
    assert_eq!(flipped, 3);
    let mut again = whole(0);
    ssd.after_power_cut().read_blocks(1, &mut again).unwrap();
    assert_eq!(again, found, "it is on the media");
}

#[test]
fn a_damaged_block_fails_by_its_number_until_it_is_written() {
    let ssd = ssd();
    ssd.write_blocks(0, &[whole(1), whole(1), whole(1), whole(1)].concat()).unwrap();
    ssd.damage_block(2, BlockDamage::UntilWritten);
    ssd.damage_block(9, BlockDamage::Permanent);
    let mut four = vec![0; 4 * BLOCK_BYTES];
    assert!(matches!(ssd.read_blocks(0, &mut four), Err(BlockError::Io { block: 2, .. })));
    ssd.write_blocks(2, &whole(3)).unwrap();
    assert_eq!(first_byte(&ssd, 2), 3);
    assert!(matches!(ssd.write_blocks(8, &four), Err(BlockError::Io { block: 9, .. })));
    assert!(matches!(ssd.read_blocks(9, &mut whole(0)), Err(BlockError::Io { block: 9, .. })));
}

#[test]
fn scripted_failures_strike_the_request_they_name() {
    let ssd = ssd();
    ssd.fail_after(BlockOperation::Read, 2);
    ssd.fail_after(BlockOperation::Read, 4);
    let failed: Vec<bool> = (0..7).map(|at| ssd.read_blocks(at, &mut whole(0)).is_err()).collect();
    assert_eq!(failed, [false, false, true, false, true, false, false]);
    assert_eq!(ssd.counts().failures, 2);
}

#[test]
fn seeded_faults_are_the_same_on_every_run_and_about_as_frequent_as_asked() {
    let faults = SsdFaults {
        seed: 3,
        read_errors_per_million: 100_000,
        rotten_blocks_per_million: 50_000,
        ..SsdFaults::default()
    };
    let run = || {
        let ssd = ModelledSsd::new(1000, SsdConfig { faults, ..SsdConfig::default() }).unwrap();
        let (mut failed, mut rotten) = (Vec::new(), Vec::new());
        for number in 0..1000 {
            ssd.write_blocks(number, &whole(7)).unwrap();
            let mut found = whole(0);
            match ssd.read_blocks(number, &mut found) {
                Err(_) => failed.push(number),
                Ok(()) if found != whole(7) => rotten.push(number),
                Ok(()) => {}
            }
        }
        (failed, rotten)
    };
    let (failed, rotten) = run();
    assert_eq!(run(), (failed.clone(), rotten.clone()));
    assert!((70..130).contains(&failed.len()), "{}", failed.len());
    assert!((25..75).contains(&rotten.len()), "{}", rotten.len());
}

#[test]
fn requests_in_flight_complete_in_an_order_that_the_seed_determines() {
    let order = |seed| {
        let config = SsdConfig { reorder_seed: seed, ..SsdConfig::default() };
        let mut queue = ModelledSsd::new(16, config).unwrap().queue(8).unwrap();
        let buffer = || BlockBuffer::zeroed(1);
        let mut requests = (0..8)
            .map(|tag| Request::Read { tag, first_block: tag, buffer: buffer() })
            .collect::<Vec<_>>();
        queue.submit(&mut requests).unwrap();
        let mut completions = Vec::new();
        queue.complete(8, &mut completions).unwrap();
        completions.iter().map(|completion| completion.tag).collect::<Vec<_>>()
    };
    assert_eq!(order(None), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(order(Some(1)), order(Some(1)));
    assert_ne!(order(Some(1)), order(Some(2)));
    assert_ne!(order(Some(1)), order(None));
}

#[test]
fn the_last_of_several_writes_in_flight_to_one_sector_is_the_last_to_complete() {
    let mut seen = BTreeSet::new();
    for seed in 0..16 {
        let config = SsdConfig { reorder_seed: Some(seed), ..SsdConfig::default() };
        let ssd = ModelledSsd::new(16, config).unwrap();
        let mut queue = ssd.queue(2).unwrap();
        let mut requests = [1, 2]
            .map(|byte| Request::Write {
                tag: u64::from(byte),
                first_block: 1,
                buffer: BlockBuffer::copy_of(&block(byte)),
            })
            .into();
        queue.submit(&mut requests).unwrap();
        let mut completions = Vec::new();
        while queue.in_flight() > 0 {
            queue.complete(1, &mut completions).unwrap();
        }
        assert_eq!(u64::from(first_byte(&ssd, 1)), completions[1].tag, "D1");
        ssd.flush().unwrap();
        assert_eq!(outcomes(&ssd, [1]).len(), 1);
        seen.insert(completions[1].tag);
    }
    assert_eq!(seen, BTreeSet::from([1, 2]), "D4: either order");
}

#[test]
fn requests_take_the_time_of_the_profile() {
    let profile = SsdProfile {
        read_latency_ns: 80_000,
        write_latency_ns: 20_000,
        flush_latency_ns: 500_000,
        read_gb_s: 4.096,
        write_gb_s: 2.048,
        queue_depth: 32,
    };
    let ssd = ModelledSsd::new(64, SsdConfig { profile, ..SsdConfig::default() }).unwrap();
    ssd.write_blocks(0, &whole(1)).unwrap();
    assert_eq!(ssd.now_ns(), 22_000);
    ssd.flush().unwrap();
    assert_eq!(ssd.now_ns(), 522_000);
    first_byte(&ssd, 0);
    assert_eq!(ssd.now_ns(), 603_000);
    let mut queue = ssd.queue(32).unwrap();
    let mut requests: Vec<_> = (0..32)
        .map(|tag| Request::Read { tag, first_block: tag, buffer: BlockBuffer::zeroed(1) })
        .collect();
    queue.submit(&mut requests).unwrap();
    let mut completions = Vec::new();
    assert_eq!(queue.complete(0, &mut completions).unwrap(), 0, "none is done yet");
    assert_eq!(queue.complete(1, &mut completions).unwrap(), 1);
    assert_eq!(ssd.now_ns(), 684_000);
    queue.complete(31, &mut completions).unwrap();
    assert_eq!(ssd.now_ns(), 603_000 + 80_000 + 32_000, "32 reads in one latency");
}

#[test]
fn a_profile_that_describes_no_device_is_refused() {
    let without = |change: fn(&mut SsdProfile)| {
        let mut profile = SsdProfile::UNTIMED;
        change(&mut profile);
        ModelledSsd::new(1, SsdConfig { profile, ..SsdConfig::default() }).is_err()
    };
    assert!(without(|profile| profile.read_gb_s = 0.0));
    assert!(without(|profile| profile.write_gb_s = f64::NAN));
    assert!(without(|profile| profile.queue_depth = 0));
    assert!(!without(|_| ()));
}

#[test]
fn sampled_images_include_each_write_alone_and_lacking_and_torn() {
    let ssd = ModelledSsd::new(64, SsdConfig::default()).unwrap();
    for number in 0..20 {
        ssd.write_blocks(number, &whole(1)).unwrap();
    }
    let states = ssd.crash_states();
    let budget = ImageBudget { exhaustive_limit: 4096, samples: 100, seed: 5 };
    let mut images = states.images(budget);
    assert!(!images.is_exhaustive());
    let all: Vec<_> = images.by_ref().collect();
    let distinct: BTreeSet<_> = all.iter().map(|image| image.choices().to_vec()).collect();
    assert_eq!(distinct.len(), all.len(), "each once");
    let sites = |range: std::ops::Range<usize>, inside, outside| {
        (0..160).map(|at| if range.contains(&at) { inside } else { outside }).collect::<Vec<u32>>()
    };
    for number in 0..20 {
        for range in [number * 8..number * 8 + 8, number * 8..number * 8 + 4] {
            assert!(distinct.contains(&sites(range.clone(), 1, 0)), "alone: {range:?}");
            assert!(distinct.contains(&sites(range.clone(), 0, 1)), "lacking: {range:?}");
        }
    }
    assert!(distinct.contains(&sites(0..160, 1, 1)) && distinct.contains(&sites(0..0, 1, 0)));
    let again: Vec<_> = states.images(budget).collect();
    assert_eq!(again, all, "determined by the seed");
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u64, 1..4_u8).prop_map(|(block, byte)| Write(block, byte)),
        1 => (0..3_u64).prop_map(Discard),
        1 => Just(Flush),
    ]
}

/// Every subset of the writes since the last flush, applied in every order: the definition, with
/// no thought of how to do it cheaply. Only the last write to each block counts, so that an order
/// is a choice of the last.
fn by_definition(steps: &[Step]) -> BTreeSet<[u8; 3]> {
    let mut durable = [0; 3];
    let mut unflushed: Vec<(usize, u8)> = Vec::new();
    for &step in steps {
        match step {
            Write(block, byte) => unflushed.push((block as usize, byte)),
            Discard(block) => unflushed.push((block as usize, 0)),
            Flush => unflushed.drain(..).for_each(|(block, byte)| durable[block] = byte),
        }
    }
    let mut found = BTreeSet::from([durable]);
    let mut frontier = vec![(durable, unflushed)];
    let mut visited = BTreeSet::new();
    while let Some((contents, left)) = frontier.pop() {
        if !visited.insert((contents, left.clone())) {
            continue;
        }
        found.insert(contents);
        for next in 0..left.len() {
            let mut after = contents;
            after[left[next].0] = left[next].1;
            let mut rest = left.clone();
            rest.remove(next);
            frontier.push((after, rest));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_legal_states_are_those_of_the_definition(steps in prop::collection::vec(step(), 0..9)) {
        let ssd = ssd();
        let mut visible = BTreeMap::new();
        for &step in &steps {
            step.run(&ssd);
            match step {
                Write(number, byte) => _ = visible.insert(number, byte),
                Discard(number) => _ = visible.insert(number, 0),
                Flush => {}
            }
        }
        for (number, byte) in visible {
            prop_assert_eq!(first_byte(&ssd, number), byte);
        }
        prop_assert_eq!(outcomes(&ssd, [0, 1, 2]), by_definition(&steps));
    }
}

#[test]
fn sectors_rewritten_too_often_between_flushes_make_the_states_inexact() {
    let ssd = ssd();
    for round in 0..300_u32 {
        let mut contents = block(0);
        contents[..4].copy_from_slice(&round.to_le_bytes());
        ssd.write_blocks(1, &contents).unwrap();
    }
    let states = ssd.crash_states();
    assert!(!states.is_exact());
    let (_, _, contents) = states.uncertain_sectors().next().unwrap();
    assert_eq!(contents.last().unwrap()[..4], 299_u32.to_le_bytes(), "the newest is kept");
}
