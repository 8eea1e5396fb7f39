//! A power cut after which a run goes on.
//!
//! What is half done when the power is cut need not be made right by the recovery: often the next writer who comes there
//! does that. If it is not done durably, that may show only much later, after another power cut and in a state that it
//! takes many operations to come to. So there are runs that begin with what a power cut has left.

use std::collections::BTreeMap;
use std::ops::Range;

use lapis_device::{CrashCause, CrashPoints, CrashStates, Image, ImageBudget};

use super::Run;
use super::record::{Numbered, RecordError};
use crate::erased::{AnyState, AnySubject, hash_of};
use crate::image_check::{ImageChecker, guarded};
use crate::markers::Markers;
use crate::options::{ExploreOptions, Replay};
use crate::oracle::Failure;
use crate::report::Violation;
use crate::storage::Contents;

/// Random images among those that are chosen from, besides the extremes.
const SAMPLES: u32 = 8;
/// With more uncertain lines none is left early or late alone: a table that was being zeroed has tens of thousands, and as
/// many such images would take gigabytes.
const MOST_SITES: usize = 2048;

/// Of so many images the first is left whose recovery comes to an event, if there is one: what such a recovery does not do
/// durably shows only after another power cut, and most recoveries have nothing to do.
const LOOKED_AT: usize = 8;

/// One of the images of a crash point; which, `seed` and `choice` determine.
pub(crate) fn one_image(states: &CrashStates<'_>, seed: u64, choice: usize) -> Image {
    let budget = ImageBudget { exhaustive_limit: 0, samples: SAMPLES, seed };
    let images = states.sampled_images(budget);
    let mut images: Vec<Image> = match states.site_count() {
        ..=MOST_SITES => images.collect(),
        _ => images.without_single_sites().collect(),
    };
    images.swap_remove(choice % images.len())
}

/// A power cut in an operation or just after it, and the operations before.
#[derive(Clone, Debug)]
pub(crate) struct FirstCut {
    /// What was done before, by number; the last is the one in which the power is cut.
    pub(crate) operations: Numbered,
    /// Whether that was acknowledged.
    is_acknowledged: bool,
    cause: CrashCause,
    /// The events before it.
    pub(crate) position: usize,
    /// What it made of each uncertain line.
    pub(crate) image: Image,
    /// What there may be after it.
    allowed: Vec<AnyState>,
}

impl FirstCut {
    pub(super) fn allows(&self, state: &AnyState) -> bool {
        self.allowed.contains(state)
    }

    /// The violation that something goes wrong after it although it was survived itself.
    pub(crate) fn violation(
        self,
        subject: &dyn AnySubject,
        options: &ExploreOptions,
        failure: Failure,
    ) -> Violation {
        let number = |back: usize| self.operations.iter().rev().nth(back).map_or(0, |last| last.0);
        let in_flight = self.operations.last().filter(|_| !self.is_acknowledged);
        Violation {
            subject: subject.name().to_owned(),
            position: self.position,
            point: format!("{:?}", self.cause),
            operation: in_flight.map(|(number, operation)| format!("{number}: {operation:?}")),
            acknowledged: Some(number(usize::from(!self.is_acknowledged)) as u32),
            image: self.image.choices().to_vec(),
            newest: Vec::new(),
            killed: false,
            what: format!("after that, without another crash, {failure}"),
            failure,
            replay: options.run_command(subject.name()),
            shrunk: None,
        }
    }
}

/// Looks at images of an operation, of which one may be left.
#[derive(Debug)]
struct Looks {
    /// The crash points in the operation or just after it.
    positions: Vec<usize>,
    first: usize,
}

impl Looks {
    /// Those that the seed and the operation determine.
    fn at(positions: Vec<usize>, seed: u64, number: usize) -> Self {
        Self { positions, first: hash_of(&(seed, number)) as usize }
    }

