//! Small numbers for threads, of which no two that run have the same.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many there are. Threads beyond go without.
pub const NUMBERS: usize = 7;

/// A thread that has not asked yet.
const UNKNOWN: usize = usize::MAX;

/// A bit for each number that a thread has.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Beside the lease, since it is found without asking whether that is still there.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = Lease::take();
}

/// A number, or none if all are taken, until the thread ends.
struct Lease(usize);

impl Lease {
    fn take() -> Self {
        // What the thread that had the number before has done comes before what this one does.
        let mut taken = TAKEN.load(Ordering::Relaxed);
        loop {
            let number = taken.trailing_ones() as usize;
            if number >= NUMBERS {
                return Self(NUMBERS);
            }
            let with_it = taken | 1 << number;
            let done =
                TAKEN.compare_exchange_weak(taken, with_it, Ordering::Acquire, Ordering::Relaxed);
            match done {
                Ok(_) => return Self(number),
                Err(found) => taken = found,
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Destructors that run later still make changes.
        NUMBER.set(NUMBERS);
        if self.0 < NUMBERS {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

/// The calling thread's number, below [`NUMBERS`]; none if others have them all. It stays the same
/// as long as the thread runs, but for its very end.
#[inline(always)]
pub fn own() -> Option<usize> {
    let number = match NUMBER.get() {
        UNKNOWN => ask(),
        number => number,
    };
    (number < NUMBERS).then_some(number)
}

#[cold]
fn ask() -> usize {
    let number = LEASE.try_with(|lease| lease.0).unwrap_or(NUMBERS);
    NUMBER.set(number);
    number
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn threads_that_run_have_different_numbers_and_those_that_come_later_the_same_ones_again() {
        // Tests that run beside this one have numbers, too.
        for _ in 0..20 {
            let (seen, barrier) = (&Mutex::new(HashSet::new()), &Barrier::new(16));
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(move || {
                        let number = own();
                        assert_eq!(own(), number);
                        if let Some(number) = number {
                            assert!(number < NUMBERS && seen.lock().unwrap().insert(number));
                        }
                        barrier.wait();
                    });
                }
            });
        }
        let of_one = || std::thread::spawn(own).join().unwrap();
        assert!((0..1000).any(|_| of_one().is_some()), "numbers are not given back");
    }
}
