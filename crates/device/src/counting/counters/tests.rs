use super::*;
use crate::counting::cache::CacheShape;
use crate::counting::timing::Picoseconds;

fn counters() -> Counters {
    counters_that(true)
}

/// Whether flushes keep lines in the caches.
fn counters_that(flush_keeps_line: bool) -> Counters {
    let level = |lines| CacheShape { capacity_bytes: lines * LINE_BYTES, ways: lines };
    let caches = HierarchyShape { l1: level(2), l2: level(4), l3: level(8), flush_keeps_line };
    let machine = MachineShape::default();
    let xp_buffer =
        XpBufferShape { eager_permille: 1000, own_writes_permille: 0, ..machine.xp_buffer };
    Counters::new(MachineShape { caches, xp_buffer, ..machine })
}

#[test]
fn flushing_a_dirty_line_inserts_once_and_a_clean_or_absent_one_never() {
    let mut counters = counters();
    counters.store(0, 0);
    counters.flush(0, 0, 8);
    counters.flush(0, 0, 8);
    counters.flush(0, 640, 8);
    let counts = counters.counts();
    assert_eq!((counts.flushes, counts.wpq_flush, counts.wpq_inserts()), (3, 1, 1));
}

#[test]
fn further_clocks_see_the_same_events_and_keep_their_own_time() {
    let machine = MachineShape::default();
    let timing = machine.timing;
    let slow = TimingShape {
        read_media: Picoseconds(2 * timing.read_media.0),
        flush_accept: Picoseconds(3 * timing.flush_accept.0),
        ..timing
    };
    let run = |counters: &mut Counters| {
        for at in 0..200 {
            counters.load(0, at * 8192);
            counters.read_range(0, at * 8192 + 1024, 700);
            counters.read_dram(0, at * 4096, 256);
            counters.store(0, at * 8192);
            counters.flush(0, at * 8192, 8);
            counters.fence(0);
        }
    };
    let alone = |timing| {
        let mut counters = Counters::new(MachineShape { timing, ..machine });
        run(&mut counters);
        (counters.counts(), counters.timing().now(0))
    };
    let mut both = Counters::with_timings(machine, &[timing, slow]);
    run(&mut both);
    let ((counts, first), (_, second)) = (alone(timing), alone(slow));
    assert!(second > first);
    assert_eq!(both.counts(), counts);
    assert_eq!(both.timing().all_now(0), [first, first, second]);
}

/// Runs the same on a machine and on one that is looked at after every event, so that nothing of it
/// waits. Most events are among the first of two numbers of bytes. Some do not wait and end the waiting
/// of others; they come `rarely` or often.
fn compare_with_one_that_is_prompt(
    shape: MachineShape,
    [near_bytes, far_bytes]: [usize; 2],
    rarely: bool,
) {
    let slow = TimingShape { read_media: Picoseconds(1_000_000), ..shape.timing };
    let machine = || Counters::with_timings(shape, &[slow]);
    let (mut waiting, mut prompt) = (machine(), machine());
    let mut random = crate::random::Random::new(23);
    for step in 0..60_000 {
        let worker = if step < 40_000 { 0 } else { random.below(3) as u8 };
        // Runs near one another, and places that no cache holds.
        let near = random.below(4) > 0;
        let offset = random.below(if near { near_bytes } else { far_bytes });
        let (kind, bytes) = (random.below(10), 1 + random.below(300));
        let may_end = !rarely || random.below(50) == 0;
        for counters in [&mut waiting, &mut prompt] {
            match kind {
                0 => counters.fence(worker),
                1 => counters.flush(worker, offset, bytes),
                2 => counters.locked(worker, offset, offset & 8 == 0),
                3 => counters.prefetch(worker, offset),
                4 if may_end => counters.read_range(worker, offset, bytes),
                5 => counters.write_range(worker, offset, bytes),
                6 if near && may_end => counters.nontemporal(worker, offset, bytes),
                7 if near && may_end => counters.read_dram(worker, offset, bytes),
                6 | 8 => counters.store(worker, offset),
                _ => counters.load(worker, offset),
            }
        }
        prompt.settle();
    }
    assert_eq!(waiting.counts(), prompt.counts());
    for worker in 0..3 {
        assert_eq!(waiting.timing().all_now(worker), prompt.timing().all_now(worker));
    }
}

