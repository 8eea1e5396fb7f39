//! The XPLine buffer: where 64-byte writes meet media that write 256 bytes at a time.
//!
//! One module has a buffer of 64 XPLines. A write of a line goes to its XPLine's entry. An entry
//! whose four lines have all been written is written to the media at once and stays, clean. When
//! room is needed a random entry leaves; if only some of its lines were written, the media are read
//! first, unless a read has brought the XPLine in before. The measurements in `data/optane.md`
//! refute LRU and FIFO eviction.

use serde::Serialize;

use crate::random::Random;

/// Lines of 64 bytes in an XPLine.
pub(crate) const LINES_PER_XPLINE: u32 = 4;
/// Interleaving of modules: 4 KiB.
const LINES_PER_STRIPE: u32 = 64;
const ALL: u8 = 0b1111;
const EMPTY: u32 = u32::MAX;

/// The modules that the media are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct XpBufferShape {
    /// XPLines that one module buffers.
    pub xplines: usize,
    /// Modules, interleaved at 4 KiB, each with a buffer of its own.
    pub modules: usize,
    /// Determines the random evictions.
    pub seed: u64,
}

impl Default for XpBufferShape {
    fn default() -> Self {
        Self { xplines: 64, modules: 1, seed: 0 }
    }
}

/// XPLines read from and written to the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MediaTraffic {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

#[derive(Clone, Debug)]
struct Module {
    /// The XPLine of each entry, apart from the rest so that a search is one sweep.
    xplines: Vec<u32>,
    entries: Vec<Entry>,
    used: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Lines written since the media were.
    written: u8,
    /// Lines whose contents are here.
    valid: u8,
}

/// The buffers of all modules.
#[derive(Clone, Debug)]
pub(crate) struct XpBuffer {
    modules: Vec<Module>,
    random: Random,
    traffic: MediaTraffic,
}

impl XpBuffer {
    pub(crate) fn new(shape: XpBufferShape) -> Self {
        let xplines = shape.xplines.max(1);
        let module = Module {
            xplines: vec![EMPTY; xplines],
            entries: vec![Entry::default(); xplines],
            used: 0,
        };
        Self {
            modules: vec![module; shape.modules.max(1)],
            random: Random::new(shape.seed),
            traffic: MediaTraffic::default(),
        }
    }

    pub(crate) fn traffic(&self) -> MediaTraffic {
        self.traffic
    }

    /// The memory controller writes a line.
    pub(crate) fn write(&mut self, line: u32) {
        let bit = 1 << (line % LINES_PER_XPLINE);
        let entry = self.entry(line);
        entry.written |= bit;
        entry.valid |= bit;
        if entry.written == ALL {
            entry.written = 0;
            self.traffic.writes += 1;
        }
    }

    /// The memory controller reads a line.
    pub(crate) fn read(&mut self, line: u32) {
        let bit = 1 << (line % LINES_PER_XPLINE);
        let entry = self.entry(line);
        if entry.valid & bit == 0 {
            entry.valid = ALL;
            self.traffic.reads += 1;
        }
    }

    /// Writes everything that is pending to the media and empties the buffers.
    pub(crate) fn drain(&mut self) {
        for module in &mut self.modules {
            for at in 0..module.used {
                module.entries[at].leave(&mut self.traffic);
            }
            module.xplines.fill(EMPTY);
            module.used = 0;
        }
    }

    /// The entry of a line's XPLine, made if there is none.
    #[inline]
    fn entry(&mut self, line: u32) -> &mut Entry {
        let number = (line / LINES_PER_STRIPE) as usize % self.modules.len();
        let module = &mut self.modules[number];
        let xpline = line / LINES_PER_XPLINE;
        if let Some(at) = module.xplines.iter().position(|&other| other == xpline) {
            return &mut module.entries[at];
        }
        let at = if module.used < module.entries.len() {
            module.used += 1;
            module.used - 1
        } else {
            let victim = self.random.below(module.entries.len());
            module.entries[victim].leave(&mut self.traffic);
            victim
        };
        module.xplines[at] = xpline;
        module.entries[at] = Entry::default();
        &mut module.entries[at]
    }
}

