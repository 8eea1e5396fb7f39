//! Virtual time and the cache hierarchy as programs on the modelled machine see them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_device::{
    CacheShape, Config, HierarchyShape, MachineShape, Modelled, Profile, current_worker,
    interleave, set_current_worker,
};
use lapis_pmem::{Domain, Region};

const BYTES: usize = 8 << 20;
const LINE_WORDS: usize = 8;

struct Machine {
    region: Region,
    model: Modelled,
}

impl Machine {
    fn of(shape: MachineShape) -> Self {
        let region = Region::anonymous(BYTES, BYTES).unwrap();
        let config = Config { counting: Some(shape), ..Config::default() };
        let model = Modelled::over(&region, config);
        Self { region, model }
    }

    fn optane() -> Self {
        Self::of(Profile::named("optane-100").unwrap().machine())
    }

    fn word(&self, line: usize) -> &AtomicU64 {
        assert!(line < BYTES / 64);
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        unsafe { &*self.region.base().add(line * LINE_WORDS * 8).cast::<AtomicU64>() }
    }

    fn load(&self, line: usize) {
        self.model.load::<u64>(self.word(line), Ordering::Acquire);
    }

    fn store(&self, line: usize) {
        self.model.store::<u64>(self.word(line), 1, Ordering::Release);
    }

    fn persist(&self, line: usize) {
        self.store(line);
        self.model.persist(self.word(line));
    }

    fn prefetch(&self, line: usize) {
        self.model.prefetch(std::ptr::from_ref(self.word(line)).cast());
    }

    fn now(&self) -> u64 {
        self.model.now_ns(current_worker())
    }

    fn time(&self, run: impl FnOnce()) -> u64 {
        let begin = self.now();
        run();
        self.now() - begin
    }
}

/// Lines that share nothing: other XPLines, other stripes.
fn apart(index: usize) -> usize {
    index * 64 * 7
}

#[test]
fn a_load_waits_for_the_media_once_and_for_l1_afterwards() {
    let machine = Machine::optane();
    let miss = machine.time(|| machine.load(0));
    let neighbour = machine.time(|| machine.load(1));
    let hit = machine.time(|| machine.load(0));
    assert!(miss > neighbour && neighbour > hit && hit <= 2, "{miss} {neighbour} {hit}");
}

#[test]
fn of_the_lines_that_the_buffer_holds_those_of_the_unit_just_read_come_sooner() {
    let machine = Machine::optane();
    let memory = Profile::named("optane-100").unwrap().memory;
    machine.load(apart(1) * 6);
    machine.load(apart(2) * 6);
    let same = machine.time(|| machine.load(apart(2) * 6 + 1));
    let other = machine.time(|| machine.load(apart(1) * 6 + 1));
    // The media are read for neither, so it stays the last one that they were read for.
    let same_again = machine.time(|| machine.load(apart(2) * 6 + 2));
    let expected = [&memory.read_buffer_ns, &memory.read_buffer_other_unit_ns];
    let [near, far] = expected.map(|field| field.value as u64);
    assert!(near < far);
    for (time, expected) in [(same, near), (other, far), (same_again, near)] {
        assert!(time.abs_diff(expected) <= 3, "{time} ns, expected {expected}");
    }
}

/// The longest persist among so many of whole units at the places of `lines`, in turn.
fn slowest_persist(lines: &[usize], steps: usize) -> u64 {
    let machine = Machine::of(Profile::named("optane-100").unwrap().machine_of_one_module());
    let persist = |step: usize| {
        let line = lines[step % lines.len()];
        // SAFETY: inside the mapped region, which nobody else uses.
        unsafe {
            let to = machine.region.base().add(line * 64);
            machine.model.copy_nontemporal(to, &[1; 256]);
        }
        machine.model.fence();
    };
    (0..steps).map(|step| machine.time(|| persist(step))).max().unwrap()
}

#[test]
fn persists_of_one_place_are_delayed_now_and_then_and_of_two_blocks_in_turn_never() {
    const STEPS: usize = 40_000;
    let block = 65_536 / 64;
    assert!(slowest_persist(&[0], STEPS) > 40_000);
    assert!(slowest_persist(&[0, block / 2], STEPS) > 40_000);
    assert!(slowest_persist(&[0, block], STEPS) < 1000);
}

