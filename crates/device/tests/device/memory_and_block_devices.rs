//! One machine with memory and block devices: what a power cut leaves of both together.

use std::collections::BTreeSet;
use std::slice::from_ref;

use lapis_device::{
    BlockEvent, Config, CrashCause, CrashPoints, Event, ImageBudget, LineRead, Marker, Modelled,
    ModelledSsd, PowerFailDomain, PrunedImages, RunEnd, SchedulePolicy, SsdConfig, SsdProfile,
    Trace, WorkerProgram,
};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, BlockOperation, Domain, PCell, Region, SECTOR_BYTES};
use proptest::prelude::*;

const BLOCKS: u64 = 4;
const ALL: ImageBudget = ImageBudget { exhaustive_limit: u64::MAX, samples: 0, seed: 0 };

struct Machine {
    domain: Modelled,
    ssd: ModelledSsd,
    region: Region,
}

impl Machine {
    fn new(config: Config) -> Self {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let domain = Modelled::over(&region, config);
        let ssd = ModelledSsd::attached_to(&domain, BLOCKS, SsdConfig::default()).unwrap();
        Self { domain, ssd, region }
    }

    fn word(&self) -> &PCell<u64> {
        // SAFETY: mapped, aligned, and any bytes are a cell.
        unsafe { &*self.region.base().cast() }
    }

    fn store(&self, value: u64) {
        self.word().store_ordered(&self.domain, value);
    }

    fn persist(&self, value: u64) {
        self.store(value);
        self.domain.persist(self.word());
    }

    /// A block of which the first sector says `byte`.
    fn write(&self, block: u64, byte: u8) {
        self.ssd.write_blocks(block, &block_of(byte)).unwrap();
    }

    fn flush(&self) {
        self.ssd.flush().unwrap();
    }
}

fn block_of(byte: u8) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..SECTOR_BYTES].fill(byte);
    block
}

fn first_byte(device: &ModelledSsd, block: u64) -> u8 {
    let mut into = block_of(0xEE);
    device.read_blocks(block, &mut into).unwrap();
    into[0]
}

/// The word of memory, and what the blocks begin with.
type Left = (u64, [u8; BLOCKS as usize]);

/// What a power cut leaves at each crash point of a trace that began with nothing.
fn left_at_points(trace: &Trace) -> Vec<(CrashCause, BTreeSet<Left>)> {
    let mut scratch = Region::anonymous(1 << 16, 1 << 16).unwrap();
    let device = ModelledSsd::new(BLOCKS, SsdConfig::default()).unwrap();
    let devices = from_ref(&device);
    let mut points = CrashPoints::new(trace, &[], PowerFailDomain::Adr);
    let mut found = Vec::new();
    while let Some(point) = points.advance() {
        points.bring_up_to_date(&mut scratch).unwrap();
        points.bring_devices_up_to_date(devices);
        let states = points.states();
        assert!(states.is_exact());
        let left = states.images(ALL).map(|image| {
            states.apply(&image, &mut scratch).unwrap();
            states.apply_to_devices(&image, devices);
            // SAFETY: mapped, and nobody writes to it.
            let word = unsafe { scratch.base().cast::<u64>().read() };
            let left = (word, std::array::from_fn(|block| first_byte(&device, block as u64)));
            device.write_blocks(0, &block_of(0xAA)).unwrap();
            device.flush().unwrap();
            device.revert();
            states.revert(&image, &mut scratch).unwrap();
            left
        });
        let left = left.collect();
        found.push((point.cause, left));
    }
    found
}

fn left_ever(trace: &Trace) -> BTreeSet<Left> {
    left_at_points(trace).into_iter().flat_map(|(_, left)| left).collect()
}

fn word_and_block(left: &BTreeSet<Left>) -> BTreeSet<(u64, u8)> {
    left.iter().map(|(word, blocks)| (*word, blocks[0])).collect()
}

#[test]
fn what_is_written_to_memory_after_a_flush_of_the_device_implies_the_block() {
    let machine = Machine::new(Config::tracing());
    machine.write(0, 7);
    machine.flush();
    machine.persist(1);
    let left = word_and_block(&left_ever(&machine.domain.take_trace()));
    assert_eq!(left, BTreeSet::from([(0, 0), (0, 7), (1, 7)]));
}

#[test]
fn without_the_flush_of_the_device_it_does_not() {
    let machine = Machine::new(Config::tracing());
    machine.write(0, 7);
    machine.persist(1);
    let left = word_and_block(&left_ever(&machine.domain.take_trace()));
    assert_eq!(left, BTreeSet::from([(0, 0), (0, 7), (1, 0), (1, 7)]));
}

