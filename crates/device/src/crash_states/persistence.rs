//! The persistence state machine: what is durable and what is pending, event by event.
//!
//! It replays a trace under the synchronous-flush formulation of Px86, whose rules R1–R6 stand in
//! [`lapis_pmem::domain`]. With [`PowerFailDomain::Adr`]:
//!
//! ```text
//!  store ──▶ pending units of its line ──flush by w──▶ marked by w ──fence by w──▶ durable
//!            any downset may be durable too (module `pending`)
//!  non-temporal store by w ──▶ pending unit of w ─────────────────fence by w──▶ durable
//! ```
//!
//! * R1. A trace is in the order of visibility; nothing else is replayed.
//! * R2, R3. A line's pending units persist in the order of their groups; lines are independent.
//! * R4. A flush notes, for its worker, how many units the line had then. The worker's next fence
//!   makes those durable; what was stored to the line after the flush stays pending.
//! * R5. A locked store first completes its worker's flushes and non-temporal stores, as a fence does (a locked
//!   instruction of x86-64 drains the write-combining buffers too), and then is pending like an ordered
//!   store. A compare-exchange that fails does nothing.
//!   With [`PowerFailDomain::AdrPortable`] it completes nothing at all.
//! * R6. Non-temporal units are durable at their worker's next fence, or locked store (R5); a flush does not hasten them.
//!
//! # What is assumed within a line
//!
//! Two orders of stores to one line are kept by every domain here: a relaxed store stays behind an ordered one before
//! it, and behind a flush of the line before it. The first is the order of stores of x86-64; aarch64 lets a store overtake an `stlr`
//! before it. The second holds wherever caches write whole lines back, as where the power-fail domain is ADR: the
//! line is written back as it was when it was flushed, or later. So on aarch64 a state is possible that is not explored, in which a
//! relaxed store persisted without an ordered store to its line before it. Nor is one of a machine whose caches survive
//! explored by whoever takes [`PowerFailDomain::AdrPortable`].
//!
//! # Caches that survive
//!
//! With [`PowerFailDomain::Eadr`] and [`PowerFailDomain::EadrVisible`] caches survive and only store
//! buffers are lost; which stores may have left them is in module `surviving_caches`. `lapis crash` does not explore
//! these: it takes [`PowerFailDomain::AdrPortable`], for recorded programs [`PowerFailDomain::Adr`]. Litmus programs do.
//!
//! `clflush` ([`Event::StrongFlush`]) makes durable what its line holds of cached stores, at once.

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use crate::crash_states::line_table::LineTable;
use crate::crash_states::pending::{
    EXACT_UNITS, GROUP_UNITS, LineBytes, LineStates, Unit, line_states, retire,
};
use crate::crash_states::surviving_caches::{BufferState, StoresInBuffers};
use crate::trace::{Event, Stored, Trace};

/// What survives a power cut without being flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerFailDomain {
    /// What the memory controller has accepted.
    #[default]
    Adr,
    /// As [`PowerFailDomain::Adr`], but a locked operation completes
    /// nothing, as is the case on aarch64 and where a fence is an `fdatasync`. Every state of `Adr`
    /// is a state of this, and some more. What is assumed all the same, the module says.
    AdrPortable,
    /// The caches too, but not the store buffers, for a trace of one worker, which is in the order of
    /// execution: stores leave the buffers in the order of x86, and some in none.
    Eadr,
    /// As [`PowerFailDomain::Eadr`], for a trace whose order is that of visibility: of a run of
    /// several workers, whose buffers the scheduler drains. Every store is durable where it stands,
    /// and of the words of one copy any subset.
    EadrVisible,
}

/// A line that the trace stores to.
#[derive(Clone, Debug)]
struct LineHistory {
    line: u32,
    durable: LineBytes,
    pending: Vec<Unit>,
    next_sequence: u32,
    /// The worker's epoch when the last cached unit was stored.
    last_epoch: u32,
    /// The last group is closed: by an ordered store or by a flush of the line.
    last_ordered: bool,
    last_worker: u8,
    last_group: u32,
    /// Units in it so far.
    last_group_units: u32,
    /// In [`Persistence::dirty`].
    listed: bool,
    /// In [`Persistence::newly_durable`].
    fresh: bool,
    /// Enumerated since the last change.
    states: Option<LineStates>,
}

