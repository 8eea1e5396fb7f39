//! Events that wait a moment, so that the host's memory accesses for several of them overlap.
//!
//! An access that the private caches of a worker do not answer needs tags of L3 that the host's
//! caches do not hold. While the host fetches them, the events that follow are taken in; each is
//! done when [`DEPTH`] others have come. They are done in the order in which they came, and before
//! anybody looks at a count or a clock, so nothing but the model's own speed depends on it. When a
//! run of near events is as long as the queue, none is left to be fetched for, and the queue
//! empties: what the caches answer is done at once.
//!
//! Of an only worker's event the part that concerns its private caches is done when it comes
//! (nothing else changes them, and they are in the host's caches); what waits is the rest. One thing
//! the private caches cannot know until then: whether a line that was read came out of L3 dirty
//! ([`WaitingEvents::is_unsettled`], [`WaitingEvents::soil_cast_out`]).

use crate::counting::access::Access;
use crate::counting::cache::Tag;
use crate::counting::host_processor::{Words, equal_words};

/// Events that wait at most.
pub(crate) const DEPTH: usize = 16;

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An access to a line, all of it.
    Access,
    /// An access that L1 has answered.
    FromL1,
    /// An access that L2 has answered.
    FromL2,
    /// The rest of an access to a line that is in the private caches now and was not before.
    FromBeyond,
    /// A flush of a line, all of it.
    Flush,
    /// The rest of a flush of a line that was dirty in the private caches.
    FlushOfDirty,
    /// The rest of a flush of a line that was clean in the private caches.
    FlushOfClean,
    /// The rest of a flush of a line that was not in the private caches.
    FlushBeyond,
    /// A fence; its line means nothing.
    Fence,
}

/// An event of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) line: u32,
    /// What the private caches cast out.
    pub(crate) cast_out: Tag,
    pub(crate) worker: u8,
    pub(crate) what: What,
    /// Of what is no access it means nothing.
    pub(crate) access: Access,
}

impl Waiting {
    /// In places where none waits.
    const NOTHING: Self =
        Self { line: 0, cast_out: Tag::NONE, worker: 0, what: What::Fence, access: Access::LOAD };
}

/// The events that wait, in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct WaitingEvents {
    events: [Waiting; DEPTH],
    /// The lines that were read from beyond, by place: these are searched.
    read: Words,
    oldest: usize,
    count: usize,
    /// Near events that came last, one after the other.
    near: usize,
    /// A bit for each place where a line waits that was read from beyond.
    unsettled: u32,
}

impl WaitingEvents {
    pub(crate) fn new() -> Self {
        Self {
            events: [Waiting::NOTHING; DEPTH],
            read: Words([0; DEPTH]),
            oldest: 0,
            count: 0,
            near: 0,
            unsettled: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the private caches do not know yet if this line, which they hold, is dirty.
    #[inline(always)]
    pub(crate) fn is_unsettled(&self, line: u32) -> bool {
        self.unsettled != 0 && equal_words(&self.read.0, u32::MAX, line) & self.unsettled != 0
    }

    /// A line turns out to be dirty. If an event that waits has cast it out, it leaves dirty.
    pub(crate) fn soil_cast_out(&mut self, line: u32) -> bool {
        let places = (self.oldest..self.oldest + self.count).map(|at| at % DEPTH);
        let first = places.into_iter().find(|&at| self.events[at].cast_out.line() == Some(line));
        if let Some(place) = first {
            self.events[place].cast_out = Tag::of(line, true);
        }
        first.is_some()
    }

    /// Takes an event in. What comes back has to be done now: if the queue was full, the oldest one.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Waiting, near: bool) -> Option<Waiting> {
        // Fewer stores: those of the model wait behind the program's own, which wait for memory.
        if near {
            self.near += 1;
        } else if self.near != 0 {
            self.near = 0;
        }
        let place = (self.oldest + self.count) % DEPTH;
        // If it is full, the newest takes the place of the oldest.
        let oldest = (self.count == DEPTH).then_some(self.events[place]);
        self.events[place] = event;
        if event.what == What::FromBeyond && !event.access.writes() {
            self.read.0[place] = event.line;
            self.unsettled |= 1 << place;
        } else if self.unsettled != 0 {
            self.unsettled &= !(1 << place);
        }
        if oldest.is_some() {
            self.oldest = (self.oldest + 1) % DEPTH;
        } else {
            self.count += 1;
        }
        oldest
    }

    /// Whether nothing is gained by waiting any longer.
    #[inline(always)]
    pub(crate) fn is_done_waiting(&self) -> bool {
        self.near >= DEPTH
    }

    /// The oldest event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        if self.count == 0 {
            return None;
        }
        let oldest = self.events[self.oldest % DEPTH];
        self.unsettled &= !(1 << self.oldest);
        self.oldest = (self.oldest + 1) % DEPTH;
        self.count -= 1;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: u32) -> Waiting {
        let (cast_out, what) = (Tag::NONE, What::FlushOfClean);
        Waiting { line, cast_out, worker: 3, what, access: Access::LOAD }
    }

    #[test]
    fn events_come_back_in_the_order_in_which_they_went_in() {
        let mut queue = WaitingEvents::new();
        let mut back = Vec::new();
        for line in 0..100 {
            back.extend(queue.push(event(line), false));
            if line == 40 {
                back.extend(queue.pop());
            }
        }
        assert_eq!(back.len(), 100 - DEPTH);
        back.extend(std::iter::from_fn(|| queue.pop()));
        assert_eq!(back, (0..100).map(event).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    #[test]
    fn a_line_is_unsettled_while_a_read_of_it_from_beyond_waits() {
        let mut queue = WaitingEvents::new();
        let beyond = |line, access| Waiting { what: What::FromBeyond, access, ..event(line) };
        queue.push(beyond(1, Access::LOAD), false);
        queue.push(beyond(2, Access::STORE), false);
        queue.push(event(3), true);
        assert_eq!([0, 1, 2, 3].map(|line| queue.is_unsettled(line)), [false, true, false, false]);
        queue.pop();
        assert!(!queue.is_unsettled(1));
        for line in 10..100 {
            queue.push(beyond(line, Access::LOAD), false);
            let waits = |at: &u32| *at >= 10 && *at + DEPTH as u32 > line && *at <= line;
            assert!((0..110).all(|at| queue.is_unsettled(at) == waits(&at)));
        }
    }

    #[test]
    fn a_line_that_was_cast_out_meanwhile_leaves_dirty_the_first_time() {
        let mut queue = WaitingEvents::new();
        let casting_out = |line| Waiting { cast_out: Tag::of(line, false), ..event(0) };
        for line in [5, 6, 5] {
            queue.push(casting_out(line), false);
        }
        assert!(queue.soil_cast_out(5) && !queue.soil_cast_out(7));
        let left = std::iter::from_fn(|| queue.pop()).map(|event| event.cast_out);
        assert_eq!(
            left.collect::<Vec<_>>(),
            [Tag::of(5, true), Tag::of(6, false), Tag::of(5, false)]
        );
    }

    #[test]
    fn a_run_of_near_events_as_long_as_the_queue_ends_the_wait() {
        let mut queue = WaitingEvents::new();
        for line in 0..DEPTH as u32 {
            assert!(!queue.is_done_waiting());
            queue.push(event(line), true);
        }
        assert!(queue.is_done_waiting());
        queue.push(event(0), false);
        assert!(!queue.is_done_waiting());
    }
}
