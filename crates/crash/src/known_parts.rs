//! Parts of a structure's contents that are known from an image that was recovered before.
//!
//! [`crate::known_images`] leaves out what is run on an image, or all but the operations. Where an
//! image has to be run, most of what is read of it is still what was read of the one before: a
//! change concerns a path or two of a tree. So what a structure holds is found out in parts, for an
//! index by ranges of keys, each by reads of its own; and of each part it is kept what it came to
//! and which lines that has read:
//!
//! ```text
//!  part 0    part 1    part 2    …        a scan of the range, and a look-up of each of its keys
//!     │ ╲   ╱  │         │
//!  line 7  line 9     line 12             what they have read
//! ```
//!
//! A part is found out anew where a line of it is
//!
//! * *unsettled*: at this crash point, or a near one, an image may hold something else there;
//! * *changed* durably since;
//! * *dirtied* by the recovery of the image at hand, or by the operations after it.
//!
//! Nothing else can make a difference: reads are a function of the bytes that they read, as pruning
//! has it; of what the structure keeps in the host's memory, so that one that keeps more there than
//! its root says, such as inner nodes, has no parts; and of the generation of locks, of which
//! [`ReadRecord::is_alike_in`] knows. Lines that are unsettled are never part of what is known, so
//! that what was read of them is noted for each image as if there were no parts.

use std::any::Any;

use lapis_device::{Modelled, ReadRecord};
use lapis_pmem::LockGeneration;

/// The most parts of a structure.
pub(crate) const MOST_PARTS: usize = 128;

/// A part that was found out.
#[derive(Debug)]
struct Part<T> {
    contents: T,
    record: ReadRecord,
    generation: LockGeneration,
}

/// What one thread knows of the parts of the structure that it checks.
#[derive(Default)]
pub struct KnownParts {
    /// By line, the parts that have read it.
    readers: Vec<u128>,
    /// Parts of which something is known.
    known: u128,
    /// Parts that have last read a line of `uncertain`.
    doubtful: u128,
    /// Lines in which images differ, in any order. None if that is not known.
    unsettled: Option<Vec<u32>>,
    /// Whether what is found out may be kept.
    learns: bool,
    /// A `Vec<Option<Part<T>>>`.
    parts: Option<Box<dyn Any>>,
    /// What the structure was opened by.
    root: u64,
    /// The lines that may hold something else than what is durable, on the image at hand.
    uncertain: Vec<u32>,
    /// How often a part was known, and how often it was found out.
    pub(crate) known_times: u64,
    pub(crate) found_out_times: u64,
}

impl std::fmt::Debug for KnownParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownParts({} known)", self.known.count_ones())
    }
}

impl KnownParts {
    /// Images differ in these lines, or it is not known in which, and what is found out may be kept:
    /// elsewhere the memory holds what is durable.
    pub(crate) fn unsettle(&mut self, lines: Option<impl IntoIterator<Item = u32>>) {
        match (lines, &mut self.unsettled) {
            (Some(lines), Some(unsettled)) => {
                unsettled.clear();
                unsettled.extend(lines);
            }
            (lines, unsettled) => *unsettled = lines.map(|lines| lines.into_iter().collect()),
        }
        self.learns = true;
    }

    /// Until [`KnownParts::resume`] is called with what this returns, nothing is kept.
    pub(crate) fn suspend(&mut self) -> Suspended {
        let suspended = Suspended {
            unsettled: self.unsettled.as_ref().map_or(0, Vec::len),
            learned: self.learns,
        };
        self.learns = false;
        suspended
    }

    /// These lines may hold something else besides.
    pub(crate) fn unsettle_more(&mut self, lines: impl IntoIterator<Item = u32>) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.extend(lines);
        }
    }

    /// The memory is as it was at the call of [`KnownParts::suspend`].
    pub(crate) fn resume(&mut self, suspended: Suspended) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.truncate(suspended.unsettled);
        }
        self.learns = suspended.learned;
    }

    /// The memory is another one.
    pub(crate) fn forget(&mut self) {
        self.known = 0;
    }

    /// A line is about to hold something else durably.
    pub(crate) fn changes(&mut self, line: u32) {
        if let Some(readers) = self.readers.get(line as usize) {
            self.known &= !readers;
        }
    }

    /// What is known of the `count` parts of the structure at `root`, on `domain` as it is now.
    /// [`KnownParts::keep`] takes it back.
    pub(crate) fn known_on<T: 'static>(
        &mut self,
        domain: &Modelled,
        generation: LockGeneration,
        root: u64,
        count: usize,
    ) -> PartsOf<T> {
        assert!(count <= MOST_PARTS, "a bit for each part");
        let kept =
            self.parts.take().and_then(|parts| parts.downcast::<Vec<Option<Part<T>>>>().ok());
        let parts = kept.filter(|parts| parts.len() == count && self.root == root);
        let parts = parts.unwrap_or_else(|| {
            self.readers.fill(0);
            self.known = 0;
            self.root = root;
            Box::new((0..count).map(|_| None).collect())
        });
        self.uncertain.clear();
        self.uncertain.extend(self.unsettled.iter().flatten());
        domain.dirtied_lines(&mut self.uncertain);
        let readers = |&line: &u32| self.readers.get(line as usize).copied().unwrap_or(0);
        self.doubtful = self.uncertain.iter().map(readers).fold(0, |all, bits| all | bits);
        let usable = if self.unsettled.is_some() { self.known & !self.doubtful } else { 0 };
        PartsOf { parts, usable, generation }
    }

    /// Keeps what is known for the next time.
    pub(crate) fn keep<T: 'static>(&mut self, parts: PartsOf<T>) {
        self.parts = Some(parts.parts);
    }

    /// Whether it is worth while to record what finding out a part reads. A part that has last read
    /// lines that are uncertain now will read them again.
    pub(crate) fn wants(&self, number: usize) -> bool {
        self.learns && self.unsettled.is_some() && (self.known | self.doubtful) & 1 << number == 0
    }

    /// A part was found out, by the reads recorded. What it came to counts if they are of durable
    /// contents.
    pub(crate) fn learn<T>(
        &mut self,
        parts: &mut PartsOf<T>,
        number: usize,
        contents: T,
        record: ReadRecord,
    ) {
        let is_uncertain = |line| self.uncertain.contains(line);
        let counts = !record.lines.iter().any(is_uncertain);
        let bit = 1 << number;
        if let Some(former) = &parts.parts[number] {
            for &line in &former.record.lines {
                self.readers[line as usize] &= !bit;
            }
        }
        let end = record.lines.last().map_or(0, |&last| last as usize + 1);
        if end > self.readers.len() {
            // Zeroes that nobody touches cost nothing.
            let mut readers = vec![0; end.next_power_of_two()];
            readers[..self.readers.len()].copy_from_slice(&self.readers);
            self.readers = readers;
        }
        for &line in &record.lines {
            self.readers[line as usize] |= bit;
        }
        if counts {
            self.known |= bit;
        }
        parts.parts[number] = Some(Part { contents, record, generation: parts.generation });
    }
}