#[derive(Clone, Debug, Default)]
struct WorkerState {
    /// Line and its sequence at the flush, for each flush since the last fence.
    marks: Vec<(u32, u32)>,
    /// Lines with non-temporal units since the last fence.
    nontemporal: Vec<u32>,
    /// Fences and locked operations so far.
    epoch: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Persistence {
    domain: PowerFailDomain,
    table: LineTable,
    lines: Vec<LineHistory>,
    dirty: Vec<u32>,
    newly_durable: Vec<u32>,
    workers: Vec<WorkerState>,
    /// eADR: what is not durable yet.
    buffered: StoresInBuffers,
    /// All subsets of up to so many unordered units are enumerated.
    exact_units: usize,
}

impl Persistence {
    /// Before the first event of `trace`, when memory holds `base` durably (and zeroes behind it).
    pub(crate) fn new(trace: &Trace, base: &[u8], domain: PowerFailDomain) -> Self {
        let mut machine = Self {
            domain,
            table: LineTable::new(),
            lines: Vec::new(),
            dirty: Vec::new(),
            newly_durable: Vec::new(),
            workers: Vec::new(),
            buffered: StoresInBuffers::default(),
            exact_units: EXACT_UNITS,
        };
        for event in &trace.events {
            for line in event.stored_lines() {
                if machine.table.number(line).1 {
                    machine.lines.push(LineHistory::new(line, base));
                }
            }
        }
        machine
    }

    pub(crate) fn set_exact_units(&mut self, units: usize) {
        self.exact_units = units;
    }

    fn caches_survive(&self) -> bool {
        matches!(self.domain, PowerFailDomain::Eadr | PowerFailDomain::EadrVisible)
    }

    fn worker(&mut self, worker: u8) -> &mut WorkerState {
        let index = usize::from(worker);
        if index >= self.workers.len() {
            self.workers.resize_with(index + 1, WorkerState::default);
        }
        &mut self.workers[index]
    }

    /// Whether the event, if it is next, would make something durable that is pending.
    pub(crate) fn completes(&self, event: &Event) -> bool {
        let (worker, locked) = match *event {
            Event::Fence { worker, .. } => (worker, false),
            Event::Store { .. }
            | Event::OrderedStore { .. }
            | Event::NonTemporal { .. }
            | Event::Copy { .. }
            | Event::Locked { .. }
                if self.domain == PowerFailDomain::EadrVisible =>
            {
                return true;
            }
            Event::StrongFlush { .. } | Event::Marker { .. }
                if self.domain == PowerFailDomain::EadrVisible =>
            {
                return !self.buffered.is_empty();
            }
            Event::Block { .. } => return self.caches_survive() && !self.buffered.is_empty(),
            Event::StrongFlush { line, .. } => {
                let number = self.table.known(line);
                let pending = number.map(|number| &self.lines[number as usize].pending);
                return pending.is_some_and(|it| it.iter().any(|unit| !unit.nontemporal));
            }
            Event::Locked { .. } if self.domain == PowerFailDomain::AdrPortable => return false,
            Event::Locked { worker, .. } => (worker, true),
            _ => return false,
        };
        if self.caches_survive() {
            return locked || !self.buffered.is_empty();
        }
        let state = self.workers.get(usize::from(worker));
        state.is_some_and(|state| !state.marks.is_empty() || !state.nontemporal.is_empty())
    }

