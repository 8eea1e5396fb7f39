//! The bounded search over schedules: what its bound is, and that it gives every schedule within it
//! exactly once.
//!
//! The bound is a number of deviations from running worker after worker, in the order of their
//! numbers, with store buffers that drain at once. Before each event of a worker, and where one ends,
//! there is a choice who goes on; whoever else it is than the plain run would take is one deviation,
//! and so is a store buffer that is kept.

use std::collections::BTreeSet;

use lapis_device::{BoundedSearch, Config, Event, Modelled, RunEnd, WorkerProgram};
use lapis_pmem::{Domain, EXTENT_BYTES, PCell, Region};

/// Every worker exchanges a word so many times: locked instructions, which leave nothing buffered, so
/// that a choice is only about who goes on.
fn exchanges<'m>(domain: &'m Modelled, word: &'m PCell<u64>, times: usize) -> WorkerProgram<'m> {
    Box::new(move || {
        for _ in 0..times {
            word.swap(domain, 1);
        }
    })
}

/// The schedules of such workers that a search gives, in the order in which it does, and the orders of
/// their exchanges.
fn found(workers: usize, times: usize, deviations: usize) -> (Vec<String>, BTreeSet<Vec<u8>>) {
    let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
    let domain = Modelled::over(&region, Config::concurrent());
    // SAFETY: mapped, aligned, and only accessed atomically.
    let word = unsafe { &*region.base().cast::<PCell<u64>>() };
    let mut search = BoundedSearch::new(deviations, 100_000);
    let (mut schedules, mut orders) = (Vec::new(), BTreeSet::new());
    while let Some(policy) = search.next_policy() {
        let programs = (0..workers).map(|_| exchanges(&domain, word, times)).collect();
        let run = domain.run_workers(&policy, programs);
        assert_eq!(run.end, RunEnd::Completed);
        search.ran(&run);
        schedules.push(run.schedule.to_string());
        let who = |event: &Event| match *event {
            Event::Locked { worker, .. } => Some(worker),
            _ => None,
        };
        orders.insert(domain.take_trace().events.iter().filter_map(who).collect());
    }
    assert!(search.is_complete());
    (schedules, orders)
}

/// All schedules with up to so many deviations, from the rule alone.
struct Reference {
    /// What each worker has left to do.
    left: Vec<usize>,
    /// Whether it has been stopped just before an exchange.
    stopped: Vec<bool>,
    steps: Vec<usize>,
    schedules: Vec<String>,
}

impl Reference {
    fn schedules(workers: usize, times: usize, deviations: usize) -> Vec<String> {
        let (left, stopped) = (vec![times; workers], vec![false; workers]);
        let mut all = Self { left, stopped, steps: Vec::new(), schedules: Vec::new() };
        all.go_on(0, deviations);
        all.schedules
    }

    /// `worker` goes on from where it is.
    fn go_on(&mut self, worker: usize, deviations: usize) {
        if std::mem::replace(&mut self.stopped[worker], false) {
            self.exchange(worker, deviations);
            self.stopped[worker] = true;
            return;
        }
        let at_end = self.left[worker] == 0;
        // In turn, from the next one on.
        let others = (worker + 1..self.left.len()).chain(0..worker);
        let others: Vec<usize> = others.filter(|&other| self.left[other] > 0).collect();
        if at_end && others.is_empty() {
            let runs = self.steps.chunk_by(|one, other| one == other);
            let text: Vec<String> = runs.map(|run| format!("{}x{}", run[0], run.len())).collect();
            self.schedules.push(text.join(","));
            return;
        }
        let plain = if at_end { others[0] } else { worker };
        for next in std::iter::once(plain).chain(others.into_iter().filter(|&it| it != plain)) {
            let Some(rest) = deviations.checked_sub(usize::from(next != plain)) else { continue };
            self.steps.push(next);
            if next == worker {
                self.exchange(worker, rest);
            } else {
                self.stopped[worker] = !at_end;
                self.go_on(next, rest);
                self.stopped[worker] = false;
            }
            self.steps.pop();
        }
    }

    fn exchange(&mut self, worker: usize, deviations: usize) {
        self.left[worker] -= 1;
        self.go_on(worker, deviations);
        self.left[worker] += 1;
    }
}

fn gives_every_schedule_once(workers: usize, times: usize, deviations: usize) -> usize {
    let (schedules, _) = found(workers, times, deviations);
    let distinct: BTreeSet<String> = schedules.iter().cloned().collect();
    assert_eq!(distinct.len(), schedules.len(), "none is given twice");
    let expected = Reference::schedules(workers, times, deviations);
    let all: BTreeSet<String> = expected.iter().cloned().collect();
    assert_eq!(all.len(), expected.len(), "the reference has none twice either");
    assert_eq!(distinct, all, "{workers} workers, {times} times, {deviations} deviations");
    schedules.len()
}

#[test]
fn within_each_bound_every_schedule_of_a_small_history_is_given_exactly_once() {
    let counts: Vec<usize> = (0..6).map(|bound| gives_every_schedule_once(2, 2, bound)).collect();
    assert_eq!(counts[..2], [1, 3], "the plain one, and one other worker before either exchange");
    assert!(counts.is_sorted());
    assert_eq!(counts[4], counts[5], "no schedule of it deviates more often");
}

#[test]
fn a_third_worker_is_a_choice_of_its_own() {
    let counts: Vec<usize> = (0..4).map(|bound| gives_every_schedule_once(3, 1, bound)).collect();
    assert!(counts[0] == 1 && counts[1] < counts[2] && counts.is_sorted(), "{counts:?}");
}

#[test]
fn a_bound_that_is_large_enough_reaches_every_order_of_the_events() {
    let (_, orders) = found(2, 2, 4);
    assert_eq!(orders.len(), 6, "two out of four");
    let (_, orders) = found(3, 1, 4);
    assert_eq!(orders.len(), 6, "three in a row");
}

#[test]
fn with_store_buffers_no_schedule_is_given_twice_either() {
    let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
    let domain = Modelled::over(&region, Config::concurrent());
    let word = |index: usize| {
        // SAFETY: mapped, aligned, and only accessed atomically.
        unsafe { &*region.base().add(64 * index).cast::<PCell<u64>>() }
    };
    let program = |mine: usize| -> WorkerProgram<'_> {
        let domain = &domain;
        Box::new(move || {
            word(mine).store_ordered(domain, 1);
            word(1 - mine).load_acquire(domain);
            domain.fence();
        })
    };
    let mut search = BoundedSearch::new(3, 100_000);
    let (mut schedules, mut runs) = (BTreeSet::new(), 0);
    while let Some(policy) = search.next_policy() {
        let run = domain.run_workers(&policy, vec![program(0), program(1)]);
        search.ran(&run);
        runs += 1;
        assert!(schedules.insert(run.schedule.to_string()), "{} again", run.schedule);
    }
    assert!(search.is_complete() && runs == schedules.len() && runs > 20, "{runs}");
}