#[test]
fn a_block_that_is_written_after_a_fence_implies_the_word_and_without_the_fence_it_does_not() {
    let machine = Machine::new(Config::tracing());
    machine.persist(1);
    machine.write(0, 7);
    let left = word_and_block(&left_ever(&machine.domain.take_trace()));
    assert_eq!(left, BTreeSet::from([(0, 0), (1, 0), (1, 7)]));
    machine.store(2);
    machine.domain.flush(machine.word());
    machine.write(0, 8);
    let left = word_and_block(&left_ever(&machine.domain.take_trace()));
    assert!(left.contains(&(0, 8)), "the flush has promised nothing yet: {left:?}");
}

#[test]
fn the_answer_of_a_flush_is_a_crash_point_and_that_of_a_write_is_none() {
    let machine = Machine::new(Config::tracing());
    machine.write(0, 7);
    machine.flush();
    machine.flush();
    let causes: Vec<_> =
        left_at_points(&machine.domain.take_trace()).into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [CrashCause::BeforeBlockAnswer(0), CrashCause::TraceEnd]);
}

#[test]
fn a_write_that_fails_may_have_left_anything_until_it_is_answered() {
    let machine = Machine::new(Config::tracing());
    machine.ssd.fail_request(BlockOperation::Write, 1);
    machine.write(0, 5);
    machine.flush();
    machine.ssd.write_blocks(0, &block_of(7)).unwrap_err();
    machine.write(1, 1);
    let visible = first_byte(&machine.ssd, 0);
    let points = left_at_points(&machine.domain.take_trace());
    let (cause, before) = &points[1];
    assert_eq!(*cause, CrashCause::BeforeBlockAnswer(0));
    assert_eq!(word_and_block(before), BTreeSet::from([(0, 5), (0, 7)]));
    let after = word_and_block(&points[2].1);
    assert_eq!(after, [5, visible].map(|byte| (0, byte)).into());
}

#[test]
fn requests_are_events_in_the_one_order_of_the_machine() {
    let machine = Machine::new(Config::tracing());
    machine.store(1);
    machine.write(2, 9);
    machine.domain.mark(Marker::End(1));
    machine.flush();
    let trace = machine.domain.take_trace();
    let names: Vec<&str> = trace
        .events
        .iter()
        .map(|event| match event {
            Event::Block { what: BlockEvent::Capacity { .. }, .. } => "capacity",
            Event::Block { what: BlockEvent::Write { .. }, .. } => "write",
            Event::Block { what: BlockEvent::Written { .. }, .. } => "written",
            Event::Block { what: BlockEvent::Flush { .. }, .. } => "flush",
            Event::Block { what: BlockEvent::Flushed { .. }, .. } => "flushed",
            Event::Marker { .. } => "marker",
            _ => "store",
        })
        .collect();
    let expected = ["capacity", "store", "write", "written", "marker", "flush", "flushed"];
    assert_eq!(names, expected);
    assert_eq!(trace.block_writes[0].first_block, 2);
    assert_eq!(trace.block_contents(&trace.block_writes[0]), Some(&block_of(9)[..]));
}

#[test]
fn a_trace_that_begins_later_begins_with_what_the_device_holds() {
    let machine = Machine::new(Config::tracing());
    machine.write(0, 3);
    machine.domain.take_trace();
    let held = machine.ssd.contents();
    machine.write(1, 4);
    let trace = machine.domain.take_trace();
    let device = ModelledSsd::new(0, SsdConfig::default()).unwrap();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr).with_devices(vec![held]);
    points.advance().unwrap();
    points.bring_devices_up_to_date(from_ref(&device));
    assert_eq!(device.capacity_blocks(), BLOCKS);
    let states = points.states();
    let left: Vec<_> = states
        .images(ALL)
        .map(|image| {
            states.apply_to_devices(&image, from_ref(&device));
            let left = [first_byte(&device, 0), first_byte(&device, 1)];
            device.revert();
            left
        })
        .collect();
    assert_eq!(left, [[3, 0], [3, 4]]);
}

#[test]
fn a_recovery_that_is_cut_again_goes_on_from_the_first_cut() {
    let machine = Machine::new(Config::tracing());
    machine.write(0, 3);
    let trace = machine.domain.take_trace();
    // The first cut leaves the block; the recovery copies it to another.
    let recovery = Machine::new(Config::tracing());
    recovery.domain.take_trace();
    recovery.ssd.hold(&machine.ssd.contents());
    let byte = first_byte(&recovery.ssd, 0);
    recovery.write(1, byte);
    let recovery = recovery.domain.take_trace();
    let whole = trace.continued(trace.events.len(), &recovery);
    let left = left_at_points(&whole).pop().unwrap().1;
    let left: BTreeSet<_> = left.iter().map(|(_, blocks)| [blocks[0], blocks[1]]).collect();
    // Writes of one device are numbered by the device: those of the recovery begin anew.
    assert!(left.contains(&[3, 3]) && left.contains(&[0, 0]), "{left:?}");
}

