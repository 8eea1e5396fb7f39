//! Pairs of functions that do the same: one with the types of this crate, one by hand with raw
//! pointers and inline assembly. They are what "the types cost nothing" is measured on.
//!
//! The hand-written side has what it would have in a program of its own that runs on the same media:
//! the base address and the flush method found at start, chosen among at each flush; a file that is
//! synchronised instead, if there is one; a block is an offset, an address and a length. It has no
//! ownership and no states.

#![cfg(target_arch = "x86_64")]

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{
    Committed, Dirty, Durable, FlushMethod, Hardware, Link, Owned, PCell, Pool, Slot, persistent,
};

persistent! {
    /// A node of one line.
    pub struct Node: 64 {
        /// What it holds.
        pub value: PCell<u64>,
        /// The node after it.
        pub next: Slot<Node>,
        /// More of the same.
        pub rest: [PCell<u64>; 6],
    }
}

/// The machine of the hand-written side.
pub struct ByHand {
    /// The file to be synchronised at each fence, or null.
    file: *const (),
    method: FlushMethod,
    base: *mut u8,
}

/// A block of the hand-written side: a node and a tail of some length.
pub struct RawBlock<'a> {
    machine: &'a ByHand,
    offset: u64,
    start: *mut u8,
    tail_bytes: usize,
}

impl ByHand {
    /// The same memory and the same instruction as a pool's.
    pub fn of(pool: &Pool<Hardware>) -> Self {
        let (method, base) = (pool.domain().method(), pool.region().base());
        Self { file: std::ptr::null(), method, base }
    }

    /// A block of the pool, by its offset.
    pub fn block(&self, offset: u64) -> RawBlock<'_> {
        let start = self.base.wrapping_add(offset as usize);
        RawBlock { machine: self, offset, start, tail_bytes: 0 }
    }

    /// Flushes the lines of a range.
    ///
    /// # Safety
    /// The range must be mapped.
    #[inline(always)]
    pub unsafe fn flush_lines(&self, start: *const u8, bytes: usize) {
        macro_rules! each_line {
            ($instruction:literal) => {{
                let mut line = start as usize & !63;
                while line < start as usize + bytes {
                    // SAFETY: the caller vouches for the range.
                    unsafe {
                        asm!($instruction, in(reg) line, options(nostack, preserves_flags));
                    }
                    line += 64;
                }
            }};
        }
        match self.method {
            FlushMethod::Clwb => each_line!("clwb [{}]"),
            FlushMethod::ClflushOpt => each_line!("clflushopt [{}]"),
            FlushMethod::Clflush => each_line!("clflush [{}]"),
            _ if !self.file.is_null() => note(self.file, start, bytes),
            _ => {}
        }
    }

    /// Flushes the line of one word and fences.
    #[inline(always)]
    unsafe fn persist_word(&self, word: *const AtomicU64) {
        macro_rules! line {
            ($instruction:literal) => {
                // SAFETY: the caller vouches for the word.
                unsafe {
                    asm!($instruction, in(reg) word, options(nostack, preserves_flags));
                    asm!("sfence", options(nostack, preserves_flags));
                }
            };
        }
        match self.method {
            FlushMethod::Clwb => line!("clwb [{}]"),
            FlushMethod::ClflushOpt => line!("clflushopt [{}]"),
            FlushMethod::Clflush => line!("clflush [{}]"),
            _ if !self.file.is_null() => persist(self.file, word),
            _ => self.fence(),
        }
    }

    /// Fences.
    #[inline(always)]
    pub fn fence(&self) {
        if (self.method as u8) < FlushMethod::PageCacheNone as u8 {
            // SAFETY: `sfence` has no operands.
            unsafe { asm!("sfence", options(nostack, preserves_flags)) }
        } else if !self.file.is_null() {
            complete(self.file);
        }
    }
}

#[cold]
#[inline(never)]
extern "C" fn note(file: *const (), start: *const u8, bytes: usize) {
    std::hint::black_box((file, start, bytes));
}

#[cold]
#[inline(never)]
extern "C" fn complete(file: *const ()) {
    std::hint::black_box(file);
}

#[cold]
#[inline(never)]
extern "C" fn persist(file: *const (), word: *const AtomicU64) {
    std::hint::black_box((file, word));
}

/// Sets a bit of a word and persists the word, with types.
#[inline(never)]
#[unsafe(no_mangle)]
pub fn bitmap_commit_typed(domain: &Hardware, word: &PCell<u64>, bit: u64) -> Committed {
    let taken = word.load(domain);
    word.publish(domain, taken | bit).persist()
}

/// Sets a bit of a word and persists the word, by hand.
///
/// # Safety
/// `word` must be a valid word.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe fn bitmap_commit_by_hand(machine: &ByHand, word: *const AtomicU64, bit: u64) {
    // SAFETY: as the caller vouches.
    unsafe {
        let taken = (*word).load(Ordering::Relaxed);
        (*word).store(taken | bit, Ordering::Release);
        machine.persist_word(word);
    }
}

/// Publishes a durable node and persists the slot, with types.
#[inline(never)]
#[unsafe(no_mangle)]
pub fn publish_typed(slot: &Slot<Node>, node: Owned<'_, Hardware, Node, Durable>) -> Committed {
    slot.publish_exclusive(node).persist()
}

/// Publishes a durable node and persists the slot, by hand.
///
/// # Safety
/// `slot` must be a valid word.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe fn publish_by_hand(slot: *const AtomicU64, node: RawBlock<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        (*slot).store(node.offset, Ordering::Release);
        node.machine.persist_word(slot);
    }
}

/// Writes a node, persists it, publishes it if the slot is empty, persists the slot: with types.
/// None if somebody else was faster.
#[inline(never)]
#[unsafe(no_mangle)]
pub fn insert_typed(
    slot: &Slot<Node>,
    node: Owned<'_, Hardware, Node, Dirty>,
    value: u64,
) -> Option<Committed> {
    let (pool, domain) = (node.pool(), node.domain());
    node.value.store(domain, value);
    node.next.word().store(domain, 0);
    let node = pool.fence(node.flush());
    match slot.publish(Link::NULL, node) {
        Ok(visible) => Some(visible.persist()),
        Err(rejected) => {
            // The hand-written side leaks the block; this one is given back by hand, out of line.
            std::mem::forget(rejected);
            None
        }
    }
}

/// Writes a node, persists it, publishes it if the slot is empty, persists the slot: by hand.
///
/// # Safety
/// `slot` must be a valid word and `node` a valid block that nobody else reaches.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe fn insert_by_hand(slot: *const AtomicU64, node: RawBlock<'_>, value: u64) -> bool {
    let machine = node.machine;
    // SAFETY: as the caller vouches.
    unsafe {
        let words = node.start.cast::<AtomicU64>();
        (*words).store(value, Ordering::Relaxed);
        (*words.add(1)).store(0, Ordering::Relaxed);
        machine.flush_lines(node.start, size_of::<Node>() + node.tail_bytes);
        machine.fence();
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        if (*slot).compare_exchange(0, node.offset, success, failure).is_err() {
            return false;
        }
        machine.persist_word(slot);
    }
    true
}
