//! Each rule of `lapis_pmem::domain` as a litmus test: a few stores, and the exact set of values
//! that a power cut may leave.
//!
//! Words are named by line and place in it: `a0` and `a1` share a line, `b0` lies in another.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use lapis_device::{
    Config, CrashCause, CrashPoints, Event, Image, ImageBudget, Marker, Modelled, PersistKind,
    PersistPoint, PowerFailDomain, Trace, set_current_worker,
};
use lapis_pmem::{Domain, EXTENT_BYTES, Region};
use proptest::prelude::*;

struct Bench {
    region: Region,
    domain: Modelled,
}

/// Words of the three lines that the tests use, by index of the eight bytes.
const WORDS: usize = 24;
const B: usize = 8;

impl Bench {
    fn new() -> Self {
        Self::with(Config::tracing())
    }

    fn with(config: Config) -> Self {
        let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
        let domain = Modelled::over(&region, config);
        set_current_worker(0);
        Self { region, domain }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        unsafe { &*self.region.base().add(index * 8).cast::<AtomicU64>() }
    }

    fn byte(&self, index: usize) -> &AtomicU8 {
        // SAFETY: as for `word`.
        unsafe { &*self.region.base().add(index).cast::<AtomicU8>() }
    }

    fn relaxed(&self, index: usize, value: u64) {
        self.domain.store::<u64>(self.word(index), value, Ordering::Relaxed);
    }

    fn ordered(&self, index: usize, value: u64) {
        self.domain.store::<u64>(self.word(index), value, Ordering::Release);
    }

    #[track_caller]
    fn flush(&self, index: usize) {
        self.domain.flush(self.word(index));
    }

    #[track_caller]
    fn fence(&self) {
        self.domain.fence();
    }

    fn nontemporal(&self, index: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: inside the mapped region, and no other thread uses it.
        unsafe { self.domain.copy_nontemporal(self.region.base().add(index * 8), &bytes) };
    }

    fn copy(&self, index: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: inside the mapped region, and no other thread uses it.
        unsafe { self.domain.copy(self.region.base().add(index * 8), &bytes) };
    }

    /// What the words of `indices` may hold after a crash at the last crash point, which is the
    /// end of the trace.
    fn at_end<const N: usize>(&self, indices: [usize; N]) -> BTreeSet<[u64; N]> {
        self.at_end_of(PowerFailDomain::Adr, indices)
    }

    fn at_end_of<const N: usize>(
        &self,
        domain: PowerFailDomain,
        indices: [usize; N],
    ) -> BTreeSet<[u64; N]> {
        self.domain.mark(Marker::End(999));
        let trace = self.domain.take_trace();
        let mut points = CrashPoints::new(&trace, &[], domain);
        let mut scratch = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
        let mut found = BTreeSet::new();
        while let Some(point) = points.advance() {
            points.bring_up_to_date(&mut scratch).unwrap();
            if point.cause != CrashCause::OperationEnd(999) {
                continue;
            }
            let states = points.states();
            let images = states.images(ImageBudget::default());
            assert!(images.is_exhaustive());
            for image in images {
                states.apply(&image, &mut scratch).unwrap();
                found.insert(indices.map(|index| {
                    // SAFETY: inside the mapped region; plain memory of this function.
                    unsafe { scratch.base().add(index * 8).cast::<u64>().read() }
                }));
                states.revert(&image, &mut scratch).unwrap();
            }
        }
        found
    }
}

fn set<const N: usize>(states: &[[u64; N]]) -> BTreeSet<[u64; N]> {
    states.iter().copied().collect()
}

#[test]
fn r1_without_stores_memory_is_as_it_was() {
    let bench = Bench::new();
    bench.flush(0);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0]]));
}

#[test]
fn r1_a_store_outside_of_the_region_is_no_event() {
    let bench = Bench::new();
    let dram = AtomicU64::new(0);
    bench.domain.store::<u64>(&dram, 1, Ordering::Release);
    assert_eq!(bench.domain.load::<u64>(&dram, Ordering::Acquire), 1);
    assert_eq!(bench.domain.traced_events(), 0);
}

#[test]
fn r2_ordered_stores_of_one_line_persist_in_program_order() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r2_relaxed_stores_of_one_line_persist_in_any_order() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r2_relaxed_stores_persist_before_the_ordered_store_that_follows() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(1, 2);
    bench.ordered(2, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(bench.at_end([0, 1, 2]), legal);
}

#[test]
fn r2_relaxed_stores_persist_after_the_ordered_store_that_precedes() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.relaxed(1, 2);
    bench.relaxed(2, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]);
    assert_eq!(bench.at_end([0, 1, 2]), legal);
}

