//! Many words of ordinary memory: inner nodes and tables that a structure keeps beside its persistent part.

use core::fmt::{self, Debug};
use core::ops::Deref;
use core::ptr::NonNull;

use crate::cell::PCell;
use crate::region::{HUGE_PAGE_BYTES, Region};

/// Words of ordinary memory, zero at first, which never move. Where they fill a huge page they lie in such pages if the
/// system has some to give: who goes from one to another at random would else look up a page each time, too.
pub struct DramWords {
    first: NonNull<PCell<u64>>,
    count: usize,
    /// What `first` points into.
    _memory: Memory,
}

enum Memory {
    Heap { _words: Vec<PCell<u64>> },
    Mapped { _region: Box<Region> },
}

// SAFETY: the words are atomics, and belong to this.
unsafe impl Send for DramWords {}
// SAFETY: as above.
unsafe impl Sync for DramWords {}

impl DramWords {
    /// So many words.
    pub fn zeroed(count: usize) -> Self {
        // More than there can be is for the heap to refuse.
        if let Some(bytes) = count.checked_mul(size_of::<u64>())
            && bytes >= HUGE_PAGE_BYTES
            && let Ok(region) = Region::anonymous(bytes, bytes)
            && let Some(first) = NonNull::new(region.base().cast())
        {
            let _memory = Memory::Mapped { _region: Box::new(region) };
            return Self { first, count, _memory };
        }
        let words: Vec<_> = (0..count).map(|_| PCell::new(0)).collect();
        let first = NonNull::from_ref(&words[..]).cast();
        Self { first, count, _memory: Memory::Heap { _words: words } }
    }
}

impl Deref for DramWords {
    type Target = [PCell<u64>];

    #[inline(always)]
    fn deref(&self) -> &[PCell<u64>] {
        // SAFETY: so many words that live as long as `self` and are changed as atomics only.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Debug for DramWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", self.count)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn few_and_many_words_are_zero_at_first_and_hold_what_is_stored() {
        for count in [0, 1, 1000, HUGE_PAGE_BYTES / 8 + 1] {
            let words = DramWords::zeroed(count);
            assert_eq!(words.len(), count);
            assert!(words.iter().all(|word| word.atomic().load(Ordering::Relaxed) == 0));
            if let Some(last) = words.last() {
                last.atomic().store(7, Ordering::Relaxed);
                assert_eq!(words[count - 1].atomic().load(Ordering::Relaxed), 7);
            }
        }
    }

    #[test]
    #[should_panic = "capacity overflow"]
    fn more_words_than_an_address_space_has_bytes_are_refused() {
        DramWords::zeroed((usize::MAX >> 3) + 1 + HUGE_PAGE_BYTES / 8);
    }

    #[test]
    fn many_words_begin_where_a_huge_page_may() {
        let words = DramWords::zeroed(HUGE_PAGE_BYTES / 8);
        assert!(words.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
    }
}
