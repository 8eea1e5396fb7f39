//! The XPLine buffer: where 64-byte writes meet media that write 256 bytes at a time.
//!
//! A module has a buffer of units (XPLines). A write of a line goes to its unit's entry. What the
//! published write amplification of writing a region in halves (`docs/calibration.md`) says about
//! the rest:
//!
//! * A unit that is completely written is written to the media **eagerly and stays, clean**: regions
//!   that fit the buffer are written without amplification. It happens soon, not at once: at each
//!   line that arrives one of the complete units is chosen with a certain chance. What is written
//!   again before its turn is absorbed, and that is the amplification of 0.80 to 0.97 of regions of
//!   a few units, whose writes come round quickly.
//! * When room is needed, **random entries are drawn and the one least recently used of them
//!   leaves**. Of one candidate (pure random) the curve rises too slowly past the capacity; of all
//!   (LRU), or in order of arrival (FIFO), it is a cliff. Two candidates fit.
//! * A few units beyond the buffer's 64 are on their way in or out of it, so the curve is still flat
//!   at 18 KiB.
//! * The module writes 4 % more than it was given, whatever the pattern.
//!
//! If only some lines of a leaving unit were written, the media are read first, unless a read has
//! brought the unit in before.
//!
//! Media of 64-byte units are the same with every line complete at once.

mod entries;

use serde::Serialize;

use self::entries::{Contents, Entries};
use crate::counting::divider::Divider;
use crate::random::Random;

const PERMILLE: u32 = 1000;

/// The modules that the media are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct XpBufferShape {
    /// Lines of 64 bytes that the media read and write at a time, at most eight.
    pub lines_per_unit: u32,
    /// Units that one module buffers.
    pub units: usize,
    /// Further units on their way in or out.
    pub spare_units: usize,
    /// Entries drawn at random when room is needed; the least recently used of them leaves.
    pub candidates: usize,
    /// Chance, at each line that arrives, that a complete unit is written back.
    pub eager_permille: u32,
    /// Media writes that the module adds to a thousand others.
    pub own_writes_permille: u32,
    /// Modules, interleaved, each with a buffer of its own.
    pub modules: usize,
    /// Lines that lie on one module before the next one's turn comes.
    pub lines_per_stripe: u32,
    /// Written lines of a core that are on their way to modules at a time; they arrive in any order.
    pub lines_in_flight: usize,
    /// Lines that a module reads for cores in their order; of further ones any comes next.
    pub lines_in_read_queue: usize,
    /// Determines the random choices.
    pub seed: u64,
}

/// Units read from and written to the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MediaTraffic {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// What the read of a line did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) from_media: bool,
    /// Media writes that made room.
    pub(crate) media_writes: u32,
}

#[derive(Clone, Debug)]
struct Module {
    entries: Entries,
    /// Entries that are completely written and not yet written back.
    complete: Vec<usize>,
}

/// Where a line lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) stripe: u32,
    pub(crate) module: u32,
    /// The stripe's number among those of its module.
    pub(crate) row: u32,
}

/// The buffers of all modules.
#[derive(Clone, Debug)]
pub(crate) struct XpBuffer {
    shape: XpBufferShape,
    /// A bit for each line of a unit.
    all: u8,
    by_unit: Divider,
    by_stripe: Divider,
    by_module: Divider,
    modules: Vec<Module>,
    random: Random,
    traffic: MediaTraffic,
    now: u64,
    own_writes: u32,
}

impl XpBuffer {
    pub(crate) fn new(shape: XpBufferShape) -> Self {
        let shape = XpBufferShape {
            lines_per_unit: shape.lines_per_unit.clamp(1, 8),
            modules: shape.modules.max(1),
            lines_per_stripe: shape.lines_per_stripe.max(1),
            ..shape
        };
        let entries = (shape.units + shape.spare_units).max(1);
        let module = Module { entries: Entries::new(entries), complete: Vec::new() };
        Self {
            shape,
            all: (u16::MAX >> (16 - shape.lines_per_unit)) as u8,
            by_unit: Divider::new(shape.lines_per_unit),
            by_stripe: Divider::new(shape.lines_per_stripe),
            by_module: Divider::new(shape.modules as u32),
            modules: vec![module; shape.modules],
            random: Random::new(shape.seed),
            traffic: MediaTraffic::default(),
            now: 0,
            own_writes: 0,
        }
    }

    pub(crate) fn traffic(&self) -> MediaTraffic {
        self.traffic
    }

    /// Lines in a unit of the media.
    pub(crate) fn lines_per_unit(&self) -> u32 {
        self.shape.lines_per_unit
    }