#[test]
fn r2_stores_to_one_word_persist_in_order_even_if_relaxed() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(0, 2);
    assert_eq!(bench.at_end([0]), set(&[[0], [1], [2]]));
}

#[test]
fn r2_a_byte_over_a_word_never_persists_without_the_word() {
    let bench = Bench::new();
    bench.relaxed(0, 0x1111);
    bench.domain.store::<u8>(bench.byte(0), 0x22, Ordering::Relaxed);
    assert_eq!(bench.at_end([0]), set(&[[0], [0x1111], [0x1122]]));
}

#[test]
fn r2_eight_aligned_bytes_are_never_torn_and_the_units_of_a_copy_are_unordered() {
    let bench = Bench::new();
    bench.copy(0, &[u64::MAX, u64::MAX]);
    let legal = set(&[[0, 0], [u64::MAX, 0], [0, u64::MAX], [u64::MAX, u64::MAX]]);
    assert_eq!(bench.at_end([0, 1]), legal);
}

#[test]
fn r2_a_flush_separates_relaxed_stores_of_its_line() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.flush(0);
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r2_a_flush_separates_relaxed_stores_also_with_a_non_temporal_store_in_between() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.flush(0);
    bench.nontemporal(2, &[7]);
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r2_a_fence_separates_relaxed_stores_of_one_line() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.fence();
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r3_lines_persist_independently() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    assert_eq!(bench.at_end([0, B]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r3_a_line_may_persist_without_a_flush() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r4_a_flush_promises_nothing_until_the_fence() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r4_flush_and_fence_make_durable() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[1]]));
}

#[test]
fn r4_the_fence_promises_the_contents_at_the_flush() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.ordered(0, 2);
    bench.ordered(1, 3);
    bench.fence();
    assert_eq!(bench.at_end([0, 1]), set(&[[1, 0], [2, 0], [2, 3]]));
}

#[test]
fn r4_a_flush_covers_the_whole_line_and_no_other() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(7, 2);
    bench.ordered(B, 3);
    bench.flush(4);
    bench.fence();
    assert_eq!(bench.at_end([0, 7, B]), set(&[[1, 2, 0], [1, 2, 3]]));
}

#[test]
fn r4_one_fence_covers_several_flushes() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.ordered(B, 2);
    bench.flush(B);
    bench.fence();
    assert_eq!(bench.at_end([0, B]), set(&[[1, 2]]));
}

#[test]
fn r4_the_fence_of_another_worker_promises_nothing() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    set_current_worker(1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r4_a_worker_may_flush_and_fence_what_another_stored() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    set_current_worker(1);
    bench.flush(0);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[1]]));
}

#[test]
fn r4_a_flush_before_the_store_promises_nothing() {
    let bench = Bench::new();
    bench.flush(0);
    bench.ordered(0, 1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r5_a_compare_exchange_is_visible_without_being_durable() {
    let bench = Bench::new();
    bench.domain.compare_exchange::<u64>(bench.word(0), 0, 1).unwrap();
    assert_eq!(bench.word(0).load(Ordering::Relaxed), 1);
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r5_a_compare_exchange_completes_earlier_flushes_of_its_worker() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    assert_eq!(bench.at_end([0, B]), set(&[[1, 0], [1, 2]]));
}

#[test]
fn r5_a_swap_completes_earlier_flushes_of_its_worker() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.swap::<u64>(bench.word(B), 2);
    assert_eq!(bench.at_end([0, B]), set(&[[1, 0], [1, 2]]));
}

#[test]
fn r5_on_a_portable_machine_a_compare_exchange_completes_nothing() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    let legal = bench.at_end_of(PowerFailDomain::AdrPortable, [0, B]);
    assert_eq!(legal, set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r5_on_a_portable_machine_the_next_fence_completes_flushes_before_a_compare_exchange() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    bench.fence();
    let legal = bench.at_end_of(PowerFailDomain::AdrPortable, [0, B]);
    assert_eq!(legal, set(&[[1, 0], [1, 2]]));
}

#[test]
fn r5_a_locked_store_follows_earlier_stores_of_its_line() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.domain.swap::<u64>(bench.word(1), 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r5_a_compare_exchange_that_fails_stores_and_completes_nothing() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    assert_eq!(bench.domain.compare_exchange::<u64>(bench.word(B), 5, 2), Err(0));
    assert_eq!(bench.at_end([0, B]), set(&[[0, 0], [1, 0]]));
}

#[test]
fn r5_a_compare_exchange_does_not_complete_non_temporal_stores() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    assert_eq!(bench.at_end([0, B]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r6_non_temporal_stores_persist_in_any_subset_of_words() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1, 2, 3]);
    let mut legal = BTreeSet::new();
    for mask in 0..8u64 {
        legal.insert([(mask & 1), (mask >> 1 & 1) * 2, (mask >> 2 & 1) * 3]);
    }
    assert_eq!(bench.at_end([0, 1, 2]), legal);
}

