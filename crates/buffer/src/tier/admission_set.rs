//! The admission set: pages that were lately denied a frame of persistent memory.
//!
//! Section 4.2 of the paper: a page that leaves DRAM enters PM if it was denied not long ago, and is noted
//! as denied otherwise. So pages that come and go often get there, and a scan does not. The paper has one
//! set of limited size. Here a page belongs to one of many small queues, by its number; who is noted pushes
//! the last one out. Nothing is allocated and nobody waits: two that change a queue at once may lose an
//! entry or keep one twice, which costs or saves a page one more round.

use lapis_pmem::{Domain, DramCell};

use crate::page::PageNumber;

/// Pages of a queue: a line of the cache.
const QUEUE_PAGES: usize = 8;

/// Page numbers, the one that was denied last first; 0 for none.
#[derive(Debug)]
#[repr(align(64))]
struct Queue<D: Domain>([DramCell<u64, D>; QUEUE_PAGES]);

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct AdmissionSet<D: Domain> {
    /// As many as a power of two.
    queues: Box<[Queue<D>]>,
}

impl<D: Domain> AdmissionSet<D> {
    /// A set of so many pages, or up to twice as many.
    pub(crate) fn new(pages: usize) -> Self {
        let queues = pages.div_ceil(QUEUE_PAGES).next_power_of_two();
        let queue = |_| Queue(core::array::from_fn(|_| DramCell::new(0)));
        Self { queues: (0..queues).map(queue).collect() }
    }

    fn queue(&self, page: PageNumber) -> &[DramCell<u64, D>; QUEUE_PAGES] {
        let hash = page.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.queues.len().trailing_zeros();
        &self.queues[hash.checked_shr(64 - bits).unwrap_or(0) as usize].0
    }

    /// Whether a page was denied lately.
    pub(crate) fn contains(&self, domain: &D, page: PageNumber) -> bool {
        self.queue(page).iter().any(|place| place.load(domain) == page.get())
    }

    /// Notes that a page was denied.
    pub(crate) fn insert(&self, domain: &D, page: PageNumber) {
        let mut pushed = page.get();
        for place in self.queue(page) {
            let next = place.load(domain);
            place.store(domain, pushed);
            // Its old place is free for the one before.
            if next == page.get() || next == 0 {
                return;
            }
            pushed = next;
        }
    }

    /// Forgets a page, which is admitted.
    pub(crate) fn remove(&self, domain: &D, page: PageNumber) {
        for place in self.queue(page) {
            if place.load(domain) == page.get() {
                place.store(domain, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;

    fn page(number: u64) -> PageNumber {
        PageNumber::new(number).unwrap()
    }

    #[test]
    fn a_page_that_was_denied_is_known_until_it_is_admitted() {
        let (domain, set) = (test_domain(), AdmissionSet::new(8));
        assert!(!set.contains(&domain, page(5)));
        set.insert(&domain, page(5));
        assert!(set.contains(&domain, page(5)) && !set.contains(&domain, page(6)));
        set.remove(&domain, page(5));
        assert!(!set.contains(&domain, page(5)));
    }

    #[test]
    fn many_denials_later_a_page_is_forgotten() {
        let (domain, set) = (test_domain(), AdmissionSet::new(8));
        set.insert(&domain, page(1));
        (2..200).for_each(|number| set.insert(&domain, page(number)));
        let known = (1..200).filter(|&number| set.contains(&domain, page(number)));
        assert_eq!(known.collect::<Vec<_>>(), (192..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_page_that_is_denied_again_is_the_last_to_be_forgotten() {
        let (domain, set) = (test_domain(), AdmissionSet::new(8));
        (1..9).for_each(|number| set.insert(&domain, page(number)));
        set.insert(&domain, page(1));
        set.insert(&domain, page(9));
        let known = (1..10).filter(|&number| set.contains(&domain, page(number)));
        assert_eq!(known.collect::<Vec<_>>(), [1, 3, 4, 5, 6, 7, 8, 9]);
    }
}
