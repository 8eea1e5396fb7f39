//! Shrinking a violation: the shortest sequence of operations that still shows one of its kind, and
//! an image that differs from the oldest or the newest in as few lines as possible.
//!
//! Operations are taken away from the front first (most violations need only the last few), then in
//! chunks and one by one (the method of delta debugging: Zeller and Hildebrandt, IEEE TSE 2002).
//! Each try is an exploration of its own, so the effort is bounded by their number and by images,
//! never by time: the same violation shrinks to the same case everywhere.

use std::cell::Cell;
use std::convert::Infallible;

use lapis_device::Image;

use crate::crash_walk::explore_once;
use crate::erased::AnySubject;
use crate::fewer::{fewer, nearest};
use crate::options::{ExploreOptions, Replay};
use crate::oracle::Failure;
use crate::report::{Shrunk, Violation};
use crate::strategy::Strategy;
use crate::timeline::draw;

/// Explorations to try at most.
const MOST_EXPLORATIONS: u64 = 400;
/// Images to try at most.
const MOST_IMAGES: u64 = 300_000;
/// Images at one crash point.
const IMAGES_PER_POINT: u64 = 256;
/// Random images at one crash point that has more.
const SAMPLES_PER_POINT: u32 = 32;

struct Shrinking<'s> {
    subject: &'s dyn AnySubject,
    options: ExploreOptions,
    kind: std::mem::Discriminant<Failure>,
    explorations: u64,
    images: u64,
}

/// Shrinks a violation that `options` led to. None if it cannot be shown again.
pub(crate) fn shrink(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    violation: &Violation,
) -> Option<Shrunk> {
    let every = match (&violation.failure, violation.killed) {
        (_, true) => 32,
        (Failure::DuringRecovery { .. }, false) => 8,
        _ => 0,
    };
    let options = ExploreOptions {
        strategy: Strategy::Pruned,
        image_limit: 0,
        spread_images: 0,
        exhaustive_limit: options.exhaustive_limit.min(IMAGES_PER_POINT),
        samples: options.samples.min(SAMPLES_PER_POINT),
        crash_in_recovery_every: every,
        violation_limit: 1,
        replay: None,
        first_operation: 0,
        ..options.clone()
    };
    let mut shrinking = Shrinking {
        subject,
        options,
        kind: std::mem::discriminant(&violation.failure),
        explorations: 0,
        images: 0,
    };
    let (keep, found) = shrinking.operations(violation)?;
    let found = shrinking.lines(&keep, found);
    let options = ExploreOptions { keep: Some(keep), ..shrinking.options.clone() };
    let mut shrunk = draw(subject, &options, &found).ok()?;
    shrunk.explorations = shrinking.explorations;
    Some(shrunk)
}

impl Shrinking<'_> {
    /// The shortest sequence found, and its violation.
    fn operations(&mut self, violation: &Violation) -> Option<(Vec<usize>, Violation)> {
        if let Some(found) = self.attempt(&[]) {
            return Some((Vec::new(), found));
        }
        // There is no violation in the creation.
        self.options.first_operation = 1;
        // Nothing after the operation in flight can matter.
        let last = violation.last_operation().unwrap_or(self.options.ops);
        let all: Vec<usize> = match &self.options.keep {
            Some(keep) => keep.iter().copied().filter(|&number| number <= last).collect(),
            None => (1..=last.min(self.options.ops)).collect(),
        };
        let mut best = None;
        let mut length = 1;
        while best.is_none() {
            let suffix = &all[all.len().saturating_sub(length)..];
            if let Some(found) = self.attempt(suffix) {
                best = Some((suffix.to_vec(), found));
            } else if suffix.len() == all.len() {
                // Only this very image of the whole run shows it, if anything does.
                let found = self.replay(&all, violation.position, violation.replayed_image())?;
                return Some((all, found));
            }
            length *= 2;
        }
        let (all, mut found) = best?;
        let spent = Cell::new(false);
        let holds = |rest: &[usize]| {
            let shorter = self.attempt(rest);
            spent.set(self.is_spent());
            let holds = shorter.is_some();
            found = shorter.unwrap_or_else(|| found.clone());
            Ok::<_, Infallible>(holds)
        };
        let Ok(keep) = fewer(all, 1, holds, || spent.get());
        Some((keep, found))
    }

    /// Moves the image towards the oldest and towards the newest.
    fn lines(&mut self, keep: &[usize], found: Violation) -> Violation {
        if found.killed {
            return found;
        }
        let ends = [vec![0; found.image.len()], found.newest.clone()];
        let show = |image| Ok::<_, Infallible>(self.replay(keep, found.position, Some(image)));
        let Ok(nearest) = nearest(&found, |found| found.image.clone(), ends, show);
        nearest
    }

    fn is_spent(&self) -> bool {
        let stopped = self.options.stop.is_raised();
        stopped || self.explorations >= MOST_EXPLORATIONS || self.images >= MOST_IMAGES
    }

    /// A violation of the same kind among the crashes of these operations.
    fn attempt(&mut self, keep: &[usize]) -> Option<Violation> {
        let image_limit = MOST_IMAGES.saturating_sub(self.images).max(1);
        let options =
            ExploreOptions { keep: Some(keep.to_vec()), image_limit, ..self.options.clone() };
        self.explore(&options)
    }

    /// The same crash of these operations with another image.
    fn replay(
        &mut self,
        keep: &[usize],
        position: usize,
        image: Option<Vec<u32>>,
    ) -> Option<Violation> {
        let options = ExploreOptions {
            keep: Some(keep.to_vec()),
            replay: Some(Replay { position, image }),
            ..self.options.clone()
        };
        self.explore(&options)
    }

    fn explore(&mut self, options: &ExploreOptions) -> Option<Violation> {
        if self.is_spent() {
            return None;
        }
        self.explorations += 1;
        let report = explore_once(self.subject, options, &|_| {}).ok()?;
        self.images += report.images;
        let same = |violation: &Violation| std::mem::discriminant(&violation.failure) == self.kind;
        report.violations.into_iter().find(same)
    }
}

impl Violation {
    /// The number of the last operation that had begun.
    fn last_operation(&self) -> Option<usize> {
        let in_flight = self.operation.as_deref().and_then(|text| text.split(':').next());
        in_flight.and_then(|number| number.parse().ok()).or(self.acknowledged.map(|n| n as usize))
    }

    fn replayed_image(&self) -> Option<Vec<u32>> {
        (!self.killed).then(|| self.image.clone())
    }

    /// As an image, if the power was cut at once.
    pub(crate) fn as_image(&self) -> Option<Image> {
        self.replayed_image().map(Image::from_choices)
    }
}
