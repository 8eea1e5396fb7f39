//! Histories: calls with the instants between which they happened.

use std::collections::HashMap;

use lapis_device::{Event, Marker, Trace};

/// A call of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<O, R> {
    /// Who made it.
    pub worker: u8,
    /// Its number among the calls of the history, from one: worker after worker.
    pub number: u32,
    /// What was asked.
    pub operation: O,
    /// Position in the trace at which it began.
    pub begin: usize,
    /// Position at which its result became known, and the result; none while it is pending.
    pub completed: Option<(usize, R)>,
}

impl<O, R> Call<O, R> {
    /// Whether this call's place is before that of `other` in every linearization that has both: its
    /// result was known before the other began, or one worker made both in this order.
    pub fn precedes(&self, other: &Self) -> bool {
        let known = self.completed.as_ref().is_some_and(|&(end, _)| end < other.begin);
        known || (self.worker == other.worker && self.number < other.number)
    }
}

/// A whole run, from which the history up to each crash is cut.
#[derive(Clone, Debug)]
pub struct History<O, R> {
    calls: Vec<Call<O, R>>,
}

impl<O: Clone, R: Clone> History<O, R> {
    /// What the markers of a trace say of the given operations: those of worker 0, of worker 1, and
    /// so on, each with the number that its markers have. `returned` has the results of each worker
    /// so far.
    pub fn of(trace: &Trace, operations: &[Vec<(u32, O)>], returned: &[Vec<R>]) -> Self {
        let (mut begins, mut ends) = (HashMap::new(), HashMap::new());
        for (position, event) in trace.events.iter().enumerate() {
            match *event {
                Event::Marker { marker: Marker::Begin(number), .. } => {
                    begins.insert(number, position);
                }
                Event::Marker { marker: Marker::End(number), .. } => {
                    ends.insert(number, position);
                }
                _ => {}
            }
        }
        let mut calls = Vec::new();
        for (worker, operations) in operations.iter().enumerate() {
            for (index, (number, operation)) in operations.iter().enumerate() {
                let Some(&begin) = begins.get(number) else { continue };
                let result = returned.get(worker).and_then(|all| all.get(index));
                calls.push(Call {
                    worker: worker as u8,
                    number: *number,
                    operation: operation.clone(),
                    begin,
                    completed: ends.get(number).copied().zip(result.cloned()),
                });
            }
        }
        Self { calls }
    }

    /// All calls.
    pub fn calls(&self) -> &[Call<O, R>] {
        &self.calls
    }

    /// The history as it was when `position` events of the trace had happened.
    pub fn until(&self, position: usize) -> Vec<Call<O, R>> {
        let begun = self.calls.iter().filter(|call| call.begin < position);
        begun
            .map(|call| {
                let mut call = call.clone();
                call.completed = call.completed.filter(|&(end, _)| end < position);
                call
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(markers: &[(u8, Marker)]) -> Trace {
        let events = markers.iter().map(|&(worker, marker)| Event::Marker { worker, marker });
        Trace::of(events.collect(), Vec::new())
    }

    #[test]
    fn calls_are_cut_where_the_power_is() {
        let trace = trace(&[
            (0, Marker::Begin(1)),
            (1, Marker::Begin(3)),
            (0, Marker::End(1)),
            (0, Marker::Begin(2)),
            (1, Marker::End(3)),
        ]);
        let history = History::of(
            &trace,
            &[vec![(1, 'a'), (2, 'b')], vec![(3, 'c')]],
            &[vec![10, 20], vec![30]],
        );
        assert_eq!(history.calls().len(), 3);
        let early = history.until(3);
        assert_eq!(early.len(), 2, "the second call of worker 0 has not begun");
        assert_eq!(early[0].completed, Some((2, 10)));
        assert_eq!(early[1].completed, None);
        let late = history.until(5);
        assert_eq!(late[2].completed, Some((4, 30)));
        assert_eq!(late[1].completed, None, "its acknowledgement never became visible");
    }

    #[test]
    fn calls_are_ordered_if_one_was_over_or_one_worker_made_both() {
        let call = |worker, number, begin, end: Option<usize>| Call {
            worker,
            number,
            operation: (),
            begin,
            completed: end.map(|end| (end, ())),
        };
        let first = call(0, 1, 0, Some(4));
        assert!(first.precedes(&call(1, 3, 5, None)));
        assert!(!first.precedes(&call(1, 3, 3, None)));
        assert!(first.precedes(&call(0, 2, 3, None)));
        assert!(!call(1, 3, 0, None).precedes(&first));
    }
}
