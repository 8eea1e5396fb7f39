//! Several workers on one modelled machine: what they can see of each other, and that runs are
//! deterministic and can be replayed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis_device::{
    BoundedSearch, Config, Event, InterleavedRun, Marker, Modelled, RunEnd, SchedulePolicy, Trace,
    WorkerProgram,
};
use lapis_pmem::{Domain, EXTENT_BYTES, GenerationLock, LockGeneration, Observed, PCell, Region};

const WORDS: usize = 32;
/// A word of another line.
const B: usize = 8;

struct Bench {
    region: Region,
    domain: Modelled,
}

impl Bench {
    fn new() -> Self {
        let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
        let domain = Modelled::over(&region, Config::concurrent());
        Self { region, domain }
    }

    fn word(&self, index: usize) -> &PCell<u64> {
        assert!(index < WORDS);
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        unsafe { &*self.region.base().add(index * 8).cast::<PCell<u64>>() }
    }

    fn run(&self, policy: &SchedulePolicy, programs: Vec<WorkerProgram<'_>>) -> InterleavedRun {
        let _ = self.domain.take_trace();
        for index in 0..WORDS {
            self.word(index).store(&self.domain, 0);
        }
        let _ = self.domain.take_trace();
        self.domain.run_workers(policy, programs)
    }
}

