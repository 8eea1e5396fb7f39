//! What a structure tells a model of the machine, and asks it, that hardware has no use for.

use core::sync::atomic::{Ordering, fence};

use crate::dram_cell::DramWord;
use crate::lock_word::LockGeneration;
use crate::omission::Omission;
use crate::word::Word;

/// The hooks of a modelled machine. Their defaults are what hardware does: nothing, at no cost.
pub trait Observed {
    /// Whether two runs of the same program must do the same things in the same order. When set,
    /// the pool frees retired blocks at the moment the last guard is dropped instead of when the
    /// epoch happens to advance.
    const DETERMINISTIC: bool = false;

    /// What words of ordinary memory are that structures want observed ([`DramCell`](
    /// crate::DramCell)): on hardware [`PlainWord`](crate::PlainWord).
    type DramWord<W: Word>: DramWord<W, Self>
    where
        Self: Sized;

    /// Notes that `bytes` bytes at `source` are about to be read with plain loads.
    #[inline(always)]
    fn note_read(&self, _source: *const u8, _bytes: usize) {}

    /// Notes that the next access to the word at `at` is by a
    /// [`GenerationLock`](crate::GenerationLock), to which only the [`LockWord::meaning`](
    /// crate::LockWord::meaning) of the word matters. Whoever explores crashes need not tell apart
    /// what a lock does not.
    #[inline(always)]
    fn note_lock(&self, _at: *const u8) {}

    /// Notes that a pool was opened, and in which generation its locks are from here on.
    #[inline(always)]
    fn note_generation(&self, _generation: LockGeneration) {}

    /// Notes that the region's storage has grown to `bytes`, and whether a power cut leaves it so long.
    #[inline(always)]
    fn note_storage(&self, _bytes: usize, _is_durable: bool) {}

    /// Says that `bytes` of a structure's volatile part are read, from `offset_bytes` on in an arena
    /// that the structure numbers for itself, the same on every run. A modelled machine sends it
    /// through its caches as a read of ordinary memory, so that volatile inner nodes have their
    /// misses too.
    #[inline(always)]
    fn touch_dram(&self, _offset_bytes: usize, _bytes: usize) {}

    /// Says that they are asked for ([`Domain::prefetch`](crate::Domain::prefetch)), and not waited for.
    #[inline(always)]
    fn prefetch_dram(&self, _offset_bytes: usize, _bytes: usize) {}

    /// Whether anything comes of [`Domain::prefetch`](crate::Domain::prefetch), so that finding out
    /// what to name is worth it.
    #[inline(always)]
    fn prefetches(&self) -> bool {
        true
    }

    /// The logical worker that the calling thread acts as, where a deterministic machine knows it.
    /// What is kept by thread on hardware is kept by worker then, so that which thread runs a
    /// program, and what ran in the process before, changes nothing.
    #[inline(always)]
    fn worker(&self) -> Option<usize> {
        None
    }

    /// What a thread does once in every turn of a loop in which it waits for another. On a machine
    /// that runs one worker at a time this gives the turn to another.
    #[inline(always)]
    fn pause(&self) {
        core::hint::spin_loop();
    }

    /// Orders this thread's accesses to memory, of whatever kind, as the language's fence does.
    #[inline(always)]
    fn order(&self, order: Ordering) {
        fence(order);
    }

    /// Says that a lock or counter in the host's memory is about to be taken or given back, which
    /// orders as a locked instruction does. On hardware the instruction itself is there; on a
    /// modelled machine with store buffers, which does not see it, the worker's stores become
    /// visible first.
    #[inline(always)]
    fn synchronize(&self) {}

    /// Says that every thread is about to pass a full barrier, before this returns. On hardware that is
    /// done beside this; on a modelled machine with store buffers, the stores of all workers become
    /// visible.
    #[inline(always)]
    fn synchronize_all(&self) {}

    /// Says that something has happened that does not happen in every run: a node was split, a table grew, a
    /// recovery has found something to repair. The same words wherever it is the same. A modelled machine
    /// counts it, and whoever explores crashes knows what has never happened: the words are found in the
    /// source, so they stand in the call.
    #[inline(always)]
    fn happens(&self, _event: &'static str) {}

    /// Whether to commit a known error on purpose. Structures ask this where a published
    /// implementation went wrong, and so carry its mutant with them; the answer of hardware is a
    /// constant, which removes both the question and the mutant from the program.
    #[inline(always)]
    fn commits(&self, _mutant: Mutant) -> bool {
        false
    }

    /// Bytes of padding that a layout is to have where the study of write amplification found some that nobody
    /// had intended: its *bloat*, without [`Optimisation::RemovalOfBloat`](crate::Optimisation::RemovalOfBloat).
    /// On hardware none, a constant.
    #[inline(always)]
    fn padding_bytes(&self) -> usize {
        0
    }

    /// Leaves out flushes and fences until what is returned is dropped, if `mutant` is to be
    /// [committed](Observed::commits); else nothing, at no cost.
    #[inline(always)]
    fn omitting(&self, mutant: Mutant) -> Omission {
        Omission::if_committed(self.commits(mutant))
    }
}

/// The name of a switchable error, `STRUCTURE/WHAT-IS-WRONG` in lower case with dashes. See
/// [`Observed::commits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mutant(pub &'static str);
