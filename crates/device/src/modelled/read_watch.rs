//! Which bytes of some lines a program reads before it writes them.
//!
//! A recovery cannot depend on bytes that it never reads, so images that differ in such bytes only
//! need not be told apart ([`crate::PrunedImages`]). That holds as long as every read is seen, and
//! every read of persistent memory is: words are read by the loads and locked operations of the
//! domain, and byte ranges by `Pool::try_tail`, the one place that hands out bytes to plain loads,
//! which notes the whole range first. What is not known exactly is taken for read: a range counts
//! as read as a whole, and a word as soon as any part of it is loaded.
//!
//! One kind of read looks at less than it loads: a lock that names its generation does not go by
//! the version and the lock bit of a word of another generation ([`LockWord::meaning`]). It says so
//! just before each load, and the read is noted as one by a lock.
//!
//! [`LockWord::meaning`]: lapis_pmem::LockWord::meaning

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use lapis_pmem::{LINE_BYTES, LockGeneration, LockWord};
use parking_lot::Mutex;

use crate::crash_states::bytes_of_line::{BytesOfLine, differing_bytes, word_of};
use crate::crash_states::pending::LineBytes;

/// Bytes of one watched line that were read for the first time, and not written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRead {
    /// The line, by its place among the lines that were to be watched.
    pub place: u32,
    /// One bit per byte of the line.
    pub bytes: u64,
    /// The read was one by a lock, in this generation: only the meaning of the word matters.
    pub by_lock: Option<LockGeneration>,
}

impl LineRead {
    /// Whether the reader would have learned something else of a line that held `other` than of `one`.
    pub fn tells_apart(&self, one: &LineBytes, other: &LineBytes) -> bool {
        let differs = differing_bytes(one, other) & self.bytes != 0;
        let Some(generation) = self.by_lock.filter(|_| differs) else { return differs };
        let word = self.bytes.trailing_zeros() as usize / 8;
        let meaning = |line| LockWord::meaning(word_of(line, word), generation);
        meaning(one) != meaning(other)
    }
}

/// Watches lines of a region. A bit per line of the region answers most reads without a lock.
#[derive(Debug)]
pub(crate) struct ReadWatch {
    filter: Box<[AtomicU64]>,
    /// Words of each line of which nothing is left to learn: most reads are of these.
    known_words: Box<[AtomicU8]>,
    /// Words of each line of which locks have nothing left to learn.
    lock_words: Box<[AtomicU8]>,
    /// Offset of the word that a lock is about to access.
    lock_at: AtomicUsize,
    watched: Mutex<Watched>,
    /// Whether every read is logged, watched or not.
    logs_reads: AtomicBool,
    read_log: Mutex<Vec<BytesOfLine>>,
}

#[derive(Debug, Default)]
struct Watched {
    /// In ascending order.
    lines: Vec<u32>,
    /// Bytes of each that were read or written.
    known: Vec<u64>,
    /// Bytes of each that a lock has read in this generation.
    known_to_locks: Vec<u64>,
    generation: Option<LockGeneration>,
    log: Vec<LineRead>,
}

