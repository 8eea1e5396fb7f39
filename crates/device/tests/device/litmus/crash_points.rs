//! Crash points, the base of a trace, sampling and thinning.

use std::collections::BTreeSet;

use lapis_device::{
    Config, CrashCause, CrashPoints, Event, Image, ImageBudget, Marker, Modelled, PersistKind,
    PersistPoint, PowerFailDomain, Trace, set_current_worker,
};
use lapis_pmem::{Domain, Observed, Region};
use proptest::prelude::*;

use crate::litmus::bench::{B, Bench, WORDS, at_points, set};

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

/// The crash points of a trace, by position and cause.
fn causes(trace: &Trace) -> Vec<(usize, CrashCause)> {
    let mut points = CrashPoints::new(trace, &[], PowerFailDomain::AdrPortable);
    std::iter::from_fn(|| points.advance()).map(|point| (point.position, point.cause)).collect()
}

#[test]
fn what_is_pending_where_an_operation_of_another_worker_begins_is_tried_before_it() {
    let bench = Bench::new();
    bench.domain.mark(Marker::Begin(1));
    bench.ordered(0, 7);
    set_current_worker(1);
    bench.domain.mark(Marker::Begin(2));
    bench.domain.mark(Marker::Begin(3)); // Nothing was stored since.
    set_current_worker(0);
    bench.flush(0);
    bench.fence();
    bench.domain.mark(Marker::End(1));
    bench.domain.mark(Marker::Begin(4)); // As it mostly is: straight after an acknowledgement.
    bench.ordered(1, 1);
    bench.domain.mark(Marker::End(4));
    bench.ordered(2, 1); // What belongs to no operation.
    bench.domain.mark(Marker::Begin(5));
    let trace = bench.domain.take_trace();
    let found = causes(&trace);
    let expected = [
        (2, CrashCause::BeforeOperation(2)),
        (7, CrashCause::OperationEnd(1)),
        (10, CrashCause::OperationEnd(4)),
        (11, CrashCause::BeforeOperation(5)),
    ];
    let others: Vec<_> =
        found.into_iter().filter(|it| !matches!(it.1, CrashCause::BeforeFence(_))).collect();
    assert_eq!(others, expected);
    let states = at_points(&trace, PowerFailDomain::AdrPortable, [0], |it| it.position == 2);
    assert_eq!(states, set(&[[0], [7]]));
}

