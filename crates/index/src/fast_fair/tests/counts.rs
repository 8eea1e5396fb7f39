//! Flushes and fences per operation: what the module header promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{Domain, DomainFault, Hardware, LINE_BYTES, Pool, Word};

use super::{create_in, small_region};
use crate::fast_fair::FastFair;
use crate::index::Index;

/// This machine, with the lines it flushes and the fences counted.
#[derive(Clone, Debug)]
struct Counting {
    hardware: Hardware,
    counts: Arc<(AtomicU64, AtomicU64)>,
}

impl Counting {
    fn new() -> Self {
        Self { hardware: Hardware::detect(), counts: Arc::default() }
    }

    /// Lines flushed and fences since the last call.
    fn take(&self) -> (u64, u64) {
        (self.counts.0.swap(0, Ordering::Relaxed), self.counts.1.swap(0, Ordering::Relaxed))
    }
}

impl Domain for Counting {
    const DETERMINISTIC: bool = true;

    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        self.hardware.load::<W>(at, order)
    }
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        self.hardware.store::<W>(at, value, order);
    }
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        self.hardware.swap::<W>(at, value)
    }
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        self.hardware.compare_exchange::<W>(at, current, new)
    }
    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.copy(destination, source) };
    }
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.copy_nontemporal(destination, source) };
    }
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.zero_nontemporal(destination, bytes) };
    }
    fn note_read(&self, source: *const u8, bytes: usize) {
        self.hardware.note_read(source, bytes);
    }
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        let lines = (start.addr() + bytes).div_ceil(LINE_BYTES) - start.addr() / LINE_BYTES;
        self.counts.0.fetch_add(lines as u64, Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.flush_range(start, bytes) };
    }
    fn fence(&self) {
        self.counts.1.fetch_add(1, Ordering::Relaxed);
        self.hardware.fence();
    }
    fn prefetch(&self, at: *const u8) {
        self.hardware.prefetch(at);
    }
    fn health(&self) -> Result<(), DomainFault> {
        self.hardware.health()
    }
}

fn counted() -> (Counting, Arc<Pool<Counting>>) {
    let domain = Counting::new();
    let pool = Arc::new(Pool::create(small_region(), domain.clone()).unwrap());
    (domain, pool)
}

/// A leaf with the keys 10, 20, .. 100: slots 0-1, 2-5 and 6-9 are in three lines.
fn ten_keys() -> (Counting, FastFair<Counting, u64>) {
    let (domain, pool) = counted();
    let tree = create_in(&pool, 512);
    for key in 1..=10u64 {
        let _ = tree.insert(&(key * 10), key).unwrap();
    }
    domain.take();
    (domain, tree)
}

#[test]
fn an_append_takes_one_flush_and_one_fence() {
    let (domain, tree) = ten_keys();
    let _ = tree.insert(&110, 0).unwrap();
    assert_eq!(domain.take(), (1, 1));
}

#[test]
fn a_middle_insert_takes_one_flush_and_one_fence_per_line_behind_it() {
    for (key, lines) in [(5, 4), (15, 4), (25, 3), (65, 2), (75, 2)] {
        let (domain, tree) = ten_keys();
        let _ = tree.insert(&key, 0).unwrap();
        assert_eq!(domain.take(), (lines, lines), "{key}");
    }
}

#[test]
fn an_update_takes_one_flush_and_one_fence() {
    let (domain, tree) = ten_keys();
    let _ = tree.update(&50, 9).unwrap();
    assert_eq!(domain.take(), (1, 1));
    let _ = tree.put(&60, 9).unwrap();
    assert_eq!(domain.take(), (1, 1));
}

#[test]
fn a_removal_takes_one_flush_and_one_fence_per_line_behind_it() {
    for (key, lines) in [(10, 3), (20, 3), (30, 2), (60, 2), (70, 1), (100, 1)] {
        let (domain, tree) = ten_keys();
        let _ = tree.remove(&key).unwrap();
        assert_eq!(domain.take(), (lines, lines), "{key}");
    }
}

#[test]
fn what_changes_nothing_takes_no_flush_and_no_fence() {
    let (domain, tree) = ten_keys();
    let _ = tree.insert(&50, 1).unwrap();
    let _ = tree.update(&55, 1).unwrap();
    let _ = tree.remove(&55).unwrap();
    assert_eq!(tree.get(&50), Some(5));
    assert_eq!(domain.take(), (0, 0));
}

#[test]
fn a_byte_string_append_takes_one_more_fence_for_its_key() {
    let (domain, pool) = counted();
    let tree: FastFair<Counting, [u8]> = create_in(&pool, 512);
    let _ = tree.insert(b"a", 1).unwrap();
    domain.take();
    let _ = tree.insert(b"b", 2).unwrap();
    assert_eq!(domain.take(), (2, 2));
}

#[test]
fn a_byte_string_insert_over_two_lines_takes_no_more_fences_than_an_integer_one() {
    let (domain, pool) = counted();
    let tree: FastFair<Counting, [u8]> = create_in(&pool, 512);
    for key in [b"b", b"c", b"d"] {
        let _ = tree.insert(key, 1).unwrap();
    }
    domain.take();
    let _ = tree.insert(b"a", 2).unwrap();
    assert_eq!(domain.take(), (3, 2));
}

#[test]
fn a_split_at_the_right_edge_takes_a_node_and_two_fences() {
    let (domain, pool) = counted();
    let tree: FastFair<Counting, u64> = create_in(&pool, 256);
    for key in 0..14 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    let _ = tree.insert(&14, 0).unwrap();
    for key in 15..28 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    domain.take();
    let _ = tree.insert(&28, 0).unwrap();
    // 4 lines of the new leaf, the sibling word, the separator in the parent.
    assert_eq!(domain.take(), (6, 3));
}

#[test]
fn repair_of_a_clean_node_takes_no_flush_and_no_fence() {
    let (domain, tree) = ten_keys();
    let tree = tree.reopened(1);
    let _ = tree.insert(&50, 1).unwrap();
    assert_eq!(domain.take(), (0, 0));
}
