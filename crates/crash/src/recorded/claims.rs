//! What a trace alone shows: whether what has to be durable is, and in order what has to be.
//!
//! Followed is, for each byte, the last store to it, and since when that is sure to be durable. The
//! rules are R1 to R6 of [`lapis_pmem::domain`]: a store is durable at the fence of a worker that
//! has flushed its line after it, or past the caches at the next fence of its own worker; and so is
//! then every earlier store that it overlaps. Where locked stores complete anything, each is a fence first. Of two stores in one line the earlier persists first
//! if they are in different groups, as in the model (an ordered store is a group of its own; a run
//! of plain stores of one worker is one).

use std::collections::{BTreeMap, HashMap};

use lapis_device::trace_file::{Assertion, Claim, RecordedTrace};
use lapis_device::{Event, Marker};
use lapis_pmem::LINE_BYTES;

use super::timeline::ASSERTION;
use super::{
    DurableOnEnd, Missing, Progressing, RecordedFailure, RecordedOptions, RecordedReport,
    RecordedViolation,
};

/// One store, within an aligned 8-byte unit.
#[derive(Clone, Copy, Debug)]
struct Stored {
    position: usize,
    worker: u8,
    line: u32,
    start: u8,
    bytes: u8,
    past_caches: bool,
    /// Of a store past the caches: the highest group of the stores that it lies over.
    group: u32,
    flushed: bool,
    durable_at: Option<usize>,
}

impl Stored {
    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
    }

    /// Whether it cannot persist without `earlier`, a store to the same line before it.
    fn needs(&self, earlier: &Self) -> bool {
        self.overlaps(earlier) || !earlier.past_caches && earlier.group < self.group
    }

    fn offset(&self) -> u64 {
        u64::from(self.line) * LINE_BYTES as u64 + u64::from(self.start)
    }
}

const NONE: u32 = u32::MAX;

struct Line {
    /// The last store to each byte.
    last: [u32; LINE_BYTES],
    /// Stores that may be lost, in order.
    pending: Vec<u32>,
    group: u32,
    /// The last cached store may be joined in its group by a plain one of this worker and epoch.
    open: Option<(u8, u32)>,
}

#[derive(Default)]
struct Worker {
    /// Line, and how many stores there were when it was flushed.
    marks: Vec<(u32, u32)>,
    /// Lines stored to past the caches.
    past_caches: Vec<u32>,
    epoch: u32,
    /// Stores since the operation began, if one has.
    operation: Option<Vec<u32>>,
}

#[derive(Default)]
struct Follower {
    stores: Vec<Stored>,
    lines: BTreeMap<u32, Line>,
    workers: BTreeMap<u8, Worker>,
    locked_completes: bool,
    /// Disjoint: from start to end.
    volatile: BTreeMap<u64, u64>,
}

impl Follower {
    fn apply(&mut self, position: usize, event: &Event) {
        let stored = |worker, start, bytes, line, past_caches| Stored {
            position,
            worker,
            line,
            start,
            bytes,
            past_caches,
            group: 0,
            flushed: false,
            durable_at: None,
        };
        match *event {
            Event::Store { worker, start, bytes, line, .. } => {
                self.store(stored(worker, start, bytes, line, false), false);
            }
            Event::OrderedStore { worker, start, bytes, line, .. } => {
                self.store(stored(worker, start, bytes, line, false), true);
            }
            Event::Locked { worker, start, bytes, line, .. } => {
                if self.locked_completes {
                    self.complete(worker, position);
                }
                self.store(stored(worker, start, bytes, line, false), true);
            }
            Event::NonTemporal { worker, start, bytes, line, .. } => {
                self.store(stored(worker, start, bytes, line, true), false);
                self.workers.entry(worker).or_default().past_caches.push(line);
            }
            Event::Flush { worker, line, .. } => {
                let count = self.stores.len() as u32;
                let Some(found) = self.lines.get_mut(&line) else { return };
                found.open = None;
                for &store in &found.pending {
                    self.stores[store as usize].flushed = true;
                }
                self.workers.entry(worker).or_default().marks.push((line, count));
            }
            Event::StrongFlush { line, .. } => {
                if let Some(found) = self.lines.get_mut(&line) {
                    found.open = None;
                    self.retire(line, position, |_, stored| !stored.past_caches);
                }
            }
            Event::Fence { worker, .. } => self.complete(worker, position),
            Event::Marker { worker, marker } => match marker {
                Marker::Begin(_) => {
                    self.workers.entry(worker).or_default().operation = Some(Vec::new());
                }
                Marker::End(_) => self.workers.entry(worker).or_default().operation = None,
                Marker::Note(_) => {}
            },
            // A recorded trace is in units.
            _ => {}
        }
    }

