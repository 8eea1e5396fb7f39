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

/// A worker: a task on a partition of memory.
pub struct Program<'a, D> {
    domain: D,
    partition: Partition<'a>,
    task: Task,
    /// Bytes that one step does at most: workers that take turns do so after this many.
    slice_bytes: usize,
    random: SmallRng,
    /// Where the chunk lies that is being visited; of a chase, the next line.
    at: usize,
    /// Bytes of it that are done.
    done: usize,
    /// Keeps loads from being optimised away.
    sum: u64,
    source: Box<[u8]>,
}

impl<'a, D: Domain> Program<'a, D> {
    /// A worker of `task` on `partition`.
    pub fn new(
        domain: D,
        mut partition: Partition<'a>,
        task: Task,
        slice_bytes: usize,
        seed: u64,
    ) -> Self {
        if task.access == Access::Chase {
            partition.chain(task.pattern, seed);
        }
        Self {
            domain,
            partition,
            task,
            slice_bytes,
            random: SmallRng::seed_from_u64(seed),
            at: 0,
            done: 0,
            sum: 0,
            source: vec![0x5A; slice_bytes].into_boxed_slice(),
        }
    }

    /// Does a step. Returns the bytes that it read or wrote.
    #[inline]
    pub fn step(&mut self) -> usize {
        if self.task.access == Access::Chase {
            self.at = self.load(self.at) as usize;
            return LINE_BYTES;
        }
        if self.done == 0 {
            self.next_chunk();
        }
        let (start, bytes) =
            (self.at + self.done, self.slice_bytes.min(self.task.chunk_bytes - self.done));
        match self.task.access {
            Access::Chase | Access::Load => {
                for line in (start..start + bytes).step_by(LINE_BYTES) {
                    self.sum = self.sum.wrapping_add(self.load(line));
                }
            }
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

    const PERSIST: Task = Task {
        access: Access::StoreFlush,
        pattern: Pattern::Sequential,
        chunk_bytes: LINE_BYTES,
        fenced: true,
    };

    /// Runs `steps` steps of a task on the modelled machine and says what was counted.
    fn counted(task: Task, slice_bytes: usize, steps: usize) -> (usize, lapis_device::Counts) {
        let mut arena = Arena::anonymous(1 << 20).unwrap();
        let domain = Modelled::over(arena.region(), Config::counting());
        let partition = arena.deal(1).pop().unwrap();
        let mut program = Program::new(domain.clone(), partition, task, slice_bytes, 1);
        let bytes = (0..steps).map(|_| program.step()).sum();
        drop(program);
        (bytes, domain.counts())
    }

    #[test]
    fn a_persist_is_a_flush_and_a_fence() {
        let (bytes, counts) = counted(PERSIST, LINE_BYTES, 100);
        assert_eq!(bytes, 100 * LINE_BYTES);
        assert_eq!((counts.flushes, counts.fences), (100, 100));
    }

    #[test]
    fn a_chunk_is_done_in_slices_and_fenced_once() {
        let task = Task { chunk_bytes: 16 * 1024, pattern: Pattern::Random, ..PERSIST };
        let (bytes, counts) = counted(task, 256, 64);
        assert_eq!(bytes, 16 * 1024);
        assert_eq!((counts.flushes, counts.fences), (256, 1));
    }

    #[test]
    fn streaming_needs_no_flush() {
        let task = Task { access: Access::Stream, chunk_bytes: 256, ..PERSIST };
        let (bytes, counts) = counted(task, 256, 10);
        assert_eq!(bytes, 2560);
        assert_eq!((counts.flushes, counts.fences, counts.wpq_inserts()), (0, 10, 40));
    }

    #[test]
    fn the_same_line_is_the_same_line() {
        let task = Task { pattern: Pattern::Same, ..PERSIST };
        let mut arena = Arena::anonymous(1 << 16).unwrap();
        let domain = lapis_pmem::Hardware::detect();
        let partition = arena.deal(1).pop().unwrap();
        let mut program = Program::new(domain, partition, task, LINE_BYTES, 1);
        for _ in 0..10 {
            program.step();
            assert_eq!(program.at, 0);
        }
    }
}