#[test]
fn r6_a_fence_makes_non_temporal_stores_durable_without_a_flush() {
    let bench = Bench::new();
    bench.nontemporal(6, &[1, 2, 3, 4]);
    bench.fence();
    assert_eq!(bench.at_end([6, 7, B, B + 1]), set(&[[1, 2, 3, 4]]));
}

#[test]
fn r6_the_fence_of_another_worker_leaves_non_temporal_stores_pending() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    set_current_worker(1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r6_a_fence_completes_only_its_worker_s_part_of_a_line() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    set_current_worker(1);
    bench.nontemporal(1, &[2]);
    bench.fence();
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 2], [1, 2]]));
}

#[test]
fn r6_an_ordered_store_may_persist_before_an_earlier_non_temporal_one() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.ordered(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r6_a_non_temporal_store_over_a_pending_word_persists_after_it() {
    let bench = Bench::new();
    bench.ordered(1, 7);
    bench.ordered(0, 8);
    bench.nontemporal(0, &[1]);
    bench.fence();
    assert_eq!(bench.at_end([0, 1]), set(&[[1, 7]]));
}

#[test]
fn eadr_makes_visible_durable_up_to_the_store_buffers() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    bench.ordered(1, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B, 1]), legal);
}

#[test]
fn eadr_needs_a_fence_and_no_flush() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    bench.fence();
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B]), set(&[[1, 2]]));
}

#[test]
fn eadr_a_locked_store_is_durable_with_all_before_it() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.domain.swap::<u64>(bench.word(B), 2);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B]), set(&[[1, 2]]));
}

#[test]
fn crash_points_are_the_effective_fences_the_operation_ends_and_the_end() {
    let bench = Bench::new();
    bench.fence(); // nothing to complete
    bench.ordered(0, 1);
    bench.flush(0);
    bench.fence();
    bench.domain.mark(Marker::End(1));
    bench.ordered(B, 1);
    bench.flush(B);
    bench.domain.swap::<u64>(bench.word(1), 1);
    let trace = bench.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    let mut found = Vec::new();
    while let Some(point) = points.advance() {
        found.push((point.position, point.cause, points.states().image_count()));
    }
    let fence = trace.points.iter().rfind(|point| point.kind == PersistKind::Fence).unwrap();
    assert_eq!(
        found,
        [
            (3, CrashCause::BeforeFence(*fence), 2),
            (5, CrashCause::OperationEnd(1), 1),
            (7, CrashCause::BeforeLocked, 2),
            (8, CrashCause::TraceEnd, 2),
        ]
    );
}

#[test]
fn a_trace_that_begins_later_stands_on_the_base_it_is_given() {
    let bench = Bench::with(Config::default());
    bench.ordered(0, 1);
    bench.domain.set_tracing(true);
    bench.ordered(1, 2);
    let trace = bench.domain.take_trace();
    let mut base = vec![0u8; 64];
    base[0] = 1;
    let mut points = CrashPoints::new(&trace, &base, PowerFailDomain::Adr);
    points.advance().unwrap();
    let states = points.states();
    let (line, bytes) = states.overrides(&states.everything())[0];
    assert_eq!((line, bytes[0], bytes[8]), (0, 1, 2));
    assert!(states.overrides(&states.nothing()).is_empty());
}

#[test]
fn sampling_begins_with_the_extremes_and_repeats_nothing() {
    let bench = Bench::new();
    for line in 0..3 {
        for word in 0..4 {
            bench.ordered(line * 8 + word, 1);
        }
    }
    let trace = bench.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    points.advance().unwrap();
    let states = points.states();
    assert_eq!((states.site_count(), states.image_count()), (3, 125));
    let budget = ImageBudget { exhaustive_limit: 100, samples: 20, seed: 3 };
    let images: Vec<Image> = states.images(budget).collect();
    let extremes: Vec<&[u32]> = images[..8].iter().map(Image::choices).collect();
    assert_eq!(
        extremes,
        [
            &[0, 0, 0][..],
            &[4, 4, 4],
            &[4, 0, 0],
            &[0, 4, 4],
            &[0, 4, 0],
            &[4, 0, 4],
            &[0, 0, 4],
            &[4, 4, 0],
        ]
    );
    let distinct: BTreeSet<&[u32]> = images.iter().map(Image::choices).collect();
    assert_eq!(distinct.len(), images.len());
    assert!(images.len() > 8 && images.len() <= 28);
    assert_eq!(states.images(budget).collect::<Vec<_>>(), images);
}