#[test]
fn a_device_keeps_the_time_of_the_machines_workers_counted_or_not() {
    let profile = SsdProfile {
        read_latency_ns: 10_000,
        write_latency_ns: 20_000,
        flush_latency_ns: 500_000,
        read_gb_s: f64::INFINITY,
        write_gb_s: f64::INFINITY,
        queue_depth: 4,
    };
    for config in [Config::counting(), Config::tracing()] {
        let counts = config.counting.is_some();
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let domain = Modelled::over(&region, config);
        let config = SsdConfig { profile, ..SsdConfig::default() };
        let ssd = ModelledSsd::attached_to(&domain, BLOCKS, config).unwrap();
        // Nothing, where nothing is counted.
        domain.spend_ns(0, 1_000);
        let spent_ns = if counts { 1_000 } else { 0 };
        ssd.write_blocks(0, &block_of(1)).unwrap();
        assert_eq!(domain.now_ns(0), spent_ns + 20_000);
        ssd.flush().unwrap();
        let now_ns = spent_ns + 520_000;
        assert_eq!((domain.now_ns(0), ssd.now_ns()), (now_ns, now_ns));
        // SAFETY: mapped, aligned, and any bytes are a cell.
        let word = unsafe { &*region.base().cast::<PCell<u64>>() };
        word.store(&domain, 1);
        domain.persist(word);
        assert_eq!(domain.now_ns(0) > now_ns, counts, "memory takes time where it is counted");
        domain.reset_clocks();
        first_byte(&ssd, 0);
        assert_eq!(domain.now_ns(0), 10_000, "nothing is on its way after a reset");
    }
}

/// Two workers, each of which writes its block and then the word.
fn run_two_workers(policy: &SchedulePolicy) -> (lapis_device::InterleavedRun, Trace) {
    let machine = Machine::new(Config::concurrent());
    let programs = (0..2u8).map(|worker| -> WorkerProgram<'_> {
        let machine = &machine;
        Box::new(move || {
            machine.write(u64::from(worker), worker + 1);
            machine.store(u64::from(worker) + 1);
            machine.flush();
        })
    });
    let run = machine.domain.run_workers(policy, programs.collect());
    assert_eq!(run.end, RunEnd::Completed);
    (run, machine.domain.take_trace())
}

#[test]
fn requests_are_points_at_which_another_worker_may_go_on_and_runs_replay() {
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let (run, trace) = run_two_workers(&SchedulePolicy::Random { seed });
        let (_, again) = run_two_workers(&SchedulePolicy::Replay(run.schedule));
        assert_eq!(again, trace);
        let requests = trace.events.iter().filter_map(|event| match event {
            Event::Block { worker, what: BlockEvent::Capacity { .. }, .. } => Some((*worker, 9)),
            Event::Block { worker, what: BlockEvent::Write { .. }, .. } => Some((*worker, 0)),
            Event::Block { worker, what: BlockEvent::Written { .. }, .. } => Some((*worker, 1)),
            _ => None,
        });
        orders.insert(requests.skip(1).collect::<Vec<_>>());
    }
    let together = |order: &Vec<(u8, u8)>| order[0].1 == 0 && order[1].1 == 0;
    assert!(orders.iter().any(together), "requests of both are in flight together: {orders:?}");
    assert!(orders.len() >= 4, "{orders:?}");
}

#[test]
fn what_a_worker_stored_is_visible_before_its_request() {
    for seed in 0..40 {
        let machine = Machine::new(Config::concurrent());
        let program: WorkerProgram<'_> = Box::new(|| {
            machine.store(1);
            machine.write(0, 1);
        });
        machine.domain.run_workers(&SchedulePolicy::Random { seed }, vec![program]);
        let events = machine.domain.take_trace().events;
        let of = |wanted: fn(&Event) -> bool| events.iter().position(wanted);
        let store = of(|event| matches!(event, Event::OrderedStore { .. }));
        let write =
            of(|event| matches!(event, Event::Block { what: BlockEvent::Write { .. }, .. }));
        assert!(store < write && store.is_some(), "{events:?}");
    }
}