#[test]
fn events_that_wait_change_no_count_and_no_time() {
    compare_with_one_that_is_prompt(MachineShape::default(), [1 << 14, 1 << 28], false);
    compare_with_one_that_is_prompt(MachineShape::default(), [1 << 14, 1 << 28], true);
}

/// Lines are cast out and come back, and are flushed, before it is known whether they were dirty.
#[test]
fn events_that_wait_change_nothing_where_caches_hold_fewer_lines_than_wait() {
    let level = |lines, ways| CacheShape { capacity_bytes: lines * LINE_BYTES, ways };
    for flush_keeps_line in [true, false] {
        for (l1, l2, l3) in [(2, 2, 8), (2, 4, 16), (4, 8, 64)] {
            let (l1, l2, l3) = (level(l1, 2), level(l2, l2), level(l3, 4));
            let caches = HierarchyShape { l1, l2, l3, flush_keeps_line };
            let shape = MachineShape { caches, ..MachineShape::default() };
            for far_bytes in [1 << 11, 1 << 12, 1 << 13] {
                compare_with_one_that_is_prompt(shape, [1 << 10, far_bytes], true);
            }
        }
    }
}

#[test]
fn a_flushed_line_stays_cached() {
    let mut counters = counters();
    counters.store(0, 0);
    counters.flush(0, 0, 8);
    counters.load(0, 0);
    assert_eq!(counters.counts().llc_misses, 1);
}

#[test]
fn who_reads_a_line_that_it_has_just_flushed_is_counted_where_flushes_drop_lines() {
    let reads_after = |keeps, between: &dyn Fn(&mut Counters)| {
        let mut counters = counters_that(keeps);
        counters.store(0, 0);
        counters.flush(0, 0, 8);
        between(&mut counters);
        counters.load(0, 8);
        counters.load(0, 8);
        counters.counts().flushed_reads
    };
    assert_eq!(reads_after(false, &|_| ()), 1);
    assert_eq!(reads_after(false, &|counters| counters.fence(0)), 1);
    assert_eq!(reads_after(true, &|_| ()), 0);
    // It does not wait for the line then.
    assert_eq!(reads_after(false, &|counters| counters.store(0, 0)), 0);
    assert_eq!(reads_after(false, &|counters| counters.prefetch(0, 0)), 0);
    let flush =
        |counters: &mut Counters, lines| (1..=lines).for_each(|at| counters.flush(0, at * 64, 8));
    assert_eq!(reads_after(false, &|counters| flush(counters, 7)), 1);
    assert_eq!(reads_after(false, &|counters| flush(counters, 8)), 0, "that is long ago");
}

#[test]
fn who_reads_what_another_worker_has_flushed_could_not_have_read_it_before() {
    let mut counters = counters_that(false);
    counters.store(0, 0);
    counters.flush(0, 0, 8);
    counters.load(1, 0);
    assert_eq!((counters.counts().llc_misses, counters.counts().flushed_reads), (2, 0));
}

#[test]
fn a_dirty_line_that_is_pushed_out_is_an_insert_by_eviction() {
    let mut counters = counters();
    // Four lines fit into L2 and eight into L3.
    for line in 0..13 {
        counters.store(0, line * 64);
    }
    assert_eq!(counters.counts().wpq_eviction, 1);
}

#[test]
fn sequential_nontemporal_lines_are_written_to_the_media_without_amplification() {
    let mut counters = counters();
    for line in 0..64 {
        counters.nontemporal(0, line * 64, 64);
        if line % 4 == 3 {
            counters.fence(0);
        }
    }
    let counts = counters.counts();
    assert_eq!((counts.wpq_nontemporal, counts.media_writes, counts.media_reads), (64, 64, 0));
}

