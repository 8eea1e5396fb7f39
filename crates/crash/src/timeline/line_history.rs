//! Following the lines of a trace event by event, for people: which store was made durable by which
//! fence, and which was still pending at the crash.
//!
//! The checker itself follows `lapis_device`'s persistence machine; this only finds words for it,
//! by rules R4 and R6 of [`lapis_pmem::domain`].

use std::collections::{BTreeMap, HashMap, HashSet};

use lapis_device::{CrashStates, Event, Image};

use crate::timeline::entry::{LineChange, LineState};

/// What became of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFate {
    /// A fence has made it durable, or it is no store.
    Durable,
    /// No fence has made it durable yet.
    Pending,
    /// Pending at the crash, and what it stored is there.
    Persisted,
    /// Pending at the crash, and what it stored is not there.
    Lost,
}

#[derive(Default)]
pub(crate) struct LineHistories {
    /// Events whose stores are pending, by line.
    pending: BTreeMap<u32, Vec<usize>>,
    pending_events: HashSet<usize>,
    changes: HashMap<usize, Vec<LineChange>>,
    /// Flushes that no fence of their worker has followed.
    unfenced: HashSet<usize>,
}

impl LineHistories {
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut histories = Self::default();
        // By worker: the line and the event of each flush since its last fence.
        let mut flushes: HashMap<u8, Vec<(u32, usize)>> = HashMap::new();
        // By worker: the lines stored to past the caches since its last fence.
        let mut past_caches: HashMap<u8, Vec<u32>> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            match *event {
                Event::Store { line, .. }
                | Event::OrderedStore { line, .. }
                | Event::Locked { line, .. } => {
                    histories.pending.entry(line).or_default().push(at);
                }
                Event::NonTemporal { worker, line, .. } => {
                    histories.pending.entry(line).or_default().push(at);
                    past_caches.entry(worker).or_default().push(line);
                }
                Event::Flush { worker, line, .. } if !histories.pending_of(line).is_empty() => {
                    flushes.entry(worker).or_default().push((line, at));
                    histories.change(at, line, LineState::Flushed);
                }
                Event::StrongFlush { line, .. } => {
                    let pending = histories.pending.get_mut(&line);
                    // What went past the caches waits for its fence all the same.
                    let before = pending.map_or(0, |pending| {
                        let before = pending.len();
                        pending.retain(|&at| matches!(events[at], Event::NonTemporal { .. }));
                        before - pending.len()
                    });
                    if before > 0 && histories.pending_of(line).is_empty() {
                        histories.change(at, line, LineState::Durable);
                    }
                }
                Event::Fence { worker, .. } => {
                    let flushed = flushes.remove(&worker).unwrap_or_default();
                    let past_caches = past_caches.remove(&worker).unwrap_or_default();
                    histories.fence(events, worker, at, &flushed, past_caches);
                }
                // The events are in units.
                _ => {}
            }
        }
        histories.pending.retain(|_, pending| !pending.is_empty());
        histories.pending_events = histories.pending.values().flatten().copied().collect();
        histories.unfenced = flushes.into_values().flatten().map(|(_, at)| at).collect();
        histories
    }

    /// Costs as much as what the worker has flushed and stored past the caches, however much is
    /// pending besides: of a lock that is never flushed, every store is.
    fn fence(
        &mut self,
        events: &[Event],
        worker: u8,
        at: usize,
        flushed: &[(u32, usize)],
        past_caches: Vec<u32>,
    ) {
        // Of two flushes of a line, the later.
        let flushed_at: HashMap<u32, usize> = flushed.iter().copied().collect();
        let mut touched: Vec<u32> = flushed_at.keys().copied().chain(past_caches).collect();
        touched.sort_unstable();
        touched.dedup();
        for line in touched {
            let flushed_at = flushed_at.get(&line).copied();
            let mut changed = flushed_at.is_some();
            if let Some(pending) = self.pending.get_mut(&line) {
                let before = pending.len();
                pending.retain(|&store| match events[store] {
                    Event::NonTemporal { worker: by, .. } => by != worker,
                    _ => flushed_at.is_none_or(|flushed_at| store > flushed_at),
                });
                changed |= pending.len() != before;
            }
            if self.pending.get(&line).is_none_or(Vec::is_empty) {
                self.pending.remove(&line);
                if changed {
                    self.change(at, line, LineState::Durable);
                }
            }
        }
    }

    fn change(&mut self, at: usize, line: u32, state: LineState) {
        self.changes.entry(at).or_default().push(LineChange { line, state });
    }

    /// The stores to a line that are pending at the end, by event.
    pub(crate) fn pending_of(&self, line: u32) -> &[usize] {
        self.pending.get(&line).map_or(&[], Vec::as_slice)
    }

    /// What an event changes other than by storing.
    pub(crate) fn changes_at(&self, at: usize) -> Vec<LineChange> {
        self.changes.get(&at).cloned().unwrap_or_default()
    }

    /// Pending or durable at the end.
    pub(crate) fn fate(&self, at: usize) -> StoreFate {
        if self.pending_events.contains(&at) { StoreFate::Pending } else { StoreFate::Durable }
    }

    /// Whether the event is a flush that no fence has completed.
    pub(crate) fn is_flushed_in_vain(&self, at: usize) -> bool {
        self.unfenced.contains(&at)
    }

    /// What the crash made of the pending stores of the uncertain lines, by event.
    pub(crate) fn final_fates(
        &self,
        events: &[Event],
        states: &CrashStates<'_>,
        image: &Image,
    ) -> HashMap<usize, StoreFate> {
        let mut fates = HashMap::new();
        let (Some(lines), Some(of_line)) = (states.uncertain_lines(), states.line_states()) else {
            return fates;
        };
        for ((line, states), &choice) in lines.zip(of_line).zip(image.choices()) {
            let pending = self.pending_of(line);
            let (durable, held) = (&states[0], &states[choice as usize]);
            let persisted = persisted_prefix(events, pending, durable, held);
            for (index, &at) in pending.iter().enumerate() {
                let made_it = match persisted {
                    Some(count) => index < count,
                    None => events[at].stored().is_some_and(|stored| stored.is_held_by(held)),
                };
                fates.insert(at, if made_it { StoreFate::Persisted } else { StoreFate::Lost });
            }
        }
        fates
    }
}