    #[inline]
    pub(crate) fn place(&self, line: u32) -> Place {
        let stripe = self.by_stripe.divide(line).0;
        let (row, module) = self.by_module.divide(stripe);
        Place { line, stripe, module, row }
    }

    #[inline]
    fn count_writes(&mut self, writes: u32) {
        self.traffic.writes += u64::from(writes);
        self.own_writes += writes * self.shape.own_writes_permille;
        self.traffic.writes += u64::from(self.own_writes / PERMILLE);
        self.own_writes %= PERMILLE;
    }

    /// A line comes to its module. Media writes that it led to.
    #[inline]
    pub(crate) fn write(&mut self, place: Place) -> u32 {
        let (unit, line_of_unit) = self.by_unit.divide(place.line);
        let (all, bit) = (self.all, 1 << line_of_unit);
        let (at, mut media_writes) = self.entry(place.module, unit);
        let module = &mut self.modules[place.module as usize];
        let entry = module.entries.contents(at);
        let completed = entry.written != all && entry.written | bit == all;
        entry.written |= bit;
        entry.valid |= bit;
        if completed {
            module.complete.push(at);
        }
        if !module.complete.is_empty() && self.random.chance(self.shape.eager_permille) {
            let chosen = match module.complete.len() {
                1 => 0,
                several => self.random.below(several),
            };
            let chosen = module.complete.swap_remove(chosen);
            module.entries.contents(chosen).written = 0;
            media_writes += 1;
        }
        self.count_writes(media_writes);
        media_writes
    }

    /// The memory controller reads a line.
    #[inline]
    pub(crate) fn read(&mut self, place: Place) -> Fetched {
        let (unit, line_of_unit) = self.by_unit.divide(place.line);
        let (all, bit) = (self.all, 1 << line_of_unit);
        let (at, media_writes) = self.entry(place.module, unit);
        let entry = self.modules[place.module as usize].entries.contents(at);
        let from_media = entry.valid & bit == 0;
        if from_media {
            entry.valid = all;
            self.traffic.reads += 1;
        }
        self.count_writes(media_writes);
        Fetched { from_media, media_writes }
    }

    /// Writes everything that is pending to the media and empties the buffers.
    pub(crate) fn drain(&mut self) {
        let all = self.all;
        for number in 0..self.modules.len() {
            let module = &mut self.modules[number];
            let mut writes = 0;
            for contents in module.entries.all() {
                writes += contents.leave(all, &mut self.traffic);
            }
            module.entries.clear();
            module.complete.clear();
            self.count_writes(writes);
        }
    }

    /// The entry of a unit, made if there is none, and the media writes that made room.
    #[inline(always)]
    fn entry(&mut self, number: u32, unit: u32) -> (usize, u32) {
        self.now += 1;
        let all = self.all;
        let module = &mut self.modules[number as usize];
        if let Some(at) = module.entries.find(unit) {
            module.entries.touch(at, self.now);
            return (at, 0);
        }
        if !module.entries.is_full() {
            return (module.entries.add(unit, self.now), 0);
        }
        let count = module.entries.capacity();
        let mut victim = self.random.below(count);
        for _ in 1..self.shape.candidates {
            let other = self.random.below(count);
            victim = module.entries.older(victim, other);
        }
        let contents = module.entries.replace(victim, unit, self.now);
        if contents.written == all {
            module.complete.retain(|&complete| complete != victim);
        }
        (victim, contents.leave(all, &mut self.traffic))
    }
}

impl Contents {
    /// Media writes that its leaving takes.
    #[inline]
    fn leave(self, all: u8, traffic: &mut MediaTraffic) -> u32 {
        // Which it is nobody can foretell, least of all the host's processor: no branch.
        let written = self.written != 0;
        traffic.reads += u64::from(written & (self.valid != all));
        u32::from(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One module of 64 units that writes complete units at once and adds nothing of its own.
    fn plain() -> XpBufferShape {
        XpBufferShape {
            lines_per_unit: 4,
            units: 64,
            spare_units: 0,
            candidates: 1,
            eager_permille: 1000,
            own_writes_permille: 0,
            modules: 1,
            lines_per_stripe: 64,
            lines_in_flight: 1,
            lines_in_read_queue: 64,
            seed: 0,
        }
    }

    fn buffer() -> XpBuffer {
        XpBuffer::new(plain())
    }

    fn write(buffer: &mut XpBuffer, line: u32) -> u32 {
        buffer.write(buffer.place(line))
    }

    fn read(buffer: &mut XpBuffer, line: u32) -> Fetched {
        buffer.read(buffer.place(line))
    }

    fn traffic(reads: u64, writes: u64) -> MediaTraffic {
        MediaTraffic { reads, writes }
    }

    #[test]
    fn full_xplines_are_written_at_once_and_only_once() {
        let mut buffer = buffer();
        (0..8).for_each(|line| {
            write(&mut buffer, line);
        });
        assert_eq!(buffer.traffic(), traffic(0, 2));
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(0, 2));
    }

    #[test]
    fn a_partly_written_xpline_is_read_before_it_is_written() {
        let mut buffer = buffer();
        (0..3).for_each(|line| {
            write(&mut buffer, line);
        });
        assert_eq!(buffer.traffic(), traffic(0, 0));
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(1, 1));
    }