#[test]
fn what_is_pending_where_the_storage_grows_is_tried_there() {
    let bench = Bench::new();
    bench.domain.note_storage(1 << 20, true); // Nothing was stored yet.
    bench.ordered(0, 7);
    bench.flush(0);
    bench.fence();
    bench.domain.note_storage(2 << 20, true);
    bench.domain.note_storage(3 << 20, true);
    bench.ordered(1, 7);
    bench.domain.note_storage(4 << 20, false);
    bench.flush(1);
    bench.domain.note_storage(5 << 20, true); // Nothing was stored since the last.
    bench.fence();
    let growths: Vec<usize> = causes(&bench.domain.take_trace())
        .into_iter()
        .filter(|it| it.1 == CrashCause::StorageGrowth)
        .map(|it| it.0)
        .collect();
    assert_eq!(growths, [3, 4]);
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
    let few: Vec<Image> = states.sampled_images(budget).without_single_sites().collect();
    assert_eq!(few[..2], images[..2]);
    assert!(few.len() <= 2 + 20 && images[8..].iter().all(|image| few[2..].contains(image)));
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
        let trace = Trace::of(events, vec![PersistPoint::at(here, PersistKind::Fence)]);
        for domain in [PowerFailDomain::Adr, PowerFailDomain::Eadr] {
            let points = all_states(&trace, domain);
            for instant in 0..=trace.events.len() {
                let cut = trace.continued(instant, &Trace::default());
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

/// Events with markers among them: operations that begin, by number, and those that end.
fn events_of_operations() -> impl Strategy<Value = Vec<Event>> {
    (events(), proptest::collection::vec((any::<prop::sample::Index>(), 0u8..2), 0..6)).prop_map(
        |(mut events, ends)| {
            let count = ends.len() as u32;
            for (number, (at, worker)) in (0..count).zip(&ends) {
                let marker = if number % 3 == 2 { Marker::End } else { Marker::Begin };
                let at = at.index(events.len() + 1);
                events.insert(at, Event::Marker { worker: *worker, marker: marker(number) });
            }
            events
        },
    )
}

/// How many operations have begun and ended when so many events have happened.
fn begun_and_ended(events: &[Event], position: usize) -> (usize, usize) {
    let count = |wanted: fn(&Marker) -> bool| {
        let markers = events[..position].iter();
        markers.filter(|it| matches!(it, Event::Marker { marker, .. } if wanted(marker))).count()
    };
    (count(|it| matches!(it, Marker::Begin(_))), count(|it| matches!(it, Marker::End(_))))
}

proptest! {
    /// The rest of that argument: nothing is judged more leniently at the crash points that have its states. What may
    /// show there had begun at the instant itself, and what has to show was acknowledged there too.
    #[test]
    fn the_states_of_every_instant_are_judged_where_no_further_operation_has_begun(
        events in events_of_operations(),
    ) {
        let here = std::panic::Location::caller();
        let trace = Trace::of(events, vec![PersistPoint::at(here, PersistKind::Fence)]);
        for domain in [PowerFailDomain::Adr, PowerFailDomain::AdrPortable] {
            let points = all_states(&trace, domain);
            for instant in 0..=trace.events.len() {
                let cut = trace.continued(instant, &Trace::default());
                // What was there when the trace began is no work of it.
                if cut.events.iter().all(|event| event.stored_lines().is_empty()) {
                    continue;
                }
                let Some((_, exact, states)) = all_states(&cut, domain).pop() else { continue };
                let (begun, ended) = begun_and_ended(&trace.events, instant);
                let is_strict = |&(position, ..): &&PointStates| {
                    let there = begun_and_ended(&trace.events, *position);
                    there.0 <= begun && there.1 >= ended
                };
                let judged = points.iter().filter(is_strict).any(|(_, all, found)| {
                    !exact || !all || states.is_subset(found)
                });
                prop_assert!(judged, "{domain:?} at {instant}");
            }
        }
    }
}

/// What a program may do: where, how many bytes, and what.
fn actions() -> impl Strategy<Value = Vec<(u8, usize, usize)>> {
    proptest::collection::vec((0u8..7, 0usize..400, 1usize..200), 1..14)
}

/// The trace of a program that stores to ranges, flushes ranges, and fences.
fn trace_of_ranges(actions: &[(u8, usize, usize)]) -> Trace {
    let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
    let domain = Modelled::over(&region, Config::tracing());
    for (round, &(kind, offset, bytes)) in (1u8..).zip(actions) {
        let at = region.base().wrapping_add(offset);
        // SAFETY: inside the mapped region, which nobody else uses.
        unsafe {
            match kind {
                0 | 1 => domain.copy(at, &vec![round; bytes]),
                2 => domain.copy_nontemporal(at, &vec![round; bytes]),
                3 => domain.zero_nontemporal(at, bytes),
                4 | 5 => domain.flush_range(at, bytes),
                _ => domain.fence(),
            }
        }
    }
    domain.take_trace()
}

proptest! {
    #[test]
    fn a_range_may_leave_what_its_units_may(actions in actions()) {
        let trace = trace_of_ranges(&actions);
        let units = trace.clone().in_units();
        for domain in [PowerFailDomain::Adr, PowerFailDomain::AdrPortable, PowerFailDomain::Eadr] {
            let mut by_range = CrashPoints::new(&trace, &[], domain);
            let mut by_unit = CrashPoints::new(&units, &[], domain);
            while let Some(point) = by_range.advance() {
                prop_assert_eq!(Some(point.cause), by_unit.advance().map(|point| point.cause));
                let durable = |points: &CrashPoints<'_>| -> Vec<_> {
                    points.newly_durable().map(|(line, bytes)| (line, *bytes)).collect()
                };
                prop_assert_eq!(durable(&by_range), durable(&by_unit));
                let (ours, theirs) = (by_range.states(), by_unit.states());
                prop_assert_eq!(ours.image_count(), theirs.image_count());
                let budget = ImageBudget { exhaustive_limit: 64, samples: 64, seed: 1 };
                for (our, their) in ours.images(budget).zip(theirs.images(budget)) {
                    prop_assert_eq!(ours.overrides(&our), theirs.overrides(&their));
                }
            }
            prop_assert!(by_unit.advance().is_none());
        }
    }
}