/// Media writes of workers that each write units of their own in order, in turn, a fence after each
/// `fenced` lines.
fn media_writes_of_workers(workers: u8, units: usize, fenced: usize) -> u64 {
    let machine = MachineShape::default();
    let xp_buffer = XpBufferShape { modules: 1, own_writes_permille: 0, ..machine.xp_buffer };
    let mut counters = Counters::new(MachineShape { xp_buffer, ..machine });
    for line in 0..units * 4 {
        for worker in 0..workers {
            counters.nontemporal(worker, (usize::from(worker) << 24) + line * 64, 64);
            if line % fenced == fenced - 1 {
                counters.fence(worker);
            }
        }
    }
    counters.drain();
    counters.counts().media_writes / 4
}

#[test]
fn many_workers_that_do_not_fence_write_units_in_parts() {
    let (one, twelve) =
        (media_writes_of_workers(1, 1200, 4800), media_writes_of_workers(12, 100, 400));
    assert!((1200..1230).contains(&one), "{one}");
    assert!(twelve > 1700, "{twelve}");
}

#[test]
fn units_that_are_fenced_are_written_whole_by_however_many_workers() {
    let writes = media_writes_of_workers(12, 100, 4);
    assert!((1200..1215).contains(&writes), "{writes}");
}

#[test]
fn a_line_on_its_way_is_read_from_its_module() {
    let mut counters = counters();
    counters.nontemporal(0, 0, 64);
    counters.load(0, 0);
    assert_eq!((counters.counts().llc_misses, counters.counts().media_reads), (1, 0));
}

#[test]
fn nontemporal_copies_are_combined_within_a_line_until_it_is_full_or_fenced() {
    let mut counters = counters();
    counters.nontemporal(0, 0, 24);
    counters.nontemporal(0, 24, 40);
    assert_eq!(counters.counts().wpq_nontemporal, 1);
    counters.nontemporal(0, 64, 8);
    counters.fence(0);
    counters.nontemporal(0, 72, 8);
    assert_eq!(counters.counts().wpq_nontemporal, 3);
}

#[test]
fn workers_combine_apart() {
    let mut counters = counters();
    counters.nontemporal(0, 0, 8);
    counters.nontemporal(1, 8, 8);
    counters.nontemporal(0, 16, 8);
    assert_eq!(counters.counts().wpq_nontemporal, 2);
}

#[test]
fn a_partial_nontemporal_copy_saves_a_dirty_cached_line_and_a_whole_one_need_not() {
    let mut counters = counters();
    counters.store(0, 0);
    counters.nontemporal(0, 8, 8);
    assert_eq!(counters.counts().wpq_eviction, 1);
    counters.store(0, 0);
    counters.nontemporal(0, 0, 64);
    assert_eq!(counters.counts().wpq_eviction, 1);
    assert_eq!(counters.counts().wpq_nontemporal, 2);
}

#[test]
fn loads_that_miss_read_an_xpline_and_its_neighbours_are_buffered() {
    let mut counters = counters();
    (0..4).for_each(|line| counters.load(0, line * 64));
    let counts = counters.counts();
    assert_eq!((counts.loads, counts.llc_misses, counts.media_reads), (4, 4, 4));
}

#[test]
fn a_prefetch_warms_the_cache_without_counting_as_a_load() {
    let mut counters = counters();
    counters.prefetch(0, 0);
    counters.load(0, 0);
    let counts = counters.counts();
    assert_eq!((counts.loads, counts.llc_misses), (1, 1));
}

#[test]
fn ordinary_memory_shares_the_caches_and_reaches_no_module() {
    let mut counters = counters();
    counters.read_dram(0, 0, 128);
    counters.read_dram(0, 64, 8);
    let counts = counters.counts();
    assert_eq!((counts.llc_misses, counts.dram_reads, counts.media_reads), (2, 2, 0));
    assert_eq!(counts.wpq_inserts(), 0);
    // The same number of a line in the region is another line.
    counters.load(0, 0);
    assert_eq!(counters.counts().llc_misses, 3);
}

