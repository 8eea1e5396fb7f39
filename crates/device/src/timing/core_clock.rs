//! One worker: its clock, the lines on their way to it, and when what it wrote leaves.

use std::hint::select_unpredictable;

use crate::host::{Words, equal_words};

const WORDS: usize = 16;
/// No line, for their numbers have 31 bits.
const NO_LINE: u32 = u32::MAX;

/// Never.
const NEVER: u64 = u64::MAX;

/// Lines, and when they will be there. Apart, so that a search is one sweep over few words; in blocks
/// of one length, so that it has no end to look for.
#[derive(Clone, Debug, Default)]
struct Fills {
    /// Behind the last of them [`NO_LINE`].
    lines: Vec<Words>,
    /// Behind the last of them [`NEVER`].
    ready: Vec<[u64; WORDS]>,
    count: usize,
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
    pub(super) streams_at: u64,
    /// When all that was sent will have been accepted.
    pub(super) accepted_at: u64,
}

impl Fills {
    #[inline]
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    fn clear(&mut self) {
        let blocks = self.count.div_ceil(WORDS);
        self.lines[..blocks].fill(Words([NO_LINE; WORDS]));
        self.ready[..blocks].fill([NEVER; WORDS]);
        self.count = 0;
    }

    /// When a line will be there, the first of its name.
    #[inline]
    fn of(&self, line: u32) -> Option<u64> {
        for (lines, ready) in self.lines.iter().zip(&self.ready) {
            let found = equal_words(lines, u32::MAX, line);
            if found != 0 {
                return Some(ready[found.trailing_zeros() as usize % WORDS]);
            }
        }
        None
    }

    #[inline]
    fn push(&mut self, line: u32, ready: u64) {
        if self.count == self.lines.len() * WORDS {
            self.grow();
        }
        self.set(self.count, line, ready);
        self.count += 1;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.lines.push(Words([NO_LINE; WORDS]));
        self.ready.push([NEVER; WORDS]);
    }

    #[inline]
    fn get(&self, at: usize) -> (u32, u64) {
        (self.lines[at / WORDS].0[at % WORDS], self.ready[at / WORDS][at % WORDS])
    }

    #[inline]
    fn set(&mut self, at: usize, line: u32, ready: u64) {
        self.lines[at / WORDS].0[at % WORDS] = line;
        self.ready[at / WORDS][at % WORDS] = ready;
    }

    /// Of those that will be there first, the first.
    #[inline]
    fn first(&self) -> (usize, u64) {
        let (mut first, mut least) = (0, NEVER);
        for (block, ready) in self.ready.iter().enumerate() {
            for (at, &ready) in ready.iter().enumerate() {
                let sooner = ready < least;
                first = select_unpredictable(sooner, block * WORDS + at, first);
                least = select_unpredictable(sooner, ready, least);
            }
        }
        (first, least)
    }

    /// Forgets one; the last takes its place.
    #[inline]
    fn remove(&mut self, at: usize) {
        self.count -= 1;
        let (line, ready) = self.get(self.count);
        self.set(at, line, ready);
        self.set(self.count, NO_LINE, NEVER);
    }

    /// Forgets those that are there; the others keep their order.
    #[inline(never)]
    fn forget(&mut self, now: u64) {
        let mut kept = 0;
        for at in 0..self.count {
            let (line, ready) = self.get(at);
            if ready > now {
                self.set(kept, line, ready);
                kept += 1;
            }
        }
        for at in kept..self.count {
            self.set(at, NO_LINE, NEVER);
        }
        self.count = kept;
    }
}

impl Clock {
    /// Forgets the lines on their way.
    pub(super) fn forget_fills(&mut self) {
        self.fills.clear();
    }

    /// When a line will be here; now if it is.
    #[inline]
    pub(super) fn ready(&mut self, line: u32) -> u64 {
        if self.fills.is_empty() {
            return self.now;
        }
        if self.fills_until <= self.now {
            self.fills.clear();
            return self.now;
        }
        self.fills.of(line).map_or(self.now, |ready| ready.max(self.now))
    }

    #[inline]
    pub(super) fn wait_for(&mut self, line: u32) {
        self.now = self.ready(line);
    }

    /// Waits until there is a line fill buffer for one more. The time by then.
    #[inline]
    pub(super) fn free_buffer(&mut self, buffers: usize) -> u64 {
        if self.fills.count >= buffers {
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
            self.fills.clear();
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
        for _ in 0..50_000 {
            let line = random.below(40) as u32;
            let found = plain.0.iter().find(|(other, _)| *other == line).map(|(_, ready)| *ready);
            assert_eq!(fills.of(line), found);
            match random.below(24) {
                0 => {
                    let now = random.below(1000) as u64;
                    fills.forget(now);
                    plain.0.retain(|(_, ready)| *ready > now);
                }
                1 => {
                    fills.clear();
                    plain.0.clear();
                }
                2..=7 if !plain.0.is_empty() => {
                    let (at, ready) = fills.first();
                    assert_eq!((at, ready), (plain.first(), plain.0[plain.first()].1));
                    fills.remove(at);
                    plain.0.swap_remove(at);
                }
                _ => {
                    let ready = random.below(1000) as u64;
                    fills.push(line, ready);
                    plain.0.push((line, ready));
                }
            }
            assert_eq!(fills.is_empty(), plain.0.is_empty());
        }
    }
}
