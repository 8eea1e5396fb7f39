//! Finding words for what happened up to a crash, whoever made it happen.

use std::collections::{HashMap, HashSet};

use lapis_device::{
    BlockEvent, BlockWrite, CrashCause, CrashStates, Event, Image, LineRead, Marker, PersistPoint,
    Stored,
};

use crate::timeline::entry::{EntryKind, LineChange, LineFate, LineState, TimelineEntry};
use crate::timeline::line_history::{LineHistories, StoreFate};

/// Events that are told one by one; of more only those that touch uncertain lines are.
const MOST_EVENTS: usize = 300;
/// Entries before the crash; of more the last.
const MOST_ENTRIES: usize = 600;
/// What is told.
pub(crate) struct Told<'t> {
    /// What happened before the crash.
    pub(crate) events: &'t [Event],
    /// The flushes and fences in it.
    pub(crate) points: &'t [PersistPoint],
    /// The writes to block devices in it.
    pub(crate) block_writes: &'t [BlockWrite],
    /// Why the power is cut, what could persist and what did; none if nothing is cut.
    pub(crate) crash: Option<(CrashCause, &'t CrashStates<'t>, &'t Image)>,
    /// The process is killed rather than the power cut.
    pub(crate) killed: bool,
    /// What recovery and check read of the uncertain lines.
    pub(crate) reads: &'t [LineRead],
    /// What is wrong.
    pub(crate) what: &'t str,
    /// What a marker says.
    pub(crate) marker: &'t dyn Fn(Marker) -> String,
    /// The event from which on all is told, if that is not too much.
    pub(crate) from: usize,
    /// It is said who does what.
    pub(crate) by_worker: bool,
    /// The beginning and the end of every operation are told, not only of those whose events are.
    pub(crate) every_operation: bool,
    /// Where an event stands in the source, if that is known of more than flushes and fences.
    pub(crate) source_of: &'t dyn Fn(usize) -> Option<String>,
    /// Where in memory an offset is.
    pub(crate) place: fn(u64) -> String,
    /// What is said of the cut, instead of its cause.
    pub(crate) cut: Option<&'t str>,
}

/// Tells it: the entries, and what became of each uncertain line.
pub(crate) fn tell(told: &Told<'_>) -> (Vec<TimelineEntry>, Vec<LineFate>) {
    let histories = LineHistories::of(told.events);
    let (mut fates, mut uncertain) = (HashMap::new(), Vec::new());
    if let Some((_, states, image)) = told.crash {
        fates = histories.final_fates(told.events, states, image);
        uncertain = states.uncertain_lines().into_iter().flatten().collect();
    }
    let mut telling = Telling {
        told,
        events: told.events,
        fates,
        histories,
        uncertain,
        marks: HashSet::new(),
        entries: Vec::new(),
    };
    if !told.every_operation {
        telling.marks = telling.marks_of_what_matters();
    }
    telling.tell()
}

pub(super) struct Telling<'t> {
    pub(super) told: &'t Told<'t>,
    pub(super) events: &'t [Event],
    pub(super) histories: LineHistories,
    /// What became of the pending stores.
    fates: HashMap<usize, StoreFate>,
    pub(super) uncertain: Vec<u32>,
    /// Begins and ends of operations that are told, where not all are.
    marks: HashSet<usize>,
    entries: Vec<TimelineEntry>,
}

/// Stores that follow each other in memory, as those of one copy do.
struct Stores {
    event: usize,
    worker: u8,
    kind: &'static str,
    start: u64,
    end: u64,
    value: u64,
    fates: Vec<StoreFate>,
    lines: Vec<u32>,
    source: Option<String>,
}