    fn choice(&self, look: usize) -> usize {
        /// Odd, so that each look is at another choice.
        const STEP: usize = 0x9E37_79B9_7F4A_7C15;
        self.first.wrapping_add(look.wrapping_mul(STEP))
    }

    fn position(&self, look: usize) -> usize {
        self.positions[self.choice(look) % self.positions.len()]
    }

    fn image(&self, look: usize, states: &CrashStates<'_>) -> Image {
        let choice = self.choice(look);
        one_image(states, choice as u64, choice / self.positions.len())
    }
}

/// Power cuts in operations of a run, at one of the crash points in each or just after it; which, the seed determines.
pub(crate) struct Cuts<'r> {
    run: &'r Run,
    subject: &'r dyn AnySubject,
    options: &'r ExploreOptions,
    looks: BTreeMap<u32, Looks>,
    /// Of the operations of whose images one has something to be repaired: the first look at which it has, and what it
    /// is.
    repairs: BTreeMap<u32, (usize, Vec<&'static str>)>,
    checker: ImageChecker,
    points: CrashPoints<'r>,
    markers: Markers,
}

impl<'r> Cuts<'r> {
    /// The operations in which a cut leaves something to repair, by what the recovery comes to then.
    pub(crate) fn repaired(&self) -> BTreeMap<&'static str, Vec<usize>> {
        let mut cuts: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (begun, (_, repairs)) in &self.repairs {
            for repair in repairs {
                cuts.entry(*repair).or_default().push(self.run.number(*begun));
            }
        }
        cuts
    }

    /// Cuts the power in the operation of this number, which is behind the one of the call before, and leaves one of the
    /// images. One with something to repair, if one was found.
    pub(super) fn cut_in(&mut self, number: usize) -> Result<(FirstCut, Contents), RecordError> {
        let Self { run, subject, options, looks, repairs, checker, points, markers } = self;
        let found = looks.iter().find(|(begun, _)| run.number(**begun) == number);
        let Some((&begun, looks)) = found else {
            return Err(format!("the power cannot be cut in operation {number}").into());
        };
        let look = repairs.get(&begun).map_or(0, |(look, _)| *look);
        let position = looks.position(look);
        let cause = loop {
            let point =
                points.advance().ok_or_else(|| "there is no such crash point".to_owned())?;
            run.go_to(checker, points, point.position)?;
            markers.read(&run.trace.events, point.position);
            if point.position == position {
                break point.cause;
            }
        };
        let states = points.states();
        let image = looks.image(look, &states);
        checker.apply(&states, &image).map_err(|e| e.to_string())?;
        let left = checker.contents();
        let expectation = markers.expectation(run);
        let seed = markers.check_seed(options);
        let is_survived = checker.check(*subject, expectation, seed, 1).is_ok();
        checker.revert(&states, &image).map_err(|e| e.to_string())?;
        if !is_survived {
            let image = Some(image.choices().to_vec());
            return Err(RecordError::FirstCut(Replay { position, image }));
        }
        let allowed = expectation.acknowledged.into_iter().chain(expectation.in_flight);
        let allowed = allowed.map(|known| known.state.clone()).collect();
        let is_acknowledged = markers.ended == Some(begun);
        let operations = run.numbered(0..begun as usize);
        let cut = FirstCut { operations, is_acknowledged, cause, position, image, allowed };
        Ok((cut, left))
    }

    /// [`Self::cut_in`], and runs the operations that follow.
    pub(crate) fn run_on(&mut self, number: usize) -> Result<Run, RecordError> {
        let follows = self.run.numbers.partition_point(|before| *before <= number);
        self.run(number, self.run.numbered(follows..self.run.numbers.len()))
    }

    /// [`Self::cut_in`], and runs these operations.
    pub(super) fn run(&mut self, number: usize, after: Numbered) -> Result<Run, RecordError> {
        let (cut, left) = self.cut_in(number)?;
        let run = guarded(|| {
            let left = Some((cut.clone(), left));
            Run::record_from(self.subject, self.options, self.run.planned, after, left)
                .map_err(|what| Failure::Broken { what })
        });
        run.map_err(|failure| RecordError::AfterCut(Box::new(cut), failure))
    }
}

