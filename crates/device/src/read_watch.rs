//! Which bytes of some lines a program reads before it writes them.
//!
//! A recovery cannot depend on bytes that it never reads, so images that differ in such bytes only
//! need not be told apart ([`crate::PrunedImages`]). That holds as long as every read is seen, and
//! every read of persistent memory is: words are read by the loads and locked operations of the
//! domain, and byte ranges by `Pool::try_tail`, the one place that hands out bytes to plain loads,
//! which notes the whole range first. What is not known exactly is taken for read: a range counts
//! as read as a whole, and a word as soon as any part of it is loaded.

use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::LINE_BYTES;
use parking_lot::Mutex;

/// Bytes of one watched line that were read for the first time, and not written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRead {
    /// The line, by its place among the lines that were to be watched.
    pub place: u32,
    /// One bit per byte of the line.
    pub bytes: u64,
}

/// Watches lines of a region. A bit per line of the region answers most reads without a lock.
#[derive(Debug)]
pub(crate) struct ReadWatch {
    filter: Box<[AtomicU64]>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// In ascending order.
    lines: Vec<u32>,
    /// Bytes of each that were read or written.
    known: Vec<u64>,
    log: Vec<LineRead>,
}

impl ReadWatch {
    pub(crate) fn over(region_bytes: usize) -> Self {
        let lines = region_bytes.div_ceil(LINE_BYTES);
        Self {
            filter: (0..lines.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            watched: Mutex::default(),
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
        self.rewind(&mut watched);
    }

    /// Takes what was read, in order; watching goes on as if nothing had been.
    pub(crate) fn take(&self, reads: &mut Vec<LineRead>) {
        let mut watched = self.watched.lock();
        reads.clear();
        std::mem::swap(reads, &mut watched.log);
        self.rewind(&mut watched);
    }

    fn rewind(&self, watched: &mut Watched) {
        watched.log.clear();
        watched.known.fill(0);
        for &line in &watched.lines {
            self.filter[line as usize / 64].fetch_or(1 << (line % 64), Ordering::Relaxed);
        }
    }

    /// `bytes` bytes at `offset` are read.
    #[inline(always)]
    pub(crate) fn read(&self, offset: usize, bytes: usize) {
        self.for_watched(offset, bytes, true);
    }

    /// `bytes` bytes at `offset` are written: what they held no longer matters.
    #[inline(always)]
    pub(crate) fn written(&self, offset: usize, bytes: usize) {
        self.for_watched(offset, bytes, false);
    }

    #[inline(always)]
    fn for_watched(&self, offset: usize, bytes: usize, read: bool) {
        let (first, last) = (offset / LINE_BYTES, (offset + bytes.max(1) - 1) / LINE_BYTES);
        for line in first..=last {
            let is_watched = self
                .filter
                .get(line / 64)
                .is_some_and(|bits| bits.load(Ordering::Relaxed) & (1 << (line % 64)) != 0);
            if is_watched {
                let start = offset.max(line * LINE_BYTES) - line * LINE_BYTES;
                let end = (offset + bytes).min((line + 1) * LINE_BYTES) - line * LINE_BYTES;
                self.note(line as u32, mask(start, end), read);
            }
        }
    }

    #[inline(never)]
    fn note(&self, line: u32, bytes: u64, read: bool) {
        let mut watched = self.watched.lock();
        let Ok(place) = watched.lines.binary_search(&line) else { return };
        let fresh = bytes & !watched.known[place];
        if fresh == 0 {
            return;
        }
        watched.known[place] |= fresh;
        if read {
            watched.log.push(LineRead { place: place as u32, bytes: fresh });
        }
        if watched.known[place] == u64::MAX {
            let bits = &self.filter[line as usize / 64];
            bits.fetch_and(!(1 << (line % 64)), Ordering::Relaxed);
        }
    }
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