impl ReadWatch {
    pub(crate) fn over(region_bytes: usize) -> Self {
        let lines = region_bytes.div_ceil(LINE_BYTES);
        Self {
            filter: (0..lines.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            known_words: (0..lines).map(|_| AtomicU8::new(0)).collect(),
            lock_words: (0..lines).map(|_| AtomicU8::new(0)).collect(),
            lock_at: AtomicUsize::new(usize::MAX),
            watched: Mutex::default(),
            logs_reads: AtomicBool::new(false),
            read_log: Mutex::default(),
        }
    }

    /// Logs every read from here on, or no longer.
    pub(crate) fn set_read_log(&self, on: bool) {
        self.logs_reads.store(on, Ordering::Relaxed);
    }

    /// Takes what was logged.
    pub(crate) fn take_read_log(&self, reads: &mut Vec<BytesOfLine>) {
        reads.append(&mut self.read_log.lock());
    }

    #[inline(never)]
    fn log(&self, offset: usize, bytes: usize) {
        let mut log = self.read_log.lock();
        for line in offset / LINE_BYTES..=(offset + bytes.max(1) - 1) / LINE_BYTES {
            let read = BytesOfLine { line: line as u32, bytes: mask_in(line, offset, bytes) };
            if log.last() != Some(&read) {
                log.push(read);
            }
        }
    }

    /// Notes that these bytes are read, if they are watched: not by a lock.
    pub(crate) fn note_read(&self, BytesOfLine { line, bytes }: BytesOfLine) {
        if self.is_watched(line as usize) {
            let known = self.known_words[line as usize].load(Ordering::Relaxed);
            if touched_words(bytes) & !known != 0 {
                // Where no lock is.
                self.note(line, bytes, true, line as usize * LINE_BYTES + 1);
            }
        }
    }

    /// Watches these lines instead of the earlier ones.
    pub(crate) fn watch(&self, lines: impl Iterator<Item = u32>) {
        let mut watched = self.watched.lock();
        for &line in &watched.lines {
            self.filter[line as usize / 64].store(0, Ordering::Relaxed);
        }
        watched.lines.clear();
        watched.lines.extend(lines);
        debug_assert!(watched.lines.is_sorted(), "places are found by bisection");
        let count = watched.lines.len();
        watched.known.resize(count, 0);
        watched.known_to_locks.resize(count, 0);
        self.rewind(&mut watched);
    }

    /// Takes what was read, in order; watching goes on as if nothing had been.
    pub(crate) fn take(&self, reads: &mut Vec<LineRead>) {
        let mut watched = self.watched.lock();
        reads.clear();
        std::mem::swap(reads, &mut watched.log);
        self.rewind(&mut watched);
    }

    /// How often something was read for the first time.
    pub(crate) fn count(&self) -> usize {
        self.watched.lock().log.len()
    }

    fn rewind(&self, watched: &mut Watched) {
        watched.log.clear();
        watched.known.fill(0);
        watched.known_to_locks.fill(0);
        self.lock_at.store(usize::MAX, Ordering::Relaxed);
        for &line in &watched.lines {
            self.filter[line as usize / 64].fetch_or(1 << (line % 64), Ordering::Relaxed);
            self.known_words[line as usize].store(0, Ordering::Relaxed);
            self.lock_words[line as usize].store(0, Ordering::Relaxed);
        }
    }

    /// `bytes` bytes at `offset` are read.
    #[inline(always)]
    pub(crate) fn read(&self, offset: usize, bytes: usize) {
        if self.logs_reads.load(Ordering::Relaxed) {
            self.log(offset, bytes);
        }
        self.for_watched(offset, bytes, true);
    }

    /// The word of `bytes` bytes at `offset` is read, of a line that is watched.
    #[inline(never)]
    pub(crate) fn read_word(&self, offset: usize, bytes: usize) {
        self.for_watched(offset, bytes, true);
    }

    /// `bytes` bytes at `offset` are written: what they held no longer matters.
    #[inline(always)]
    pub(crate) fn written(&self, offset: usize, bytes: usize) {
        self.for_watched(offset, bytes, false);
    }

    /// A lock is about to access the word at `offset`.
    #[inline(always)]
    pub(crate) fn lock_access(&self, offset: usize) {
        if self.logs_reads.load(Ordering::Relaxed) {
            self.read_log.lock().push(BytesOfLine::OF_A_LOCK);
        }
        if self.is_watched(offset / LINE_BYTES) {
            self.lock_at.store(offset, Ordering::Relaxed);
        }
    }

    /// The generation of locks from here on.
    pub(crate) fn generation(&self, generation: LockGeneration) {
        let mut watched = self.watched.lock();
        watched.generation = Some(generation);
        watched.known_to_locks.fill(0);
        for &line in &watched.lines {
            self.lock_words[line as usize].store(0, Ordering::Relaxed);
        }
    }

    /// Whether anything is left to learn of the line. Lines beyond the region are not watched.
    #[inline(always)]
    pub(crate) fn is_watched(&self, line: usize) -> bool {
        self.filter
            .get(line / 64)
            .is_some_and(|bits| bits.load(Ordering::Relaxed) & (1 << (line % 64)) != 0)
    }

    #[inline(always)]
    fn for_watched(&self, offset: usize, bytes: usize, read: bool) {
        let (first, last) = (offset / LINE_BYTES, (offset + bytes.max(1) - 1) / LINE_BYTES);
        for line in first..=last {
            if self.is_watched(line) {
                let (start, end) = places_in(line, offset, bytes);
                let left = words(start, end) & !self.known_words[line].load(Ordering::Relaxed);
                let by_lock = read && self.lock_at.load(Ordering::Relaxed) == offset;
                let known = if by_lock { self.lock_words[line].load(Ordering::Relaxed) } else { 0 };
                if left & !known == 0 {
                    self.lock_at.store(usize::MAX, Ordering::Relaxed);
                } else {
                    self.note(line as u32, mask(start, end), read, offset);
                }
            }
        }
    }

    #[inline(never)]
    fn note(&self, line: u32, bytes: u64, read: bool, offset: usize) {
        let by_lock = read && self.lock_at.swap(usize::MAX, Ordering::Relaxed) == offset;
        let watched = &mut *self.watched.lock();
        let Ok(place) = watched.lines.binary_search(&line) else { return };
        let mut fresh = bytes & !watched.known[place];
        let by_lock = watched.generation.filter(|_| by_lock && bytes.count_ones() == 8);
        if by_lock.is_some() {
            fresh &= !watched.known_to_locks[place];
            watched.known_to_locks[place] |= fresh;
            let words = whole_words(watched.known_to_locks[place]);
            self.lock_words[line as usize].store(words, Ordering::Relaxed);
        } else {
            watched.known[place] |= fresh;
            let words = whole_words(watched.known[place]);
            self.known_words[line as usize].store(words, Ordering::Relaxed);
        }
        if read && fresh != 0 {
            watched.log.push(LineRead { place: place as u32, bytes: fresh, by_lock });
        }
        if watched.known[place] == u64::MAX {
            let bits = &self.filter[line as usize / 64];
            bits.fetch_and(!(1 << (line % 64)), Ordering::Relaxed);
        }
    }
}

/// Where `bytes` bytes at `offset`, some of which are in the line, begin and end in it.
#[inline(always)]
fn places_in(line: usize, offset: usize, bytes: usize) -> (usize, usize) {
    let start = offset.max(line * LINE_BYTES) - line * LINE_BYTES;
    let end = (offset + bytes).min((line + 1) * LINE_BYTES) - line * LINE_BYTES;
    (start, end)
}

fn mask_in(line: usize, offset: usize, bytes: usize) -> u64 {
    let (start, end) = places_in(line, offset, bytes);
    mask(start, end)
}

/// The words that bytes `start` to `end`, the latter excluded, touch.
#[inline(always)]
fn words(start: usize, end: usize) -> u8 {
    let (first, last) = (start / 8, end.max(start + 1).div_ceil(8));
    ((1u16 << last) - (1u16 << first)) as u8
}

/// The words any of whose bytes are in the mask.
fn touched_words(bytes: u64) -> u8 {
    (0..8).fold(0, |words, at| words | u8::from(bytes >> (8 * at) & 0xFF != 0) << at)
}

/// The words all of whose bytes are in the mask.
fn whole_words(bytes: u64) -> u8 {
    (0..8).fold(0, |words, at| words | u8::from(bytes >> (8 * at) & 0xFF == 0xFF) << at)
}

/// Bits `start` to `end`, the latter excluded.
fn mask(start: usize, end: usize) -> u64 {
    if start >= end { 0 } else { (u64::MAX >> (64 - (end - start))) << start }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(watch: &ReadWatch) -> Vec<(u32, u64)> {
        let mut reads = Vec::new();
        watch.take(&mut reads);
        reads.iter().map(|read| (read.place, read.bytes)).collect()
    }

    #[test]
    fn only_watched_lines_are_noted_each_byte_once() {
        let watch = ReadWatch::over(1024);
        watch.watch([2, 5].into_iter());
        watch.read(2 * 64 + 8, 8);
        watch.read(3 * 64, 64);
        watch.read(2 * 64 + 8, 16);
        assert_eq!(reads(&watch), [(0, 0xFF00), (0, 0xFF_0000)]);
    }

    #[test]
    fn bytes_that_were_written_first_are_not_read() {
        let watch = ReadWatch::over(1024);
        watch.watch([5].into_iter());
        watch.written(5 * 64, 60);
        watch.read(5 * 64, 64);
        assert_eq!(reads(&watch), [(0, 0xF << 60)]);
    }

    #[test]
    fn a_range_reaches_over_lines() {
        let watch = ReadWatch::over(1024);
        watch.watch([0, 1].into_iter());
        watch.read(60, 8);
        assert_eq!(reads(&watch), [(0, 0xF << 60), (1, 0xF)]);
    }

    #[test]
    fn a_read_by_a_lock_is_told_from_one_of_the_whole_word() {
        let watch = ReadWatch::over(1024);
        watch.watch([1].into_iter());
        let generation = LockGeneration::of(3);
        watch.generation(generation);
        let mut log = Vec::new();
        for by_lock in [true, true, false, true] {
            if by_lock {
                watch.lock_access(64);
            }
            watch.read(64, 8);
        }
        watch.take(&mut log);
        let read = |by_lock| LineRead { place: 0, bytes: 0xFF, by_lock };
        assert_eq!(log, [read(Some(generation)), read(None)]);
    }

    #[test]
    fn the_log_has_the_bytes_of_all_reads_while_it_is_on() {
        let watch = ReadWatch::over(1024);
        watch.watch([5].into_iter());
        watch.read(0, 8);
        watch.set_read_log(true);
        for offset in [2 * 64, 2 * 64 + 8, 5 * 64, 3 * 64 + 60] {
            watch.read(offset, 8);
        }
        watch.lock_access(0);
        watch.set_read_log(false);
        watch.read(9 * 64, 8);
        let of = |line, bytes| BytesOfLine { line, bytes };
        let mut log = vec![of(7, 1)];
        watch.take_read_log(&mut log);
        let logged =
            [of(7, 1), of(2, 0xFF), of(2, 0xFF00), of(5, 0xFF), of(3, 0xF << 60), of(4, 0xF)];
        assert_eq!(log[..6], logged);
        assert_eq!(log[6..], [BytesOfLine::OF_A_LOCK]);
        assert_eq!(reads(&watch), [(0, 0xFF)], "watched lines are noted all the same");
    }

    #[test]
    fn a_read_that_is_said_to_have_been_counts_like_one_that_was() {
        let watch = ReadWatch::over(1024);
        watch.watch([5].into_iter());
        watch.written(5 * 64, 4);
        for line in [5, 6, 5] {
            watch.note_read(BytesOfLine { line, bytes: 0xFF });
        }
        assert_eq!(reads(&watch), [(0, 0xF0)]);
    }

    #[test]
    fn what_was_taken_is_noted_anew() {
        let watch = ReadWatch::over(1024);
        watch.watch([1].into_iter());
        watch.read(64, 64);
        assert_eq!(reads(&watch), [(0, u64::MAX)]);
        watch.read(64, 64);
        assert_eq!(reads(&watch), [(0, u64::MAX)]);
        watch.watch([2].into_iter());
        watch.read(64, 64);
        assert_eq!(reads(&watch), []);
    }
}
