//! Litmus programs: a few instructions on a few words, and everything they may leave.
//!
//! A [`LitmusProgram`] runs on the store buffers of the [scheduler](Modelled::run_workers) and the state
//! machine of [`persistence`](crate::crash_states::persistence), over all interleavings: every order in which
//! workers execute loads and locked instructions and in which entries leave store buffers. At each
//! instant the power may be cut. What is then in memory, with the values that loads have returned, is
//! an [`Outcome`].
//!
//! [`Modelled::run_workers`]: crate::Modelled::run_workers
//! [`Modelled`]: crate::Modelled

use std::collections::{BTreeMap, BTreeSet, HashSet};

use lapis_pmem::LINE_BYTES;

use crate::crash_states::crash_points::CrashPoints;
use crate::crash_states::images::ImageBudget;
use crate::crash_states::persistence::PowerFailDomain;
use crate::modelled::persist_points::{PersistKind, PersistPoint};
use crate::scheduler::store_buffer::{Entry, EntryKind, StoreBuffer};
use crate::trace::{Event, Marker, Trace};

const WORD_BYTES: usize = 8;
const WORDS_PER_LINE: usize = LINE_BYTES / WORD_BYTES;
/// All subsets of so many unordered stores of a line are enumerated.
const EXACT_UNITS: usize = 16;

/// An instruction. Words are numbered; eight share a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Loads a word into the worker's next register.
    Load(usize),
    /// Stores a value to a word.
    Store(usize, u64),
    /// Stores a value to a word past the caches.
    NonTemporal(usize, u64),
    /// `clwb` or `clflushopt` of the line of a word.
    Flush(usize),
    /// `clflush` of the line of a word.
    StrongFlush(usize),
    /// `sfence`.
    StoreFence,
    /// `mfence`.
    FullFence,
    /// A locked exchange; what was there goes into the worker's next register.
    Exchange(usize, u64),
}

/// What each worker executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LitmusProgram {
    /// The instructions of each worker.
    pub workers: Vec<Vec<Instruction>>,
}

/// What a power cut leaves, and what was known before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// What the loads and exchanges of each worker have returned so far.
    pub registers: Vec<Vec<u64>>,
    /// The words of memory after the cut, up to the highest that the program names.
    pub memory: Vec<u64>,
}

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutTime {
    /// At any instant.
    Any,
    /// When all workers have executed everything and every store is visible.
    End,
}

impl LitmusProgram {
    /// Words up to the highest that is named.
    pub fn word_count(&self) -> usize {
        let instructions = self.workers.iter().flatten();
        let words = instructions.filter_map(|instruction| match *instruction {
            Instruction::Load(word)
            | Instruction::Store(word, _)
            | Instruction::NonTemporal(word, _)
            | Instruction::Flush(word)
            | Instruction::StrongFlush(word)
            | Instruction::Exchange(word, _) => Some(word + 1),
            Instruction::StoreFence | Instruction::FullFence => None,
        });
        words.max().unwrap_or(0)
    }

    /// Every outcome. Memory is zero at first.
    ///
    /// # Panics
    /// If a line has so many unordered stores that its states are not all enumerated.
    pub fn outcomes(&self, domain: PowerFailDomain, cut: CutTime) -> BTreeSet<Outcome> {
        let words = self.word_count();
        let mut search = Search {
            program: self,
            domain,
            cut,
            words,
            seen: HashSet::new(),
            memories: BTreeMap::new(),
            outcomes: BTreeSet::new(),
        };
        let mut machine = Machine::new(self, words);
        machine.notes_loads = domain == PowerFailDomain::EadrVisible;
        search.explore(machine);
        search.outcomes
    }
}

/// The machine between two steps.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    next: Vec<usize>,
    buffers: Vec<StoreBuffer<u64>>,
    memory: Vec<u64>,
    registers: Vec<Vec<u64>>,
    /// What has become visible, in order.
    events: Vec<Event>,
    /// A load is noted if it may have seen the first of a run of non-temporal stores, whose order
    /// would be nobody's business otherwise.
    notes_loads: bool,
}

