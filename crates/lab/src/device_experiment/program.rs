//! What a worker of a characterisation does, step by step.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{Domain, LINE_BYTES, XPLINE_BYTES};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::arena::{Partition, Pattern};

/// How bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Loads, each at the address that the one before it read: nothing overlaps.
    Chase,
    /// Loads of one word of each line, independent of each other.
    Load,
    /// Ordinary stores, left to the caches.
    Store,
    /// Ordinary stores, each line flushed once it is written.
    StoreFlush,
    /// Streaming (non-temporal) stores.
    Stream,
}

/// What one worker does, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// How.
    pub access: Access,
    /// In what order chunks are visited.
    pub pattern: Pattern,
    /// Bytes of adjacent lines that are visited together. A multiple of a line.
    pub chunk_bytes: usize,
    /// Whether a fence follows each chunk: a persist rather than a write.
    pub fenced: bool,
}

impl Task {
    /// Bytes from one chunk to the next. Chunks begin where media blocks do, if they are not
    /// smaller than those.
    fn stride_bytes(&self) -> usize {
        if self.chunk_bytes < XPLINE_BYTES {
            self.chunk_bytes.next_power_of_two()
        } else {
            self.chunk_bytes.next_multiple_of(XPLINE_BYTES)
        }
    }
}

/// How a machine wants programs to go about their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Bytes that one step does at most: workers that take turns do so after this many. At most
    /// [`Manner::MOST_SLICE_BYTES`].
    pub slice_bytes: usize,
    /// Independent loads to have under way, by prefetching, on a machine that does not overlap them
    /// by itself; 0 on one that does. At most [`Manner::MOST_LOADS`].
    pub loads_under_way: usize,
}

impl Manner {
    /// The longest step.
    pub const MOST_SLICE_BYTES: usize = 4096;
    /// The most loads under way.
    pub const MOST_LOADS: usize = 32;
}

/// Lines that were prefetched and have yet to be loaded, the oldest first.
#[derive(Debug)]
struct UnderWay {
    lines: [usize; Manner::MOST_LOADS],
    oldest: usize,
    count: usize,
}

/// A worker: a task on a partition of memory.
pub struct Program<'a, D> {
    domain: D,
    partition: Partition<'a>,
    task: Task,
    manner: Manner,
    random: SmallRng,
    /// Where the chunk lies that is being visited; of a chase, the next line.
    at: usize,
    /// Bytes of it that are done.
    done: usize,
    /// Keeps loads from being optimised away.
    sum: u64,
    under_way: UnderWay,
    source: [u8; Manner::MOST_SLICE_BYTES],
}

impl<'a, D: Domain> Program<'a, D> {
    /// A worker of `task` on `partition`.
    pub fn new(
        domain: D,
        mut partition: Partition<'a>,
        task: Task,
        manner: Manner,
        seed: u64,
    ) -> Self {
        if task.access == Access::Chase {
            partition.chain(task.pattern, seed);
        }
        let mut random = SmallRng::seed_from_u64(seed);
        // Workers that go through their partitions in order begin anywhere: otherwise all of them
        // would visit the same memory module at the same time, for ever.
        let at = match (task.access, task.pattern) {
            (Access::Chase, _) | (_, Pattern::Same | Pattern::Random) => 0,
            (_, Pattern::Sequential) => {
                let stride = task.stride_bytes();
                random.random_range(0..partition.bytes() / stride) * stride
            }
        };
        Self {
            domain,
            partition,
            task,
            manner: Manner {
                slice_bytes: manner.slice_bytes.min(Manner::MOST_SLICE_BYTES),
                loads_under_way: manner.loads_under_way.min(Manner::MOST_LOADS),
            },
            random,
            at,
            done: 0,
            sum: 0,
            under_way: UnderWay { lines: [0; Manner::MOST_LOADS], oldest: 0, count: 0 },
            source: [0x5A; Manner::MOST_SLICE_BYTES],
        }
    }