    /// The next event, of `trace`.
    pub(crate) fn apply(&mut self, trace: &Trace, event: &Event) {
        if self.domain == PowerFailDomain::EadrVisible {
            self.end_run(event);
        }
        match *event {
            Event::Store { worker, start, bytes, line, value } => {
                self.store(worker, Stored { start, bytes, line, value }, Kind::Relaxed);
            }
            Event::OrderedStore { worker, start, bytes, line, value } => {
                self.store(worker, Stored { start, bytes, line, value }, Kind::Ordered);
            }
            Event::NonTemporal { worker, start, bytes, line, value } => {
                self.store(worker, Stored { start, bytes, line, value }, Kind::NonTemporal);
            }
            Event::Copy { worker, nontemporal, start, line, bytes, payload } => {
                let kind = if nontemporal { Kind::NonTemporal } else { Kind::Relaxed };
                for stored in trace.stores(line, start, bytes, payload) {
                    self.store(worker, stored, kind);
                }
            }
            Event::Locked { worker, start, bytes, line, value } => {
                if self.domain != PowerFailDomain::AdrPortable {
                    self.complete(worker);
                }
                self.store(worker, Stored { start, bytes, line, value }, Kind::Ordered);
                if self.caches_survive() {
                    self.drain_buffers();
                }
            }
            Event::Flush { worker, line, .. } => self.flush(worker, line),
            Event::FlushLines { worker, line, lines, .. } => {
                (line..line + lines).for_each(|line| self.flush(worker, line));
            }
            Event::StrongFlush { line, .. } => self.flush_at_once(line),
            Event::Fence { worker, .. } => self.complete(worker),
            // Told to a device: no store buffer holds anything back then.
            Event::Block { .. } if self.caches_survive() => self.drain_buffers(),
            Event::Block { .. } | Event::Marker { .. } => {}
        }
        if self.domain == PowerFailDomain::EadrVisible
            && matches!(event, Event::OrderedStore { .. })
        {
            self.drain_buffers();
        }
    }

    /// What could have been noticed before this event became visible before it.
    fn end_run(&mut self, event: &Event) {
        let continues = match *event {
            Event::Store { worker, .. }
            | Event::NonTemporal { worker, .. }
            | Event::Copy { worker, .. } => self.buffered.is_run_of(worker),
            Event::Flush { .. } | Event::FlushLines { .. } => true,
            _ => false,
        };
        if !continues {
            self.drain_buffers();
        }
    }

    fn store(&mut self, worker: u8, stored: Stored, kind: Kind) {
        let number = self.table.number(stored.line).0;
        let epoch = self.worker(worker).epoch;
        let caches_survive = self.caches_survive();
        let line = &mut self.lines[number as usize];
        let unit = line.push(worker, epoch, stored, kind);
        if caches_survive {
            self.buffered.push(number, unit, kind == Kind::Ordered);
            return;
        }
        line.pending.push(unit);
        line.states = None;
        if !std::mem::replace(&mut line.listed, true) {
            self.dirty.push(number);
        }
        if kind == Kind::NonTemporal {
            let list = &mut self.worker(worker).nontemporal;
            if list.last() != Some(&number) {
                list.push(number);
            }
        }
    }

    fn flush(&mut self, worker: u8, line: u32) {
        // Nothing is ever stored to the others.
        let Some(number) = self.table.known(line) else { return };
        let caches_survive = self.caches_survive();
        let line = &mut self.lines[number as usize];
        // A group does not reach across a flush by anybody.
        line.last_ordered = true;
        let mark = (number, line.next_sequence);
        if !caches_survive && line.pending.iter().any(|unit| !unit.nontemporal) {
            self.worker(worker).marks.push(mark);
        }
    }

    fn flush_at_once(&mut self, line: u32) {
        self.buffered.close_group();
        let Some(number) = self.table.known(line) else { return };
        self.lines[number as usize].last_ordered = true;
        self.retire(number, |unit| !unit.nontemporal);
    }

    /// A fence of `worker`, or the fence that is part of its locked operation.
    fn complete(&mut self, worker: u8) {
        self.worker(worker).epoch += 1;
        if self.caches_survive() {
            return self.drain_buffers();
        }
        let marks = std::mem::take(&mut self.worker(worker).marks);
        for &(number, mark) in &marks {
            self.retire(number, |unit| !unit.nontemporal && unit.sequence < mark);
        }
        self.worker(worker).marks = reuse(marks);
        let lines = std::mem::take(&mut self.worker(worker).nontemporal);
        for &number in &lines {
            self.retire(number, |unit| unit.nontemporal && unit.worker == worker);
        }
        self.worker(worker).nontemporal = reuse(lines);
    }