#[test]
fn what_was_prefetched_long_ago_costs_no_wait_and_just_now_only_the_rest() {
    let machine = Machine::optane();
    let alone = machine.time(|| machine.load(apart(1)));
    machine.prefetch(apart(2));
    machine.model.spend_ns(0, 100);
    let rest = machine.time(|| machine.load(apart(2)));
    assert!(rest.abs_diff(alone - 100) <= 3, "{rest} of {alone}");
    machine.prefetch(apart(3));
    machine.model.spend_ns(0, 1000);
    assert!(machine.time(|| machine.load(apart(3))) <= 2);
}

#[test]
fn prefetches_overlap_as_far_as_there_are_line_fill_buffers() {
    let buffers = Profile::named("optane-100").unwrap().core.line_fill_buffers.value as usize;
    let time = |lines: usize| {
        let machine = Machine::optane();
        machine.time(|| {
            (0..lines).for_each(|index| machine.prefetch(apart(index)));
            (0..lines).for_each(|index| machine.load(apart(index)));
        })
    };
    let (one, all, more) = (time(1), time(buffers), time(2 * buffers));
    assert!(all < 2 * one, "{all} for {buffers} lines, {one} for one");
    assert!(more > all + one / 2, "{more} for twice as many, {all}");
}

#[test]
fn a_prefetch_too_many_waits_until_the_first_line_is_there() {
    let buffers = Profile::named("optane-100").unwrap().core.line_fill_buffers.value as usize;
    let alone = {
        let machine = Machine::optane();
        machine.time(|| machine.load(apart(1)))
    };
    let machine = Machine::optane();
    let begun = machine.time(|| (0..buffers).for_each(|index| machine.prefetch(apart(index))));
    let one_more = machine.time(|| machine.prefetch(apart(buffers)));
    assert!(begun < alone / 10, "{begun} ns to ask for {buffers} lines, {alone} for one to come");
    assert!((begun + one_more).abs_diff(alone) < alone / 10, "{one_more} ns after {begun}");
}

#[test]
fn a_store_to_a_line_on_its_way_does_not_wait_and_the_fence_after_its_flush_does() {
    let machine = Machine::optane();
    let alone = machine.time(|| machine.load(apart(1)));
    let stored = machine.time(|| {
        machine.store(apart(2));
        machine.model.flush(machine.word(apart(2)));
    });
    let fenced = machine.time(|| machine.model.fence());
    assert!(stored < alone / 10, "{stored} of {alone}");
    assert!(stored + fenced > alone, "{fenced} after {stored}, and the line needs {alone}");
}

/// How long it takes to persist so many lines that caches hold and then do something else, on a machine whose fences
/// hold loads up or do not.
fn after_persists(fence_holds_loads: bool, lines: usize, then: impl Fn(&Machine)) -> u64 {
    let mut shape = MachineShape::default();
    shape.timing.fence_holds_loads = fence_holds_loads;
    let machine = Machine::of(shape);
    (0..lines).for_each(|index| machine.load(apart(index)));
    machine.time(|| {
        (0..lines).for_each(|index| machine.persist(apart(index)));
        then(&machine);
    })
}

#[test]
fn a_load_runs_ahead_of_one_store_fence_and_of_no_other() {
    let load = |machine: &Machine| machine.load(apart(9));
    let alone = after_persists(false, 0, load);
    let [one, two] = [1, 2].map(|lines| after_persists(false, lines, |_| ()));
    assert!(after_persists(false, 1, load).abs_diff(alone) <= 8, "the load hides the fence");
    let after_two = after_persists(false, 2, load);
    assert!(after_two.abs_diff(alone + two - one) <= 8, "{after_two}, {alone}, {one} and {two}");
    assert!(after_persists(true, 1, load) >= alone + one, "this fence holds loads up");
}

#[test]
fn a_store_asks_for_its_missing_line_ahead_of_the_fence() {
    let persist = |machine: &Machine| machine.persist(apart(9));
    let [ahead, held] = [false, true].map(|holds| after_persists(holds, 1, persist));
    let one = after_persists(false, 1, |_| ());
    assert!((ahead + one).abs_diff(held) <= 8, "{ahead}, {held}, a fence is {one}");
}

