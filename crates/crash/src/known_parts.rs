//! Parts of walks that are known from earlier walks over much the same memory.
//!
//! The images of a crash point differ from what is durable there in a few bytes, and so does what a
//! recovery and the operations after it leave. A part of a walk ([`lapis_pmem::parts`]) in which no
//! byte is read that differs comes to what it came to before. So a part is remembered with the bytes
//! that were read in it, for as long as these are durably what they were then:
//!
//! ```text
//!  bytes that ...                      parts in which they are read, and those around them, are
//!  ───────────────────────────────────┬───────────────────────────────────────────────────────
//!  the image has otherwise            │ not known in this run: the check of one image
//!  the run has changed                │ not known in the rest of this run
//!  change durably                     │ forgotten
//! ```
//!
//! A part is remembered only if none of its bytes was among the first two when it ended, and if all
//! parts in it are known themselves: then what it came to is what it comes to on the durable
//! contents, whatever image was at hand. It is charged with the bytes read in itself; those of the
//! parts in it count through them.
//!
//! Of lines that are watched it is to be noted what is read, and in which order: on that rests what
//! other images need not be run. Where a part is passed over, that is what was read in it when it was
//! walked through.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use lapis_device::{BytesOfLine, Modelled};
use lapis_pmem::parts::KnownParts;

/// So many parts, and all are forgotten: names have come and gone.
const MOST_PARTS: usize = 1 << 16;

/// The parts of one kind of walk.
#[derive(Debug)]
pub(crate) struct PartMemory<P> {
    by_name: HashMap<u64, usize, Spread>,
    parts: Vec<Part<P>>,
    /// The parts in which a line is read, and the bytes of it that are.
    readers: HashMap<u32, Vec<(usize, u64)>, Spread>,
    /// The number of the crash point, and of the run.
    point: u64,
    run: u64,
    /// Lines watched at this crash point.
    watched: HashSet<u32, Spread>,
    /// The bytes that are not what they are durably.
    differing: HashMap<u32, u64, Spread>,
    /// Where the walk is.
    open: Vec<OpenPart>,
    /// Parts passed over, ever.
    passed: u64,
    log: Vec<BytesOfLine>,
}

#[derive(Debug)]
struct Part<P> {
    known: Option<Rc<P>>,
    /// The last run in which bytes of it differed.
    differed_in: u64,
    /// The last crash point at which lines were watched that are read in it, or in parts in it.
    watched_at: u64,
    /// What is read of them, at the crash point `noted_at`.
    notes: Rc<[BytesOfLine]>,
    noted_at: u64,
    /// The last run in which all that was noted.
    told_in: u64,
    course: Vec<Step>,
    /// The parts that it lies in.
    around: Vec<usize>,
}

/// What happens in a part.
#[derive(Clone, Copy, Debug)]
enum Step {
    Reads(BytesOfLine),
    GoesThrough(usize),
}

#[derive(Debug)]
struct OpenPart {
    name: u64,
    /// Whether it may come to be known.
    kept: bool,
    course: Vec<Step>,
}

impl<P> Default for PartMemory<P> {
    fn default() -> Self {
        Self {
            by_name: HashMap::default(),
            parts: Vec::new(),
            readers: HashMap::default(),
            point: 0,
            run: 0,
            watched: HashSet::default(),
            differing: HashMap::default(),
            open: Vec::new(),
            passed: 0,
            log: Vec::new(),
        }
    }
}

impl<P> PartMemory<P> {
    /// A crash point: of the `watched` lines it is noted what is read.
    pub(crate) fn begin_point(&mut self, watched: &[u32]) {
        if self.parts.len() > MOST_PARTS {
            self.forget();
        }
        self.point += 1;
        self.watched.clear();
        self.watched.extend(watched);
        for &(part, _) in watched.iter().filter_map(|line| self.readers.get(line)).flatten() {
            watch_part(&mut self.parts, part, self.point);
        }
    }

    /// A run begins, on an image that has these bytes otherwise than they are durably, and no others.
    pub(crate) fn begin_run(&mut self, differing: &[BytesOfLine]) {
        self.run += 1;
        self.differing.clear();
        for &bytes in differing {
            self.differs(bytes);
        }
    }

    /// These bytes are about to be something else durably.
    pub(crate) fn changes_durably(&mut self, changed: BytesOfLine) {
        for &(part, read) in self.readers.get(&changed.line).into_iter().flatten() {
            if read & changed.bytes != 0 {
                forget_part(&mut self.parts, part);
            }
        }
    }

