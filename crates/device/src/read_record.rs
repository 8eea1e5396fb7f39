//! Which lines a stretch of a program reads, all of them.
//!
//! [`crate::read_watch`] notes what is read of a few lines that were named beforehand. This notes
//! which lines are read at all, for a while: whoever knows that none of them has changed since knows
//! that the same stretch would come to the same again. What was read through a lock depends on the
//! generation besides, so words of locks are noted as well.

use std::sync::atomic::{AtomicUsize, Ordering};

use lapis_pmem::{LINE_BYTES, LockGeneration, LockWord};
use parking_lot::Mutex;

/// Bits of a lock word below its generation.
const BELOW_GENERATION: u64 = (1 << 40) - 1;

/// What was read between [`Modelled::record_reads`] and [`Modelled::take_record`].
///
/// [`Modelled::record_reads`]: crate::Modelled::record_reads
/// [`Modelled::take_record`]: crate::Modelled::take_record
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRecord {
    /// The lines, in ascending order, each once.
    pub lines: Vec<u32>,
    /// A word of each generation that locks were found to name, with all bits below it.
    lock_words: Vec<u64>,
}

impl ReadRecord {
    /// Whether locks have looked the same in both generations.
    pub fn is_alike_in(&self, one: LockGeneration, other: LockGeneration) -> bool {
        let is_current = |word, generation| LockWord::meaning(word, generation) == word;
        one == other
            || !self.lock_words.iter().any(|&word| is_current(word, one) || is_current(word, other))
    }
}

#[derive(Debug)]
pub(crate) struct Recorder {
    record: Mutex<ReadRecord>,
    /// Address of the word that a lock is about to access.
    lock_at: AtomicUsize,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { record: Mutex::default(), lock_at: AtomicUsize::new(usize::MAX) }
    }
}

impl Recorder {
    pub(crate) fn clear(&self) {
        let mut record = self.record.lock();
        record.lines.clear();
        record.lock_words.clear();
        self.lock_at.store(usize::MAX, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> ReadRecord {
        let mut record = std::mem::take(&mut *self.record.lock());
        record.lines.sort_unstable();
        record.lines.dedup();
        record
    }

    pub(crate) fn lock_access(&self, address: usize) {
        self.lock_at.store(address, Ordering::Relaxed);
    }

    /// A word at `address` was loaded.
    pub(crate) fn loaded(&self, address: usize, value: u64) {
        if self.lock_at.swap(usize::MAX, Ordering::Relaxed) == address {
            let word = value | BELOW_GENERATION;
            let mut record = self.record.lock();
            if !record.lock_words.contains(&word) {
                record.lock_words.push(word);
            }
        }
    }

    /// `bytes` bytes at `offset` are read.
    pub(crate) fn read(&self, offset: usize, bytes: usize) {
        let lines = &mut self.record.lock().lines;
        for line in offset / LINE_BYTES..=(offset + bytes.max(1) - 1) / LINE_BYTES {
            if lines.last() != Some(&(line as u32)) {
                lines.push(line as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lapis_pmem::{Domain, GenerationLock, PCell, Region};

    use crate::{Config, Modelled};

    use super::*;

    fn machine() -> (Region, Modelled) {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let machine = Modelled::over(&region, Config { watching: true, ..Config::tracking() });
        (region, machine)
    }

    fn cells(region: &Region) -> &[PCell<u64>; 64] {
        // SAFETY: mapped, aligned, and any bytes are cells.
        unsafe { &*region.base().cast() }
    }

    #[test]
    fn every_line_that_is_read_while_recording_is_noted_once() {
        let (region, machine) = machine();
        let cells = cells(&region);
        cells[40].load(&machine);
        assert!(machine.record_reads());
        for at in [16, 17, 0, 16] {
            cells[at].load(&machine);
        }
        machine.note_read((&raw const cells[31]).cast(), 16);
        let record = machine.take_record();
        cells[48].load(&machine);
        assert_eq!(record.lines, [0, 2, 3, 4]);
        assert_eq!(machine.take_record(), ReadRecord::default());
    }

    #[test]
    fn locks_that_name_a_generation_do_not_look_alike_in_it_and_in_another() {
        let (region, machine) = machine();
        let lock = GenerationLock::in_word(&cells(&region)[8]);
        let [first, second, third] = [1, 2, 3].map(LockGeneration::of);
        lock.init(&machine, first, 0);
        assert!(machine.record_reads());
        lock.read(&machine);
        let record = machine.take_record();
        assert!(record.is_alike_in(second, third) && record.is_alike_in(first, first));
        assert!(!record.is_alike_in(first, second) && !record.is_alike_in(third, first));
    }
}
