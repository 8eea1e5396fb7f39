//! What does one thing at a time, and is asked in another order than the times it is asked for.
//!
//! Workers are simulated an operation at a time. An operation that waits three times in a row for a module asks
//! it for three times far apart, and then comes the operation of another worker, which began with the first. It
//! must find the module idle where it was.

/// When something is busy. It remembers `SPANS` idle spans before the end of what it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Timeline<const SPANS: usize> {
    free_at: u64,
    idle: [(u64, u64); SPANS],
    next: usize,
}

impl<const SPANS: usize> Timeline<SPANS> {
    pub(super) fn new() -> Self {
        Self { free_at: 0, idle: [(0, 0); SPANS], next: 0 }
    }

    /// When it will have done all that it was asked for.
    #[inline]
    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// The idle span in which something could begin at `earliest` that takes so long.
    #[inline]
    fn fits(&self, earliest: u64, takes: u64) -> Option<usize> {
        if earliest >= self.free_at {
            return None;
        }
        self.idle.iter().position(|idle| earliest.max(idle.0) + takes <= idle.1)
    }

    /// When something could begin that takes so long.
    #[inline]
    pub(super) fn could_begin(&self, earliest: u64, takes: u64) -> u64 {
        match self.fits(earliest, takes) {
            Some(at) => earliest.max(self.idle[at].0),
            None => earliest.max(self.free_at),
        }
    }

    /// Something begins that takes so long, at `earliest` or as soon as there is time. When.
    #[inline]
    pub(super) fn begin(&mut self, earliest: u64, takes: u64) -> u64 {
        if let Some(at) = self.fits(earliest, takes) {
            let idle = &mut self.idle[at];
            let begins = earliest.max(idle.0);
            idle.0 = begins + takes;
            return begins;
        }
        let begins = earliest.max(self.free_at);
        if begins > self.free_at {
            self.idle[self.next] = (self.free_at, begins);
            self.next = (self.next + 1) % SPANS;
        }
        self.free_at = begins + takes;
        begins
    }

    /// Does nothing for a span.
    pub(super) fn stall(&mut self, span: u64) {
        self.free_at += span;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_later_and_comes_earlier_takes_an_idle_span() {
        let mut line = Timeline::<2>::new();
        assert_eq!([100, 300].map(|earliest| line.begin(earliest, 40)), [100, 300]);
        // In the span after the first, in what is left of it, and where nothing is left.
        assert_eq!(line.could_begin(110, 100), 140);
        assert_eq!(
            [110, 110, 0, 200].map(|earliest| line.begin(earliest, 100)),
            [140, 340, 0, 440]
        );
    }
}