    /// Forgets everything: the memory is another one.
    pub(crate) fn forget(&mut self) {
        let (point, run, passed) = (self.point, self.run, self.passed);
        *self = Self { point, run, passed, ..Self::default() };
    }

    /// How many parts were passed over, ever.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// A walk on this machine.
    pub(crate) fn walk<'m>(&'m mut self, domain: &'m Modelled) -> Walk<'m, P> {
        self.open.clear();
        domain.for_each_dirtied(|bytes| self.differs(bytes));
        let dirtied = domain.dirtied_count();
        Walk { memory: self, domain, dirtied }
    }

    fn differs(&mut self, BytesOfLine { line, bytes }: BytesOfLine) {
        let known = self.differing.entry(line).or_default();
        let fresh = bytes & !*known;
        if fresh != 0 {
            *known |= bytes;
            for &(part, read) in self.readers.get(&line).into_iter().flatten() {
                if read & fresh != 0 {
                    part_differs(&mut self.parts, part, self.run);
                }
            }
        }
    }

    fn is_known(&self, part: usize) -> bool {
        let part = &self.parts[part];
        part.known.is_some() && part.differed_in != self.run
    }

    /// Whether what the part comes to, which ends here, holds for the durable contents.
    fn holds(&self, part: &OpenPart) -> bool {
        part.kept
            && part.course.iter().all(|step| match step {
                Step::Reads(read) => {
                    let differing = self.differing.get(&read.line).copied().unwrap_or(0);
                    *read != BytesOfLine::OF_A_LOCK && read.bytes & differing == 0
                }
                Step::GoesThrough(part) => self.is_known(*part),
            })
    }

    fn remember(&mut self, part: OpenPart, known: P) -> usize {
        let OpenPart { name, course, .. } = part;
        let number = self.number_of(name);
        let mut watched = false;
        for step in &course {
            match *step {
                Step::Reads(BytesOfLine { line, bytes }) => {
                    let readers = self.readers.entry(line).or_default();
                    match readers.last_mut() {
                        Some((last, read)) if *last == number => *read |= bytes,
                        _ => readers.push((number, bytes)),
                    }
                    watched |= self.watched.contains(&line);
                }
                Step::GoesThrough(inner) => {
                    let inner = &mut self.parts[inner];
                    if inner.around.last() != Some(&number) {
                        inner.around.push(number);
                    }
                    watched |= inner.watched_at == self.point;
                }
            }
        }
        let part = &mut self.parts[number];
        let watched_at = if watched { self.point } else { 0 };
        *part = Part { known: Some(Rc::new(known)), watched_at, course, ..Part::new() };
        number
    }

    /// The number of a part of that name, of which nothing is known any more.
    fn number_of(&mut self, name: u64) -> usize {
        let number = *self.by_name.entry(name).or_insert(self.parts.len());
        let Some(part) = self.parts.get_mut(number) else {
            self.parts.push(Part::new());
            return number;
        };
        let course = std::mem::take(&mut part.course);
        // What it lies in is not known any more, and will not be without going through it again.
        forget_part(&mut self.parts, number);
        for step in course {
            match step {
                Step::Reads(BytesOfLine { line, .. }) => {
                    if let Some(readers) = self.readers.get_mut(&line) {
                        readers.retain(|&(reader, _)| reader != number);
                    }
                }
                Step::GoesThrough(inner) => {
                    self.parts[inner].around.retain(|&around| around != number);
                }
            }
        }
        number
    }

    /// What is read of watched lines in a part, in order.
    fn notes_of(&mut self, number: usize) -> Rc<[BytesOfLine]> {
        if self.parts[number].noted_at != self.point {
            let mut notes = Vec::new();
            for at in 0..self.parts[number].course.len() {
                match self.parts[number].course[at] {
                    Step::Reads(read) if self.watched.contains(&read.line) => notes.push(read),
                    Step::GoesThrough(inner) if self.parts[inner].watched_at == self.point => {
                        notes.extend_from_slice(&self.notes_of(inner));
                    }
                    _ => {}
                }
            }
            let part = &mut self.parts[number];
            (part.notes, part.noted_at) = (notes.into(), self.point);
        }
        Rc::clone(&self.parts[number].notes)
    }
}