#[test]
fn a_long_relaxed_group_gives_prefixes_and_single_words_early_and_late() {
    let bench = Bench::new();
    bench.copy(0, &[1; 8]);
    let found = bench.at_end([0, 1, 2, 3, 4, 5, 6, 7]);
    let mut legal = BTreeSet::new();
    for at in 0..=8usize {
        legal.insert(std::array::from_fn(|word| u64::from(word < at)));
        if at < 8 {
            legal.insert(std::array::from_fn(|word| u64::from(word == at)));
            legal.insert(std::array::from_fn(|word| u64::from(word != at)));
        }
    }
    assert_eq!(found, legal);
}

#[test]
fn a_word_stored_a_thousand_times_is_thinned_and_says_so() {
    let bench = Bench::new();
    for value in 1..=1000 {
        bench.ordered(0, value);
    }
    let trace = bench.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    points.advance().unwrap();
    let states = points.states();
    assert!(!states.is_exact());
    assert!(states.image_count() <= 130);
    let (_, bytes) = states.overrides(&states.everything())[0];
    assert_eq!(bytes[..8], 1000u64.to_le_bytes());
}

#[test]
fn eadr_a_non_temporal_store_may_be_missing_although_later_stores_are_not() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.ordered(B, 2);
    let legal = set(&[[0, 0], [1, 0], [0, 2], [1, 2]]);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B]), legal);
}

/// Position of a crash point, whether all its states are given, and what the first lines may hold.
type PointStates = (usize, bool, BTreeSet<Vec<[u8; 64]>>);

/// What memory may be at each crash point of a trace.
fn all_states(trace: &Trace, domain: PowerFailDomain) -> Vec<PointStates> {
    let mut points = CrashPoints::new(trace, &[], domain);
    let mut memory = vec![[0u8; 64]; WORDS / 8];
    let mut found = Vec::new();
    while let Some(point) = points.advance() {
        for (line, bytes) in points.newly_durable() {
            memory[line as usize] = *bytes;
        }
        let states = points.states();
        let budget = ImageBudget { exhaustive_limit: u64::MAX, ..ImageBudget::default() };
        let images = states.images(budget).map(|image| {
            let mut memory = memory.clone();
            for (line, bytes) in states.overrides(&image) {
                memory[line as usize] = bytes;
            }
            memory
        });
        found.push((point.position, states.is_exact(), images.collect()));
    }
    found
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0u8..8, 0u8..2, 0u32..3, 0u8..3, any::<bool>());
    proptest::collection::vec(event, 1..14).prop_map(|events| {
        let numbered = events.into_iter().enumerate();
        numbered
            .map(|(at, (kind, worker, line, word, narrow))| {
                let (start, bytes) = (word * 8, if narrow { 4 } else { 8 });
                let value = (at as u64 + 1) * 0x0101_0101_0101_0101;
                match kind {
                    0 | 1 => Event::Store { worker, start, bytes, line, value },
                    2 => Event::OrderedStore { worker, start, bytes, line, value },
                    3 => Event::Locked { worker, start, bytes, line, value },
                    4 => Event::NonTemporal { worker, start, bytes, line, value },
                    5 | 6 => Event::Flush { worker, point: 0, line },
                    _ => Event::Fence { worker, point: 0 },
                }
            })
            .collect()
    })
}

proptest! {
    /// The argument of `crash_points`: cutting the power at any other instant shows nothing new.
    #[test]
    fn the_states_of_every_instant_are_among_those_of_the_next_crash_point(events in events()) {
        let here = std::panic::Location::caller();
        let trace = Trace { events, points: vec![PersistPoint::at(here, PersistKind::Fence)] };
        for domain in [PowerFailDomain::Adr, PowerFailDomain::Eadr] {
            let points = all_states(&trace, domain);
            for instant in 0..=trace.events.len() {
                let cut = Trace { events: trace.events[..instant].to_vec(), ..trace.clone() };
                let Some((_, exact, states)) = all_states(&cut, domain).pop() else { continue };
                let next = points.iter().find(|(position, ..)| *position >= instant);
                // Behind the last point nothing is stored, so its states are the last ones.
                let (_, next_exact, next_states) = next.or(points.last()).unwrap();
                if exact && *next_exact {
                    prop_assert!(states.is_subset(next_states), "{domain:?} at {instant}");
                }
            }
        }
    }
}
