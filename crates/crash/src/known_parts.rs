//! Parts of walks that are known from earlier walks over much the same memory.
//!
//! The images of a crash point differ from what is durable there in a few lines, and so does what a
//! recovery and the operations after it leave. A part of a walk ([`lapis_pmem::parts`]) in which no
//! line is read that differs comes to what it came to before. So a part is remembered with the lines
//! that were read in it, for as long as these hold durably what they held then:
//!
//! ```text
//!                       in one run: the check of one image
//!  a line ...           parts in which it was read, and those around them
//!  ────────────────────┬──────────────────────────────────────────────────
//!  is watched          │ not known in this run: the image may differ there,
//!                      │ and what is read of it is to be noted
//!  was dirtied         │ not known in this run
//!  changes durably     │ forgotten
//! ```
//!
//! A part is remembered only if none of its lines was among these when it ended, and if all parts in
//! it are known themselves: what it came to holds for the durable contents, whatever image was at
//! hand. It is charged with the lines read in itself; those of the parts in it count through them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use lapis_device::Modelled;
use lapis_pmem::parts::KnownParts;

/// So many parts, and all are forgotten: names have come and gone.
const MOST_PARTS: usize = 1 << 16;

/// The parts of one kind of walk.
#[derive(Debug)]
pub(crate) struct PartMemory<P> {
    by_name: HashMap<u64, usize, Spread>,
    parts: Vec<Part<P>>,
    /// The parts in which a line was read, and some in which it no longer is.
    readers: HashMap<u32, Vec<usize>, Spread>,
    /// The number of the run.
    run: u64,
    /// Lines that differ in this run.
    differing: HashSet<u32, Spread>,
    /// So many of the lines dirtied in this run are among them.
    dirtied: usize,
    /// Where the walk is.
    open: Vec<OpenPart>,
    /// Parts passed over, ever.
    passed: u64,
    space: Vec<u32>,
}

#[derive(Debug)]
struct Part<P> {
    known: Option<Rc<P>>,
    /// The last run in which a line of it differed.
    differed_in: u64,
    /// The parts that it lies in, and some that it no longer does.
    around: Vec<usize>,
}

#[derive(Debug)]
struct OpenPart {
    name: u64,
    /// Whether it may come to be known.
    kept: bool,
    lines: Vec<u32>,
    within: Vec<usize>,
}

impl<P> Default for PartMemory<P> {
    fn default() -> Self {
        Self {
            by_name: HashMap::default(),
            parts: Vec::new(),
            readers: HashMap::default(),
            run: 0,
            differing: HashSet::default(),
            dirtied: 0,
            open: Vec::new(),
            passed: 0,
            space: Vec::new(),
        }
    }
}

impl<P> PartMemory<P> {
    /// A run begins, on an image that differs from what is durable in these lines at most.
    pub(crate) fn begin_run(&mut self, watched: &[u32]) {
        if self.parts.len() > MOST_PARTS {
            self.forget();
        }
        self.run += 1;
        self.differing.clear();
        self.dirtied = 0;
        for &line in watched {
            self.differs(line);
        }
    }

    /// What is durable in a line is about to change.
    pub(crate) fn line_changes(&mut self, line: u32) {
        for &part in self.readers.get(&line).into_iter().flatten() {
            forget_part(&mut self.parts, part);
        }
    }

    /// Forgets everything: the memory is another one.
    pub(crate) fn forget(&mut self) {
        *self = Self { run: self.run, passed: self.passed, ..Self::default() };
    }

    /// How many parts were passed over, ever.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// A walk on this machine.
    pub(crate) fn walk<'m>(&'m mut self, domain: &'m Modelled) -> Walk<'m, P> {
        self.open.clear();
        self.note_dirtied(domain);
        Walk { memory: self, domain }
    }

    fn differs(&mut self, line: u32) {
        if self.differing.insert(line) {
            for &part in self.readers.get(&line).into_iter().flatten() {
                touch_part(&mut self.parts, part, self.run);
            }
        }
    }