    fn store(&mut self, mut stored: Stored, ordered: bool) {
        let number = self.stores.len() as u32;
        let worker = self.workers.entry(stored.worker).or_default();
        let line = self.lines.entry(stored.line).or_insert_with(|| Line {
            last: [NONE; LINE_BYTES],
            pending: Vec::new(),
            group: 0,
            open: None,
        });
        if !stored.past_caches {
            let key = (stored.worker, worker.epoch);
            if ordered || line.open != Some(key) {
                line.group += 1;
            }
            line.open = (!ordered).then_some(key);
        }
        stored.group = line.group;
        if stored.past_caches {
            // It belongs to no group, and cannot persist without what it lies over.
            let under = &line.last[usize::from(stored.start)..][..usize::from(stored.bytes)];
            let groups = under.iter().filter(|store| **store != NONE);
            let groups = groups.map(|&store| self.stores[store as usize].group);
            stored.group = groups.max().unwrap_or(0);
        }
        line.last[usize::from(stored.start)..][..usize::from(stored.bytes)].fill(number);
        // What it covers wholly can be missed no more: forgotten, so that a word that is stored
        // over and over costs no more each time.
        let stores = &self.stores;
        line.pending.retain(|&earlier| {
            let earlier = &stores[earlier as usize];
            let covered = earlier.start >= stored.start
                && earlier.start + earlier.bytes <= stored.start + stored.bytes;
            // What its fence makes durable implies others, unless this one's does the same.
            let stands_for =
                stored.past_caches && earlier.past_caches && earlier.worker == stored.worker;
            !covered || earlier.past_caches && !stands_for
        });
        line.pending.push(number);
        if let Some(operation) = &mut worker.operation {
            operation.push(number);
        }
        self.stores.push(stored);
    }

    fn complete(&mut self, number: u8, position: usize) {
        let worker = self.workers.entry(number).or_default();
        worker.epoch += 1;
        let marks = std::mem::take(&mut worker.marks);
        for (line, count) in marks {
            self.retire(line, position, |index, stored| !stored.past_caches && index < count);
        }
        let worker = self.workers.entry(number).or_default();
        let mut lines = std::mem::take(&mut worker.past_caches);
        lines.dedup();
        for line in lines {
            self.retire(line, position, |_, stored| stored.past_caches && stored.worker == number);
        }
    }

    fn retire(&mut self, line: u32, position: usize, selected: impl Fn(u32, &Stored) -> bool) {
        let Some(line) = self.lines.get_mut(&line) else { return };
        let chosen: Vec<u32> = line
            .pending
            .iter()
            .copied()
            .filter(|&index| selected(index, &self.stores[index as usize]))
            .collect();
        let stores = &mut self.stores;
        line.pending.retain(|&index| {
            let stored = stores[index as usize];
            let durable = chosen.iter().any(|&later| {
                later == index || later > index && stores[later as usize].needs(&stored)
            });
            if durable {
                stores[index as usize].durable_at = Some(position);
            }
            !durable
        });
    }

    /// The last stores to a range, each once, in the order of their places.
    fn last_stores(&self, offset: u64, bytes: u64) -> Vec<u32> {
        let size = LINE_BYTES as u64;
        let end = offset + bytes;
        let (first, last) = ((offset / size) as u32, ((end - 1) / size) as u32);
        let mut found = Vec::new();
        for (&number, line) in self.lines.range(first..=last) {
            let start = u64::from(number) * size;
            let from = offset.saturating_sub(start).min(size) as usize;
            let to = (end - start).min(size) as usize;
            for &store in &line.last[from..to] {
                if store != NONE && found.last() != Some(&store) {
                    found.push(store);
                }
            }
        }
        found
    }