#[test]
fn a_locked_instruction_waits_for_the_fence_before_it() {
    let swap = |machine: &Machine| _ = machine.model.swap::<u64>(machine.word(apart(9)), 1);
    let then_load = |machine: &Machine| {
        machine.model.swap::<u64>(machine.word(apart(0)), 1);
        machine.load(apart(9));
    };
    let alone = after_persists(false, 0, |machine| machine.load(apart(9)));
    let one = after_persists(false, 1, |_| ());
    assert!(after_persists(false, 1, then_load) >= alone + one);
    assert!(after_persists(false, 1, swap) < alone + one, "its line is on its way before");
}

#[test]
fn a_fence_waits_for_the_last_of_its_flushes_and_for_no_other_again() {
    let machine = Machine::optane();
    (0..4).for_each(|index| machine.load(apart(index)));
    let flush = |index: usize| {
        machine.store(apart(index));
        machine.model.flush(machine.word(apart(index)));
    };
    flush(0);
    let one = machine.time(|| machine.model.fence());
    let several = {
        flush(1);
        machine.model.spend_ns(0, 1000);
        flush(2);
        machine.model.spend_ns(0, 1000);
        flush(3);
        machine.time(|| machine.model.fence())
    };
    assert!(several.abs_diff(one) <= 2, "{several} for the last of three, {one} for one");
    flush(0);
    machine.model.spend_ns(0, 1000);
    assert!(machine.time(|| machine.model.fence()) <= 5);
}

#[test]
fn interleaved_lookups_gain_from_prefetching_on_one_worker() {
    let chains = 8;
    let in_turn = Machine::optane();
    let one_by_one = in_turn.time(|| {
        for chain in 0..chains {
            (0..10).for_each(|step| in_turn.load(apart(chain * 10 + step)));
        }
    });
    let together = Machine::optane();
    let overlapped = together.time(|| {
        for step in 0..10 {
            (0..chains).for_each(|chain| together.prefetch(apart(chain * 10 + step)));
            (0..chains).for_each(|chain| together.load(apart(chain * 10 + step)));
        }
    });
    assert!(overlapped * 4 < one_by_one, "{overlapped} against {one_by_one}");
}

#[test]
fn a_fence_waits_for_flushes_and_flushes_overlap() {
    let machine = Machine::optane();
    (0..8).for_each(|index| machine.load(apart(index)));
    let apart_fences = machine.time(|| (0..4).for_each(|index| machine.persist(apart(index))));
    let one_fence = machine.time(|| {
        for index in 4..8 {
            machine.store(apart(index));
            machine.model.flush(machine.word(apart(index)));
        }
        machine.model.fence();
    });
    assert!(one_fence * 2 < apart_fences, "{one_fence} against {apart_fences}");
}

#[test]
fn persisting_one_line_twice_in_a_row_costs_more_than_two_lines() {
    let machine = Machine::optane();
    (0..3).for_each(|index| machine.load(apart(index)));
    let other = machine.time(|| (1..3).for_each(|index| machine.persist(apart(index))));
    let same = machine.time(|| (0..2).for_each(|_| machine.persist(apart(0))));
    assert!(same > other + 200, "{same} against {other}");
}

#[test]
fn a_line_that_was_just_persisted_is_read_later_where_flushes_drop_lines() {
    let mut shape = MachineShape::default();
    shape.caches.flush_keeps_line = false;
    let machine = Machine::of(shape);
    machine.persist(0);
    let soon = machine.time(|| machine.load(0));
    machine.persist(apart(1));
    machine.model.spend_ns(0, 10_000);
    let late = machine.time(|| machine.load(apart(1)));
    assert!(soon > late + 100, "{soon} against {late}");
}

#[test]
fn clocks_are_each_workers_own_until_they_are_aligned() {
    let machine = Machine::optane();
    machine.load(0);
    machine.model.spend_ns(3, 5000);
    assert!(machine.model.now_ns(0) < 1000);
    assert_eq!((machine.model.now_ns(3), machine.model.now_ns(2)), (5000, 0));
    assert_eq!(machine.model.align_clocks(2).0, 5_000_000);
    for worker in 0..4 {
        assert_eq!(machine.model.now_ns(worker), 5000);
    }
    machine.model.reset_clocks();
    assert_eq!(machine.model.now_ns(3), 0);
}

