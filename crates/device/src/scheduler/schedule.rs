//! Schedules: who ran when, as text, and the rules by which one is chosen.
//!
//! ```text
//!  0x12,d1.0,1x3      worker 0 does 12 events, the oldest entry of worker 1's store buffer takes
//!                     effect, worker 1 does 3 events
//!  -                  no step
//! ```

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::random::Random;

/// Set in the number of choices at an event if the worker's store buffer was empty: whether it is
/// kept is then no choice.
pub(crate) const NOTHING_BUFFERED: u32 = 1 << 31;

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

    /// One more than the highest worker that it names.
    pub fn workers(&self) -> usize {
        let named = self.steps.iter().map(|step| match *step {
            Step::Run(worker) | Step::Drain(worker, _) => usize::from(worker) + 1,
        });
        named.max().unwrap_or(0)
    }

    /// The first `count` steps.
    pub fn prefix(&self, count: usize) -> Self {
        Self { steps: self.steps[..count.min(self.steps.len())].to_vec() }
    }

    /// How often another worker takes over.
    pub fn switches(&self) -> usize {
        let runs = self.steps.iter().filter_map(|step| match step {
            Step::Run(worker) => Some(*worker),
            Step::Drain(..) => None,
        });
        let others = runs.clone().skip(1);
        runs.zip(others).filter(|(before, after)| before != after).count()
    }

    /// Without what each of these workers did, and its store buffer, between two steps: what is left
    /// when a program does less. To be followed by [`SchedulePolicy::Guided`].
    pub fn without_spans(&self, spans: &[(u8, Range<usize>)]) -> Self {
        let left_out = |at: usize, step: &Step| {
            let (Step::Run(by) | Step::Drain(by, _)) = *step;
            spans.iter().any(|(worker, span)| *worker == by && span.contains(&at))
        };
        let steps = self.steps.iter().enumerate().filter(|(at, step)| !left_out(*at, step));
        Self { steps: steps.map(|(_, step)| *step).collect() }
    }

    /// Where a worker runs without a break: its number and the steps, buffers that drain meanwhile
    /// included.
    pub fn stretches(&self) -> Vec<(u8, Range<usize>)> {
        let mut stretches: Vec<(u8, Range<usize>)> = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            match (step, stretches.last_mut()) {
                (Step::Drain(..), Some((_, span))) => span.end = at + 1,
                (Step::Drain(..), None) => {}
                (Step::Run(by), Some((worker, span))) if worker == by => span.end = at + 1,
                (Step::Run(by), _) => stretches.push((*by, at..at + 1)),
            }
        }
        stretches
    }

    /// With the steps of `span` that are of `worker` moved to before step `to`, which is no later
    /// than the span. To be followed by [`SchedulePolicy::Guided`].
    pub fn with_span_moved(&self, worker: u8, span: Range<usize>, to: usize) -> Self {
        let moved = |step: &&Step| matches!(step, Step::Run(by) if *by == worker);
        let (before, between) = (&self.steps[..to], &self.steps[to..span.start]);
        let (inside, after) = (&self.steps[span.clone()], &self.steps[span.end..]);
        let first = inside.iter().filter(moved);
        let rest = inside.iter().filter(|step| !moved(step));
        let parts = before.iter().chain(first).chain(between).chain(rest).chain(after);
        Self { steps: parts.copied().collect() }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
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
        for part in text.split(',').map(str::trim).filter(|part| !matches!(*part, "" | "-")) {
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
    /// Workers are interrupted where one has stored what others may see and has not made it durable: before a
    /// flush, a fence, a locked instruction, the answer of a device. Who is interrupted stays so for long, and
    /// elsewhere hardly anybody is. The seed also chooses how often.
    AtPersists {
        /// Determines everything.
        seed: u64,
    },
    /// Worker after worker with buffers that drain at once, except at some events: see
    /// [`BoundedSearch`](crate::BoundedSearch).
    Deviations(Vec<Deviation>),
    /// As recorded, and after the last step worker after worker, with buffers that drain at once.
    Replay(Schedule),
    /// As recorded of another run: steps that cannot be done here are passed over.
    Guided(Schedule),
}

impl SchedulePolicy {
    /// Of each of so many seeds a random one, and one that changes workers `changes` times in about so many events.
    pub fn of_seeds(seeds: u64, changes: u32, events: u32) -> impl Iterator<Item = Self> {
        (0..seeds).flat_map(move |seed| {
            [Self::Random { seed }, Self::Priorities { seed, changes, events }]
        })
    }
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
    /// The next event makes something durable, or waits for what does, or is a locked instruction.
    pub(crate) persists: bool,
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

    /// What somebody who waits may wait for, though nobody is left to do it: what a worker that has ended has not made
    /// visible yet.
    fn awaited_of_ended(&self) -> Option<(u8, u8)> {
        let waits = self.waits && !self.has_ended();
        let mut entries = self.leavable.iter().copied();
        entries.find(|(worker, _)| waits && !self.ready.contains(worker))
    }

    /// Worker after worker, with buffers that drain at once.
    fn plain(&self) -> Step {
        match self.own_leavable().or_else(|| self.awaited_of_ended()) {
            Some((worker, entry)) => Step::Drain(worker, entry),
            None if self.waits => self.run_or(self.next_in_turn()),
            None => self.run_or(self.current),
        }
    }

    fn run_or(&self, worker: u8) -> Step {
        Step::Run(if self.ready.contains(&worker) { worker } else { self.next_in_turn() })
    }
}

/// Steps for which an interrupted worker may be left alone.
const LONGEST_SLEEP: u32 = 400;

/// One event in so many at which nothing is made durable is one at which [`SchedulePolicy::AtPersists`]
/// interrupts a worker all the same.
const ELSEWHERE_ONE_IN: usize = 200;

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
    AtPersists {
        random: Random,
        /// One such event in so many interrupts.
        one_in: usize,
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
    Guided {
        steps: std::vec::IntoIter<Step>,
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
            SchedulePolicy::AtPersists { seed } => {
                let mut random = Random::new(*seed);
                let one_in = [2, 3, 5, 8][random.below(4)];
                Self::AtPersists { random, one_in, asleep: None }
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
            SchedulePolicy::Guided(schedule) => {
                Self::Guided { steps: schedule.steps.clone().into_iter() }
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
            Self::AtPersists { random, one_in, asleep } => {
                // What was stored is visible, seven times of eight, before others look.
                if (view.persists || view.waits)
                    && let Some((worker, entry)) = view.own_leavable()
                    && random.below(8) > 0
                {
                    return Step::Drain(worker, entry);
                }
                // Who waits may wait for what another has stored and left in its buffer.
                if view.waits && !view.leavable.is_empty() && random.below(2) == 0 {
                    let (worker, entry) = view.leavable[random.below(view.leavable.len())];
                    return Step::Drain(worker, entry);
                }
                *asleep =
                    asleep.and_then(|(worker, events)| Some((worker, events.checked_sub(1)?)));
                let one_in = if view.persists { *one_in } else { ELSEWHERE_ONE_IN };
                if !view.waits && random.below(one_in) > 0 {
                    return Step::Run(view.current);
                }
                let awake = |worker: &u8| asleep.is_none_or(|(sleeper, _)| sleeper != *worker);
                let count = view.others().filter(awake).count();
                if count == 0 {
                    let other = view.others().next().filter(|_| view.waits);
                    return Step::Run(other.unwrap_or(view.current));
                }
                let chosen = view.others().filter(awake).nth(random.below(count));
                if !view.waits {
                    *asleep =
                        Some((view.current, LONGEST_SLEEP / 4 * (1 + random.below(4) as u32)));
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
                    && let Some((worker, entry)) =
                        view.own_leavable().or_else(|| view.awaited_of_ended())
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
                None => view.plain(),
                Some(_) => {
                    *diverged = true;
                    view.run_or(if view.waits { view.next_in_turn() } else { view.current })
                }
            },
            Self::Guided { steps } => {
                let possible = |step: &Step| match *step {
                    Step::Drain(worker, entry) => view.leavable.contains(&(worker, entry)),
                    Step::Run(worker) => view.ready.contains(&worker),
                };
                steps.find(possible).unwrap_or_else(|| view.plain())
            }
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
        assert_eq!(schedule.prefix(0).to_string().parse(), Ok(Schedule::default()));
    }

    #[test]
    fn what_a_worker_did_in_a_span_can_be_left_out() {
        let schedule: Schedule = "0x3,1x2,d0.0,0x2,1x1".parse().unwrap();
        assert_eq!(schedule.without_spans(&[(0, 1..8)]).to_string(), "0x1,1x3");
        assert_eq!(schedule.prefix(4).to_string(), "0x3,1x1");
        assert_eq!((schedule.switches(), schedule.prefix(3).switches()), (3, 0));
    }

    #[test]
    fn a_stretch_can_be_moved_to_the_one_before_of_its_worker() {
        let schedule: Schedule = "0x3,1x2,d0.0,0x2,1x1".parse().unwrap();
        let stretches = schedule.stretches();
        assert_eq!(stretches, [(0, 0..3), (1, 3..6), (0, 6..8), (1, 8..9)]);
        let moved = schedule.with_span_moved(0, stretches[2].1.clone(), stretches[0].1.end);
        assert_eq!((moved.to_string().as_str(), moved.switches()), ("0x5,1x2,d0.0,1x1", 1));
    }

    #[test]
    fn a_guide_passes_over_what_cannot_be_done_and_then_goes_on_plainly() {
        let guide = SchedulePolicy::Guided("d1.0,2x1,1x1,0x1".parse().unwrap());
        let mut chooser = Chooser::new(&guide, 2);
        let view =
            |leavable| View { current: 0, waits: false, persists: false, ready: &[0, 1], leavable };
        assert_eq!(chooser.choose(&view(&[])), Step::Run(1));
        assert_eq!(chooser.choose(&view(&[])), Step::Run(0));
        assert_eq!(chooser.choose(&view(&[(0, 3)])), Step::Drain(0, 3));
        assert_eq!(chooser.choose(&view(&[(1, 0)])), Step::Run(0));
    }

    #[test]
    fn who_waits_waits_for_what_a_worker_that_ended_has_left_in_its_buffer() {
        let plain = SchedulePolicy::Replay(Schedule::default());
        for policy in [plain, SchedulePolicy::Deviations(Vec::new())] {
            let mut chooser = Chooser::new(&policy, 2);
            let mut step = |waits, leavable| {
                let view = View { current: 1, waits, persists: false, ready: &[1], leavable };
                chooser.choose(&view)
            };
            assert_eq!(step(false, &[(0, 3)]), Step::Run(1), "{policy:?}");
            assert_eq!(step(true, &[(0, 3)]), Step::Drain(0, 3), "{policy:?}");
            assert_eq!(step(true, &[]), Step::Run(1), "{policy:?}");
        }
    }

    #[test]
    fn who_is_about_to_persist_is_interrupted_when_what_it_stored_is_visible() {
        let mut chooser = Chooser::new(&SchedulePolicy::AtPersists { seed: 1 }, 2);
        let mut steps = |persists, leavable: &[(u8, u8)]| {
            let view = View { current: 0, waits: false, persists, ready: &[0, 1], leavable };
            let steps: Vec<_> = (0..400).map(|_| chooser.choose(&view)).collect();
            let count = |step| steps.iter().filter(|it| **it == step).count();
            (count(Step::Drain(0, 3)), count(Step::Run(1)))
        };
        let (drained, _) = steps(true, &[(0, 3)]);
        assert!((300..400).contains(&drained), "{drained}");
        let ((_, interrupted), (_, elsewhere)) = (steps(true, &[]), steps(false, &[]));
        assert!(interrupted > 5 * elsewhere.max(2), "{interrupted}, elsewhere {elsewhere}");
    }

    #[test]
    fn other_text_is_refused_with_the_part_that_is_wrong() {
        for (text, wrong) in [("0x1,zz", "zz"), ("d1", "d1"), ("1x99999999999", "1x99999999999")] {
            assert_eq!(text.parse::<Schedule>().unwrap_err().part, wrong);
        }
    }
}