impl Telling<'_> {
    fn tell(mut self) -> (Vec<TimelineEntry>, Vec<LineFate>) {
        self.events();
        let position = self.events.len();
        let fates = match self.told.crash {
            Some((cause, states, image)) => self.crash(cause, states, image),
            None => Vec::new(),
        };
        self.push(position, EntryKind::Verdict, self.told.what.to_owned(), None, Vec::new());
        (self.entries, fates)
    }

    pub(super) fn push(
        &mut self,
        event: usize,
        kind: EntryKind,
        text: String,
        source: Option<String>,
        lines: Vec<LineChange>,
    ) {
        use EntryKind::{Block, Fence, Flush, Operation, Store};
        let is_event = matches!(kind, Operation | Store | Flush | Fence | Block);
        let by = self.events.get(event).filter(|_| is_event && self.told.by_worker);
        let worker = by.map(Event::worker);
        self.entries.push(TimelineEntry { event, worker, kind, text, source, lines });
    }

    fn is_uncertain(&self, line: u32) -> bool {
        self.uncertain.binary_search(&line).is_ok()
    }

    fn events(&mut self) {
        let begin = self.told.from;
        // A long operation (a creation) is told like those before it.
        let in_full = if self.events.len() - begin > MOST_EVENTS { usize::MAX } else { begin };
        let mut omitted = Omitted::default();
        let mut stores: Option<Stores> = None;
        let mut at = 0;
        while at < self.events.len() {
            let event = self.events[at];
            let matters = at >= in_full || self.matters(at, &event);
            let continues = match (&event, &mut stores) {
                (_, Some(run)) if matters => self.joins(run, at, &event),
                _ => false,
            };
            if !continues {
                self.finish(&mut stores);
                if matters {
                    self.omit(&mut omitted, at);
                    stores = self.event(at, &event);
                } else {
                    omitted.count(&event);
                }
            }
            at += 1;
        }
        self.finish(&mut stores);
        let end = self.events.len();
        self.omit(&mut omitted, end);
        if let Some(more @ 1..) = self.entries.len().checked_sub(MOST_ENTRIES) {
            self.entries.drain(..more);
            let at = self.entries.first().map_or(0, |entry| entry.event);
            let text = format!("… {more} entries before");
            let (worker, source, lines) = (None, None, Vec::new());
            let kind = EntryKind::Omitted;
            self.entries.insert(0, TimelineEntry { event: at, worker, kind, text, source, lines });
        }
    }

    /// The begins and ends of the operations in which something has to do with the crash.
    fn marks_of_what_matters(&self) -> HashSet<usize> {
        let mut begun: HashMap<u8, usize> = HashMap::new();
        let mut marks = HashSet::new();
        for (at, event) in self.events.iter().enumerate() {
            let worker = event.worker();
            match event {
                Event::Marker { marker: Marker::Begin(_), .. } => {
                    begun.insert(worker, at);
                }
                Event::Marker { marker: Marker::End(_), .. } => {
                    if begun.remove(&worker).is_some_and(|begin| marks.contains(&begin)) {
                        marks.insert(at);
                    }
                }
                _ => {
                    if let Some(&begin) = begun.get(&worker)
                        && self.matters(at, event)
                    {
                        marks.insert(begin);
                    }
                }
            }
        }
        // What is in flight at the crash.
        marks.extend(begun.into_values());
        marks
    }

    /// Whether an event outside of the operation told in full has to do with the crash.
    fn matters(&self, at: usize, event: &Event) -> bool {
        match event {
            Event::Marker { marker: Marker::Begin(_) | Marker::End(_), .. } => {
                self.told.every_operation || self.marks.contains(&at)
            }
            Event::Marker { .. } => false,
            Event::Block { .. } => true,
            Event::Store { line, .. }
            | Event::OrderedStore { line, .. }
            | Event::Locked { line, .. }
            | Event::NonTemporal { line, .. } => {
                self.is_uncertain(*line) && self.histories.fate(at) == StoreFate::Pending
            }
            Event::Flush { line, .. } => {
                self.is_uncertain(*line) && self.histories.is_flushed_in_vain(at)
            }
            _ => false,
        }
    }

    fn event(&mut self, at: usize, event: &Event) -> Option<Stores> {
        let own_source = (self.told.source_of)(at);
        let source = |point: u16| {
            let point = self.told.points[usize::from(point)];
            let of_point = || format!("{}:{}:{}", point.file, point.line, point.column);
            Some(own_source.clone().unwrap_or_else(of_point))
        };
        match *event {
            Event::Marker { marker, .. } => {
                let text = (self.told.marker)(marker);
                self.push(at, EntryKind::Operation, text, own_source, Vec::new());
            }
            Event::Flush { point, line, .. } => {
                let source = source(point);
                let text =
                    format!("flush line {line} ({})", (self.told.place)(u64::from(line) * 64));
                let lines = self.histories.changes_at(at);
                self.push(at, EntryKind::Flush, text, source, lines);
            }
            Event::StrongFlush { line, .. } => {
                let place = (self.told.place)(u64::from(line) * 64);
                let text = format!("clflush line {line} ({place})");
                let lines = self.histories.changes_at(at);
                self.push(at, EntryKind::Flush, text, own_source, lines);
            }
            Event::Fence { point, .. } => {
                let source = source(point);
                let lines = self.histories.changes_at(at);
                let text = match lines.len() {
                    0 => "fence".to_owned(),
                    1 => format!("fence: line {} is durable", lines[0].line),
                    count => format!("fence: {count} lines are durable"),
                };
                self.push(at, EntryKind::Fence, text, source, lines);
            }
            Event::Block { device, what, .. } => {
                if let Some(text) = request(self.told.block_writes, device, what) {
                    self.push(at, EntryKind::Block, text, own_source, Vec::new());
                }
            }
            // Stores, for the events are in units.
            _ => return self.store(at, event),
        }
        None
    }

    fn store(&self, at: usize, event: &Event) -> Option<Stores> {
        let Stored { start, bytes, line, value } = event.stored()?;
        let kind = match event {
            Event::OrderedStore { .. } => "store in order",
            Event::Locked { .. } => "locked store",
            Event::NonTemporal { .. } => "store past the caches",
            _ => "store",
        };
        let worker = event.worker();
        let start = u64::from(line) * 64 + u64::from(start);
        let end = start + u64::from(bytes);
        let fates = vec![self.fates.get(&at).copied().unwrap_or(StoreFate::Durable)];
        let source = (self.told.source_of)(at);
        Some(Stores {
            event: at,
            worker,
            kind,
            start,
            end,
            value,
            fates,
            lines: vec![line],
            source,
        })
    }

    /// Whether the event goes on where the stores end, in the same manner.
    fn joins(&self, stores: &mut Stores, at: usize, event: &Event) -> bool {
        if !matches!(event, Event::Store { .. } | Event::NonTemporal { .. }) {
            return false;
        }
        let Some(next) = self.store(at, event) else { return false };
        if (next.kind, next.worker, next.start) != (stores.kind, stores.worker, stores.end)
            || next.source != stores.source
        {
            return false;
        }
        stores.end = next.end;
        stores.fates.extend(next.fates);
        if stores.lines.last() != next.lines.last() {
            stores.lines.extend(next.lines);
        }
        true
    }

    fn finish(&mut self, stores: &mut Option<Stores>) {
        let Some(stores) = stores.take() else { return };
        let (bytes, count) = (stores.end - stores.start, stores.fates.len());
        let what = if count == 1 {
            format!("= {:#0width$x}", stores.value, width = 2 + 2 * bytes as usize)
        } else {
            format!("({count} stores)")
        };
        let of = |fate: StoreFate| stores.fates.iter().filter(|found| **found == fate).count();
        let fate = match (of(StoreFate::Lost), of(StoreFate::Persisted)) {
            (0, 0) => "",
            (_, 0) => " – lost",
            (0, _) => " – made it",
            _ => " – partly lost",
        };
        let text = format!(
            "{} {bytes} bytes at {:#x} (line {}, {}) {what}{fate}",
            stores.kind,
            stores.start,
            stores.lines[0],
            (self.told.place)(stores.start),
        );
        let state = LineState::Pending;
        let lines = stores.lines.iter().map(|&line| LineChange { line, state }).collect();
        self.push(stores.event, EntryKind::Store, text, stores.source, lines);
    }

    fn omit(&mut self, omitted: &mut Omitted, at: usize) {
        if let Some(text) = std::mem::take(omitted).text() {
            self.push(at, EntryKind::Omitted, text, None, Vec::new());
        }
    }
}