#[test]
fn a_read_of_ordinary_memory_takes_its_latency_and_one_from_a_cache_less() {
    let mut counters = counters();
    let latency = MachineShape::default().timing.dram_read;
    counters.read_dram(0, 4096, 8);
    let first = counters.timing().now(0);
    assert_eq!(first, latency);
    counters.read_dram(0, 4096, 8);
    assert!(counters.timing().now(0).0 - first.0 < latency.0);
}

#[test]
fn ordinary_memory_that_was_asked_for_is_waited_for_only_where_it_is_read() {
    let mut counters = counters();
    let latency = MachineShape::default().timing.dram_read;
    counters.prefetch_dram(0, 4096, 128);
    assert_eq!(counters.timing().now(0).0, 0);
    counters.read_dram(0, 4096, 8);
    assert_eq!(counters.timing().now(0), latency);
    counters.read_dram(0, 4096 + 64, 8);
    assert!(counters.timing().now(0).0 - latency.0 < latency.0, "both were on their way together");
    assert_eq!(counters.counts().dram_reads, 2);
}

/// Units that the media of one module read for each that so many workers ask for, line by line and in turn.
fn reads_of_units(workers: u8, ask: fn(&mut Counters, u8, usize)) -> f64 {
    const LINES_OF_A_WORKER: usize = 400;
    let machine = MachineShape::default();
    let xp_buffer = XpBufferShape { modules: 1, ..machine.xp_buffer };
    let mut counters = Counters::new(MachineShape { xp_buffer, ..machine });
    for line in 0..LINES_OF_A_WORKER {
        for worker in 0..workers {
            ask(&mut counters, worker, (usize::from(worker) << 20) + line * LINE_BYTES);
        }
    }
    counters.counts().media_reads as f64 / (usize::from(workers) * LINES_OF_A_WORKER) as f64
}

#[test]
fn units_are_read_again_where_more_lines_of_one_module_are_under_way_than_its_queue_takes() {
    let prefetch = |counters: &mut Counters, worker, at| counters.prefetch(worker, at);
    assert_eq!([1, 4].map(|workers| reads_of_units(workers, prefetch)), [1.0, 1.0]);
    let [twelve, all] = [12, 24].map(|workers| reads_of_units(workers, prefetch));
    assert!(1.1 < twelve && twelve < all, "{twelve} {all}");
}

#[test]
fn of_those_who_wait_for_each_line_few_have_a_unit_read_again() {
    // Some units leave the buffer before their turn, as any do of which room is needed.
    let reads = reads_of_units(24, |counters, worker, at| counters.load(worker, at));
    assert!(reads < 1.05, "{reads}");
}

#[test]
fn ranges_count_aligned_words_and_touch_each_line_once() {
    let mut counters = counters();
    counters.write_range(0, 60, 10);
    counters.read_range(0, 60, 10);
    let counts = counters.counts();
    assert_eq!((counts.stores, counts.loads, counts.llc_misses), (2, 2, 2));
}

#[test]
fn draining_writes_what_the_buffer_holds() {
    let mut counters = counters();
    counters.nontemporal(0, 0, 64);
    assert_eq!(counters.counts().media_writes, 0);
    counters.drain();
    let counts = counters.counts();
    assert_eq!((counts.media_writes, counts.media_reads), (4, 4));
}

#[test]
fn counts_subtract_and_add_by_field() {
    let mut counters = counters();
    counters.store(0, 0);
    let before = counters.counts();
    counters.store(0, 0);
    counters.fence(0);
    let delta = counters.counts() - before;
    assert_eq!(delta, Counts { stores: 1, fences: 1, ..Counts::default() });
    assert_eq!(before + delta, counters.counts());
}
