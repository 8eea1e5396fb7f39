//! Shrinking a violation of several workers: few calls, little beforehand, a schedule with few
//! deviations or at least few changes of worker, and an image that differs in few lines.
//!
//! A call less and the rest of the run is another one. What is tried after taking calls away is the
//! schedule as it was without what they did, then some others; so a violation that needs an
//! interleaving of its own is not lost with the first call that is not needed. The effort is bounded
//! by the number of runs: the same violation shrinks to the same case everywhere.

use std::cell::Cell;

use lapis_device::{BoundedSearch, Image, Schedule, SchedulePolicy};

use super::case::Case;
use super::machines::{Found, Machines, Ran, Tally, Wanted};
use super::options::{ConcurrentOptions, ConcurrentReplay, Selection, policy_of};
use super::report::ConcurrentViolation;
use super::rule::BrokenRule;
use super::timeline::draw;
use crate::erased::AnyConcurrentSubject;
use crate::fewer::{fewer, nearest};
use crate::report::Shrunk;
use crate::subject::text;

/// Runs to try at most.
const MOST_RUNS: u64 = 3000;
/// Images at one crash point.
const IMAGES_PER_POINT: u64 = 64;
/// Random schedules that are tried for calls that the schedule as it was does not serve.
const OTHER_SCHEDULES: u64 = 6;
/// Schedules with one deviation, and with two, that are tried for the calls that are left.
const DEVIATING_SCHEDULES: [u64; 3] = [1, 300, 600];
/// Of calls that many, all schedules with few deviations are many.
const MOST_DEVIATING_CALLS: usize = 6;

struct Shrinking<'b> {
    machines: Machines<'b>,
    prepared: Option<Selection>,
    seed: u64,
    rule: BrokenRule,
    runs: u64,
}

/// Shrinks a violation that `options` led to. None if it cannot be shown again.
///
/// # Errors
/// What could not be done at all.
pub(super) fn shrink(
    subject: &dyn AnyConcurrentSubject,
    options: &ConcurrentOptions,
    violation: &ConcurrentViolation,
) -> Result<Option<Shrunk>, String> {
    let options = ConcurrentOptions {
        exhaustive_limit: options.exhaustive_limit.min(IMAGES_PER_POINT),
        replay: ConcurrentReplay::default(),
        ..options.clone()
    };
    let machines = Machines::new(subject, &options, true)?;
    let (seed, rule) = (violation.seed, violation.rule);
    let mut shrinking = Shrinking { machines, prepared: None, seed, rule, runs: 0 };
    let schedule: Schedule = violation.schedule.parse().map_err(text)?;
    let first = Selection::of(&options);
    let Some(mut case) = shrinking.attempt(&first, &SchedulePolicy::Replay(schedule))? else {
        return Ok(None);
    };
    shrinking.calls(&mut case)?;
    shrinking.beforehand(&mut case)?;
    shrinking.deviations(&mut case)?;
    shrinking.calls(&mut case)?;
    shrinking.beforehand(&mut case)?;
    if case.deviations.is_none() {
        shrinking.switches(&mut case)?;
    }
    shrinking.prefix(&mut case)?;
    shrinking.lines(&mut case)?;
    case.runs = shrinking.runs;
    let ran = shrinking.run(&case.selection, &SchedulePolicy::Replay(case.schedule.clone()))?;
    draw(&mut shrinking.machines, &ran, &case).map(Some)
}

