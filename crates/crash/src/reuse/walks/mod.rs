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

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use lapis_device::{BytesOfLine, Modelled};
use lapis_pmem::parts::{KnownParts, PartName};

/// So many parts, and all are forgotten: names have come and gone.
const MOST_PARTS: usize = 1 << 16;

/// The parts of one kind of walk.
#[derive(Debug)]
pub(crate) struct PartMemory<P> {
    by_name: HashMap<PartName, usize, Spread>,
    parts: Vec<Part<P>>,
    /// More about each of them.
    courses: Vec<Course>,
    /// The part that was asked about last.
    asked: Option<(PartName, usize)>,
    /// The parts in which a line is read, and the bytes of it that are.
    readers: HashMap<u32, Vec<(usize, u64)>, Spread>,
    /// The number of the crash point, and of the run.
    point: u64,
    run: u64,
    /// Lines watched at this crash point.
    watched: LineSet,
    /// The bytes that are not what they are durably.
    differing: HashMap<u32, u64, Spread>,
    /// Where the walk is.
    open: Vec<OpenPart>,
    /// Parts passed over, ever.
    passed: u64,
    log: Vec<BytesOfLine>,
}

/// Some lines, a bit for each.
#[derive(Debug, Default)]
struct LineSet {
    bits: Vec<u64>,
    lines: Vec<u32>,
}

impl LineSet {
    /// Makes it these lines.
    fn set(&mut self, lines: &[u32]) {
        for line in self.lines.drain(..) {
            self.bits[line as usize / 64] = 0;
        }
        for &line in lines {
            let word = line as usize / 64;
            if word >= self.bits.len() {
                self.bits.resize(word + 1, 0);
            }
            self.bits[word] |= 1 << (line % 64);
        }
        self.lines.extend_from_slice(lines);
    }

    #[inline]
    fn contains(&self, line: u32) -> bool {
        self.bits.get(line as usize / 64).is_some_and(|bits| bits & 1 << (line % 64) != 0)
    }
}

/// What a walk has to know of a part that it may pass over, in one line of the processor's cache: there
/// are many of them.
#[derive(Debug)]
#[repr(align(64))]
struct Part<P> {
    name: PartName,
    known: Option<Rc<P>>,
    /// The last run in which bytes of it differed.
    differed_in: u64,
    /// The last crash point at which lines were watched that are read in it, or in parts in it.
    watched_at: u64,
    /// The last run in which all that is read of them was noted.
    told_in: u64,
}

/// How a walk went through a part.
#[derive(Debug)]
struct Course {
    steps: Vec<Step>,
    /// The parts among them: on a walk through the part, they come in this order again, or most do.
    inner: Vec<usize>,
    /// The parts that it lies in.
    around: Vec<usize>,
    /// What is read of watched lines, at the crash point `noted_at`.
    notes: Rc<[BytesOfLine]>,
    noted_at: u64,
}

/// What happens in a part.
#[derive(Clone, Copy, Debug)]
enum Step {
    Reads(BytesOfLine),
    GoesThrough(usize),
}

#[derive(Debug)]
struct OpenPart {
    name: PartName,
    /// Whether it may come to be known.
    kept: bool,
    steps: Vec<Step>,
    /// Its number, if there was one of that name before, and how many of the parts in that have been
    /// come to.
    before: Option<(usize, usize)>,
}

