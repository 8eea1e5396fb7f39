//! One module: when it takes lines, and what its media are at.
//!
//! The media do one thing at a time. Reads go first, because cores wait for them; writes wait in the
//! module, up to its backlog. When the backlog is full a write goes before each read: a module that
//! always let reads go first would never write while many cores read, and that is not what was
//! measured (`docs/calibration.md`, readers and writers together).

use std::hint::select_unpredictable;

use super::timeline::Timeline;
use crate::counting::cache::Cache;
use crate::counting::host_processor::equal_among_eight;

/// Lines of which a module remembers when it took them.
const REMEMBERED: usize = 8;
/// Idle spans that it remembers between lines that it took, and between reads of its media: those of more
/// workers than wait for one module at a time.
const IDLE_SPANS: usize = 8;
const IDLE_READ_SPANS: usize = 16;
const NO_LINE: u32 = u32::MAX;

/// For how long the media are busy with a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Services {
    pub(super) read: u64,
    /// A read that overlaps a write.
    pub(super) read_beside_write: u64,
    pub(super) write: u64,
}

/// A module.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// When it takes lines.
    takes: Timeline<IDLE_SPANS>,
    /// The stripe of the line that it was sent last, and from when on it takes lines of it.
    stripe: u32,
    stripe_from: u64,
    pub(super) last_read: u32,
    /// The last line that the media were read for; with it came its unit.
    pub(super) last_from_media: u32,
    /// When that unit is there.
    pub(super) unit_there: u64,
    /// When the media read.
    reads: Timeline<IDLE_READ_SPANS>,
    /// When the media began the writes that they are at, and when they will have done them all.
    writes_from: u64,
    pub(super) media_written_at: u64,
    media_wrote_last: bool,
    pub(super) translations: Option<Cache>,
    /// The lines that it took last, and when.
    taken_lines: [u32; REMEMBERED],
    taken_at: [u64; REMEMBERED],
    next_taken: usize,
    /// The block that has had the most media writes lately, and how many more than all others.
    hot_block: u32,
    hot_writes: u32,
}

impl Module {
    pub(super) fn new(translations: Option<Cache>) -> Self {
        Self {
            takes: Timeline::new(),
            stripe: NO_LINE,
            stripe_from: 0,
            last_read: NO_LINE - 1,
            last_from_media: NO_LINE,
            unit_there: 0,
            reads: Timeline::new(),
            writes_from: 0,
            media_written_at: 0,
            media_wrote_last: false,
            translations,
            taken_lines: [NO_LINE; REMEMBERED],
            taken_at: [0; REMEMBERED],
            next_taken: 0,
            hot_block: 0,
            hot_writes: 0,
        }
    }

    /// Time begins again, with nothing on its way.
    pub(super) fn reset(&mut self) {
        self.takes = Timeline::new();
        self.reads = Timeline::new();
        self.writes_from = 0;
        self.media_written_at = 0;
        self.stripe_from = 0;
        self.unit_there = 0;
        self.taken_lines = [NO_LINE; REMEMBERED];
    }

    /// When the media begin to read for a request of `now`.
    pub(super) fn read_media(&mut self, now: u64, services: Services, backlog_units: u64) -> u64 {
        let service = if std::mem::take(&mut self.media_wrote_last) {
            services.read_beside_write
        } else {
            services.read
        };
        let earliest = self.reads.could_begin(now, service);
        // No room for another write: what waits there has waited long enough.
        let most = backlog_units.saturating_sub(1) * services.write;
        let waiting = self.media_written_at.saturating_sub(earliest);
        let writes_first = earliest >= self.writes_from && waiting > 0 && waiting >= most;
        let write = if writes_first { services.write.min(waiting) } else { 0 };
        let start = self.reads.begin(earliest, write + service) + write;
        if self.media_written_at > start {
            self.media_written_at += service;
        }
        start
    }

    /// When a line of a stripe comes that leaves its core at a time: later if the last one was of
    /// another, and not before those of its own that waited for that.
    #[inline]
    pub(super) fn comes_at(&mut self, stripe: u32, leaves: u64, other_stripe: u64) -> u64 {
        let other = std::mem::replace(&mut self.stripe, stripe) != stripe;
        self.stripe_from =
            select_unpredictable(other, leaves + other_stripe, self.stripe_from.max(leaves));
        self.stripe_from
    }

    /// When it will have taken all that it was sent.
    #[inline]
    pub(super) fn takes_at(&self) -> u64 {
        self.takes.free_at()
    }

    /// When the module begins to take a line that could be taken at `earliest`.
    pub(super) fn begin(&mut self, earliest: u64, takes: u64) -> u64 {
        self.takes.begin(earliest, takes)
    }

    /// The media are given so many writes.
    #[inline]
    pub(super) fn media_wrote(&mut self, now: u64, writes: u32, service: u64) {
        // Whether there are any nobody can foretell, least of all the host's processor: no branch.
        let (any, before) = (writes > 0, self.media_written_at);
        let after = before.max(now) + u64::from(writes) * service;
        self.writes_from = select_unpredictable(any & (before < now), now, self.writes_from);
        self.media_written_at = select_unpredictable(any, after, before);
        self.media_wrote_last |= any;
    }