impl Entry {
    fn leave(self, traffic: &mut MediaTraffic) {
        if self.written != 0 {
            traffic.reads += u64::from(self.valid != ALL);
            traffic.writes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> XpBuffer {
        XpBuffer::new(XpBufferShape::default())
    }

    fn traffic(reads: u64, writes: u64) -> MediaTraffic {
        MediaTraffic { reads, writes }
    }

    #[test]
    fn full_xplines_are_written_at_once_and_only_once() {
        let mut buffer = buffer();
        (0..8).for_each(|line| buffer.write(line));
        assert_eq!(buffer.traffic(), traffic(0, 2));
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(0, 2));
    }

    #[test]
    fn a_partly_written_xpline_is_read_before_it_is_written() {
        let mut buffer = buffer();
        (0..3).for_each(|line| buffer.write(line));
        assert_eq!(buffer.traffic(), traffic(0, 0));
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(1, 1));
    }

    #[test]
    fn an_xpline_that_a_read_brought_in_is_not_read_again() {
        let mut buffer = buffer();
        buffer.read(0);
        (0..4).for_each(|line| buffer.read(line));
        buffer.write(1);
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(1, 1));
    }

    #[test]
    fn a_line_just_written_is_read_from_the_buffer_and_its_neighbour_is_not() {
        let mut buffer = buffer();
        buffer.write(0);
        buffer.read(0);
        assert_eq!(buffer.traffic(), traffic(0, 0));
        buffer.read(1);
        assert_eq!(buffer.traffic(), traffic(1, 0));
    }

    #[test]
    fn a_full_xpline_that_was_written_stays_and_takes_further_writes() {
        let mut buffer = buffer();
        (0..4).for_each(|line| buffer.write(line));
        buffer.write(0);
        buffer.read(3);
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(0, 2));
    }

    #[test]
    fn a_region_that_fits_is_written_without_amplification_in_halves() {
        let mut buffer = buffer();
        for half in [[0, 1], [2, 3]] {
            for xpline in 0..64 {
                half.iter().for_each(|part| buffer.write(xpline * 4 + part));
            }
        }
        assert_eq!(buffer.traffic(), traffic(0, 64));
    }

    #[test]
    fn writing_a_large_region_in_halves_doubles_the_media_writes() {
        let mut buffer = buffer();
        let xplines = 4096;
        for half in [[0, 1], [2, 3]] {
            for xpline in 0..xplines {
                half.iter().for_each(|part| buffer.write(xpline * 4 + part));
            }
        }
        buffer.drain();
        // One media write per XPLine and half: 4 units written for 2 that arrived.
        assert_eq!(buffer.traffic().writes, 2 * u64::from(xplines));
    }

    #[test]
    fn random_single_lines_of_a_large_region_approach_fourfold_media_writes() {
        let mut buffer = buffer();
        let mut random = Random::new(1);
        let arrived = 100_000;
        for _ in 0..arrived {
            buffer.write(random.below(1 << 24) as u32);
        }
        buffer.drain();
        let units = buffer.traffic().writes * u64::from(LINES_PER_XPLINE);
        assert!(units > arrived * 399 / 100 && units <= arrived * 4, "{units} units");
    }

    #[test]
    fn modules_buffer_their_own_stripes() {
        let mut buffer = XpBuffer::new(XpBufferShape { xplines: 1, modules: 2, seed: 0 });
        buffer.write(0);
        buffer.write(LINES_PER_STRIPE);
        assert_eq!(buffer.traffic(), traffic(0, 0));
        buffer.write(2 * LINES_PER_STRIPE); // the first module again
        assert_eq!(buffer.traffic(), traffic(1, 1));
    }
}
