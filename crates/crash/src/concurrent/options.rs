//! What to explore with several workers, and how to show it again.

use lapis_device::{PersistPoint, Schedule, SchedulePolicy};
use lapis_pmem::Mutant;

use crate::stop_flag::StopFlag;

/// How to explore a structure with several workers.
#[derive(Clone, Debug)]
pub struct ConcurrentOptions {
    /// Workers.
    pub workers: usize,
    /// Calls of one history, all workers together.
    pub ops: usize,
    /// Determines the calls, the schedules, the sampled images, and whether a history begins with what a power cut has
    /// left: the first history has this seed, the next the next.
    pub seed: u64,
    /// Only these of the calls, by number from 1 on, in ascending order.
    pub keep: Option<Vec<u32>>,
    /// Only these of the operations that make what there is beforehand, likewise.
    pub keep_before: Option<Vec<u32>>,
    /// Histories to run.
    pub schedules: u64,
    /// Instead of random schedules of many histories, all schedules of one with up to so many
    /// deviations from running worker after worker, and no more than `schedules` of them.
    pub most_deviations: Option<usize>,
    /// Explore the histories of an index that are made for one error each, too: on all schedules with one deviation.
    pub planned: bool,
    /// At a crash point with up to this many images, all are tried.
    pub exhaustive_limit: u64,
    /// Beyond that, this many sampled ones besides the extremes.
    pub samples: u32,
    /// Threads of this machine.
    pub threads: usize,
    /// Stop at this many violations: those that come first, whatever the threads.
    pub violation_limit: usize,
    /// Stop as soon as it is raised.
    pub stop: StopFlag,
    /// A flush or fence to switch off.
    pub suppress: Option<PersistPoint>,
    /// A known error to commit.
    pub mutant: Option<Mutant>,
    /// Shrink the first violation, and tell it step by step.
    pub shrink: bool,
    /// Only this.
    pub replay: ConcurrentReplay,
}

/// What of an exploration to show again; everything where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConcurrentReplay {
    /// The schedule, instead of that of the seed.
    pub schedule: Option<Schedule>,
    /// Events before the crash.
    pub position: Option<usize>,
    /// The state chosen for each uncertain line.
    pub image: Option<Vec<u32>>,
}

impl Default for ConcurrentOptions {
    fn default() -> Self {
        Self {
            workers: 3,
            ops: 12,
            seed: 1,
            keep: None,
            keep_before: None,
            schedules: 200,
            most_deviations: None,
            planned: false,
            exhaustive_limit: 64,
            samples: 16,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            violation_limit: 10,
            stop: StopFlag::default(),
            suppress: None,
            mutant: None,
            shrink: false,
            replay: ConcurrentReplay::default(),
        }
    }
}

/// Which calls and which operations beforehand there are, by number; all where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) calls: Option<Vec<u32>>,
    pub(super) before: Option<Vec<u32>>,
}

impl Selection {
    pub(super) fn of(options: &ConcurrentOptions) -> Self {
        Self { calls: options.keep.clone(), before: options.keep_before.clone() }
    }

    pub(super) fn has_call(&self, number: u32) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.contains(&number))
    }

    pub(super) fn has_before(&self, number: u32) -> bool {
        self.before.as_ref().is_none_or(|before| before.contains(&number))
    }
}

/// A quarter of the histories has workers with priorities; of the others, which run on random schedules, every other
/// one has interruptions where something is made durable.
pub(super) fn policy_of(seed: u64) -> SchedulePolicy {
    match seed % 4 {
        1 => SchedulePolicy::AtPersists { seed },
        2 if (seed / 4).is_multiple_of(2) => SchedulePolicy::AtPersists { seed },
        3 => SchedulePolicy::Priorities { seed, changes: 1 + (seed / 4 % 4) as u32, events: 300 },
        _ => SchedulePolicy::Random { seed },
    }
}

/// The command that shows a violation again.
pub(super) fn replay_command(
    subject: &str,
    options: &ConcurrentOptions,
    seed: u64,
    selection: &Selection,
    crash: Option<(usize, &[u32])>,
    schedule: Option<&Schedule>,
) -> String {
    let (workers, ops) = (options.workers, options.ops);
    let mut replay = format!("lapis crash {subject} --workers {workers} --ops {ops} --seed {seed}");
    let list = |numbers: &[u32]| match numbers {
        [] => "-".to_owned(),
        _ => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    if let Some(calls) = &selection.calls {
        replay.push_str(&format!(" --keep {}", list(calls)));
    }
    if let Some(before) = &selection.before {
        replay.push_str(&format!(" --keep-before {}", list(before)));
    }
    if let Some(point) = options.suppress {
        replay.push_str(&format!(" --without '{point}'"));
    }
    if let Some(mutant) = options.mutant {
        replay.push_str(&format!(" --mutant {}", mutant.0));
    }
    if let Some((position, image)) = crash {
        replay.push_str(&format!(" --at {position} --image {}", list(image)));
    }
    // One history of many begins with no power cut, whatever the seed.
    if let Some(most) = options.most_deviations {
        replay.push_str(&format!(" --deviations {most}"));
    }
    match schedule {
        Some(schedule) => replay.push_str(&format!(" --schedule {schedule}")),
        None if crash.is_none() => replay.push_str(" --schedules 1"),
        None => {}
    }
    replay
}