#[test]
fn pruned_images_follow_what_is_read_of_lines_and_of_sectors() {
    let machine = Machine::new(Config::tracing());
    machine.store(1);
    for block in 0..BLOCKS {
        machine.write(block, 7);
        machine.write(block, 8);
    }
    let trace = machine.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    points.advance().unwrap();
    let bench = Machine::new(Config { watching: true, ..Config::tracking() });
    let Machine { domain, ssd, mut region } = bench;
    points.bring_devices_up_to_date(from_ref(&ssd));
    let states = points.states();
    assert_eq!(states.image_count(), 2 * 3u64.pow(BLOCKS as u32));
    let sectors: Vec<u64> = states.uncertain_sectors().map(|(_, sector, _)| sector).collect();
    // Reads block 1, and block 2 only if the word is set.
    let mut pruned = PrunedImages::new(&states).unwrap();
    let (mut covered, mut runs, mut outcomes) = (0, 0, BTreeSet::new());
    let mut reads: Vec<LineRead> = Vec::new();
    while let Some(image) = pruned.next_image() {
        states.apply(&image, &mut region).unwrap();
        states.apply_to_devices(&image, from_ref(&ssd));
        domain.watch_reads(states.uncertain_lines().into_iter().flatten());
        ssd.watch_sectors(sectors.iter().copied());
        // SAFETY: mapped, aligned, and any bytes are a cell.
        let word = unsafe { &*region.base().cast::<PCell<u64>>() }.load(&domain);
        let second = if word == 1 { first_byte(&ssd, 2) } else { 0 };
        outcomes.insert((word, first_byte(&ssd, 1), second));
        domain.take_reads(&mut reads);
        states.add_sector_reads(from_ref(&ssd), &mut reads);
        covered += pruned.learn(&reads);
        runs += 1;
        ssd.revert();
        states.revert(&image, &mut region).unwrap();
    }
    assert_eq!(covered, states.image_count(), "each image belongs to exactly one class");
    assert_eq!(outcomes.len(), 3 + 3 * 3);
    assert_eq!(runs, outcomes.len());
}

#[test]
fn samples_have_one_medium_new_and_the_other_old_and_writes_alone_and_lacking() {
    let machine = Machine::new(Config::tracing());
    machine.store(1);
    for block in 0..BLOCKS {
        machine.ssd.write_blocks(block, &[7; BLOCK_BYTES]).unwrap();
    }
    let trace = machine.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    points.advance().unwrap();
    let states = points.states();
    let budget = ImageBudget { exhaustive_limit: 10, samples: 50, seed: 3 };
    let all: Vec<Vec<u32>> = states.images(budget).map(|image| image.choices().to_vec()).collect();
    let sectors = BLOCKS as usize * 8;
    let image = |word: u32, of_sector: &dyn Fn(usize) -> bool| {
        let chosen = (0..sectors).map(|at| u32::from(of_sector(at)));
        std::iter::once(word).chain(chosen).collect::<Vec<_>>()
    };
    for word in [0, 1] {
        for wanted in [
            image(word, &|_| false),
            image(word, &|_| true),
            image(word, &|at| at / 8 == 1),
            image(word, &|at| at / 8 != 1),
            image(word, &|at| at / 4 == 4),
        ] {
            assert!(all.contains(&wanted), "{wanted:?}");
        }
    }
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "each once");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64, u8),
    Discard(u64),
    Flush,
    Grow,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3_u64, 1..4_u8).prop_map(|(block, byte)| Step::Write(block, byte)),
        1 => (0..3_u64).prop_map(Step::Discard),
        2 => Just(Step::Flush),
        1 => Just(Step::Grow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The trace of an attached device says of it what a device says of itself.
    #[test]
    fn the_states_of_a_trace_are_those_of_the_device(
        steps in prop::collection::vec(step(), 0..10), failing in 0..6_u64,
    ) {
        let machine = Machine::new(Config::tracing());
        machine.ssd.fail_request(BlockOperation::Write, failing);
        machine.ssd.fail_request(BlockOperation::Flush, 4);
        for step in steps {
            let _ = match step {
                Step::Write(block, byte) => machine.ssd.write_blocks(block, &block_of(byte)),
                Step::Discard(block) => machine.ssd.discard(block, 1),
                Step::Flush => machine.ssd.flush(),
                Step::Grow => machine.ssd.grow_to(machine.ssd.capacity_blocks() + 1),
            };
        }
        machine.domain.mark(Marker::End(0));
        let trace = machine.domain.take_trace();
        let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
        let device = ModelledSsd::new(0, SsdConfig::default()).unwrap();
        while let Some(point) = points.advance() {
            points.bring_devices_up_to_date(from_ref(&device));
            if point.cause == CrashCause::OperationEnd(0) {
                break;
            }
        }
        prop_assert_eq!(device.capacity_blocks(), machine.ssd.capacity_blocks());
        let (replayed, live) = (points.states(), machine.ssd.crash_states());
        let after = machine.ssd.after_power_cut();
        prop_assert_eq!(replayed.image_count(), live.image_count());
        for (ours, theirs) in replayed.images(ALL).zip(live.images(ALL)).take(500) {
            replayed.apply_to_devices(&ours, from_ref(&device));
            live.apply_to_devices(&theirs, from_ref(&after));
            for block in 0..BLOCKS {
                prop_assert_eq!(first_byte(&device, block), first_byte(&after, block));
            }
            device.revert();
            after.revert();
        }
    }
}
