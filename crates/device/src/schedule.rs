//! Schedules: who ran when, as text, and the rules by which one is chosen.
//!
//! ```text
//!  0x12,d1.0,1x3      worker 0 does 12 events, the oldest entry of worker 1's store buffer takes
//!                     effect, worker 1 does 3 events
//! ```

use std::fmt;
use std::str::FromStr;

use crate::bounded_search::NOTHING_BUFFERED;
use crate::random::Random;

/// A step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The worker does its next event.
    Run(u8),
    /// An entry leaves the worker's store buffer.
    Drain(u8, u8),
}

/// The steps of a run, in order: replays it exactly. Prints as text that [`str::parse`] reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule {
    pub(crate) steps: Vec<Step>,
}

impl Schedule {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in
            self.steps.chunk_by(|a, b| a == b && matches!(a, Step::Run(_))).enumerate()
        {
            if index > 0 {
                f.write_str(",")?;
            }
            match run[0] {
                Step::Run(worker) => write!(f, "{worker}x{}", run.len())?,
                Step::Drain(worker, entry) => write!(f, "d{worker}.{entry}")?,
            }
        }
        Ok(())
    }
}

/// Text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` is no step of a schedule: expected WORKERxEVENTS or dWORKER.ENTRY")]
pub struct BadSchedule {
    /// The part that was not understood.
    pub part: String,
}

/// More steps than this are no run of ours.
const MOST_STEPS: usize = 1 << 26;

impl FromStr for Schedule {
    type Err = BadSchedule;

    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        let mut steps = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let bad = || BadSchedule { part: part.to_owned() };
            if let Some((worker, entry)) = part.strip_prefix('d').and_then(|it| it.split_once('.'))
            {
                let (worker, entry) = (worker.parse().ok(), entry.parse().ok());
                steps.push(worker.zip(entry).map(|(w, e)| Step::Drain(w, e)).ok_or_else(bad)?);
            } else {
                let (worker, count) = part.split_once('x').ok_or_else(bad)?;
                let worker = worker.parse().map_err(|_| bad())?;
                let count: usize = count.parse().map_err(|_| bad())?;
                if count > MOST_STEPS - steps.len() {
                    return Err(bad());
                }
                steps.resize(steps.len() + count, Step::Run(worker));
            }
        }
        Ok(Self { steps })
    }
}

/// How a scheduler chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulePolicy {
    /// At each event another worker may take over, seldom, and buffers drain at random; all as the
    /// seed says. The seed also chooses how seldom and how slowly.
    Random {
        /// Determines everything.
        seed: u64,
    },
    /// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): workers have random
    /// priorities, the first that can run does, and at `changes` random events the one that runs
    /// falls behind all others. Finds any bug that needs so many changes with a known probability.
    Priorities {
        /// Determines everything.
        seed: u64,
        /// Number of changes of priority.
        changes: u32,
        /// About how many events the run has.
        events: u32,
    },
    /// Worker after worker with buffers that drain at once, except at some events: see
    /// [`BoundedSearch`](crate::BoundedSearch).
    Deviations(Vec<Deviation>),
    /// As recorded.
    Replay(Schedule),
}

/// At its `event`-th event a run does not go on as it would: `choice` says what happens instead.
/// The numbers mean something only to the search that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deviation {
    pub(crate) event: u32,
    pub(crate) choice: u32,
}

/// What a chooser sees.
pub(crate) struct View<'v> {
    /// Who is to do the next event.
    pub(crate) current: u8,
    /// It waits for another, or has ended.
    pub(crate) waits: bool,
    /// Workers that have not ended.
    pub(crate) ready: &'v [u8],
    /// Entries that may leave: worker and place.
    pub(crate) leavable: &'v [(u8, u8)],
}

impl View<'_> {
    /// The others, in turn from the one after the current one.
    fn others(&self) -> impl Iterator<Item = u8> + Clone + '_ {
        let after = self.ready.iter().filter(|&&worker| worker > self.current);
        after.chain(self.ready.iter().filter(|&&worker| worker < self.current)).copied()
    }

    fn has_ended(&self) -> bool {
        !self.ready.contains(&self.current)
    }

    /// The worker after the current one, in turn.
    fn next_in_turn(&self) -> u8 {
        self.others().next().unwrap_or(self.current)
    }

    fn own_leavable(&self) -> Option<(u8, u8)> {
        self.leavable.iter().copied().find(|&(worker, _)| worker == self.current)
    }

    fn run_or(&self, worker: u8) -> Step {
        Step::Run(if self.ready.contains(&worker) { worker } else { self.next_in_turn() })
    }
}

/// Steps for which an interrupted worker may be left alone.
const LONGEST_SLEEP: u32 = 400;

/// Chooses the steps of one run.
#[derive(Debug)]
pub(crate) enum Chooser {
    Random {
        random: Random,
        switch_one_in: usize,
        drain_of_eight: usize,
        /// A worker that has been interrupted and is left so, for a number of steps: the others get
        /// far enough to see what it has half done, and to act on it.
        asleep: Option<(u8, u32)>,
    },
    Priorities {
        random: Random,
        order: Vec<u8>,
        changes: Vec<u32>,
        event: u32,
        drain_of_eight: usize,
    },
    Deviations {
        deviations: Vec<Deviation>,
        event: u32,
        plan: Option<Plan>,
        options: Vec<u32>,
    },
    Replay {
        steps: std::vec::IntoIter<Step>,
        diverged: bool,
    },
}

/// What [`Chooser::Deviations`] has decided for the event at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    keeps_buffer: bool,
    target: u8,
}

