//! A number that many threads add to, each at a place that it shares with few others.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 32;

/// A part of the number, alone in its cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ShardedCounter([Shard; SHARDS]);

fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        own.get()
    })
}

impl ShardedCounter {
    #[inline]
    pub(crate) fn add(&self, add: u64) {
        self.0[own_shard()].0.fetch_add(add, Ordering::Relaxed);
    }

    /// The number; what is being added may be in it or not.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_threads_add_is_lost() {
        let counter = ShardedCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..100).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.sum(), 40 * 100 * 3);
    }
}
