//! A number of images, spread over the crash points of a run.

use lapis_device::CrashPoints;

use crate::options::ExploreOptions;
use crate::run::Run;

/// How a number of images is spread over the crash points of a run: the same whoever explores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    /// One crash point in so many is tried.
    pub(crate) stride: u64,
    /// Images at each of them, at most.
    pub(crate) per_point: u64,
    /// So many of the first are all tried.
    dense: u64,
}

impl Spread {
    /// Fewer images of a crash point are hardly worth it: nothing and everything.
    pub(crate) const LEAST: u64 = 4;
    /// All that there are.
    pub(crate) const ALL: Self = Self { stride: 1, per_point: u64::MAX, dense: 0 };

    /// Over those from an operation on. Behind a first power cut, half of them go to those that come first: what was made
    /// right by halves may be overtaken by whatever happens next, and be right from then on.
    pub(crate) fn of(run: &Run, first_operation: usize, options: &ExploreOptions) -> Self {
        if options.spread_images == 0 || options.replay.is_some() {
            return Self::ALL;
        }
        let (begin, images) = (run.begin_of(first_operation), options.spread_images);
        if run.first_cut.is_none() {
            return Self::behind(run.crash_points(options), begin, images);
        }
        let mut points = run.crash_points(options);
        let positions = std::iter::from_fn(|| points.advance()).map(|point| point.position);
        let passed = positions.take_while(|position| *position <= begin).count() as u64;
        let few = images.div_ceil(2);
        Self {
            dense: passed + few / Self::LEAST,
            ..Self::behind(run.crash_points(options), begin, few)
        }
    }

    /// So many images over those behind the first `begin` events.
    pub(crate) fn behind(mut points: CrashPoints<'_>, begin: usize, images: u64) -> Self {
        let positions = std::iter::from_fn(|| points.advance()).map(|point| point.position);
        let count = positions.filter(|position| *position > begin).count() as u64;
        Self::over(count, images)
    }

    fn over(points: u64, images: u64) -> Self {
        let stride = (points * Self::LEAST).div_ceil(images).clamp(1, points.max(1));
        let per_point = images / points.div_ceil(stride).max(1);
        Self { stride, per_point: per_point.max(Self::LEAST), dense: 0 }
    }

    pub(crate) fn takes(&self, index: usize) -> bool {
        index as u64 <= self.dense || (index as u64).is_multiple_of(self.stride)
    }

    /// Half of the images at a crash point are left for the extremes and the random ones.
    pub(crate) fn within(&self, options: &ExploreOptions) -> ExploreOptions {
        let samples = u32::try_from(self.per_point).unwrap_or(u32::MAX);
        ExploreOptions {
            exhaustive_limit: options.exhaustive_limit.min(self.per_point.div_ceil(2)),
            samples: options.samples.min(samples),
            ..options.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_images_are_spread_over_all_crash_points() {
        assert_eq!(Spread::over(1000, 100), Spread { stride: 40, per_point: 4, dense: 0 });
        assert_eq!(Spread::over(10, 100), Spread { stride: 1, per_point: 10, dense: 0 });
        assert_eq!(Spread::over(10, 1), Spread { stride: 10, per_point: 4, dense: 0 });
    }

    #[test]
    fn the_first_crash_points_are_all_tried_where_they_are_to_be() {
        let spread = Spread { stride: 10, per_point: 4, dense: 3 };
        assert_eq!(
            (1..=20).filter(|&index| spread.takes(index)).collect::<Vec<_>>(),
            [1, 2, 3, 10, 20]
        );
    }
}