    /// Does a step. Returns the bytes that it read or wrote.
    #[inline]
    pub fn step(&mut self) -> usize {
        match self.task.access {
            Access::Chase => {
                self.at = self.load(self.at) as usize;
                return LINE_BYTES;
            }
            Access::Load => {
                let bytes = self.manner.slice_bytes.min(self.task.chunk_bytes);
                for _ in 0..bytes / LINE_BYTES {
                    self.load_next_line();
                }
                return bytes;
            }
            Access::Store | Access::StoreFlush | Access::Stream => {}
        }
        if self.done == 0 {
            self.next_chunk();
        }
        let (start, bytes) =
            (self.at + self.done, self.manner.slice_bytes.min(self.task.chunk_bytes - self.done));
        match self.task.access {
            Access::Chase | Access::Load => {}
            Access::Store => {
                for line in (start..start + bytes).step_by(LINE_BYTES) {
                    self.store_line(line);
                }
            }
            Access::StoreFlush => {
                for line in (start..start + bytes).step_by(LINE_BYTES) {
                    self.store_line(line);
                    // SAFETY: `at` has checked that the line is in the partition.
                    unsafe { self.domain.flush_line(self.partition.at(line, LINE_BYTES)) };
                }
            }
            Access::Stream => {
                let destination = self.partition.at(start, bytes);
                // SAFETY: `at` has checked that the bytes are in the partition, which this worker
                // has for itself.
                unsafe { self.domain.copy_nontemporal(destination, &self.source[..bytes]) };
            }
        }
        self.done += bytes;
        if self.done == self.task.chunk_bytes {
            self.done = 0;
            if self.task.fenced {
                self.domain.fence();
            }
        }
        bytes
    }

    /// Waits for what was written without a fence.
    pub fn finish(&mut self) {
        black_box(self.sum);
        if !matches!(self.task.access, Access::Chase | Access::Load) {
            self.domain.fence();
        }
    }

    /// Loads the line whose turn it is.
    #[inline(always)]
    fn load_next_line(&mut self) {
        let most = self.manner.loads_under_way;
        let line = if most == 0 {
            self.visit_line()
        } else {
            while self.under_way.count < most {
                let line = self.visit_line();
                self.domain.prefetch(self.partition.at(line, LINE_BYTES));
                let UnderWay { lines, oldest, count } = &mut self.under_way;
                lines[(*oldest + *count) % most] = line;
                *count += 1;
            }
            let UnderWay { lines, oldest, count } = &mut self.under_way;
            let line = lines[*oldest];
            *oldest = (*oldest + 1) % most;
            *count -= 1;
            line
        };
        self.sum = self.sum.wrapping_add(self.load(line));
    }

    /// The next line in the order of the task.
    #[inline(always)]
    fn visit_line(&mut self) -> usize {
        if self.done == 0 {
            self.next_chunk();
        }
        let line = self.at + self.done;
        self.done += LINE_BYTES;
        if self.done == self.task.chunk_bytes {
            self.done = 0;
        }
        line
    }

    fn next_chunk(&mut self) {
        let stride = self.task.stride_bytes();
        self.at = match self.task.pattern {
            Pattern::Same => 0,
            Pattern::Sequential => {
                let next = self.at + stride;
                if next + self.task.chunk_bytes <= self.partition.bytes() { next } else { 0 }
            }
            Pattern::Random => {
                self.random.random_range(0..self.partition.bytes() / stride) * stride
            }
        };
    }

    #[inline(always)]
    fn load(&self, offset: usize) -> u64 {
        let word = self.partition.at(offset, 8).cast::<u64>();
        // SAFETY: within the partition, aligned to eight bytes, and written by this worker alone.
        let word = unsafe { AtomicU64::from_ptr(word) };
        self.domain.load::<u64>(word, Ordering::Relaxed)
    }