struct Search<'p> {
    program: &'p LitmusProgram,
    domain: PowerFailDomain,
    cut: CutTime,
    words: usize,
    seen: HashSet<Machine>,
    /// What may be in memory after given events.
    memories: BTreeMap<Vec<u128>, BTreeSet<Vec<u64>>>,
    outcomes: BTreeSet<Outcome>,
}

impl Search<'_> {
    fn explore(&mut self, mut machine: Machine) {
        // What only enters the own buffer concerns nobody: it is done as early as possible.
        (0..self.program.workers.len()).for_each(|worker| machine.fill(self.program, worker));
        if !self.seen.insert(machine.clone()) {
            return;
        }
        let workers = 0..self.program.workers.len();
        let mut ended = true;
        for worker in workers {
            for place in machine.buffers[worker].leavable().collect::<Vec<_>>() {
                let mut after = machine.clone();
                after.drain(worker, place);
                self.explore(after);
                ended = false;
            }
            let instructions = &self.program.workers[worker];
            if let Some(&instruction) = instructions.get(machine.next[worker]) {
                ended = false;
                let mut after = machine.clone();
                if after.execute(worker, instruction) {
                    self.explore(after);
                }
            }
        }
        if ended || self.cut == CutTime::Any {
            self.cut_power(&machine);
        }
    }

    fn cut_power(&mut self, machine: &Machine) {
        let (domain, words) = (self.domain, self.words);
        let key: Vec<u128> = machine.events.iter().map(identity).collect();
        let memories = self
            .memories
            .entry(key)
            .or_insert_with(|| memories_after(&machine.events, domain, words));
        let registers = &machine.registers;
        self.outcomes.extend(
            memories
                .iter()
                .map(|memory| Outcome { registers: registers.clone(), memory: memory.clone() }),
        );
    }
}

/// Tells the events of litmus programs apart.
fn identity(event: &Event) -> u128 {
    let (tag, worker, line, start, value) = match *event {
        Event::OrderedStore { worker, line, start, value, .. } => (0, worker, line, start, value),
        Event::Locked { worker, line, start, value, .. } => (1, worker, line, start, value),
        Event::NonTemporal { worker, line, start, value, .. } => (2, worker, line, start, value),
        Event::Flush { worker, line, .. } => (3, worker, line, 0, 0),
        Event::StrongFlush { worker, line } => (4, worker, line, 0, 0),
        Event::Fence { worker, .. } => (5, worker, 0, 0, 0),
        _ => (6, 0, 0, 0, 0),
    };
    u128::from(value)
        | u128::from(line) << 64
        | u128::from(start) << 96
        | u128::from(worker) << 104
        | tag << 112
}

/// What memory may hold if the power is cut after these events.
fn memories_after(events: &[Event], domain: PowerFailDomain, words: usize) -> BTreeSet<Vec<u64>> {
    const END: u32 = u32::MAX;
    let here = PersistPoint::at(std::panic::Location::caller(), PersistKind::Fence);
    let mut trace = Trace::of(events.to_vec(), vec![here]);
    trace.events.push(Event::Marker { worker: 0, marker: Marker::End(END) });
    let mut points = CrashPoints::new(&trace, &[], domain).with_exact_units(EXACT_UNITS);
    let mut durable = vec![0; words];
    let mut found = BTreeSet::new();
    while let Some(point) = points.advance() {
        for (line, bytes) in points.newly_durable() {
            write_line(&mut durable, line, bytes);
        }
        // The mark itself ends a run, so what may be left of one is seen before it.
        if point.position < events.len() {
            continue;
        }
        let states = points.states();
        assert!(states.is_exact(), "too many unordered stores for a litmus program");
        let budget = ImageBudget { exhaustive_limit: u64::MAX, ..ImageBudget::default() };
        found.extend(states.images(budget).map(|image| {
            let mut memory = durable.clone();
            for (line, bytes) in states.overrides(&image) {
                write_line(&mut memory, line, &bytes);
            }
            memory
        }));
    }
    found
}

