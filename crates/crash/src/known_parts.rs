//! Parts of walks that are known from earlier walks over much the same memory.
//!
//! The images of a crash point differ from what is durable there in a few bytes, and so does what a
//! recovery and the operations after it leave. A part of a walk ([`lapis_pmem::parts`]) in which no
//! byte is read that differs comes to what it came to before. So a part is remembered with the bytes
//! that were read in it, for as long as these are durably what they were then:
//!
//! ```text
//!  bytes that ...                      parts in which they are read, and those around them, are
//!  ───────────────────────────────────┬──────────────────────────────────────────────────────────
//!  vary among the images of the point │ not known at this crash point
//!  the run has changed                │ not known in the rest of this run, the check of one image
//!  change durably                     │ forgotten
//! ```
//!
//! A part is remembered only if none of its bytes was among the first two when it ended, and if all
//! parts in it are known themselves: then what it came to is what it comes to on the durable
//! contents, whatever image was at hand. It is charged with the bytes read in itself; those of the
//! parts in it count through them.
//!
//! Of lines that are watched it is to be noted what was read. Where a part is passed over, that is what
//! was read in it when it was walked through.

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
    /// Lines watched, and the bytes that vary among the images, at this crash point.
    watched: HashSet<u32, Spread>,
    varying: HashMap<u32, u64, Spread>,
    /// The bytes that this run has changed.
    changed: HashMap<u32, u64, Spread>,
    /// Where the walk is.
    open: Vec<OpenPart>,
    /// Parts passed over, ever.
    passed: u64,
    unread: Vec<BytesOfLine>,
}

#[derive(Debug)]
struct Part<P> {
    known: Option<Rc<P>>,
    /// The last crash point at which bytes of it varied, and the last run that changed some.
    varied_at: u64,
    changed_in: u64,
    reads: Vec<BytesOfLine>,
    /// What is read of watched lines in it and in the parts in it, at the crash point `noted_at`.
    notes: Vec<BytesOfLine>,
    noted_at: u64,
    /// The parts that lie in it, and that it lies in.
    within: Vec<usize>,
    around: Vec<usize>,
}

#[derive(Debug)]
struct OpenPart {
    name: u64,
    /// Whether it may come to be known.
    kept: bool,
    reads: Vec<BytesOfLine>,
    within: Vec<usize>,
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
            varying: HashMap::default(),
            changed: HashMap::default(),
            open: Vec::new(),
            passed: 0,
            unread: Vec::new(),
        }
    }
}

impl<P> PartMemory<P> {
    /// A crash point: of the `watched` lines it is noted what is read, and the images vary in the
    /// bytes `varying` of some of them.
    pub(crate) fn begin_point(&mut self, watched: &[u32], varying: &[BytesOfLine]) {
        if self.parts.len() > MOST_PARTS {
            self.forget();
        }
        self.point += 1;
        self.watched.clear();
        self.watched.extend(watched);
        self.varying.clear();
        for line in watched {
            for &(part, bytes) in self.readers.get(line).into_iter().flatten() {
                note(&mut self.parts, part, BytesOfLine { line: *line, bytes }, self.point);
            }
        }
        for &BytesOfLine { line, bytes } in varying {
            self.varying.insert(line, bytes);
            for &(part, read) in self.readers.get(&line).into_iter().flatten() {
                if read & bytes != 0 {
                    part_varies(&mut self.parts, part, self.point);
                }
            }
        }
        self.begin_run();
    }

    /// A run begins, on another image of the crash point.
    pub(crate) fn begin_run(&mut self) {
        self.run += 1;
        self.changed.clear();
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
        domain.for_each_dirtied(|BytesOfLine { line, bytes }| {
            let known = self.changed.entry(line).or_default();
            if bytes & !*known != 0 {
                *known |= bytes;
                for &(part, read) in self.readers.get(&line).into_iter().flatten() {
                    if read & bytes != 0 {
                        part_changes(&mut self.parts, part, self.run);
                    }
                }
            }
        });
        let dirtied = domain.dirtied_count();
        Walk { memory: self, domain, dirtied }
    }

    fn is_known(&self, part: usize) -> bool {
        let part = &self.parts[part];
        part.known.is_some() && part.varied_at != self.point && part.changed_in != self.run
    }

    /// Whether what the part comes to, which ends here, holds for the durable contents.
    fn holds(&self, part: &OpenPart) -> bool {
        let same = |read: &BytesOfLine| {
            let differing = |lines: &HashMap<u32, u64, Spread>| {
                lines.get(&read.line).is_some_and(|bytes| read.bytes & bytes != 0)
            };
            *read != BytesOfLine::OF_A_LOCK && !differing(&self.varying) && !differing(&self.changed)
        };
        part.kept && part.reads.iter().all(same) && part.within.iter().all(|&at| self.is_known(at))
    }