    #[inline(always)]
    fn store_line(&self, offset: usize) {
        let destination = self.partition.at(offset, LINE_BYTES);
        // SAFETY: `at` has checked that the line is in the partition, which this worker has for
        // itself.
        unsafe { self.domain.copy(destination, &self.source[..LINE_BYTES]) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::Arena;
    use super::*;
    use lapis_device::{Config, Modelled};

    const LINES: Manner = Manner { slice_bytes: LINE_BYTES, loads_under_way: 0 };
    const BLOCKS: Manner = Manner { slice_bytes: 256, loads_under_way: 0 };

    const PERSIST: Task = Task {
        access: Access::StoreFlush,
        pattern: Pattern::Sequential,
        chunk_bytes: LINE_BYTES,
        fenced: true,
    };

    /// Runs `steps` steps of a task on the modelled machine and says what was counted.
    fn counted(task: Task, manner: Manner, steps: usize) -> (usize, lapis_device::Counts) {
        let mut arena = Arena::anonymous(1 << 20).unwrap();
        let domain = Modelled::over(arena.region(), Config::counting());
        let partition = arena.deal(1).pop().unwrap();
        let mut program = Program::new(domain.clone(), partition, task, manner, 1);
        let bytes = (0..steps).map(|_| program.step()).sum();
        drop(program);
        (bytes, domain.counts())
    }

    #[test]
    fn a_persist_is_a_flush_and_a_fence() {
        let (bytes, counts) = counted(PERSIST, LINES, 100);
        assert_eq!(bytes, 100 * LINE_BYTES);
        assert_eq!((counts.flushes, counts.fences), (100, 100));
    }

    #[test]
    fn a_chunk_is_done_in_slices_and_fenced_once() {
        let task = Task { chunk_bytes: 16 * 1024, pattern: Pattern::Random, ..PERSIST };
        let (bytes, counts) = counted(task, BLOCKS, 64);
        assert_eq!(bytes, 16 * 1024);
        assert_eq!((counts.flushes, counts.fences), (256, 1));
    }

    #[test]
    fn streaming_needs_no_flush() {
        let task = Task { access: Access::Stream, chunk_bytes: 256, ..PERSIST };
        let (bytes, counts) = counted(task, BLOCKS, 10);
        assert_eq!(bytes, 2560);
        assert_eq!((counts.flushes, counts.fences, counts.wpq_inserts()), (0, 10, 40));
    }

    #[test]
    fn the_same_line_is_the_same_line() {
        let task = Task { pattern: Pattern::Same, ..PERSIST };
        let mut arena = Arena::anonymous(1 << 16).unwrap();
        let domain = lapis_pmem::Hardware::detect();
        let partition = arena.deal(1).pop().unwrap();
        let mut program = Program::new(domain, partition, task, LINES, 1);
        for _ in 0..10 {
            program.step();
            assert_eq!(program.at, 0);
        }
    }

    #[test]
    fn loads_under_way_change_when_lines_come_and_not_which() {
        let task = Task { access: Access::Load, chunk_bytes: 256, fenced: false, ..PERSIST };
        let overlapping = Manner { loads_under_way: 10, ..BLOCKS };
        let run = |manner| {
            let mut arena = Arena::anonymous(1 << 20).unwrap();
            let domain = Modelled::over(arena.region(), Config::counting());
            let partition = arena.deal(1).pop().unwrap();
            let mut program = Program::new(domain.clone(), partition, task, manner, 1);
            (0..1000).for_each(|_| _ = program.step());
            (domain.counts().llc_misses, domain.now_ns(0))
        };
        let ((misses, ns), (overlapped_misses, overlapped_ns)) = (run(BLOCKS), run(overlapping));
        assert_eq!(misses, 4000);
        assert_eq!(overlapped_misses, misses + 9, "those that are still under way");
        assert!(overlapped_ns * 2 < ns, "{overlapped_ns} {ns}");
    }
}
