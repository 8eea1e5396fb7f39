//! One worker: its clock, the lines on their way to it, and when what it wrote leaves.

use std::hint::select_unpredictable;

use crate::counting::host_processor::{Words, equal_words};

const WORDS: usize = 16;
/// No line, for their numbers have 31 bits.
const NO_LINE: u32 = u32::MAX;

/// A place that holds no line: it comes after all others.
const NO_KEY: u64 = u64::MAX;
/// Bits of a place's number in its block.
const PLACE_BITS: u32 = WORDS.ilog2();

/// Places for lines on their way, and keys of when they will be there. Apart, so that each search is
/// one sweep; of one length, so that it has no end to look for.
///
/// ```text
///  bit  63                        4   3     0
///      +-----------------------------+-------+
///      | picoseconds since the epoch | place |   a key
///      +-----------------------------+-------+
/// ```
///
/// The least key says both when the first of them will be there and where it stands; of equal times
/// it is the first place.
#[derive(Clone, Debug)]
struct Block {
    /// [`NO_LINE`] where there is none.
    lines: Words,
    /// [`NO_KEY`] where there is none.
    keys: [u64; WORDS],
}

/// Lines on their way, and when they will be there.
#[derive(Clone, Debug)]
struct Fills {
    /// Enough for most cores.
    first: Block,
    more: Vec<Block>,
    count: usize,
    /// No later than now was when there was nothing last. Keys have room for thirteen days from then.
    epoch: u64,
}

/// When a worker is where it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    pub(super) now: u64,
    /// Lines on their way to the core, and when they will be there.
    fills: Fills,
    pub(super) fills_until: u64,
    /// When the next line can leave the core.
    pub(super) writes_back_at: u64,
    /// When the last lines that it wrote leave, as many as wait in its buffers; a ring.
    leave_at: Vec<u64>,
    next_leaves: usize,
    pub(super) streams_at: u64,
    /// When the next store to a line that no cache held can be carried out.
    pub(super) stores_at: u64,
    /// When all that was sent will have been accepted.
    pub(super) accepted_at: u64,
    /// When the last fence will have been passed; stores after it are carried out then.
    pub(super) fenced_at: u64,
}

impl Block {
    const EMPTY: Self = Self { lines: Words([NO_LINE; WORDS]), keys: [NO_KEY; WORDS] };

    /// The greatest key of a line.
    #[inline(always)]
    fn key_of(&self, line: u32) -> Option<u64> {
        let mut found = equal_words(&self.lines.0, u32::MAX, line);
        let mut last = None;
        while found != 0 {
            last = last.max(Some(self.keys[found.trailing_zeros() as usize % WORDS]));
            found &= found - 1;
        }
        last
    }

    #[inline(always)]
    fn least_key(&self) -> u64 {
        // Four at a time, for each comparison would wait for the one before.
        let mut least = [NO_KEY; 4];
        for four in self.keys.chunks_exact(4) {
            for (least, &key) in least.iter_mut().zip(four) {
                *least = select_unpredictable(key < *least, key, *least);
            }
        }
        least.into_iter().fold(NO_KEY, u64::min)
    }
}

impl Default for Fills {
    fn default() -> Self {
        Self { first: Block::EMPTY, more: Vec::new(), count: 0, epoch: 0 }
    }
}

impl Fills {
    #[inline]
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all.
    #[inline(never)]
    fn clear(&mut self, now: u64) {
        self.first = Block::EMPTY;
        self.more.fill(Block::EMPTY);
        self.count = 0;
        self.epoch = now;
    }

    /// When a line will be there: if it was dropped on its way and asked for again, for the last time.
    #[inline]
    fn of(&self, line: u32) -> Option<u64> {
        let mut key = self.first.key_of(line);
        for block in &self.more {
            key = key.max(block.key_of(line));
        }
        key.map(|key| self.time(key))
    }

    #[inline(always)]
    fn time(&self, key: u64) -> u64 {
        self.epoch + (key >> PLACE_BITS)
    }

    #[inline]
    fn push(&mut self, line: u32, ready: u64) {
        let at = self.count;
        if at == (1 + self.more.len()) * WORDS {
            self.grow();
        }
        self.set(at, line, (ready - self.epoch) << PLACE_BITS);
        self.count += 1;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.more.push(Block::EMPTY);
    }

    /// Puts a line in a place, with a key whose place is that or none.
    #[inline(always)]
    fn set(&mut self, at: usize, line: u32, key: u64) {
        let place = at % WORDS;
        let block = if at < WORDS { &mut self.first } else { &mut self.more[at / WORDS - 1] };
        block.lines.0[place] = line;
        block.keys[place] = key | place as u64;
    }

    /// The line in a place, and its key without the place.
    #[inline(always)]
    fn get(&self, at: usize) -> (u32, u64) {
        let place = at % WORDS;
        let block = if at < WORDS { &self.first } else { &self.more[at / WORDS - 1] };
        (block.lines.0[place], block.keys[place] & (NO_KEY << PLACE_BITS))
    }