    fn remember(&mut self, part: OpenPart, known: P) -> usize {
        let OpenPart { name, mut reads, mut within, .. } = part;
        reads.sort_unstable();
        reads.dedup_by(|next, last| {
            let same = next.line == last.line;
            last.bytes |= if same { next.bytes } else { 0 };
            same
        });
        within.sort_unstable();
        within.dedup();
        let number = self.number_of(name);
        let mut notes: Vec<_> =
            reads.iter().filter(|read| self.watched.contains(&read.line)).copied().collect();
        for &inner in &within {
            let inner = &mut self.parts[inner];
            inner.around.push(number);
            if inner.noted_at == self.point {
                notes.extend(&inner.notes);
            }
        }
        for &BytesOfLine { line, bytes } in &reads {
            self.readers.entry(line).or_default().push((number, bytes));
        }
        let part = &mut self.parts[number];
        part.known = Some(Rc::new(known));
        (part.varied_at, part.changed_in) = (0, 0);
        (part.reads, part.within) = (reads, within);
        (part.notes, part.noted_at) = (notes, self.point);
        number
    }

    /// The number of a part of that name, of which nothing is known any more.
    fn number_of(&mut self, name: u64) -> usize {
        let number = *self.by_name.entry(name).or_insert(self.parts.len());
        let Some(part) = self.parts.get_mut(number) else {
            self.parts.push(Part {
                known: None,
                varied_at: 0,
                changed_in: 0,
                reads: Vec::new(),
                notes: Vec::new(),
                noted_at: 0,
                within: Vec::new(),
                around: Vec::new(),
            });
            return number;
        };
        let (reads, within) = (std::mem::take(&mut part.reads), std::mem::take(&mut part.within));
        forget_part(&mut self.parts, number);
        for read in reads {
            if let Some(readers) = self.readers.get_mut(&read.line) {
                readers.retain(|&(reader, _)| reader != number);
            }
        }
        for inner in within {
            self.parts[inner].around.retain(|&around| around != number);
        }
        number
    }
}

fn part_varies<P>(parts: &mut [Part<P>], number: usize, point: u64) {
    if std::mem::replace(&mut parts[number].varied_at, point) != point {
        for at in 0..parts[number].around.len() {
            part_varies(parts, parts[number].around[at], point);
        }
    }
}

fn part_changes<P>(parts: &mut [Part<P>], number: usize, run: u64) {
    if std::mem::replace(&mut parts[number].changed_in, run) != run {
        for at in 0..parts[number].around.len() {
            part_changes(parts, parts[number].around[at], run);
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

/// Notes that this is read in the part, and so in those around it.
fn note<P>(parts: &mut [Part<P>], number: usize, read: BytesOfLine, point: u64) {
    let part = &mut parts[number];
    if part.known.is_none() {
        return;
    }
    if std::mem::replace(&mut part.noted_at, point) != point {
        part.notes.clear();
    }
    part.notes.push(read);
    for at in 0..parts[number].around.len() {
        note(parts, parts[number].around[at], read, point);
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
    /// Charges the open part with what was read since this was last done.
    fn charge(&mut self) {
        match self.memory.open.last_mut().filter(|part| part.kept) {
            Some(part) => self.domain.take_read_log(&mut part.reads),
            None => {
                self.domain.take_read_log(&mut self.memory.unread);
                self.memory.unread.clear();
            }
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
        self.charge();
    }
}

impl<P> KnownParts<P> for Walk<'_, P> {
    fn known(&mut self, name: u64) -> Option<Rc<P>> {
        let number = *self.memory.by_name.get(&name)?;
        if self.memory.is_known(number) { self.memory.parts[number].known.clone() } else { None }
    }

    fn passed(&mut self, name: u64) {
        self.memory.passed += 1;
        let Some(&number) = self.memory.by_name.get(&name) else { return };
        if let Some(around) = self.memory.open.last_mut() {
            around.within.push(number);
        }
        let part = &self.memory.parts[number];
        if part.noted_at == self.memory.point {
            part.notes.iter().for_each(|&read| self.domain.note_read_of(read));
        }
    }

    fn begin(&mut self, name: u64) -> bool {
        self.charge();
        let memory = &mut *self.memory;
        // What was read of one before, and differs now, is going to be read again.
        let differs = |&number: &usize| {
            let part = &memory.parts[number];
            part.varied_at == memory.point || part.changed_in == memory.run
        };
        let kept = !memory.by_name.get(&name).is_some_and(differs);
        memory.open.push(OpenPart { name, kept, reads: Vec::new(), within: Vec::new() });
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
                Some(number) => around.within.push(number),
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
