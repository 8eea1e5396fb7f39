//! The words that persistent memory reads and writes in one piece: `u8`, `u16`, `u32` and `u64`.
//!
//! Eight aligned bytes are the failure-atomic unit of persistent memory, so a [`Word`] is never
//! torn by a power cut. Each word has an atomic twin, which is what actually lies in memory: every
//! access to a persistent field is an atomic one (a plain `mov` on x86-64), so that concurrent
//! readers are defined behaviour and the compiler may neither tear nor invent a store.

use core::fmt::{Debug, LowerHex};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// An unsigned integer of 1, 2, 4 or 8 bytes that persistent memory stores failure-atomically.
pub trait Word:
    sealed::Sealed + Copy + Eq + Ord + Debug + LowerHex + Default + Send + Sync + 'static
{
    /// The atomic that holds this word in memory; same size and alignment.
    type Atomic: Send + Sync + Debug;
    /// Width in bytes.
    const BYTES: usize;

    /// Wraps a value for placing in memory.
    fn atomic(value: Self) -> Self::Atomic;
    /// Atomic load.
    fn load(at: &Self::Atomic, order: Ordering) -> Self;
    /// Atomic store.
    fn store(at: &Self::Atomic, value: Self, order: Ordering);
    /// Atomic exchange; returns the previous value.
    fn swap(at: &Self::Atomic, value: Self, order: Ordering) -> Self;
    /// Strong compare-and-exchange; `Err` holds the value found.
    fn compare_exchange(at: &Self::Atomic, current: Self, new: Self) -> Result<Self, Self>;
    /// Zero-extends to 64 bits.
    fn widen(self) -> u64;
    /// Truncates from 64 bits.
    fn narrow(bits: u64) -> Self;
}

macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl sealed::Sealed for $word {}
        impl Word for $word {
            type Atomic = $atomic;
            const BYTES: usize = size_of::<$word>();

            #[inline(always)]
            fn atomic(value: Self) -> $atomic {
                <$atomic>::new(value)
            }
            #[inline(always)]
            fn load(at: &$atomic, order: Ordering) -> Self {
                at.load(order)
            }
            #[inline(always)]
            fn store(at: &$atomic, value: Self, order: Ordering) {
                at.store(value, order);
            }
            #[inline(always)]
            fn swap(at: &$atomic, value: Self, order: Ordering) -> Self {
                at.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(at: &$atomic, current: Self, new: Self) -> Result<Self, Self> {
                at.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            }
            #[inline(always)]
            fn widen(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            fn narrow(bits: u64) -> Self {
                bits as $word
            }
        }
        const _: () = assert!(size_of::<$word>() == size_of::<$atomic>());
    };
}

word!(u8, AtomicU8);
word!(u16, AtomicU16);
word!(u32, AtomicU32);
word!(u64, AtomicU64);