    fn retire(&mut self, number: u32, selected: impl Fn(&Unit) -> bool) {
        let line = &mut self.lines[number as usize];
        let before = line.pending.len();
        retire(&mut line.durable, &mut line.pending, selected);
        if line.pending.len() != before {
            line.states = None;
            if !std::mem::replace(&mut line.fresh, true) {
                self.newly_durable.push(number);
            }
        }
    }

    fn drain_buffers(&mut self) {
        for (number, unit) in self.buffered.leave() {
            let line = &mut self.lines[number as usize];
            unit.apply(&mut line.durable);
            if !std::mem::replace(&mut line.fresh, true) {
                self.newly_durable.push(number);
            }
        }
    }

    /// Forgets which lines became durable so far.
    pub(crate) fn clear_newly_durable(&mut self) {
        for number in self.newly_durable.drain(..) {
            self.lines[number as usize].fresh = false;
        }
    }

    /// Lines whose durable contents changed since the last [`Self::clear_newly_durable`].
    pub(crate) fn newly_durable(&self) -> impl Iterator<Item = (u32, &LineBytes)> {
        self.newly_durable.iter().map(|&number| {
            let line = &self.lines[number as usize];
            (line.line, &line.durable)
        })
    }

    /// Enumerates the states of every line with pending units, where that is not done yet.
    pub(crate) fn enumerate(&mut self) {
        let (lines, exact_units) = (&mut self.lines, self.exact_units);
        self.dirty.retain(|&number| {
            let line = &mut lines[number as usize];
            line.listed = !line.pending.is_empty();
            if line.listed && line.states.is_none() {
                line.states = Some(line_states(&line.durable, &line.pending, exact_units));
            }
            line.listed
        });
        self.dirty.sort_unstable_by_key(|&number| lines[number as usize].line);
    }

    /// The lines that have several states, by number, as [`Self::enumerate`] left them.
    pub(crate) fn uncertain_lines(&self) -> impl Iterator<Item = (u32, &LineStates)> {
        let lines = self.dirty.iter().map(|&number| &self.lines[number as usize]);
        lines.filter_map(|line| {
            line.states.as_ref().filter(|found| found.states.len() > 1).map(|it| (line.line, it))
        })
    }

    /// eADR: what the store buffers may leave, first nothing and last everything, and whether that
    /// is all.
    pub(crate) fn buffer_states(&self) -> (Vec<BufferState>, bool) {
        let line = |number: u32| {
            let line = &self.lines[number as usize];
            (line.line, &line.durable)
        };
        self.buffered.states(line, self.exact_units)
    }
}

/// An empty vector with the capacity of `vector`.
fn reuse<T>(mut vector: Vec<T>) -> Vec<T> {
    vector.clear();
    vector
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Relaxed,
    Ordered,
    NonTemporal,
}

impl LineHistory {
    fn new(line: u32, base: &[u8]) -> Self {
        let mut durable = [0; LINE_BYTES];
        let start = line as usize * LINE_BYTES;
        if let Some(bytes) = base.get(start..start + LINE_BYTES) {
            durable.copy_from_slice(bytes);
        }
        Self {
            line,
            durable,
            pending: Vec::new(),
            next_sequence: 0,
            last_epoch: 0,
            last_ordered: true,
            last_worker: 0,
            last_group: 0,
            last_group_units: 0,
            listed: false,
            fresh: false,
            states: None,
        }
    }

    /// Makes the unit of a store and assigns its group.
    fn push(&mut self, worker: u8, epoch: u32, stored: Stored, kind: Kind) -> Unit {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let Stored { start, bytes, value, .. } = stored;
        let nontemporal = kind == Kind::NonTemporal;
        if !nontemporal {
            let joins = kind == Kind::Relaxed
                && !self.last_ordered
                && self.last_worker == worker
                && self.last_epoch == epoch
                && self.last_group_units < GROUP_UNITS;
            if !joins {
                self.last_group += 1;
                self.last_group_units = 0;
            }
            self.last_group_units += 1;
            self.last_ordered = kind == Kind::Ordered;
            self.last_worker = worker;
            self.last_epoch = epoch;
        }
        Unit { value, sequence, group: self.last_group, start, bytes, worker, nontemporal }
    }
}