    /// The first store to a range that may be lost.
    fn not_durable(&self, offset: u64, bytes: u64) -> Option<&Stored> {
        let last = self.last_stores(offset, bytes);
        let stores = last.into_iter().map(|store| &self.stores[store as usize]);
        stores.into_iter().find(|stored| stored.durable_at.is_none())
    }

    /// A store to the first range, and one to the second that may persist without it.
    fn not_in_order(&self, first: (u64, u64), second: (u64, u64)) -> Option<(&Stored, &Stored)> {
        let of = |range: (u64, u64)| {
            self.last_stores(range.0, range.1).into_iter().map(|store| &self.stores[store as usize])
        };
        let seconds: Vec<&Stored> = of(second).collect();
        let earliest = seconds.iter().map(|stored| stored.position).min()?;
        for before in of(first) {
            // A locked store comes after what its instruction completes.
            if before.durable_at.is_some_and(|durable| durable <= earliest) {
                continue;
            }
            let unordered = seconds.iter().find(|after| {
                let durable = before.durable_at.is_some_and(|at| at <= after.position);
                let same_line = before.line == after.line
                    && before.position < after.position
                    && after.needs(before);
                // A store that lies in both ranges cannot persist without itself.
                !durable && !same_line && before.position != after.position
            });
            if let Some(after) = unordered {
                return Some((before, after));
            }
        }
        None
    }

    fn declare_volatile(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes);
        let touching: Vec<u64> = self
            .volatile
            .range(..=end)
            .rev()
            .take_while(|(_, other_end)| **other_end >= start)
            .map(|(other, _)| *other)
            .collect();
        for other in touching {
            let other_end = self.volatile.remove(&other).unwrap_or(other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.volatile.insert(start, end);
    }

    fn is_volatile(&self, stored: &Stored) -> bool {
        let (start, end) = (stored.offset(), stored.offset() + u64::from(stored.bytes));
        self.volatile.range(..=start).next_back().is_some_and(|(_, other_end)| end <= *other_end)
    }

    /// Stores of the worker's operation that are the last of some byte and may be lost.
    fn lost_of_operation(&self, worker: u8) -> Vec<Stored> {
        let operation = self.workers.get(&worker).and_then(|worker| worker.operation.as_deref());
        let stores = operation.unwrap_or_default().iter().copied();
        stores
            .filter(|&store| {
                let stored = &self.stores[store as usize];
                let line = &self.lines[&stored.line].last;
                let bytes = &line[usize::from(stored.start)..][..usize::from(stored.bytes)];
                stored.durable_at.is_none() && bytes.contains(&store) && !self.is_volatile(stored)
            })
            .map(|store| self.stores[store as usize])
            .collect()
    }
}

/// Judges every assertion and every acknowledgement of a trace.
pub(super) fn check(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    report: &mut RecordedReport,
) {
    let mut follower =
        Follower { locked_completes: options.locked_completes, ..Follower::default() };
    let mut progressing = Progressing::default();
    let mut found = Findings { recorded, options, by_place: HashMap::new(), list: Vec::new() };
    let mut assertions = recorded.assertions.iter().peekable();
    for (position, event) in recorded.trace.events.iter().enumerate() {
        while let Some(assertion) = assertions.next_if(|next| next.position <= position) {
            judge(assertion, &mut follower, &progressing, &mut found, report);
        }
        if let Event::Marker { worker, marker } = *event {
            if let Marker::End(number) = marker
                && options.durable_on_end == DurableOnEnd::Everything
            {
                report.acknowledgements += 1;
                for stored in follower.lost_of_operation(worker) {
                    let place = recorded.places[position];
                    let point = format!("the end of operation {number}");
                    found.not_durable(position, &stored, place, point, &progressing);
                }
            }
            progressing.mark(worker, marker);
        }
        follower.apply(position, event);
    }
    for assertion in assertions {
        judge(assertion, &mut follower, &progressing, &mut found, report);
    }
    report.violations.extend(found.list.into_iter().take(options.violation_limit));
}

fn judge(
    assertion: &Assertion,
    follower: &mut Follower,
    progressing: &Progressing,
    found: &mut Findings<'_>,
    report: &mut RecordedReport,
) {
    let point = ASSERTION.to_owned();
    match assertion.claim {
        Claim::Durable { offset, bytes } => {
            report.assertions += 1;
            if let Some(stored) = follower.not_durable(offset, bytes) {
                found.not_durable(assertion.position, stored, assertion.place, point, progressing);
            }
        }
        Claim::InOrder { first, second } => {
            report.assertions += 1;
            if let Some((before, after)) = follower.not_in_order(first, second) {
                found.not_in_order(assertion, before, after, point, progressing);
            }
        }
        Claim::Volatile { offset, bytes } => follower.declare_volatile(offset, bytes),
    }
}

/// The command that judges what the trace shows of itself again.
fn replay_command(recorded: &RecordedTrace, options: &RecordedOptions) -> String {
    // What the command line takes for this trace if it is not told.
    let unsaid = match recorded.is_of_our_own() {
        true => DurableOnEnd::Asserted,
        false => DurableOnEnd::Everything,
    };
    let durable_on_end = match options.durable_on_end {
        told if told == unsaid => "",
        DurableOnEnd::Everything => " --durable-on-end everything",
        DurableOnEnd::Asserted => " --durable-on-end asserted",
    };
    let file = super::recovery::quoted(&options.file);
    format!("lapis crash --trace {file}{durable_on_end}")
}

/// What does not hold, once per place in the source.
struct Findings<'r> {
    recorded: &'r RecordedTrace,
    options: &'r RecordedOptions,
    by_place: HashMap<(u32, u32, u32), usize>,
    list: Vec<RecordedViolation>,
}

