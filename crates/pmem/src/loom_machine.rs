//! A machine of loom's atomics: locks and epochs run on it through interleavings, as many as loom is told to, and through orders of
//! loads and stores that the language allows. With `--cfg loom` only.
//!
//! A word of ordinary memory is one of loom's atomics. A word of persistent memory is the processor's atomic, wherever
//! it lies; it has one of loom's beside it, by its address. Bytes that are not words are not looked at, and nothing is
//! durable.

use core::fmt;
use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use loom::sync::atomic;

use crate::domain::{Domain, DomainFault};
use crate::dram_cell::DramWord;
use crate::observed::{Mutant, Observed};
use crate::word::Word;

/// Where any other thread may run before this one goes on.
///
/// Of the loads of an atomic loom remembers only the last. When a thread that has just loaded a word stores to it, what
/// others loaded before is forgotten, and the order in which the store comes first is never run (tokio-rs/loom #392).
/// Attempts at a lock are all remembered, and one that fails orders nothing.
#[derive(Debug)]
struct Gate(loom::sync::Mutex<()>);

impl Gate {
    fn new() -> Self {
        let never_free = loom::sync::Mutex::new(());
        std::mem::forget(never_free.lock());
        Self(never_free)
    }

    fn pass(&self) {
        assert!(self.0.try_lock().is_err());
    }
}

loom::lazy_static! {
    static ref FENCES: Gate = Gate::new();
}

/// The language's fence.
pub fn loom_fence(order: Ordering) {
    if order == Ordering::SeqCst {
        FENCES.pass();
    }
    atomic::fence(order);
}

/// One of loom's atomics. Every access goes through `deref`, and any other thread may run before it. To be made before there are
/// several.
#[derive(Debug)]
pub struct LoomAtomic<A> {
    gate: Gate,
    atomic: A,
}

impl<A> LoomAtomic<A> {
    fn of(atomic: A) -> Self {
        // It is made here, lest the first fence of one thread come before the first one of another.
        let _ = &*FENCES;
        Self { gate: Gate::new(), atomic }
    }
}

impl LoomAtomic<atomic::AtomicU64> {
    /// A word that nobody knows of yet.
    pub fn new(value: u64) -> Self {
        Self::of(atomic::AtomicU64::new(value))
    }
}

impl LoomAtomic<atomic::AtomicBool> {
    /// A word that nobody knows of yet.
    pub fn new(value: bool) -> Self {
        Self::of(atomic::AtomicBool::new(value))
    }
}

impl<A> Deref for LoomAtomic<A> {
    type Target = A;

    fn deref(&self) -> &A {
        self.gate.pass();
        &self.atomic
    }
}

/// See the [module documentation](self). To be made within a model.
#[derive(Clone, Default)]
pub struct LoomMachine {
    words: Arc<Mutex<HashMap<usize, Arc<LoomAtomic<atomic::AtomicU64>>>>>,
    committed: Option<Mutant>,
    ignores_fences: bool,
}

impl LoomMachine {
    /// One on which fences that order memory do nothing.
    pub fn without_fences() -> Self {
        Self { ignores_fences: true, ..Self::default() }
    }

    /// One on which the error is committed.
    pub fn committing(mutant: Mutant) -> Self {
        Self { committed: Some(mutant), ..Self::default() }
    }

    /// Loom's twin of a word. It begins with what the word holds.
    fn twin<W: Word>(&self, at: &W::Atomic) -> Arc<LoomAtomic<atomic::AtomicU64>> {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(LoomAtomic::<atomic::AtomicU64>::new(W::load(at, Ordering::Relaxed).widen()))
        };
        Arc::clone(words.entry((&raw const *at).addr()).or_insert_with(new))
    }
}

impl fmt::Debug for LoomMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoomMachine")
    }
}

/// A word of ordinary memory.
#[derive(Debug)]
pub struct LoomWord(LoomAtomic<atomic::AtomicU64>);

fn swap<W: Word>(word: &atomic::AtomicU64, value: W) -> W {
    W::narrow(word.swap(value.widen(), Ordering::AcqRel))
}

fn compare_exchange<W: Word>(word: &atomic::AtomicU64, current: W, new: W) -> Result<W, W> {
    let (current, new) = (current.widen(), new.widen());
    word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
        .map(W::narrow)
        .map_err(W::narrow)
}

impl<W: Word> DramWord<W, LoomMachine> for LoomWord {
    fn new(value: W) -> Self {
        Self(LoomAtomic::<atomic::AtomicU64>::new(value.widen()))
    }
    fn load(&self, _machine: &LoomMachine, order: Ordering) -> W {
        W::narrow(self.0.load(order))
    }
    fn store(&self, _machine: &LoomMachine, value: W, order: Ordering) {
        self.0.store(value.widen(), order);
    }
    fn swap(&self, _machine: &LoomMachine, value: W) -> W {
        swap(&self.0, value)
    }
    fn compare_exchange(&self, _machine: &LoomMachine, current: W, new: W) -> Result<W, W> {
        compare_exchange(&self.0, current, new)
    }
}

impl Observed for LoomMachine {
    const DETERMINISTIC: bool = true;
    type DramWord<W: Word> = LoomWord;

    fn pause(&self) {
        loom::thread::yield_now();
    }
    fn order(&self, order: Ordering) {
        if !self.ignores_fences {
            loom_fence(order);
        }
    }
    /// What is left of a barrier in every thread, where each of them has a fence of its own.
    fn synchronize_all(&self) {
        loom_fence(Ordering::SeqCst);
    }
    fn commits(&self, mutant: Mutant) -> bool {
        self.committed == Some(mutant)
    }
}

impl Domain for LoomMachine {
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        W::narrow(self.twin::<W>(at).load(order))
    }
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        self.twin::<W>(at).store(value.widen(), order);
    }
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        swap(&self.twin::<W>(at), value)
    }
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        compare_exchange(&self.twin::<W>(at), current, new)
    }
    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { destination.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
    }
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { self.copy(destination, source) };
    }
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        // SAFETY: as the caller vouches.
        unsafe { destination.write_bytes(0, bytes) };
    }
    unsafe fn flush_range(&self, _start: *const u8, _bytes: usize) {}
    fn fence(&self) {}
    fn prefetch(&self, _at: *const u8) {}
    fn health(&self) -> Result<(), DomainFault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use loom::thread;

    use super::*;
    use crate::DramCell;

    /// What a reader finds, at any time, in a word that another thread loads and stores to.
    fn found(looks: fn(&LoomMachine, &DramCell<u64, LoomMachine>) -> u64) -> BTreeSet<u64> {
        let found = Arc::new(Mutex::new(BTreeSet::new()));
        let all = Arc::clone(&found);
        loom::model(move || {
            let machine = LoomMachine::default();
            let word = Arc::new(DramCell::new(0));
            let writer = thread::spawn({
                let (machine, word) = (machine.clone(), Arc::clone(&word));
                move || (0..2).for_each(|_| word.store(&machine, word.load(&machine) + 1))
            });
            let one = looks(&machine, &word);
            writer.join().unwrap();
            all.lock().unwrap().insert(one);
        });
        Arc::into_inner(found).unwrap().into_inner().unwrap()
    }

    #[test]
    fn a_load_is_run_before_and_after_each_store_of_a_thread_that_loads_too() {
        assert_eq!(found(|machine, word| word.load(machine)), BTreeSet::from([0, 1, 2]));
        let twice = found(|machine, word| word.load(machine) * 10 + word.load(machine));
        assert_eq!(twice, BTreeSet::from([0, 1, 2, 11, 12, 22]));
    }
}