    #[test]
    fn an_xpline_that_a_read_brought_in_is_not_read_again() {
        let mut buffer = buffer();
        read(&mut buffer, 0);
        (0..4).for_each(|line| {
            read(&mut buffer, line);
        });
        write(&mut buffer, 1);
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(1, 1));
    }

    #[test]
    fn a_line_just_written_is_read_from_the_buffer_and_its_neighbour_is_not() {
        let mut buffer = buffer();
        write(&mut buffer, 0);
        read(&mut buffer, 0);
        assert_eq!(buffer.traffic(), traffic(0, 0));
        read(&mut buffer, 1);
        assert_eq!(buffer.traffic(), traffic(1, 0));
    }

    #[test]
    fn a_full_xpline_that_was_written_stays_and_takes_further_writes() {
        let mut buffer = buffer();
        (0..4).for_each(|line| {
            write(&mut buffer, line);
        });
        write(&mut buffer, 0);
        read(&mut buffer, 3);
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(0, 2));
    }

    #[test]
    fn a_region_that_fits_is_written_without_amplification_in_halves() {
        let mut buffer = buffer();
        for half in [[0, 1], [2, 3]] {
            for xpline in 0..64 {
                half.iter().for_each(|part| {
                    write(&mut buffer, xpline * 4 + part);
                });
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
                half.iter().for_each(|part| {
                    write(&mut buffer, xpline * 4 + part);
                });
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
            write(&mut buffer, random.below(1 << 24) as u32);
        }
        buffer.drain();
        let units = buffer.traffic().writes * 4;
        assert!(units > arrived * 399 / 100 && units <= arrived * 4, "{units} units");
    }

    #[test]
    fn modules_buffer_their_own_stripes() {
        let mut buffer = XpBuffer::new(XpBufferShape { units: 1, modules: 2, ..plain() });
        write(&mut buffer, 0);
        write(&mut buffer, 64);
        assert_eq!(buffer.traffic(), traffic(0, 0));
        write(&mut buffer, 2 * 64); // the first module again
        assert_eq!(buffer.traffic(), traffic(1, 1));
    }

    #[test]
    fn a_complete_unit_that_is_rewritten_before_its_turn_is_absorbed() {
        let mut buffer = XpBuffer::new(XpBufferShape { eager_permille: 0, ..plain() });
        for _ in 0..5 {
            (0..4).for_each(|line| {
                write(&mut buffer, line);
            });
        }
        assert_eq!(buffer.traffic(), traffic(0, 0));
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(0, 1));
    }

    #[test]
    fn a_unit_is_written_when_its_last_line_comes() {
        let mut buffer = buffer();
        assert_eq!([0, 1, 2, 3].map(|line| write(&mut buffer, line)), [0, 0, 0, 1]);
    }

    #[test]
    fn a_module_adds_its_own_writes_in_proportion() {
        let mut buffer = XpBuffer::new(XpBufferShape { own_writes_permille: 40, ..plain() });
        (0..4000).for_each(|line| {
            write(&mut buffer, line);
        });
        assert_eq!(buffer.traffic(), traffic(0, 1040));
    }

    #[test]
    fn of_more_candidates_an_older_one_leaves() {
        // All candidates are seen often enough to make eviction LRU in effect.
        let shape = XpBufferShape { units: 2, candidates: 64, eager_permille: 0, ..plain() };
        let mut buffer = XpBuffer::new(shape);
        write(&mut buffer, 0);
        write(&mut buffer, 4);
        write(&mut buffer, 1);
        write(&mut buffer, 8);
        assert!(!read(&mut buffer, 0).from_media);
        assert!(read(&mut buffer, 4).from_media);
    }

    #[test]
    fn media_of_single_lines_write_each_line_that_arrives() {
        let mut buffer = XpBuffer::new(XpBufferShape { lines_per_unit: 1, ..plain() });
        (0..10).for_each(|line| {
            write(&mut buffer, line * 7);
        });
        buffer.drain();
        assert_eq!(buffer.traffic(), traffic(0, 10));
    }
}