impl Run {
    /// Some of its operations, with their numbers.
    fn numbered(&self, which: Range<usize>) -> Numbered {
        let numbers = self.numbers[which.clone()].iter().copied();
        numbers.zip(self.operations[which].iter().cloned()).collect()
    }

    /// The power cuts in its operations from this one on.
    pub(crate) fn cuts<'r>(
        &'r self,
        subject: &'r dyn AnySubject,
        options: &'r ExploreOptions,
        from: usize,
    ) -> Result<Cuts<'r>, String> {
        let mut positions: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let (mut points, mut markers) = (self.crash_points(options), Markers::default());
        while let Some(point) = points.advance() {
            markers.read(&self.trace.events, point.position);
            let is_cut = |begun: &u32| {
                (1..=self.operations.len()).contains(&(*begun as usize))
                    && self.number(*begun) >= from
            };
            if let Some(begun) = markers.begun.filter(is_cut) {
                positions.entry(begun).or_default().push(point.position);
            }
        }
        let looks = positions.into_iter().map(|(begun, positions)| {
            (begun, Looks::at(positions, options.seed, self.number(begun)))
        });
        let looks = looks.collect();
        let repairs = self.repairs_found(subject, options, &looks)?;
        let checker = self.checker(subject, options)?;
        let (points, markers) = (self.crash_points(options), Markers::default());
        Ok(Cuts { run: self, subject, options, looks, repairs, checker, points, markers })
    }

    /// Of these operations those of whose images one has something to be repaired.
    fn repairs_found(
        &self,
        subject: &dyn AnySubject,
        options: &ExploreOptions,
        looks: &BTreeMap<u32, Looks>,
    ) -> Result<BTreeMap<u32, (usize, Vec<&'static str>)>, String> {
        let mut found: BTreeMap<u32, (usize, Vec<&'static str>)> = BTreeMap::new();
        let mut checker = self.checker(subject, options)?;
        let (mut points, mut markers) = (self.crash_points(options), Markers::default());
        while let Some(point) = points.advance() {
            self.go_to(&mut checker, &points, point.position)?;
            markers.read(&self.trace.events, point.position);
            let Some((begun, looks)) = markers.begun.and_then(|it| looks.get_key_value(&it)) else {
                continue;
            };
            let earlier = found.get(begun).map_or(LOOKED_AT, |(look, _)| *look);
            for look in (0..earlier).filter(|&look| looks.position(look) == point.position) {
                let states = points.states();
                let image = looks.image(look, &states);
                checker.apply(&states, &image).map_err(|e| e.to_string())?;
                let repairs = checker.repairs(subject, markers.expectation(self));
                checker.revert(&states, &image).map_err(|e| e.to_string())?;
                if !repairs.is_empty() {
                    found.insert(*begun, (look, repairs));
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Makes what a checker holds what was durable at a crash point, which is the one after that at which it is.
    fn go_to(
        &self,
        checker: &mut ImageChecker,
        points: &CrashPoints<'_>,
        position: usize,
    ) -> Result<(), String> {
        checker.bring_up_to_date(points).map_err(|e| e.to_string())?;
        let storage_bytes = self.storage_bytes(position);
        checker.region.grow_to(storage_bytes).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use lapis_device::{Event, Marker};
    use lapis_index::{IndexKind, IndexOptions};
    use lapis_pmem::Mutant;

    use super::*;
    use crate::explore::explore_any;
    use crate::faulty_sum::FaultySum;
    use crate::run::Phase;
    use crate::subjects::IndexSubject;

    fn subject() -> IndexSubject<u64> {
        IndexSubject::new(IndexKind::Wort, "wort:u64", &["wort"], IndexOptions::default(), 40)
    }

    fn cut_in(cut_in: usize, seed: u64) -> Run {
        let options = ExploreOptions { ops: 30, seed, cut_in, ..ExploreOptions::default() };
        Run::record(&subject(), &options).unwrap()
    }

    #[test]
    fn what_follows_begins_with_the_opening_and_with_one_of_the_states_that_the_cut_allows() {
        let run = cut_in(12, 1);
        let cut = run.first_cut.as_ref().unwrap();
        assert_eq!(cut.operations.last().unwrap().0, 12);
        assert_eq!(run.numbers, (13..=30).collect::<Vec<_>>());
        assert_eq!(run.phase(1), Phase::Open);
        assert!(cut.allows(&run.states[0]));
        let first = &run.trace.events[0];
        assert!(matches!(first, Event::Marker { marker: Marker::Begin(0), .. }), "{first:?}");
    }

    #[test]
    fn the_seed_determines_the_cut() {
        let of = |seed| {
            let cut = cut_in(12, seed).first_cut.unwrap();
            (cut.position, cut.image)
        };
        assert_eq!(of(1), of(1));
        assert!((2..20).any(|seed| of(seed) != of(1)));
    }

    #[test]
    fn an_operation_that_is_left_out_is_not_cut() {
        let keep = Some(vec![1, 2, 3]);
        let options = ExploreOptions { ops: 30, cut_in: 12, keep, ..ExploreOptions::default() };
        let run = Run::record(&subject(), &options).unwrap();
        assert!(run.first_cut.is_none());
        assert!(!options.replay_command("wort:u64", 1, None).contains("--cut-in"));
    }

    #[test]
    fn the_power_is_cut_again_from_the_first_operation_on_and_not_in_the_opening() {
        let options = ExploreOptions { ops: 30, cut_in: 12, ..ExploreOptions::default() };
        let report = explore_any(&subject(), &options, &|_| {}).unwrap();
        assert!(report.violations.is_empty() && report.images > 50, "{report:?}");
        let run = cut_in(12, 1);
        let positions = report.outcomes.keys().map(|(_, position)| *position);
        assert!(positions.min().unwrap() >= run.begin_of(13));
    }

    #[test]
    fn a_first_cut_that_is_not_survived_is_told_and_shrunk_as_any_other() {
        let mutant = Some(Mutant("wort/missing-leaf-flush"));
        let options = ExploreOptions { ops: 30, cut_in: 3, mutant, ..ExploreOptions::default() };
        let is_lost = |seed: &u64| {
            let options = ExploreOptions { seed: *seed, ..options.clone() };
            matches!(Run::record(&subject(), &options), Err(RecordError::FirstCut(_)))
        };
        let seed = (1..40).find(is_lost).expect("a leaf that is not flushed is lost in some image");
        let options = ExploreOptions { seed, shrink: true, ..options };
        let report = explore_any(&subject(), &options, &|_| {}).unwrap();
        let [violation] = &report.violations[..] else { panic!("{report:?}") };
        assert!(violation.replay.contains(" --keep 1,2,3 "), "{}", violation.replay);
        let shrunk = violation.shrunk.as_ref().expect("it is shrunk");
        assert!(shrunk.operations.len() < 3 && !shrunk.timeline.is_empty(), "{shrunk:?}");
    }

    #[test]
    fn what_goes_wrong_after_the_cut_without_another_is_a_violation_and_no_failure_of_the_run() {
        let options = ExploreOptions { ops: 12, cut_in: 3, ..ExploreOptions::default() };
        let report = explore_any(&FaultySum::WornOut, &options, &|_| {}).unwrap();
        let [violation] = &report.violations[..] else { panic!("{report:?}") };
        let what = "after that, without another crash, it no longer works: it is worn out";
        assert_eq!(violation.what, what);
        assert_eq!(violation.replay, "lapis crash worn-out --ops 12 --seed 1 --cut-in 3");
        // Of this seed it is just after the acknowledgement.
        assert_eq!((violation.acknowledged, &violation.operation), (Some(3), &None));
    }
}