impl<P> Default for PartMemory<P> {
    fn default() -> Self {
        Self {
            by_name: HashMap::default(),
            parts: Vec::new(),
            courses: Vec::new(),
            asked: None,
            readers: HashMap::default(),
            point: 0,
            run: 0,
            watched: LineSet::default(),
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
        self.watched.set(watched);
        for &(part, _) in watched.iter().filter_map(|line| self.readers.get(line)).flatten() {
            watch_part(&mut self.parts, &self.courses, part, self.point);
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
                forget_part(&mut self.parts, &self.courses, part);
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
                    part_differs(&mut self.parts, &self.courses, part, self.run);
                }
            }
        }
    }

    /// The number of the part of that name, if there is or was one.
    fn find(&mut self, name: PartName) -> Option<usize> {
        if let Some((asked, number)) = self.asked
            && asked == name
        {
            return Some(number);
        }
        let number = self.find_among_next(name).or_else(|| self.by_name.get(&name).copied())?;
        self.asked = Some((name, number));
        Some(number)
    }

    /// The same, if it is one of those that came next when the part that the walk is in was gone
    /// through before.
    fn find_among_next(&mut self, name: PartName) -> Option<usize> {
        const AHEAD: usize = 2;
        let (number, come_to) = self.open.last_mut()?.before.as_mut()?;
        let next = self.courses[*number].inner.get(*come_to..)?;
        let found = next.iter().take(AHEAD).position(|&part| self.parts[part].name == name)?;
        *come_to += found + 1;
        Some(next[found])
    }

    fn is_known(&self, part: usize) -> bool {
        let part = &self.parts[part];
        part.known.is_some() && part.differed_in != self.run
    }

    /// Whether what the part comes to, which ends here, holds for the durable contents.
    fn holds(&self, part: &OpenPart) -> bool {
        part.kept
            && part.steps.iter().all(|step| match step {
                Step::Reads(read) => {
                    let differing = self.differing.get(&read.line).copied().unwrap_or(0);
                    *read != BytesOfLine::OF_A_LOCK && read.bytes & differing == 0
                }
                Step::GoesThrough(part) => self.is_known(*part),
            })
    }

    fn remember(&mut self, part: OpenPart, known: P) -> usize {
        let OpenPart { name, steps, .. } = part;
        let number = self.number_of(name);
        let (mut watched, mut inner_parts) = (false, Vec::new());
        for step in &steps {
            match *step {
                Step::Reads(BytesOfLine { line, bytes }) => {
                    let readers = self.readers.entry(line).or_default();
                    match readers.last_mut() {
                        Some((last, read)) if *last == number => *read |= bytes,
                        _ => readers.push((number, bytes)),
                    }
                    watched |= self.watched.contains(line);
                }
                Step::GoesThrough(inner) => {
                    inner_parts.push(inner);
                    let around = &mut self.courses[inner].around;
                    if around.last() != Some(&number) {
                        around.push(number);
                    }
                    watched |= self.parts[inner].watched_at == self.point;
                }
            }
        }
        let watched_at = if watched { self.point } else { 0 };
        self.parts[number] = Part { known: Some(Rc::new(known)), watched_at, ..Part::new(name) };
        self.courses[number] = Course { steps, inner: inner_parts, ..Course::new() };
        number
    }

    /// The number of a part of that name, of which nothing is known any more.
    fn number_of(&mut self, name: PartName) -> usize {
        let number = *self.by_name.entry(name).or_insert(self.parts.len());
        let Some(course) = self.courses.get_mut(number) else {
            self.parts.push(Part::new(name));
            self.courses.push(Course::new());
            return number;
        };
        let steps = std::mem::take(&mut course.steps);
        // What it lies in is not known any more, and will not be without going through it again.
        forget_part(&mut self.parts, &self.courses, number);
        for step in steps {
            match step {
                Step::Reads(BytesOfLine { line, .. }) => {
                    if let Some(readers) = self.readers.get_mut(&line) {
                        readers.retain(|&(reader, _)| reader != number);
                    }
                }
                Step::GoesThrough(inner) => {
                    self.courses[inner].around.retain(|&around| around != number);
                }
            }
        }
        number
    }

    /// What is read of watched lines in a part, in order.
    fn notes_of(&mut self, number: usize) -> Rc<[BytesOfLine]> {
        if self.courses[number].noted_at != self.point {
            let mut notes = Vec::new();
            for at in 0..self.courses[number].steps.len() {
                match self.courses[number].steps[at] {
                    Step::Reads(read) if self.watched.contains(read.line) => notes.push(read),
                    Step::GoesThrough(inner) if self.parts[inner].watched_at == self.point => {
                        notes.extend_from_slice(&self.notes_of(inner));
                    }
                    _ => {}
                }
            }
            let course = &mut self.courses[number];
            (course.notes, course.noted_at) = (notes.into(), self.point);
        }
        Rc::clone(&self.courses[number].notes)
    }
}

impl<P> Part<P> {
    fn new(name: PartName) -> Self {
        Self { name, known: None, differed_in: 0, watched_at: 0, told_in: 0 }
    }
}

impl Course {
    fn new() -> Self {
        let (steps, inner, around) = Default::default();
        Self { steps, inner, around, notes: Rc::new([]), noted_at: 0 }
    }
}

fn part_differs<P>(parts: &mut [Part<P>], courses: &[Course], number: usize, run: u64) {
    if std::mem::replace(&mut parts[number].differed_in, run) != run {
        for &around in &courses[number].around {
            part_differs(parts, courses, around, run);
        }
    }
}

fn watch_part<P>(parts: &mut [Part<P>], courses: &[Course], number: usize, point: u64) {
    if std::mem::replace(&mut parts[number].watched_at, point) != point {
        for &around in &courses[number].around {
            watch_part(parts, courses, around, point);
        }
    }
}

fn forget_part<P>(parts: &mut [Part<P>], courses: &[Course], number: usize) {
    if parts[number].known.take().is_some() {
        for &around in &courses[number].around {
            forget_part(parts, courses, around);
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
            part.steps.extend(memory.log.drain(..).map(Step::Reads));
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
    fn known(&mut self, name: PartName) -> Option<Rc<P>> {
        let number = self.memory.find(name)?;
        let part = &self.memory.parts[number];
        if part.differed_in == self.memory.run { None } else { part.known.clone() }
    }

    fn passed(&mut self, name: PartName) {
        self.charge();
        self.memory.passed += 1;
        let Some(number) = self.memory.find(name) else { return };
        if let Some(around) = self.memory.open.last_mut().filter(|part| part.kept) {
            around.steps.push(Step::GoesThrough(number));
        }
        let (point, run) = (self.memory.point, self.memory.run);
        let part = &mut self.memory.parts[number];
        if part.watched_at == point && std::mem::replace(&mut part.told_in, run) != run {
            let notes = self.memory.notes_of(number);
            notes.iter().for_each(|&read| self.domain.note_read_of(read));
        }
    }

    fn begin(&mut self, name: PartName) -> bool {
        self.charge();
        let memory = &mut *self.memory;
        // What was read of one before, and differs now, is going to be read again.
        let number = memory.find(name);
        let kept = number.is_none_or(|number| memory.parts[number].differed_in != memory.run);
        let before = number.map(|number| (number, 0));
        memory.open.push(OpenPart { name, kept, steps: Vec::new(), before });
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
                Some(number) if around.kept => around.steps.push(Step::GoesThrough(number)),
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

    fn write_u128(&mut self, number: u128) {
        // The upper half is a small number, the lower one has few bits set above its middle.
        self.write_u64((number as u64) ^ ((number >> u64::BITS) as u64).rotate_right(8));
    }
}

#[cfg(test)]
mod tests;