/// Every outcome of two readings over all schedules within a bound.
fn outcomes(
    deviations: usize,
    programs: impl for<'b> Fn(&'b Bench, [&'b AtomicU64; 2]) -> Vec<WorkerProgram<'b>>,
) -> BTreeSet<[u64; 2]> {
    let bench = Bench::new();
    let mut search = BoundedSearch::new(deviations, 20_000);
    let mut found = BTreeSet::new();
    while let Some(policy) = search.next_policy() {
        let seen = [AtomicU64::new(0), AtomicU64::new(0)];
        let run = bench.run(&policy, programs(&bench, [&seen[0], &seen[1]]));
        assert_eq!(run.end, RunEnd::Completed);
        search.ran(&run);
        found.insert(seen.map(AtomicU64::into_inner));
    }
    assert!(search.is_complete());
    found
}

fn set(outcomes: &[[u64; 2]]) -> BTreeSet<[u64; 2]> {
    outcomes.iter().copied().collect()
}

#[test]
fn message_passing_shows_the_message_with_the_flag() {
    let found = outcomes(3, |bench, seen| {
        let domain = &bench.domain;
        vec![
            Box::new(move || {
                bench.word(0).store_ordered(domain, 1);
                bench.word(B).store_ordered(domain, 1);
            }),
            Box::new(move || {
                seen[0].store(bench.word(B).load_acquire(domain), Ordering::Relaxed);
                seen[1].store(bench.word(0).load_acquire(domain), Ordering::Relaxed);
            }),
        ]
    });
    assert_eq!(found, set(&[[0, 0], [0, 1], [1, 1]]));
}

/// Each worker stores, does something, and loads what the other stored.
fn store_buffering(between: fn(&Bench)) -> BTreeSet<[u64; 2]> {
    outcomes(4, |bench, seen| {
        let program = move |mine: usize, other: usize, seen: &AtomicU64| {
            bench.word(mine).store_ordered(&bench.domain, 1);
            between(bench);
            seen.store(bench.word(other).load_acquire(&bench.domain), Ordering::Relaxed);
        };
        vec![Box::new(move || program(0, B, seen[0])), Box::new(move || program(B, 0, seen[1]))]
    })
}

#[test]
fn both_workers_may_miss_a_store_that_is_still_in_the_other_s_buffer() {
    assert_eq!(store_buffering(|_| ()), set(&[[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_store_fence_does_not_hold_back_loads() {
    let found = store_buffering(|bench| bench.domain.fence());
    assert_eq!(found, set(&[[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_locked_instruction_empties_the_buffer() {
    let found = store_buffering(|bench| {
        bench.word(2 * B).swap(&bench.domain, 1);
    });
    assert_eq!(found, set(&[[0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_failing_compare_exchange_empties_the_buffer_too() {
    let found = store_buffering(|bench| {
        assert_eq!(bench.word(2 * B).compare_exchange(&bench.domain, 7, 8), Err(0));
    });
    assert_eq!(found, set(&[[0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_worker_sees_its_own_stores_before_others_do() {
    let found = outcomes(3, |bench, seen| {
        let domain = &bench.domain;
        vec![
            Box::new(move || {
                bench.word(0).store_ordered(domain, 5);
                assert_eq!(bench.word(0).load(domain), 5);
                seen[1].store(bench.word(B).load(domain), Ordering::Relaxed);
            }),
            Box::new(move || {
                bench.word(B).store_ordered(domain, 1);
                seen[0].store(bench.word(0).load(domain), Ordering::Relaxed);
            }),
        ]
    });
    assert_eq!(found, set(&[[0, 0], [0, 1], [5, 0], [5, 1]]));
}

#[test]
fn plain_reads_of_a_copy_see_it_although_it_is_buffered() {
    let bench = Bench::new();
    for seed in 0..20 {
        let bench = &bench;
        let program = move || {
            let domain = &bench.domain;
            bench.word(0).store_ordered(domain, 1);
            // SAFETY: inside the mapped region, and no other thread uses it.
            unsafe {
                let start = bench.region.base().add(64);
                domain.copy(start, &[7; 20]);
                domain.note_read(start, 20);
                assert_eq!(std::slice::from_raw_parts(start, 20), [7; 20]);
            }
            assert_eq!(bench.word(B + 1).load(domain), u64::from_le_bytes([7; 8]));
        };
        let run = bench.run(&SchedulePolicy::Random { seed }, vec![Box::new(program)]);
        assert_eq!(run.end, RunEnd::Completed);
    }
}

/// A program with contention: each worker takes a lock a few times and counts.
fn counting<'b>(bench: &'b Bench, rounds: u64) -> WorkerProgram<'b> {
    Box::new(move || {
        let (domain, generation) = (&bench.domain, LockGeneration::of(1));
        let lock = GenerationLock::in_word(bench.word(0));
        for _ in 0..rounds {
            lock.lock(domain, generation);
            let count = bench.word(1);
            count.store_ordered(domain, count.load(domain) + 1);
            lock.unlock(domain, lock.read(domain));
        }
    })
}

fn count_with(bench: &Bench, policy: &SchedulePolicy) -> (InterleavedRun, Trace) {
    let programs = (0..3).map(|_| counting(bench, 4)).collect();
    let run = bench.run(policy, programs);
    (run, bench.domain.take_trace())
}

#[test]
fn locks_exclude_under_every_policy() {
    let bench = Bench::new();
    for seed in 0..60 {
        for policy in [
            SchedulePolicy::Random { seed },
            SchedulePolicy::Priorities { seed, changes: 3, events: 100 },
        ] {
            let (run, _) = count_with(&bench, &policy);
            assert_eq!(run.end, RunEnd::Completed, "{policy:?}");
            assert_eq!(bench.word(1).load(&bench.domain), 12, "{policy:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_its_schedule_replays_it() {
    let bench = Bench::new();
    let mut distinct = BTreeSet::new();
    for seed in 0..10 {
        let policy = SchedulePolicy::Random { seed };
        let (first, trace) = count_with(&bench, &policy);
        let (second, again) = count_with(&bench, &policy);
        assert_eq!((&first.schedule, &trace), (&second.schedule, &again));
        let schedule = first.schedule.to_string().parse().unwrap();
        let (replayed, again) = count_with(&bench, &SchedulePolicy::Replay(schedule));
        assert!(!replayed.diverged);
        assert_eq!((&first.schedule, &trace), (&replayed.schedule, &again));
        distinct.insert(first.schedule.to_string());
    }
    assert!(distinct.len() > 5, "{} schedules of ten seeds", distinct.len());
}

#[test]
fn a_schedule_of_another_program_says_so() {
    let bench = Bench::new();
    let policy = SchedulePolicy::Replay("2x9,d1.7".parse().unwrap());
    let run = bench.run(&policy, vec![counting(&bench, 1)]);
    assert_eq!((run.end, run.diverged), (RunEnd::Completed, true));
}

#[test]
fn workers_that_wait_for_each_other_are_a_deadlock() {
    let bench = Bench::new();
    let program = |first: usize, second: usize| -> WorkerProgram<'_> {
        let bench = &bench;
        Box::new(move || {
            let (domain, generation) = (&bench.domain, LockGeneration::of(1));
            let locks = [first, second].map(|word| GenerationLock::in_word(bench.word(word)));
            for lock in locks {
                lock.lock(domain, generation);
            }
            for lock in locks {
                lock.unlock(domain, lock.read(domain));
            }
        })
    };
    let mut search = BoundedSearch::new(1, 1000);
    let mut ends = Vec::new();
    while let Some(policy) = search.next_policy() {
        let run = bench.run(&policy, vec![program(0, B), program(B, 0)]);
        search.ran(&run);
        ends.push(run.end);
    }
    assert_eq!(ends[0], RunEnd::Completed, "worker after worker nothing is wrong");
    assert!(ends.contains(&RunEnd::Deadlock));
}

#[test]
fn workers_that_wait_for_one_that_reads_for_long_are_none() {
    let bench = &Bench::new();
    let lock = GenerationLock::in_word(bench.word(0));
    let program = |reads: u32| -> WorkerProgram<'_> {
        Box::new(move || {
            let domain = &bench.domain;
            lock.lock(domain, LockGeneration::of(1));
            (0..reads).for_each(|_| _ = bench.word(B).load(domain));
            lock.unlock(domain, lock.read(domain));
        })
    };
    for seed in 0..4 {
        let programs = vec![program(20_000), program(1), program(1)];
        let run = bench.run(&SchedulePolicy::Random { seed }, programs);
        assert_eq!(run.end, RunEnd::Completed);
    }
}

#[test]
fn a_worker_that_panics_stops_the_others() {
    let bench = Bench::new();
    let flag = AtomicBool::new(false);
    let (bench, flag) = (&bench, &flag);
    let run = bench.run(
        &SchedulePolicy::Random { seed: 1 },
        vec![
            Box::new(move || {
                bench.word(0).store_ordered(&bench.domain, 1);
                std::panic::resume_unwind(Box::new("an error"));
            }),
            Box::new(move || {
                while bench.word(B).load_acquire(&bench.domain) == 0 {
                    bench.domain.pause();
                }
                flag.store(true, Ordering::Relaxed);
            }),
        ],
    );
    let message = "an error".to_owned();
    assert_eq!(run.end, RunEnd::Panicked { worker: 0, message });
    assert!(!flag.load(Ordering::Relaxed));
}

#[test]
fn the_trace_is_in_the_order_of_visibility_with_the_workers_who_stored() {
    let bench = Bench::new();
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let bench = &bench;
        let store = |index: usize, value: u64| -> WorkerProgram<'_> {
            Box::new(move || {
                bench.word(index).store_ordered(&bench.domain, value);
                bench.domain.mark(Marker::End(value as u32));
            })
        };
        bench.run(&SchedulePolicy::Random { seed }, vec![store(0, 1), store(0, 2)]);
        let last = bench.word(0).load(&bench.domain);
        let stores: Vec<(u8, u64)> = bench
            .domain
            .take_trace()
            .events
            .iter()
            .filter_map(|event| match *event {
                Event::OrderedStore { worker, value, .. } => Some((worker, value)),
                _ => None,
            })
            .collect();
        assert!(stores.iter().all(|&(worker, value)| u64::from(worker) + 1 == value));
        assert_eq!(stores.last().map(|store| store.1), Some(last));
        orders.insert(stores);
    }
    assert_eq!(orders.len(), 2);
}

#[test]
fn a_single_worker_without_a_scheduler_has_no_store_buffer() {
    let bench = Bench::new();
    let _ = bench.domain.take_trace();
    bench.word(0).store_ordered(&bench.domain, 1);
    assert_eq!(bench.domain.traced_events(), 1);
}