#[test]
fn a_machine_that_does_not_count_keeps_no_time() {
    let region = Region::anonymous(BYTES, BYTES).unwrap();
    let model = Modelled::over(&region, Config::default());
    model.spend_ns(0, 100);
    assert_eq!((model.now_ns(0), model.align_clocks(4).0), (0, 0));
}

#[test]
fn the_worker_with_the_least_clock_runs_and_the_thread_is_itself_again_afterwards() {
    let machine = Machine::optane();
    set_current_worker(7);
    let mut order = Vec::new();
    interleave(&machine.model, 3, |worker| {
        assert_eq!(current_worker(), worker);
        order.push(worker);
        machine.model.spend_ns(worker, if worker == 1 { 10 } else { 25 });
        if machine.model.now_ns(worker) >= 50 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(current_worker(), 7);
    set_current_worker(0);
    assert_eq!(order, [0, 1, 2, 1, 1, 0, 2, 1, 1]);
}

#[test]
fn time_is_the_same_on_every_run() {
    let run = || {
        let machine = Machine::optane();
        let mut random = 1u64;
        let mut steps = [0; 5];
        interleave(&machine.model, 5, |worker| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let line = (random >> 40) as usize % 50_000;
            if random & (1 << 33) == 0 {
                machine.persist(line)
            } else {
                machine.load(line)
            }
            steps[usize::from(worker)] += 1;
            if steps[usize::from(worker)] == 400 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        (machine.model.align_clocks(5), machine.model.counts())
    };
    assert_eq!(run(), run());
}

/// Caches of a hundred lines or so in all, so that little fills them.
fn small_caches() -> MachineShape {
    let level = |lines: usize| CacheShape { capacity_bytes: lines * 64, ways: 4 };
    let shape = MachineShape::default();
    let caches =
        HierarchyShape { l1: level(8), l2: level(32), l3: level(96), flush_keeps_line: true };
    MachineShape { caches, ..shape }
}

#[test]
fn a_lock_word_in_a_persistent_line_costs_a_second_insert_by_eviction() {
    // As paper 004 found for P-CLHT: key and lock share a line. The key is flushed; releasing the
    // lock makes the line dirty again, and nobody flushes that.
    let inserts = |locked: bool| {
        let machine = Machine::of(small_caches());
        for bucket in 0..2000 {
            machine.persist(apart(bucket) % (BYTES / 64));
            if locked {
                machine.store(apart(bucket) % (BYTES / 64));
            }
        }
        let counts = machine.model.counts();
        assert_eq!(counts.wpq_flush, 2000);
        counts.wpq_eviction
    };
    assert_eq!(inserts(false), 0);
    let evicted = inserts(true);
    // All but those that the caches still hold.
    assert!((1850..=2000).contains(&evicted), "{evicted}");
}

#[test]
fn version_words_that_readers_write_become_inserts_in_proportion_to_the_reads() {
    // As paper 004 found for P-ART: the fewer inserts among the operations, the more lines written
    // for each of them.
    let machine = Machine::of(small_caches());
    for read in 0..4000 {
        machine.load(apart(read) % (BYTES / 64));
        machine.store(apart(read) % (BYTES / 64));
    }
    let counts = machine.model.counts();
    assert_eq!((counts.wpq_flush, counts.flushes), (0, 0));
    assert!(counts.wpq_eviction > 3800, "{counts}");
}

#[test]
fn a_lock_word_that_workers_pass_around_stays_in_the_caches() {
    let machine = Machine::optane();
    for turn in 0..1000_u32 {
        set_current_worker((turn % 4) as u8);
        machine.model.swap::<u64>(machine.word(0), 1);
    }
    set_current_worker(0);
    let counts = machine.model.counts();
    assert_eq!((counts.wpq_inserts(), counts.llc_misses), (0, 1));
}

#[test]
fn passing_a_line_to_another_worker_costs_more_than_keeping_it() {
    let machine = Machine::optane();
    machine.store(0);
    machine.load(0);
    let own = machine.time(|| machine.load(0));
    set_current_worker(1);
    let other = machine.time(|| machine.load(0));
    set_current_worker(0);
    assert!(other > 10 * own.max(1), "{other} against {own}");
}