/// What a block device is asked, or answers.
fn request(writes: &[BlockWrite], device: u8, what: BlockEvent) -> Option<String> {
    let run = |write: &BlockWrite| {
        let (first, last) = (write.first_block, write.first_block + write.blocks - 1);
        if first == last { format!("block {first}") } else { format!("blocks {first} to {last}") }
    };
    let text = match what {
        BlockEvent::Write { write } => {
            let write = &writes[write as usize];
            format!("write {} to {}", write.number, run(write))
        }
        BlockEvent::Written { number, landed: BlockEvent::ALL } => {
            format!("write {number} is done")
        }
        BlockEvent::Written { number, .. } => format!("write {number} fails"),
        BlockEvent::Flush { number } => format!("flush {number}"),
        BlockEvent::Flushed { number } => format!("flush {number} is done"),
        BlockEvent::Rot { .. } => "a bit flips".to_owned(),
        BlockEvent::Capacity { .. } => return None,
    };
    Some(format!("device {device}: {text}"))
}

#[derive(Default)]
struct Omitted {
    operations: usize,
    stores: usize,
    flushes: usize,
    fences: usize,
}

impl Omitted {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Marker { marker: Marker::Begin(_), .. } => self.operations += 1,
            Event::Marker { .. } => {}
            Event::Flush { .. } => self.flushes += 1,
            Event::Fence { .. } => self.fences += 1,
            _ => self.stores += 1,
        }
    }

    fn text(self) -> Option<String> {
        let counts = [
            (self.operations, "operation", "operations"),
            (self.stores, "store", "stores"),
            (self.flushes, "flush", "flushes"),
            (self.fences, "fence", "fences"),
        ];
        let named: Vec<_> = counts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
            .collect();
        (!named.is_empty()).then(|| format!("… {}", named.join(", ")))
    }
}
