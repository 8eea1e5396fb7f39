//! The words of locks that lie in persistent memory ([`GenerationLock`](crate::GenerationLock)).
//!
//! ```text
//!  63            40 39                     8 7         1   0
//! +----------------+------------------------+-----------+------+
//! |  generation    |  version               |  payload  | lock |
//! +----------------+------------------------+-----------+------+
//! ```
//!
//! The version counts completed critical sections, for optimistic readers. The payload is seven
//! bits for the owner of the word; it survives a restart and a change of generation.

pub(crate) const LOCKED: u64 = 1;
pub(crate) const PAYLOAD_MASK: u64 = 0x7F << 1;
pub(crate) const VERSION_ONE: u64 = 1 << 8;
pub(crate) const VERSION_MASK: u64 = 0xFFFF_FFFF << 8;
pub(crate) const GENERATION_SHIFT: u32 = 40;

/// The generation part of lock words taken in one opening of a pool; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockGeneration(pub(crate) u64);

impl LockGeneration {
    /// From the pool's generation. As many generations as there are values are told apart.
    pub fn of(pool_generation: u64) -> Self {
        Self((1 + pool_generation % 0xFF_FFFF) << GENERATION_SHIFT)
    }
}

/// A lock word as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWord(pub(crate) u64);

impl LockWord {
    /// A word that is free in every generation, with version zero: for nodes composed elsewhere.
    #[inline(always)]
    pub fn free(payload: u8) -> Self {
        Self(u64::from(payload & 0x7F) << 1)
    }

    /// A word that is locked in this generation, with version zero and no payload: for nodes that their
    /// makers keep to themselves when others can see them already.
    #[inline(always)]
    pub fn held(generation: LockGeneration) -> Self {
        Self(generation.0 | LOCKED)
    }

    /// What the word is once its lock has been taken.
    #[inline(always)]
    pub fn taken(self, generation: LockGeneration) -> Self {
        Self(generation.0 | (self.0 & (VERSION_MASK | PAYLOAD_MASK)) | LOCKED)
    }

    /// The word with one more section.
    #[inline(always)]
    pub(crate) fn counted(self) -> Self {
        debug_assert!(self.0 & LOCKED != 0, "counted a section of a lock that is not held");
        let version = self.0.wrapping_add(VERSION_ONE) & VERSION_MASK;
        Self((self.0 & !VERSION_MASK) | version)
    }

    /// Whether somebody holds the lock.
    #[inline(always)]
    pub fn is_locked(self, generation: LockGeneration) -> bool {
        self.0 & LOCKED != 0 && self.is_current(generation)
    }

    /// Whether the lock is free in every generation. Cheaper than [`is_locked`](Self::is_locked); false, too, of locks
    /// that a crash has left locked and nobody has taken since.
    #[inline(always)]
    pub fn is_free_in_every_generation(self) -> bool {
        self.0 & LOCKED == 0
    }

    /// Whether the lock has been taken since the pool was opened. The first to take it in a
    /// generation repairs what a crash may have left behind.
    #[inline(always)]
    pub fn is_current(self, generation: LockGeneration) -> bool {
        self.0 >> GENERATION_SHIFT == generation.0 >> GENERATION_SHIFT
    }

    /// The seven bits of payload.
    #[inline(always)]
    pub fn payload(self) -> u8 {
        ((self.0 & PAYLOAD_MASK) >> 1) as u8
    }

    /// Whether no critical section ended, and the payload did not change, between this reading and
    /// `later`: at most one holder was at work, and it may be at work still.
    #[inline(always)]
    pub fn is_same_section(self, later: Self) -> bool {
        (self.0 ^ later.0) & !LOCKED == 0
    }

    /// What of the word's bits a lock goes by in a generation: all of those of the same generation,
    /// and of those of another only the payload. The version of a word of another generation is
    /// kept and counted on from, but only ever compared with itself.
    #[inline]
    pub fn meaning(bits: u64, generation: LockGeneration) -> u64 {
        if Self(bits).is_current(generation) { bits } else { bits & PAYLOAD_MASK }
    }

    /// The raw bits.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_told_from_the_next_one_and_from_none_wherever_they_are_folded() {
        for generation in (0..3).chain(0xFF_FFF0..0x100_0010).chain([u64::MAX - 1]) {
            let [this, next] = [generation, generation + 1].map(LockGeneration::of);
            assert_ne!(this, next, "{generation:#x}");
            assert!(this.0 >> GENERATION_SHIFT != 0, "{generation:#x}");
            assert!(!LockWord::held(this).is_locked(next));
        }
    }
}