impl Shrinking<'_> {
    fn is_spent(&self) -> bool {
        self.runs >= MOST_RUNS || self.machines.options.stop.is_raised()
    }

    fn run(&mut self, selection: &Selection, policy: &SchedulePolicy) -> Result<Ran, String> {
        if self.prepared.as_ref() != Some(selection) {
            self.machines.prepare(self.seed, selection)?;
            self.prepared = Some(selection.clone());
        }
        self.runs += 1;
        self.machines.run(policy)
    }

    /// What is wrong with a run, if it is what was wrong at first.
    fn same(&mut self, ran: &Ran, wanted: Wanted<'_>) -> Result<Option<Found>, String> {
        let found = match &ran.wrong {
            Some(wrong) => Some(wrong.clone()),
            None => self.machines.cut_power(ran, wanted, &mut Tally::default())?,
        };
        Ok(found.filter(|found| found.rule.is_like(self.rule)))
    }

    /// The violation among the crashes of these calls on this schedule.
    fn attempt(
        &mut self,
        selection: &Selection,
        policy: &SchedulePolicy,
    ) -> Result<Option<Case>, String> {
        if self.is_spent() {
            return Ok(None);
        }
        let ran = self.run(selection, policy)?;
        let found = self.same(&ran, Wanted::default())?;
        Ok(found.map(|found| Case::of(&self.machines, &ran, found)))
    }

    /// Like [`Shrinking::attempt`], on the schedule of `case` first and then on some others; or on
    /// those with no more deviations, if it has few.
    fn attempt_some(&mut self, selection: &Selection, case: &Case) -> Result<Option<Case>, String> {
        if let Some(most) = case.deviations {
            return self.deviating(selection, most);
        }
        let left_out = case.spans.iter().filter(|(number, ..)| !selection.has_call(*number));
        let spans: Vec<_> = left_out.map(|(_, worker, span)| (*worker, span.clone())).collect();
        let guide = SchedulePolicy::Guided(case.schedule.without_spans(&spans));
        let seed = self.seed;
        let others = (0..OTHER_SCHEDULES).map(|number| policy_of(seed.wrapping_add(number)));
        for policy in std::iter::once(guide).chain(others) {
            if let Some(found) = self.attempt(selection, &policy)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Takes calls away, in chunks and then one by one, as long as the violation stays.
    fn calls(&mut self, case: &mut Case) -> Result<(), String> {
        // Nothing that began after the crash can matter.
        if let Some(position) = case.found.position() {
            let ran = self.run(&case.selection, &SchedulePolicy::Replay(case.schedule.clone()))?;
            let begun = ran.history.until(position);
            let calls = begun.iter().map(|call| call.number).collect();
            self.take(case, Selection { calls: Some(calls), ..case.selection.clone() })?;
        }
        let calls = case.calls().to_vec();
        self.fewer(case, calls, |rest, selection| selection.calls = Some(rest))
    }

    /// Takes away what was done beforehand: all at once, or in chunks and then one by one.
    fn beforehand(&mut self, case: &mut Case) -> Result<(), String> {
        if self.take(case, Selection { before: Some(Vec::new()), ..case.selection.clone() })? {
            return Ok(());
        }
        let before = case.before().to_vec();
        self.fewer(case, before, |rest, selection| selection.before = Some(rest))
    }

    fn fewer(
        &mut self,
        case: &mut Case,
        numbers: Vec<u32>,
        put: impl Fn(Vec<u32>, &mut Selection),
    ) -> Result<(), String> {
        let spent = Cell::new(false);
        let holds = |rest: &[u32]| {
            let mut selection = case.selection.clone();
            put(rest.to_vec(), &mut selection);
            let taken = self.take(case, selection);
            spent.set(self.is_spent());
            taken
        };
        fewer(numbers, 0, holds, || spent.get()).map(|_| ())
    }

    /// Goes on from `selection` if it still shows the violation.
    fn take(&mut self, case: &mut Case, selection: Selection) -> Result<bool, String> {
        if selection == case.selection {
            return Ok(false);
        }
        let found = self.attempt_some(&selection, case)?;
        let taken = found.is_some();
        if let Some(found) = found {
            *case = found;
        }
        Ok(taken)
    }

    /// Looks for a schedule with as few deviations as possible.
    fn deviations(&mut self, case: &mut Case) -> Result<(), String> {
        if case.calls().len() > MOST_DEVIATING_CALLS {
            return Ok(());
        }
        let selection = case.selection.clone();
        let most = DEVIATING_SCHEDULES.len() - 1;
        let Some(found) = self.deviating(&selection, most)? else { return Ok(()) };
        *case = found;
        Ok(())
    }

    fn deviating(&mut self, selection: &Selection, most: usize) -> Result<Option<Case>, String> {
        for (deviations, limit) in DEVIATING_SCHEDULES.into_iter().enumerate().take(most + 1) {
            let mut search = BoundedSearch::new(deviations, limit);
            while let Some(policy) = search.next_policy().filter(|_| !self.is_spent()) {
                let ran = self.run(selection, &policy)?;
                if let Some(found) = self.same(&ran, Wanted::default())? {
                    let deviations = match &policy {
                        SchedulePolicy::Deviations(deviations) => Some(deviations.len()),
                        _ => None,
                    };
                    return Ok(Some(Case { deviations, ..Case::of(&self.machines, &ran, found) }));
                }
                search.ran(&ran.run);
            }
        }
        Ok(None)
    }

    /// Lets workers that were interrupted go on, where the violation stays.
    fn switches(&mut self, case: &mut Case) -> Result<(), String> {
        self.prefix(case)?;
        let mut at = 0;
        loop {
            let stretches = case.schedule.stretches();
            let Some((worker, span)) = stretches.get(at).cloned() else { return Ok(()) };
            let before = stretches[..at].iter().rfind(|(other, _)| *other == worker);
            let moved = before.map(|(_, it)| {
                SchedulePolicy::Guided(case.schedule.with_span_moved(worker, span, it.end))
            });
            at += 1;
            let Some(policy) = moved else { continue };
            if let Some(mut found) = self.attempt(&case.selection, &policy)? {
                self.prefix(&mut found)?;
                if found.schedule.switches() < case.schedule.switches() {
                    (*case, at) = (found, 0);
                }
            }
        }
    }

    /// Cuts off what the schedule says of the time after the crash.
    fn prefix(&mut self, case: &mut Case) -> Result<(), String> {
        let (mut short, mut long) = (0, case.schedule.len());
        while short < long {
            let middle = usize::midpoint(short, long);
            let policy = SchedulePolicy::Replay(case.schedule.prefix(middle));
            let ran = self.run(&case.selection, &policy)?;
            if self.shows(&ran, case)? {
                long = middle;
            } else {
                short = middle + 1;
            }
        }
        case.schedule = case.schedule.prefix(long);
        Ok(())
    }

    /// Whether a run shows the same: nothing else has happened up to the crash.
    fn shows(&mut self, ran: &Ran, case: &Case) -> Result<bool, String> {
        let Some(position) = case.found.position() else {
            let found = self.same(ran, Wanted::default())?;
            return Ok(found.is_some_and(|found| found.at.is_none()));
        };
        Ok(ran.wrong.is_none() && ran.trace.units_before(position) == case.events)
    }

    /// Moves the image towards the oldest and towards the newest.
    fn lines(&mut self, case: &mut Case) -> Result<(), String> {
        let Some((point, image)) = case.found.at.clone() else { return Ok(()) };
        let ran = self.run(&case.selection, &SchedulePolicy::Replay(case.schedule.clone()))?;
        let position = Some(point.position);
        let newest = self.machines.newest(&ran, point.position).choices().to_vec();
        let ends = [vec![0; image.choices().len()], newest];
        let show = |image: Vec<u32>| self.same(&ran, Wanted { position, image: Some(&image) });
        case.found = nearest(&case.found, |found| found.image().to_vec(), ends, show)?;
        Ok(())
    }
}

impl Machines<'_> {
    /// The image of a crash of `ran` in which everything has persisted.
    fn newest(&self, ran: &Ran, position: usize) -> Image {
        self.at_crash(ran, position, |_, states| states.everything())
            .unwrap_or_else(|| Image::from_choices(Vec::new()))
    }
}
