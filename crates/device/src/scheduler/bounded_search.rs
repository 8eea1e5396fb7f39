//! Every schedule with few deviations from the plain one.

use std::collections::VecDeque;

use crate::scheduler::InterleavedRun;
use crate::scheduler::schedule::{Deviation, NOTHING_BUFFERED, SchedulePolicy};

/// Enumerates the schedules of a program that differ at no more than so many events from running
/// worker after worker with buffers that drain at once. At each such event another worker takes
/// over, or the store buffer is kept, or both. Fewer deviations come first.
///
/// ```text
///  while let Some(policy) = search.next_policy() {
///      let run = machine.run_workers(&policy, programs());
///      search.ran(&run);
///  }
/// ```
#[derive(Debug)]
pub struct BoundedSearch {
    most_deviations: usize,
    runs_left: u64,
    frames: VecDeque<Frame>,
    /// What the run that is due deviates by.
    due: Vec<Deviation>,
    started: bool,
}

/// A run that was made, and which of its variations have been.
#[derive(Debug)]
struct Frame {
    deviations: Vec<Deviation>,
    options: Vec<u32>,
    event: usize,
    choice: u32,
}

impl BoundedSearch {
    /// Up to `most_deviations`, and no more than `run_limit` runs.
    pub fn new(most_deviations: usize, run_limit: u64) -> Self {
        Self {
            most_deviations,
            runs_left: run_limit,
            frames: VecDeque::new(),
            due: Vec::new(),
            started: false,
        }
    }

    /// The next schedule to run; none if there are no more, or too many.
    pub fn next_policy(&mut self) -> Option<SchedulePolicy> {
        if self.runs_left == 0 {
            return None;
        }
        if std::mem::replace(&mut self.started, true) {
            self.due = self.next_deviations()?;
        }
        self.runs_left -= 1;
        Some(SchedulePolicy::Deviations(self.due.clone()))
    }

    /// What came of it.
    pub fn ran(&mut self, run: &InterleavedRun) {
        if self.due.len() < self.most_deviations {
            let event = self.due.last().map_or(0, |last| last.event as usize + 1);
            let (deviations, options) = (self.due.clone(), run.options.clone());
            self.frames.push_back(Frame { deviations, options, event, choice: 0 });
        }
    }

    /// Whether every schedule within the bound has been given.
    pub fn is_complete(&self) -> bool {
        self.started && self.frames.is_empty()
    }

    fn next_deviations(&mut self) -> Option<Vec<Deviation>> {
        loop {
            let frame = self.frames.front_mut()?;
            let Some(&options) = frame.options.get(frame.event) else {
                self.frames.pop_front();
                continue;
            };
            frame.choice += if options & NOTHING_BUFFERED != 0 { 2 } else { 1 };
            if frame.choice >= options & !NOTHING_BUFFERED {
                (frame.event, frame.choice) = (frame.event + 1, 0);
                continue;
            }
            let deviation = Deviation { event: frame.event as u32, choice: frame.choice };
            return Some(frame.deviations.iter().copied().chain([deviation]).collect());
        }
    }
}
