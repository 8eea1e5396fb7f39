//! How far the operations of a run have come at a crash.

use lapis_device::{Event, Marker};

use crate::image_check::Expectation;
use crate::options::ExploreOptions;
use crate::run::Run;

/// How far the operations have come.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    pub(crate) begun: Option<u32>,
    pub(crate) ended: Option<u32>,
    read: usize,
}

impl Markers {
    pub(crate) fn read(&mut self, events: &[Event], position: usize) {
        for event in &events[self.read..position] {
            match event {
                Event::Marker { marker: Marker::Begin(number), .. } => self.begun = Some(*number),
                Event::Marker { marker: Marker::End(number), .. } => self.ended = Some(*number),
                _ => {}
            }
        }
        self.read = position;
    }

    /// What the random choices of a check start from: the same at all crash points of an operation,
    /// and after it until the next begins.
    pub(crate) fn check_seed(&self, options: &ExploreOptions) -> u64 {
        options.seed ^ self.begun.map_or(0, |begun| u64::from(begun) + 1) << 20
    }

    pub(crate) fn expectation<'r>(&self, run: &'r Run) -> Expectation<'r> {
        let in_flight = self.begun.filter(|&begun| Some(begun) != self.ended);
        let latest = self.begun.and_then(|begun| (begun as usize).checked_sub(1));
        Expectation {
            acknowledged: self.ended.map(|ended| run.known(ended)),
            in_flight: in_flight.map(|begun| run.known(begun)),
            interrupted: latest.and_then(|index| run.operations.get(index)),
            shut_down: self.ended.is_some_and(|ended| ended as usize > run.operations.len()),
        }
    }
}