    /// Of those that will be there first, the first.
    #[inline]
    fn first(&self) -> (usize, u64) {
        let least = self.first.least_key();
        if !self.more.is_empty() {
            return self.first_of_all(least);
        }
        (least as usize % WORDS, self.time(least))
    }

    #[cold]
    #[inline(never)]
    fn first_of_all(&self, mut least: u64) -> (usize, u64) {
        let mut first = 0;
        for (block, places) in self.more.iter().enumerate() {
            let key = places.least_key();
            if key >> PLACE_BITS < least >> PLACE_BITS {
                (first, least) = (block + 1, key);
            }
        }
        (first * WORDS + least as usize % WORDS, self.time(least))
    }

    /// Forgets one; the last takes its place.
    #[inline]
    fn remove(&mut self, at: usize) {
        self.count -= 1;
        let (line, key) = self.get(self.count);
        self.set(at, line, key);
        self.set(self.count, NO_LINE, NO_KEY);
    }

    /// Forgets those that are there; the others keep their order.
    #[inline(never)]
    fn forget(&mut self, now: u64) {
        let mut kept = 0;
        for at in 0..self.count {
            let (line, key) = self.get(at);
            if self.time(key) > now {
                self.set(kept, line, key);
                kept += 1;
            }
        }
        for at in kept..self.count {
            self.set(at, NO_LINE, NO_KEY);
        }
        self.count = kept;
    }
}

impl Clock {
    /// When all that it has done will be done, but for lines that nobody waits for.
    #[inline]
    pub(super) fn done_at(&self) -> u64 {
        self.now.max(self.fenced_at)
    }

    /// Waits for the last fence.
    #[inline]
    pub(super) fn pass_fence(&mut self) {
        self.now = self.done_at();
    }

    /// A line that it wrote leaves then. It waits in a fill buffer until then; when all are taken the core waits for
    /// the first of those.
    #[inline]
    pub(super) fn leaves(&mut self, at: u64, buffers: usize) {
        if self.leave_at.len() < buffers {
            self.leave_at.resize(buffers, 0);
        }
        let first = std::mem::replace(&mut self.leave_at[self.next_leaves], at);
        self.next_leaves += 1;
        if self.next_leaves == buffers {
            self.next_leaves = 0;
        }
        self.now = self.now.max(first);
    }

    /// Forgets the lines on their way.
    pub(super) fn forget_fills(&mut self) {
        self.fills.clear(self.now);
    }

    /// When a line will be here; now if it is.
    #[inline]
    pub(super) fn ready(&mut self, line: u32) -> u64 {
        if self.fills.is_empty() {
            return self.now;
        }
        if self.fills_until <= self.now {
            self.fills.clear(self.now);
            return self.now;
        }
        self.fills.of(line).map_or(self.now, |ready| ready.max(self.now))
    }

    #[inline]
    pub(super) fn wait_for(&mut self, line: u32) {
        self.now = self.ready(line);
    }

    /// Waits until there is a line fill buffer for one more. The time by then.
    #[inline(always)]
    pub(super) fn free_buffer(&mut self, buffers: usize) -> u64 {
        if self.fills.count >= buffers {
            if self.fills_until <= self.now {
                self.fills.clear(self.now);
                return self.now;
            }
            let (at, ready) = self.fills.first();
            if ready <= self.now {
                self.fills.forget(self.now);
            } else {
                self.fills.remove(at);
                self.now = ready;
            }
        }
        self.now
    }

    #[inline]
    pub(super) fn expect(&mut self, line: u32, ready: u64) {
        if self.fills_until <= self.now {
            self.fills.clear(self.now);
        }
        self.fills.push(line, ready);
        self.fills_until = self.fills_until.max(ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Lines and when they will be there, in the plainest form.
    #[derive(Default)]
    struct Plain(Vec<(u32, u64)>);

    impl Plain {
        fn first(&self) -> usize {
            let ready = |&at: &usize| (self.0[at].1, at);
            (0..self.0.len()).min_by_key(ready).expect("there are some")
        }
    }

    #[test]
    fn lines_on_their_way_are_found_and_forgotten_as_in_a_plain_list() {
        let mut random = Random::new(4);
        let (mut fills, mut plain) = (Fills::default(), Plain::default());
        let mut now = 0;
        for _ in 0..50_000 {
            let line = random.below(40) as u32;
            let found = plain.0.iter().filter(|(other, _)| *other == line).map(|(_, ready)| *ready);
            assert_eq!(fills.of(line), found.max());
            match random.below(24) {
                0 => {
                    now += random.below(100) as u64;
                    fills.forget(now);
                    plain.0.retain(|(_, ready)| *ready > now);
                }
                1 => {
                    fills.clear(now);
                    plain.0.clear();
                }
                2..=7 if !plain.0.is_empty() => {
                    let (at, ready) = fills.first();
                    assert_eq!((at, ready), (plain.first(), plain.0[plain.first()].1));
                    fills.remove(at);
                    plain.0.swap_remove(at);
                }
                _ => {
                    let ready = now + random.below(200) as u64;
                    fills.push(line, ready);
                    plain.0.push((line, ready));
                }
            }
            assert_eq!(fills.is_empty(), plain.0.is_empty());
        }
    }
}