impl Chooser {
    pub(crate) fn new(policy: &SchedulePolicy, workers: u8) -> Self {
        match policy {
            SchedulePolicy::Random { seed } => {
                let mut random = Random::new(*seed);
                let switch_one_in = [3, 8, 20, 50][random.below(4)];
                let drain_of_eight = [1, 4, 7][random.below(3)];
                Self::Random { random, switch_one_in, drain_of_eight, asleep: None }
            }
            SchedulePolicy::Priorities { seed, changes, events } => {
                let mut random = Random::new(*seed);
                let mut order: Vec<u8> = (0..workers).collect();
                for at in (1..order.len()).rev() {
                    order.swap(at, random.below(at + 1));
                }
                let changes = (0..*changes).map(|_| random.below(1 + *events as usize) as u32);
                let changes = changes.collect();
                let drain_of_eight = [1, 4, 7][random.below(3)];
                Self::Priorities { random, order, changes, event: 0, drain_of_eight }
            }
            SchedulePolicy::Deviations(deviations) => Self::Deviations {
                deviations: deviations.clone(),
                event: 0,
                plan: None,
                options: Vec::new(),
            },
            SchedulePolicy::Replay(schedule) => {
                Self::Replay { steps: schedule.steps.clone().into_iter(), diverged: false }
            }
        }
    }

    /// The next step.
    pub(crate) fn choose(&mut self, view: &View<'_>) -> Step {
        match self {
            Self::Random { random, switch_one_in, drain_of_eight, asleep } => {
                if let Some((worker, entry)) = drain(random, *drain_of_eight, view) {
                    return Step::Drain(worker, entry);
                }
                *asleep =
                    asleep.and_then(|(worker, events)| Some((worker, events.checked_sub(1)?)));
                if !view.waits && random.below(*switch_one_in) > 0 {
                    return Step::Run(view.current);
                }
                let awake = |worker: &u8| asleep.is_none_or(|(sleeper, _)| sleeper != *worker);
                let count = view.others().filter(awake).count();
                let chosen = if count > 0 {
                    view.others().filter(awake).nth(random.below(count))
                } else if view.waits {
                    view.others().next()
                } else {
                    None
                };
                if chosen.is_some() && random.below(2) == 0 {
                    *asleep = Some((view.current, LONGEST_SLEEP / 8 * random.below(9) as u32));
                }
                Step::Run(chosen.unwrap_or(view.current))
            }
            Self::Priorities { random, order, changes, event, drain_of_eight } => {
                if let Some((worker, entry)) = drain(random, *drain_of_eight, view) {
                    return Step::Drain(worker, entry);
                }
                *event += 1;
                if view.waits || changes.contains(event) {
                    order.retain(|&worker| worker != view.current);
                    order.push(view.current);
                }
                let first = order.iter().copied().find(|worker| view.ready.contains(worker));
                Step::Run(first.unwrap_or(view.current))
            }
            Self::Deviations { deviations, event, plan, options } => {
                let decided = *plan.get_or_insert_with(|| {
                    // Two choices for each worker that may go on, itself first: with the buffer
                    // drained or kept.
                    let stays = u32::from(!view.waits && !view.has_ended());
                    let choices = 2 * (stays + view.others().count() as u32);
                    let keeps = view.own_leavable().is_some() && (stays > 0 || view.has_ended());
                    options.push(choices | if keeps { 0 } else { NOTHING_BUFFERED });
                    let here = deviations.iter().find(|deviation| deviation.event == *event);
                    let choice = here.map_or(0, |deviation| deviation.choice);
                    *event += 1;
                    let target = match (choice / 2).checked_sub(stays) {
                        None => view.current,
                        Some(other) => view.others().nth(other as usize).unwrap_or(view.current),
                    };
                    Plan { keeps_buffer: choice % 2 == 1, target }
                });
                if !decided.keeps_buffer
                    && let Some((worker, entry)) = view.own_leavable()
                {
                    return Step::Drain(worker, entry);
                }
                *plan = None;
                view.run_or(decided.target)
            }
            Self::Replay { steps, diverged } => match steps.next() {
                Some(step @ Step::Drain(worker, entry))
                    if view.leavable.contains(&(worker, entry)) =>
                {
                    step
                }
                Some(step @ Step::Run(worker)) if view.ready.contains(&worker) => step,
                other => {
                    *diverged |= other.is_some();
                    view.run_or(if view.waits { view.next_in_turn() } else { view.current })
                }
            },
        }
    }

    /// For [`Chooser::Deviations`]: how many choices there were at each event.
    pub(crate) fn options(&self) -> &[u32] {
        match self {
            Self::Deviations { options, .. } => options,
            _ => &[],
        }
    }

    /// Whether a replay did something that its schedule does not say.
    pub(crate) fn has_diverged(&self) -> bool {
        matches!(self, Self::Replay { diverged: true, .. })
    }
}

/// An entry to drain now, if the dice say so. Who waits drains first.
fn drain(random: &mut Random, of_eight: usize, view: &View<'_>) -> Option<(u8, u8)> {
    if view.leavable.is_empty() {
        return None;
    }
    if view.waits
        && !view.has_ended()
        && let Some(own) = view.own_leavable()
    {
        return Some(own);
    }
    (random.below(8) < of_eight).then(|| view.leavable[random.below(view.leavable.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_prints_as_text_that_reads_back() {
        let text = "0x12,d1.0,d1.0,1x3,0x1";
        let schedule: Schedule = text.parse().unwrap();
        assert_eq!((schedule.len(), schedule.to_string().as_str()), (18, text));
    }

    #[test]
    fn other_text_is_refused_with_the_part_that_is_wrong() {
        for (text, wrong) in [("0x1,zz", "zz"), ("d1", "d1"), ("1x99999999999", "1x99999999999")] {
            assert_eq!(text.parse::<Schedule>().unwrap_err().part, wrong);
        }
    }
}
