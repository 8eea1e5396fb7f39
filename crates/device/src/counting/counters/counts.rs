//! What has been counted.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::Serialize;

macro_rules! counts {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        /// What happened, in total or between two moments: subtract an earlier snapshot from a
        /// later one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
        pub struct Counts {
            $($(#[$meta])* pub $name: u64),*
        }

        impl Add for Counts {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name),* }
            }
        }

        impl Sub for Counts {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name - earlier.$name),* }
            }
        }
    };
}

counts! {
    /// Words loaded; a range that is noted as read counts a load for each aligned eight bytes.
    loads,
    /// Words stored, a copy in aligned eight bytes; without locked and non-temporal stores.
    stores,
    /// Lines flushed, dirty or not.
    flushes,
    /// Fences.
    fences,
    /// Locked operations, successful or not.
    locked,
    /// Lines stored to by non-temporal copies. Copies that follow one another in a line without a
    /// fence are combined and count once.
    nontemporal_lines,
    /// Loads, stores, locked operations and prefetches, by line, that no cache answered, those of
    /// ordinary memory included.
    llc_misses,
    /// Those of `llc_misses` that went to ordinary memory
    /// ([`touch_dram`](lapis_pmem::Observed::touch_dram)).
    dram_reads,
    /// Those of `llc_misses` that a worker waited for and whose line was among the last eight that it had flushed
    /// itself, perhaps in an operation before. None on processors whose flushes keep lines.
    flushed_reads,
    /// Lines that entered the write pending queue because of a flush.
    wpq_flush,
    /// Lines that entered it non-temporally.
    wpq_nontemporal,
    /// Dirty lines that entered it because the caches needed room, or because a non-temporal store
    /// wrote a part of them.
    wpq_eviction,
    /// Media writes, in units of 64 bytes (an XPLine is four), those that the modules add on their
    /// own behalf included.
    media_writes,
    /// Media reads, in units of 64 bytes, for cache misses and for partial XPLines.
    media_reads,
}

impl Counts {
    /// Lines that entered the write pending queue for any reason.
    pub fn wpq_inserts(&self) -> u64 {
        self.wpq_flush + self.wpq_nontemporal + self.wpq_eviction
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} loads, {} stores, {} locked, {} flushes, {} fences, {} LLC misses ({} of lines \
             just flushed), {} WPQ inserts \
             ({} flush, {} non-temporal, {} eviction), {} media writes, {} media reads",
            self.loads,
            self.stores,
            self.locked,
            self.flushes,
            self.fences,
            self.llc_misses,
            self.flushed_reads,
            self.wpq_inserts(),
            self.wpq_flush,
            self.wpq_nontemporal,
            self.wpq_eviction,
            self.media_writes,
            self.media_reads,
        )
    }
}
