//! The lines that each worker has flushed last.

/// So many of each worker's. Most operations flush fewer, so some are of operations before; all would still be in a
/// cache had they not been flushed.
const LINES: usize = 8;
/// No line.
const NONE: u32 = u32::MAX;

/// The lines that each worker has flushed last.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFlushed {
    of_worker: Vec<Ring>,
}

#[derive(Clone, Debug)]
struct Ring {
    lines: [u32; LINES],
    next: usize,
}

impl LastFlushed {
    /// A worker flushes a line.
    #[inline]
    pub(crate) fn push(&mut self, worker: u8, line: u32) {
        let worker = usize::from(worker);
        if worker >= self.of_worker.len() {
            self.grow(worker);
        }
        let ring = &mut self.of_worker[worker];
        ring.lines[ring.next] = line;
        ring.next = (ring.next + 1) % LINES;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, worker: usize) {
        self.of_worker.resize(worker + 1, Ring { lines: [NONE; LINES], next: 0 });
    }

    /// Whether a line is among those that a worker has flushed last.
    #[inline]
    pub(crate) fn holds(&self, worker: u8, line: u32) -> bool {
        let ring = self.of_worker.get(usize::from(worker));
        ring.is_some_and(|ring| ring.lines.contains(&line))
    }
}
