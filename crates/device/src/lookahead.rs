//! Events that wait a moment, so that the host's memory accesses for several of them overlap.
//!
//! A far access (module `hierarchy`) needs tags that the host's caches do not hold. While the host
//! fetches them, the events that follow are taken in; each is done when [`DEPTH`] others have come.
//! They are done in the order in which they came, and before anybody looks at a count or a clock, so
//! nothing but the model's own speed depends on it. When a run of near events is as long as the
//! queue, none is left to be fetched for, and the queue empties: what the caches answer is done at
//! once.

use crate::counters::Access;

/// Events that wait at most.
pub(crate) const DEPTH: usize = 16;

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An access to a line.
    Access(Access),
    /// A flush of a line.
    Flush,
    /// A fence; its line means nothing.
    Fence,
}

/// An event of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) line: u32,
    pub(crate) worker: u8,
    pub(crate) what: What,
}

/// The events that wait, in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct Lookahead {
    events: [Waiting; DEPTH],
    oldest: usize,
    count: usize,
    /// Near events that came last, one after the other.
    near: usize,
}

impl Lookahead {
    pub(crate) fn new() -> Self {
        let none = Waiting { line: 0, worker: 0, what: What::Fence };
        Self { events: [none; DEPTH], oldest: 0, count: 0, near: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes an event in. What comes back has to be done now: if the queue was full, the oldest one.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Waiting, near: bool) -> Option<Waiting> {
        self.near = if near { self.near + 1 } else { 0 };
        if self.count == DEPTH {
            // The newest takes the place of the oldest.
            let oldest = std::mem::replace(&mut self.events[self.oldest % DEPTH], event);
            self.oldest = (self.oldest + 1) % DEPTH;
            return Some(oldest);
        }
        self.events[(self.oldest + self.count) % DEPTH] = event;
        self.count += 1;
        None
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
        self.oldest = (self.oldest + 1) % DEPTH;
        self.count -= 1;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: u32) -> Waiting {
        Waiting { line, worker: 3, what: What::Flush }
    }

    #[test]
    fn events_come_back_in_the_order_in_which_they_went_in() {
        let mut queue = Lookahead::new();
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
    fn a_run_of_near_events_as_long_as_the_queue_ends_the_wait() {
        let mut queue = Lookahead::new();
        for line in 0..DEPTH as u32 {
            assert!(!queue.is_done_waiting());
            queue.push(event(line), true);
        }
        assert!(queue.is_done_waiting());
        queue.push(event(0), false);
        assert!(!queue.is_done_waiting());
    }
}
