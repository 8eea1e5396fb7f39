//! Which two flushes of workers met in one line, and whether one came between the other and the stores that it is for.

use std::collections::{BTreeMap, BTreeSet};

use lapis_device::{PersistPoint, Trace};

/// Two flushes of one line by different workers. They conflict: what the second one makes durable, or has seen, may be
/// what the first one has stored and not yet made durable.
pub(crate) type Pair = (PersistPoint, PersistPoint);

/// The pairs of flushes that met in histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushPairs {
    /// All of them: the first is of the worker that has stored, the second of another, before or after it.
    met: BTreeSet<Pair>,
    /// Those of which the second came between a store and the flush for it.
    interleaved: BTreeSet<Pair>,
}

#[derive(Default)]
struct Line {
    /// The flushes of each worker.
    flushed: BTreeSet<(u8, PersistPoint)>,
    /// By worker that has stored and not flushed: what others have flushed since.
    stored: BTreeMap<u8, BTreeSet<PersistPoint>>,
}

impl FlushPairs {
    /// Those of one history, of flushes in these sources.
    pub(crate) fn of(trace: &Trace, owns: impl Fn(&str) -> bool) -> Self {
        let mut lines: BTreeMap<u32, Line> = BTreeMap::new();
        let mut found = Self::default();
        for event in &trace.events {
            let me = event.worker();
            for line in event.stored_lines() {
                lines.entry(line).or_default().stored.entry(me).or_default();
            }
            let point = event.point().map(|point| trace.points[usize::from(point)]);
            let Some(point) = point.filter(|point| owns(point.file)) else { continue };
            for line in event.flushed_lines() {
                let line = lines.entry(line).or_default();
                for between in line.stored.remove(&me).unwrap_or_default() {
                    found.interleaved.insert((point, between));
                }
                line.stored.values_mut().for_each(|between| _ = between.insert(point));
                for &(_, flush) in line.flushed.iter().filter(|(other, _)| *other != me) {
                    found.met.extend([(point, flush), (flush, point)]);
                }
                line.flushed.insert((me, point));
            }
        }
        found
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.met.extend(other.met);
        self.interleaved.extend(other.interleaved);
    }

    /// How many met, and how many of them were interleaved.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.met.len(), self.met.intersection(&self.interleaved).count())
    }

    /// Those that met and were never interleaved.
    pub(crate) fn never_interleaved(&self) -> impl Iterator<Item = Pair> {
        self.met.difference(&self.interleaved).copied()
    }
}

impl serde::Serialize for FlushPairs {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.never_interleaved().map(|(flush, other)| format!("{flush}, {other}"));
        serializer.collect_seq(names)
    }
}

#[cfg(test)]
mod tests {
    use lapis_device::{Event, PersistKind};

    use super::*;

    /// Stores (`None`) and flushes of line 7, by worker.
    fn pairs(steps: &[(u8, Option<u32>)]) -> FlushPairs {
        let point = |line| PersistPoint { file: "a.rs", line, column: 1, kind: PersistKind::Flush };
        let mut trace = Trace::default();
        trace.points.extend([0, 1, 2].map(point));
        trace.events.extend(steps.iter().map(|&(worker, flush)| match flush {
            None => Event::Store { worker, start: 0, bytes: 8, line: 7, value: 1 },
            Some(point) => Event::Flush { worker, point: point as u16, line: 7 },
        }));
        FlushPairs::of(&trace, |_| true)
    }

    #[test]
    fn flushes_one_after_the_other_met_and_were_not_interleaved() {
        let found = pairs(&[(0, None), (0, Some(1)), (1, None), (1, Some(2))]);
        assert_eq!(found.counts(), (2, 0));
    }

    #[test]
    fn a_flush_between_the_store_and_the_flush_of_another_is_interleaved_with_it() {
        let found = pairs(&[(0, None), (1, Some(2)), (0, Some(1))]);
        assert_eq!(found.counts(), (2, 1));
        let never: Vec<_> =
            found.never_interleaved().map(|(one, other)| (one.line, other.line)).collect();
        assert_eq!(never, [(2, 1)]);
    }

    #[test]
    fn one_worker_has_no_pairs() {
        assert_eq!(pairs(&[(0, None), (0, Some(1)), (0, Some(2))]).counts(), (0, 0));
    }
}