    /// Notes the lines dirtied since this was last done.
    fn note_dirtied(&mut self, domain: &Modelled) {
        let mut lines = std::mem::take(&mut self.space);
        lines.clear();
        self.dirtied = domain.dirtied_lines(self.dirtied, &mut lines);
        for &line in &lines {
            self.differs(line);
        }
        self.space = lines;
    }

    /// Whether the part is as it was, which ends here.
    fn is_unchanged(&self, part: &OpenPart) -> bool {
        let same_line = |line: &u32| !self.differing.contains(line);
        let known = |part: &usize| {
            let part = &self.parts[*part];
            part.known.is_some() && part.differed_in != self.run
        };
        part.lines.iter().all(same_line) && part.within.iter().all(known)
    }

    fn remember(&mut self, part: OpenPart, known: P) -> usize {
        let fresh = self.parts.len();
        let number = *self.by_name.entry(part.name).or_insert(fresh);
        if number == fresh {
            self.parts.push(Part { known: None, differed_in: 0, around: Vec::new() });
        }
        self.parts[number].known = Some(Rc::new(known));
        for line in part.lines {
            let readers = self.readers.entry(line).or_default();
            if !readers.contains(&number) {
                readers.push(number);
            }
        }
        for within in part.within {
            let around = &mut self.parts[within].around;
            if !around.contains(&number) {
                around.push(number);
            }
        }
        number
    }
}

/// A line of the part differs in this run: it is not known, nor is what it lies in.
fn touch_part<P>(parts: &mut [Part<P>], number: usize, run: u64) {
    if std::mem::replace(&mut parts[number].differed_in, run) != run {
        for at in 0..parts[number].around.len() {
            touch_part(parts, parts[number].around[at], run);
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
}

impl<P> Walk<'_, P> {
    /// Charges the open part with what was read since this was last done.
    fn charge(&mut self) {
        match self.memory.open.last_mut().filter(|part| part.kept) {
            Some(part) => self.domain.take_line_log(&mut part.lines),
            None => {
                self.memory.space.clear();
                self.domain.take_line_log(&mut self.memory.space);
            }
        }
    }

    /// Logs lines if the open part is to be kept.
    fn log(&self) {
        self.domain.set_line_log(self.memory.open.last().is_some_and(|part| part.kept));
    }
}

impl<P> Drop for Walk<'_, P> {
    fn drop(&mut self) {
        self.domain.set_line_log(false);
        self.memory.open.clear();
        self.charge();
    }
}

impl<P> KnownParts<P> for Walk<'_, P> {
    fn known(&mut self, name: u64) -> Option<Rc<P>> {
        let part = &self.memory.parts[*self.memory.by_name.get(&name)?];
        if part.differed_in == self.memory.run { None } else { part.known.clone() }
    }

    fn passed(&mut self, name: u64) {
        self.memory.passed += 1;
        if let (Some(&number), Some(part)) =
            (self.memory.by_name.get(&name), self.memory.open.last_mut())
        {
            part.within.push(number);
        }
    }

    fn begin(&mut self, name: u64) -> bool {
        self.charge();
        let memory = &mut *self.memory;
        // What was read of one before, and differs now, is going to be read again.
        let differs = |number: &usize| memory.parts[*number].differed_in == memory.run;
        let kept = !memory.by_name.get(&name).is_some_and(differs);
        memory.open.push(OpenPart { name, kept, lines: Vec::new(), within: Vec::new() });
        self.log();
        kept
    }

    fn end(&mut self, known: Option<P>) {
        self.charge();
        let dirtied = self.memory.dirtied;
        let Some(part) = self.memory.open.pop() else { return };
        let remembered = known.filter(|_| part.kept).and_then(|known| {
            self.memory.note_dirtied(self.domain);
            // Nobody changes anything meanwhile; if somebody does, nothing is known.
            let as_it_was = self.memory.dirtied == dirtied && self.memory.is_unchanged(&part);
            as_it_was.then(|| self.memory.remember(part, known))
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