impl Findings<'_> {
    fn place_of(&self, stored: &Stored) -> u32 {
        self.recorded.places[stored.position]
    }

    fn name(&self, place: u32) -> Option<String> {
        self.recorded.location(place).map(ToString::to_string)
    }

    fn not_durable(
        &mut self,
        position: usize,
        stored: &Stored,
        place: u32,
        point: String,
        progressing: &Progressing,
    ) {
        let store_place = self.place_of(stored);
        let flushed = stored.flushed || stored.past_caches;
        let failure = RecordedFailure::NotDurable {
            offset: stored.offset(),
            stored_at: self.name(store_place),
            asserted_at: self.name(place),
            missing: if flushed { Missing::Fence } else { Missing::Flush },
        };
        let key = (store_place, place, u32::MAX);
        self.add(key, position, point, failure, vec![stored.position], progressing);
    }

    fn not_in_order(
        &mut self,
        assertion: &Assertion,
        before: &Stored,
        after: &Stored,
        point: String,
        progressing: &Progressing,
    ) {
        let (first, second) = (self.place_of(before), self.place_of(after));
        let failure = RecordedFailure::NotInOrder {
            first_stored_at: self.name(first),
            second_stored_at: self.name(second),
            asserted_at: self.name(assertion.place),
        };
        let key = (first, assertion.place, second);
        let stores = vec![before.position, after.position];
        self.add(key, assertion.position, point, failure, stores, progressing);
    }

    fn add(
        &mut self,
        key: (u32, u32, u32),
        position: usize,
        point: String,
        failure: RecordedFailure,
        stores: Vec<usize>,
        progressing: &Progressing,
    ) {
        if let Some(&index) = self.by_place.get(&key) {
            self.list[index].times += 1;
            return;
        }
        self.by_place.insert(key, self.list.len());
        self.list.push(RecordedViolation {
            position,
            point,
            operation: progressing.operation(),
            acknowledged: progressing.acknowledged,
            image: Vec::new(),
            what: failure.to_string(),
            failure,
            times: 1,
            replay: replay_command(self.recorded, self.options),
            shrunk: None,
            stores,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_ranges_that_touch_become_one() {
        let mut follower = Follower::default();
        for (offset, bytes) in [(0, 8), (64, 8), (8, 8), (32, 8), (10, 30)] {
            follower.declare_volatile(offset, bytes);
        }
        let ranges: Vec<_> = follower.volatile.into_iter().collect();
        assert_eq!(ranges, [(0, 40), (64, 72)]);
    }
}