    /// The media wrote so often because of a line of this block. Whether the block is to be moved,
    /// as it has had `most` writes more than all others.
    ///
    /// This is a vote with one place for a candidate (Boyer, Moore: "A fast majority vote algorithm",
    /// 1981): a block is found if it has more than half of the writes. Counters for all blocks would
    /// find each in its turn, however many share the writes.
    pub(super) fn wears(&mut self, block: u32, writes: u32, most: u32) -> bool {
        if block != self.hot_block {
            match self.hot_writes.checked_sub(writes) {
                Some(left) => self.hot_writes = left,
                None => (self.hot_block, self.hot_writes) = (block, writes - self.hot_writes),
            }
            return false;
        }
        self.hot_writes += writes;
        let moves = self.hot_writes >= most;
        if moves {
            self.hot_writes = 0;
        }
        moves
    }

    /// Takes nothing for a span.
    pub(super) fn stall(&mut self, span: u64) {
        self.takes.stall(span);
    }

    #[inline]
    fn remembered(&self, line: u32) -> Option<usize> {
        let found = equal_among_eight(&self.taken_lines, line);
        (found != 0).then_some(found.trailing_zeros() as usize % REMEMBERED)
    }

    /// When it took a line, if that was one of the last.
    #[inline]
    pub(super) fn taken_at(&self, line: u32) -> Option<u64> {
        self.remembered(line).map(|at| self.taken_at[at])
    }

    /// It takes a line, and no earlier than `after` what it took of the same one before, if that was
    /// one of the last. When it takes it, and the earliest for that other reason, or zero.
    #[inline]
    pub(super) fn take(&mut self, line: u32, taken: u64, after: u64) -> (u64, u64) {
        let (at, again) = match self.remembered(line) {
            Some(at) => (at, self.taken_at[at] + after),
            None => {
                let at = self.next_taken;
                self.next_taken = (at + 1) % REMEMBERED;
                (at, 0)
            }
        };
        let taken = taken.max(again);
        (self.taken_lines[at], self.taken_at[at]) = (line, taken);
        (taken, again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: Services = Services { read: 40, read_beside_write: 40, write: 100 };
    const BACKLOG: u64 = 4;

    fn read(module: &mut Module, now: u64) -> u64 {
        module.read_media(now, SERVICES, BACKLOG)
    }

    /// A module that was given so many writes at time 1000.
    fn written(writes: u32) -> Module {
        let mut module = Module::new(None);
        module.media_wrote(1000, writes, SERVICES.write);
        module
    }

    #[test]
    fn a_line_of_another_stripe_than_the_last_comes_later_and_those_after_it_no_sooner() {
        let mut module = Module::new(None);
        let sent = [(1, 100), (1, 110), (1, 200), (2, 210), (1, 220)];
        let came = sent.map(|(stripe, leaves)| module.comes_at(stripe, leaves, 40));
        assert_eq!(came, [140, 140, 200, 250, 260]);
    }

    #[test]
    fn reads_follow_one_another() {
        let mut module = Module::new(None);
        assert_eq!([0, 0, 500].map(|now| read(&mut module, now)), [0, 40, 500]);
    }

    #[test]
    fn a_read_that_another_worker_asked_for_earlier_does_not_wait_for_those_of_later() {
        let mut module = Module::new(None);
        assert_eq!(
            [0, 300, 600, 10, 320].map(|now| read(&mut module, now)),
            [0, 300, 600, 40, 340]
        );
    }

    #[test]
    fn a_read_goes_before_writes_that_there_is_room_for_and_delays_them() {
        let mut module = written(2);
        assert_eq!(read(&mut module, 1000), 1000);
        assert_eq!(module.media_written_at, 1240);
    }

    #[test]
    fn when_the_backlog_is_full_a_write_goes_before_each_read() {
        let mut module = written(5);
        // Of five writes three go before a read each; the other two there is room for.
        assert_eq!([1000; 4].map(|now| read(&mut module, now)), [1100, 1240, 1380, 1420]);
        assert_eq!(module.media_written_at, 1500 + 4 * 40);
    }

    #[test]
    fn writes_that_come_later_do_not_delay_a_read() {
        let mut module = written(5);
        assert_eq!(read(&mut module, 900), 900);
    }

    /// How often a module moves blocks that are written in this order, over and over.
    fn moves(blocks: &[u32], rounds: usize) -> usize {
        let mut module = Module::new(None);
        let writes = (0..rounds).flat_map(|_| blocks);
        writes.filter(|&&block| module.wears(block, 1, 100)).count()
    }

    #[test]
    fn a_block_is_moved_each_time_it_has_been_written_so_often() {
        assert_eq!(moves(&[7], 1000), 10);
    }

    #[test]
    fn blocks_that_share_the_writes_are_never_moved() {
        assert_eq!(moves(&[7, 8], 10_000), 0);
        assert_eq!(moves(&[7, 8, 9, 7], 10_000), 0);
    }

    #[test]
    fn a_block_with_more_than_half_of_the_writes_is_moved_the_more_often_the_more_it_has() {
        let (two_thirds, most) = (moves(&[7, 8, 7], 3000), moves(&[7, 7, 7, 8, 7, 7], 1500));
        assert!(0 < two_thirds && two_thirds < most, "{two_thirds} {most}");
    }

    #[test]
    fn a_module_that_stalls_takes_lines_later_and_reads_as_before() {
        let mut module = Module::new(None);
        assert_eq!(module.begin(0, 10), 0);
        module.stall(500);
        assert_eq!(module.begin(20, 10), 510);
        assert_eq!(read(&mut module, 20), 20);
    }

    #[test]
    fn a_module_without_a_backlog_lets_what_is_left_of_a_write_go_first() {
        let mut module = written(1);
        assert_eq!(module.read_media(1030, SERVICES, 1), 1100);
    }
}