/// What [`KnownParts::suspend`] has interrupted.
#[derive(Debug)]
pub(crate) struct Suspended {
    unsettled: usize,
    learned: bool,
}

/// What is known of the parts of the structure at hand.
pub(crate) struct PartsOf<T> {
    #[expect(
        clippy::box_collection,
        reason = "it comes out of a `Box<dyn Any>` and goes back there"
    )]
    parts: Box<Vec<Option<Part<T>>>>,
    usable: u128,
    generation: LockGeneration,
}

impl<T> PartsOf<T> {
    /// What finding out the part would come to, if that is known.
    pub(crate) fn contents(&self, number: usize) -> Option<&T> {
        if self.usable & 1 << number == 0 {
            return None;
        }
        let part = self.parts[number].as_ref()?;
        part.record.is_alike_in(part.generation, self.generation).then_some(&part.contents)
    }
}

#[cfg(test)]
mod tests {
    use lapis_device::Config;
    use lapis_pmem::{PCell, Region};

    use super::*;

    /// A machine whose lines are the parts of a structure: a word of each.
    struct Lines {
        region: Region,
        machine: Modelled,
    }

    impl Lines {
        fn new() -> Self {
            let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
            let config = Config { watching: true, ..Config::tracking() };
            let machine = Modelled::over(&region, config);
            Self { region, machine }
        }

        fn cell(&self, line: usize) -> &PCell<u64> {
            // SAFETY: mapped, aligned, and any bytes are cells.
            unsafe { &(*self.region.base().cast::<[[PCell<u64>; 8]; 4]>())[line][0] }
        }

        /// What each part holds, and which of them were found out by reading.
        fn find(&self, known: &mut KnownParts) -> ([u64; 4], Vec<usize>) {
            let generation = LockGeneration::of(1);
            let mut parts = known.known_on::<u64>(&self.machine, generation, 77, 4);
            let mut read = Vec::new();
            let contents = std::array::from_fn(|line| {
                if let Some(value) = parts.contents(line) {
                    return *value;
                }
                read.push(line);
                assert!(self.machine.record_reads());
                let value = self.cell(line).load(&self.machine);
                let record = self.machine.take_record();
                if known.wants(line) {
                    known.learn(&mut parts, line, value, record);
                }
                value
            });
            known.keep(parts);
            (contents, read)
        }
    }

    #[test]
    fn a_part_is_found_out_once_unless_its_lines_are_unsettled() {
        let lines = Lines::new();
        let mut known = KnownParts::default();
        known.unsettle(Some([2]));
        assert_eq!(lines.find(&mut known).1, [0, 1, 2, 3]);
        assert_eq!(lines.find(&mut known).1, [2]);
        known.unsettle(Some([0]));
        assert_eq!(lines.find(&mut known).1, [0, 2]);
        assert_eq!(lines.find(&mut known).1, [0]);
        known.unsettle(None::<[u32; 0]>);
        assert_eq!(lines.find(&mut known).1, [0, 1, 2, 3]);
    }

    #[test]
    fn what_was_dirtied_or_has_changed_durably_is_found_out_anew() {
        let mut lines = Lines::new();
        let mut known = KnownParts::default();
        known.unsettle(Some([]));
        lines.find(&mut known);
        lines.cell(1).store(&lines.machine, 5);
        assert_eq!(lines.find(&mut known), ([0, 5, 0, 0], vec![1]));
        lines.machine.revert(&mut lines.region);
        assert_eq!(lines.find(&mut known), ([0; 4], vec![]));
        known.changes(3);
        assert_eq!(lines.find(&mut known).1, [3]);
    }

    #[test]
    fn nothing_is_kept_while_suspended_and_what_was_unsettled_meanwhile_is_settled_again() {
        let lines = Lines::new();
        let mut known = KnownParts::default();
        known.unsettle(Some([]));
        lines.find(&mut known);
        known.changes(0);
        let suspended = known.suspend();
        known.unsettle_more([1]);
        assert_eq!(lines.find(&mut known).1, [0, 1]);
        assert_eq!(lines.find(&mut known).1, [0, 1]);
        known.resume(suspended);
        assert_eq!(lines.find(&mut known).1, [0]);
        assert_eq!(lines.find(&mut known).1, [0; 0]);
    }
}
