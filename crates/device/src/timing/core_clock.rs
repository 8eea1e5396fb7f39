//! One worker: its clock, the lines on their way to it, and when what it wrote leaves.

/// Lines, and when they will be there. Apart, so that a search is one sweep over few words.
#[derive(Clone, Debug, Default)]
struct Fills {
    lines: Vec<u32>,
    ready: Vec<u64>,
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
    fn clear(&mut self) {
        self.lines.clear();
        self.ready.clear();
    }

    /// When a line will be there, the first of its name.
    #[inline]
    fn of(&self, line: u32) -> Option<u64> {
        let found = self.lines.iter().position(|&other| other == line);
        found.map(|at| self.ready[at])
    }

    fn push(&mut self, line: u32, ready: u64) {
        self.lines.push(line);
        self.ready.push(ready);
    }

    /// Of those that will be there first, the first.
    #[inline]
    fn first(&self) -> (usize, u64) {
        let (mut first, mut least) = (0, u64::MAX);
        for (at, &ready) in self.ready.iter().enumerate() {
            if ready < least {
                (first, least) = (at, ready);
            }
        }
        (first, least)
    }

    /// Forgets those that are there; the others keep their order.
    fn forget(&mut self, now: u64) {
        let mut kept = 0;
        for at in 0..self.lines.len() {
            if self.ready[at] > now {
                (self.lines[kept], self.ready[kept]) = (self.lines[at], self.ready[at]);
                kept += 1;
            }
        }
        self.lines.truncate(kept);
        self.ready.truncate(kept);
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
        if self.fills.lines.is_empty() {
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
    pub(super) fn free_buffer(&mut self, buffers: usize) -> u64 {
        if self.fills.lines.len() >= buffers {
            let (at, ready) = self.fills.first();
            if ready <= self.now {
                self.fills.forget(self.now);
            } else {
                self.fills.lines.swap_remove(at);
                self.fills.ready.swap_remove(at);
                self.now = ready;
            }
        }
        self.now
    }

    pub(super) fn expect(&mut self, line: u32, ready: u64) {
        if self.fills_until <= self.now {
            self.fills.clear();
        }
        self.fills.push(line, ready);
        self.fills_until = self.fills_until.max(ready);
    }
}