impl<P> Part<P> {
    fn new() -> Self {
        Self {
            known: None,
            differed_in: 0,
            watched_at: 0,
            notes: Rc::new([]),
            noted_at: 0,
            told_in: 0,
            course: Vec::new(),
            around: Vec::new(),
        }
    }
}

fn part_differs<P>(parts: &mut [Part<P>], number: usize, run: u64) {
    if std::mem::replace(&mut parts[number].differed_in, run) != run {
        for at in 0..parts[number].around.len() {
            part_differs(parts, parts[number].around[at], run);
        }
    }
}

fn watch_part<P>(parts: &mut [Part<P>], number: usize, point: u64) {
    if std::mem::replace(&mut parts[number].watched_at, point) != point {
        for at in 0..parts[number].around.len() {
            watch_part(parts, parts[number].around[at], point);
        }
    }
}

fn forget_part<P>(parts: &mut [Part<P>], number: usize) {
    if parts[number].known.take().is_some() {
        for at in 0..parts[number].around.len() {
            forget_part(parts, parts[number].around[at]);
        }
    }
}

/// One walk by parts.
#[derive(Debug)]
pub(crate) struct Walk<'m, P> {
    memory: &'m mut PartMemory<P>,
    domain: &'m Modelled,
    /// Lines dirtied before it.
    dirtied: usize,
}

impl<P> Walk<'_, P> {
    /// Charges the open part, if it may come to be known, with what was read since this was last done.
    fn charge(&mut self) {
        let memory = &mut *self.memory;
        if let Some(part) = memory.open.last_mut().filter(|part| part.kept) {
            self.domain.take_read_log(&mut memory.log);
            part.course.extend(memory.log.drain(..).map(Step::Reads));
        }
    }

    /// Logs what is read if the open part may come to be known.
    fn log(&self) {
        self.domain.set_read_log(self.memory.open.last().is_some_and(|part| part.kept));
    }
}

impl<P> Drop for Walk<'_, P> {
    fn drop(&mut self) {
        self.memory.open.clear();
        self.log();
        self.domain.take_read_log(&mut self.memory.log);
        self.memory.log.clear();
    }
}

impl<P> KnownParts<P> for Walk<'_, P> {
    fn known(&mut self, name: u64) -> Option<Rc<P>> {
        let part = &self.memory.parts[*self.memory.by_name.get(&name)?];
        if part.differed_in == self.memory.run { None } else { part.known.clone() }
    }

    fn passed(&mut self, name: u64) {
        self.charge();
        self.memory.passed += 1;
        let Some(&number) = self.memory.by_name.get(&name) else { return };
        if let Some(around) = self.memory.open.last_mut().filter(|part| part.kept) {
            around.course.push(Step::GoesThrough(number));
        }
        let (point, run) = (self.memory.point, self.memory.run);
        let part = &mut self.memory.parts[number];
        if part.watched_at == point && std::mem::replace(&mut part.told_in, run) != run {
            let notes = self.memory.notes_of(number);
            notes.iter().for_each(|&read| self.domain.note_read_of(read));
        }
    }

    fn begin(&mut self, name: u64) -> bool {
        self.charge();
        let memory = &mut *self.memory;
        // What was read of one before, and differs now, is going to be read again.
        let differs = |&number: &usize| memory.parts[number].differed_in == memory.run;
        let kept = !memory.by_name.get(&name).is_some_and(differs);
        memory.open.push(OpenPart { name, kept, course: Vec::new() });
        self.log();
        kept
    }

    fn keeps(&mut self) -> bool {
        self.charge();
        self.memory.open.last().is_some_and(|part| self.memory.holds(part))
    }

    fn end(&mut self, known: Option<P>) {
        self.charge();
        let Some(part) = self.memory.open.pop() else { return };
        let remembered = known.and_then(|known| {
            // Nobody changes anything meanwhile; if somebody does, nothing is known.
            let holds = self.domain.dirtied_count() == self.dirtied && self.memory.holds(&part);
            holds.then(|| self.memory.remember(part, known))
        });
        if let Some(around) = self.memory.open.last_mut() {
            match remembered {
                Some(number) if around.kept => around.course.push(Step::GoesThrough(number)),
                Some(_) => {}
                None => around.kept = false,
            }
        }
        self.log();
    }
}

/// For numbers of lines and words that refer to nodes: their low bits differ little.
type Spread = BuildHasherDefault<SpreadHasher>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests;