/// How many of the pending stores made it, if they are the first ones of the line.
fn persisted_prefix(
    events: &[Event],
    pending: &[usize],
    durable: &[u8; 64],
    held: &[u8; 64],
) -> Option<usize> {
    let mut line = *durable;
    for (count, &at) in pending.iter().enumerate() {
        if line == *held {
            return Some(count);
        }
        if let Some(stored) = events[at].stored() {
            stored.apply(&mut line);
        }
    }
    (line == *held).then_some(pending.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(line: u32) -> Event {
        Event::OrderedStore { worker: 0, start: 0, bytes: 8, line, value: 1 }
    }

    fn flush(worker: u8, line: u32) -> Event {
        Event::Flush { worker, point: 0, line }
    }

    fn fence(worker: u8) -> Event {
        Event::Fence { worker, point: 0 }
    }

    #[test]
    fn a_store_is_durable_after_flush_and_fence_of_one_worker() {
        let histories = LineHistories::of(&[store(1), flush(0, 1), fence(0)]);
        assert_eq!(histories.fate(0), StoreFate::Durable);
        assert_eq!(histories.changes_at(1)[0].state, LineState::Flushed);
        assert_eq!(histories.changes_at(2)[0].state, LineState::Durable);
    }

    #[test]
    fn neither_a_fence_alone_nor_one_of_another_worker_makes_it_durable() {
        let histories = LineHistories::of(&[store(1), fence(0), flush(0, 1), fence(1)]);
        assert_eq!(histories.fate(0), StoreFate::Pending);
        assert!(histories.is_flushed_in_vain(2));
    }

    #[test]
    fn a_store_after_the_flush_stays_pending() {
        let histories = LineHistories::of(&[store(1), flush(0, 1), store(1), fence(0)]);
        assert_eq!(histories.fate(0), StoreFate::Durable);
        assert_eq!(histories.pending_of(1), [2]);
    }

    #[test]
    fn stores_that_were_overwritten_before_they_persisted_made_it_too() {
        let values = [5, 6, 5, 7];
        let events = values.map(|value| Event::OrderedStore {
            worker: 0,
            start: 8,
            bytes: 8,
            line: 0,
            value,
        });
        let line = |value: u8| {
            let mut line = [0; 64];
            line[8] = value;
            line
        };
        let prefix = |held| persisted_prefix(&events, &[0, 1, 2, 3], &line(0), &line(held));
        assert_eq!([prefix(0), prefix(6), prefix(7), prefix(9)], [Some(0), Some(2), Some(4), None]);
    }

    #[test]
    fn a_store_past_the_caches_needs_a_fence_only() {
        let past = Event::NonTemporal { worker: 0, start: 0, bytes: 8, line: 3, value: 1 };
        let histories = LineHistories::of(&[past, fence(0)]);
        assert_eq!(histories.fate(0), StoreFate::Durable);
    }
}