fn write_line(memory: &mut [u64], line: u32, bytes: &[u8; LINE_BYTES]) {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let first = line as usize * WORDS_PER_LINE;
    for (word, bytes) in memory.iter_mut().skip(first).zip(words) {
        *word = u64::from_le_bytes(*bytes);
    }
}

impl Machine {
    fn new(program: &LitmusProgram, words: usize) -> Self {
        let workers = program.workers.len();
        Self {
            next: vec![0; workers],
            buffers: vec![StoreBuffer::default(); workers],
            memory: vec![0; words],
            registers: vec![Vec::new(); workers],
            events: Vec::new(),
            notes_loads: false,
        }
    }

    /// Executes what only enters the worker's buffer.
    fn fill(&mut self, program: &LitmusProgram, worker: usize) {
        while let Some(&instruction) = program.workers[worker].get(self.next[worker]) {
            let (kind, word, effect) = match instruction {
                Instruction::Store(word, value) => (EntryKind::Store, word, value),
                Instruction::NonTemporal(word, value) => (EntryKind::NonTemporal, word, value),
                Instruction::Flush(word) => (EntryKind::Flush, word, 0),
                Instruction::StrongFlush(word) => (EntryKind::StrongFlush, word, 0),
                Instruction::StoreFence => (EntryKind::Fence, 0, 0),
                Instruction::Load(_) | Instruction::FullFence | Instruction::Exchange(..) => return,
            };
            let entry = Entry { kind, start: word * WORD_BYTES, bytes: WORD_BYTES, effect };
            self.buffers[worker].push(entry);
            self.next[worker] += 1;
        }
    }

    /// Executes a load, or what waits for an empty buffer; returns whether that is possible.
    fn execute(&mut self, worker: usize, instruction: Instruction) -> bool {
        let buffer = &self.buffers[worker];
        match instruction {
            Instruction::Load(word) => {
                let own = buffer.newest_touching(word * WORD_BYTES, WORD_BYTES);
                let forwarded = own.and_then(|place| buffer.entries().nth(place));
                let value = forwarded.map_or(self.memory[word], |entry| entry.effect);
                self.registers[worker].push(value);
                if self.notes_loads
                    && let Some(Event::NonTemporal { .. } | Event::Flush { .. }) =
                        self.events.last()
                {
                    let worker = worker as u8;
                    self.events.push(Event::Marker { worker, marker: Marker::Note(0) });
                }
            }
            _ if !buffer.is_empty() => return false,
            Instruction::Exchange(word, value) => {
                self.registers[worker].push(self.memory[word]);
                self.memory[word] = value;
                let (line, start) = place(word * WORD_BYTES);
                let worker = worker as u8;
                self.events.push(Event::Locked { worker, start, bytes: 8, line, value });
            }
            _ => self.events.push(Event::Fence { worker: worker as u8, point: 0 }),
        }
        self.next[worker] += 1;
        true
    }

    fn drain(&mut self, worker: usize, place_in_buffer: usize) {
        let Some(entry) = self.buffers[worker].take(place_in_buffer) else { return };
        let (worker, value) = (worker as u8, entry.effect);
        let (line, start) = place(entry.start);
        self.events.push(match entry.kind {
            EntryKind::Store => Event::OrderedStore { worker, start, bytes: 8, line, value },
            EntryKind::NonTemporal => Event::NonTemporal { worker, start, bytes: 8, line, value },
            EntryKind::Flush => Event::Flush { worker, point: 0, line },
            EntryKind::StrongFlush => Event::StrongFlush { worker, line },
            EntryKind::Fence | EntryKind::Acknowledgement => Event::Fence { worker, point: 0 },
        });
        if matches!(entry.kind, EntryKind::Store | EntryKind::NonTemporal)
            && let Some(word) = self.memory.get_mut(entry.start / WORD_BYTES)
        {
            *word = value;
        }
    }
}

fn place(offset: usize) -> (u32, u8) {
    ((offset / LINE_BYTES) as u32, (offset % LINE_BYTES) as u8)
}
