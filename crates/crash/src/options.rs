//! What to explore, and how thoroughly.

use std::time::Instant;

use lapis_device::{Config, Image, PersistPoint};
use lapis_pmem::{Mutant, Optimisations};

use crate::stop_flag::StopFlag;
use crate::strategy::Strategy;

/// How to explore.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// Operations to run.
    pub ops: usize,
    /// Determines the operations and the sampled images.
    pub seed: u64,
    /// Only these of the operations, by number from 1 on, in ascending order.
    pub keep: Option<Vec<usize>>,
    /// Cut the power in this operation first, at a crash point and with an image that the seed determines, and let what is
    /// explored begin with what that leaves; 0: in none, and neither in one that is not kept.
    pub cut_in: usize,
    /// Cut the power only from this operation on; 0 is the creation.
    pub first_operation: usize,
    /// Indexes have so many keys beforehand, and the power is cut in what comes after; 0 as each run says.
    pub filled: u64,
    /// Of a structure as a whole, runs that begin with much are among those explored.
    pub long_runs: bool,
    /// How the images of a crash point are chosen.
    pub strategy: Strategy,
    /// Cut the power after every store and every flush, not only where something becomes durable.
    pub every_store: bool,
    /// Images to stop after; 0 for no limit.
    pub image_limit: u64,
    /// Spread about so many images over the crash points of each subject, those of second crashes
    /// not counted; 0 for no limit. Of many crash points, one in so many is tried then.
    pub spread_images: u64,
    /// Stop then.
    pub deadline: Option<Instant>,
    /// Stop as soon as it is raised.
    pub stop: StopFlag,
    /// The most images that a crash point is given by the exhaustive and the pruned strategy.
    pub exhaustive_limit: u64,
    /// Random images where those are not all, and of the sampled strategy, besides the extremes.
    pub samples: u32,
    /// One in so many images is crashed again during its recovery; 0 for none.
    pub crash_in_recovery_every: u64,
    /// Every image is recovered and its contents are compared. One in so many, chosen by the crash
    /// point and by what was recovered, is then checked whole: invariants, space, a second opening,
    /// operations. 1 for all.
    pub whole_check_every: u64,
    /// The first image of each crash point is checked whole too.
    pub whole_check_at_each_point: bool,
    /// With the pruned strategy, walks over the structure leave out the parts in which nothing is read
    /// that is different from when they were last walked over. Nothing comes out otherwise without.
    pub remember_walks: bool,
    /// Threads.
    pub threads: usize,
    /// Stop at this many violations: those that come first, whatever the threads.
    pub violation_limit: usize,
    /// With which of the amplification study's optimisations. Of those that do not concern a structure, it has what
    /// it is built with.
    pub optimisations: Optimisations,
    /// A flush or fence to switch off.
    pub suppress: Option<PersistPoint>,
    /// An error to commit.
    pub mutant: Option<Mutant>,
    /// Shrink the first violation, and tell it step by step.
    pub shrink: bool,
    /// Only this image.
    pub replay: Option<Replay>,
}

/// One image of one crash point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Events before the crash.
    pub position: usize,
    /// The state chosen for each uncertain line; or none: the process is killed there while the
    /// machine runs on, and the power is cut during the recovery.
    pub image: Option<Vec<u32>>,
}

impl Default for ExploreOptions {
    fn default() -> Self {
        Self {
            ops: 300,
            seed: 1,
            keep: None,
            cut_in: 0,
            first_operation: 0,
            filled: 0,
            long_runs: false,
            strategy: Strategy::default(),
            every_store: false,
            image_limit: 0,
            spread_images: 0,
            deadline: None,
            stop: StopFlag::default(),
            exhaustive_limit: 1 << 12,
            samples: 256,
            crash_in_recovery_every: 256,
            whole_check_every: 1,
            whole_check_at_each_point: true,
            remember_walks: true,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            violation_limit: 10,
            optimisations: Optimisations::AS_BUILT,
            suppress: None,
            mutant: None,
            shrink: false,
            replay: None,
        }
    }
}

impl ExploreOptions {
    /// Whether the time is used up, or somebody asks for the end.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_raised() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// `config` with what is switched off or on.
    pub(crate) fn on(&self, config: Config) -> Config {
        let optimisations = self.optimisations;
        Config { suppress: self.suppress, mutant: self.mutant, optimisations, ..config }
    }

    /// The operations up to the one in which the power is cut first, all of whose images are there to be tried.
    pub(crate) fn up_to_the_first_cut(&self) -> Self {
        let kept = |number: &usize| self.keep.as_ref().is_none_or(|keep| keep.contains(number));
        let keep = Some((1..=self.cut_in).filter(kept).collect());
        Self { keep, cut_in: 0, replay: None, ..self.clone() }
    }

    /// The command that shows an image of a subject again; none: the process is killed there.
    pub(crate) fn replay_command(
        &self,
        subject: &str,
        position: usize,
        image: Option<&Image>,
    ) -> String {
        let image = match image.map(Image::choices) {
            None => "killed".to_owned(),
            Some([]) => "-".to_owned(),
            Some(choices) => with_commas(choices),
        };
        format!("{} --at {position} --image {image}", self.run_command(subject))
    }

    /// The command that explores a subject in this way.
    pub(crate) fn run_command(&self, subject: &str) -> String {
        let keep = self.keep.as_ref().map_or(String::new(), |keep| {
            let numbers = with_commas(keep);
            format!(" --keep {}", if keep.is_empty() { "-" } else { &numbers })
        });
        let is_kept = self.keep.as_ref().is_none_or(|keep| keep.contains(&self.cut_in));
        let cut_in = match self.cut_in {
            number @ 1.. if is_kept => format!(" --cut-in {number}"),
            _ => String::new(),
        };
        let optimisations = match self.optimisations {
            Optimisations::AS_BUILT => String::new(),
            others => format!(" --optimisations {others}"),
        };
        let every_store = if self.every_store { " --every-store" } else { "" };
        let filled = match self.filled {
            0 => String::new(),
            keys => format!(" --filled {keys}"),
        };
        let without = self.suppress.map_or(String::new(), |point| format!(" --without '{point}'"));
        let mutant = self.mutant.map_or(String::new(), |mutant| format!(" --mutant {}", mutant.0));
        format!(
            "lapis crash {subject} --ops {} --seed {}{filled}{cut_in}{keep}{without}{mutant}{optimisations}{every_store}",
            self.ops, self.seed,
        )
    }
}

fn with_commas(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
