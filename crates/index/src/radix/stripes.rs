//! Locks for writers, which lie in the host's memory.
//!
//! There is a fixed number of them, and each stands for all nodes whose branch gives its number: the
//! digits before the branch position and the position itself. Neither changes in a node's life (I3),
//! a node and its copies agree in them, and they are known of a node that is yet to be made. The root
//! has a stripe of its own number, too. `docs/wort-concurrency.md` has the rules.
//!
//! A stripe is given back by a plain store. A locked instruction there would wait until what the change
//! has flushed is written back, and keep the loads of the next change waiting too.

use std::ops::{BitOr, BitOrAssign};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis_pmem::{AllocError, Domain, LockWait};

use super::digits::{Digits, Span};
use crate::error::IndexError;
use crate::key::IndexKey;

/// Why a change is not made.
#[derive(Debug)]
pub enum Obstacle {
    /// It cannot be made.
    Failed(IndexError),
    /// It takes these stripes too. Nothing has been stored.
    Needs(Claims),
}

impl From<IndexError> for Obstacle {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

impl From<AllocError> for Obstacle {
    fn from(error: AllocError) -> Self {
        Self::Failed(error.into())
    }
}

/// How many there are: as many as a [`Claims`] has bits.
const STRIPES: usize = u128::BITS as usize;
/// On a line of its own, since writers of different nodes take them at the same time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    taken: AtomicBool,
    /// The number of the last unlinking of a node under this stripe. Whoever has taken it reads and
    /// writes it.
    last_unlinking: AtomicU64,
}

impl Stripe {
    /// Takes it if it is free.
    #[inline(always)]
    fn try_take<D: Domain>(&self, domain: &D) -> bool {
        domain.synchronize();
        !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire)
    }

    #[inline(always)]
    fn give_back<D: Domain>(&self, domain: &D) {
        domain.synchronize();
        self.taken.store(false, Ordering::Release);
    }
}

/// The unlinkings of nodes that there have been, counted. Two lines, since processors fetch them in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Unlinkings(AtomicU64);

/// The locks of a tree.
#[derive(Debug)]
pub struct Stripes {
    all: Box<[Stripe; STRIPES]>,
    unlinkings: Unlinkings,
}

/// Some of the stripes, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claims(u128);

impl Claims {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u128::MAX);
    const ROOT: Self = Self(1);

    /// The stripe of the node, on the way of `key` and with the key's digits before its branch
    /// position, that refers to what begins at `depth`; that of the root where nothing is above.
    #[inline(always)]
    pub fn above<K: IndexKey + ?Sized, S: Span>(key: &Digits<'_, K, S>, depth: usize) -> Self {
        match depth.checked_sub(1) {
            Some(position) => Self::of_branch(key, position),
            None => Self::ROOT,
        }
    }

    /// The stripe of the node that branches at `position` above `key`.
    #[inline(always)]
    pub fn of_branch<K: IndexKey + ?Sized, S: Span>(
        key: &Digits<'_, K, S>,
        position: usize,
    ) -> Self {
        Self(1 << (key.branch_number(position) >> (u64::BITS - STRIPES.ilog2())))
    }

    /// Their numbers, ascending.
    #[inline(always)]
    fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(number)
        })
    }
}

impl BitOr for Claims {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Claims {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// What a writer holds while it makes a change: stripes, or locks of nodes.
pub trait Holding {
    /// Says what is missing if this does not cover `claims`.
    ///
    /// # Errors
    /// [`Obstacle::Needs`].
    fn require(&self, claims: Claims) -> Result<(), Obstacle>;

    /// Nodes that are held have been unlinked. The store that did it has been made, and is durable.
    fn note_unlinking(&self);
}

/// Stripes that a writer has taken; it lets go of them when this is dropped.
#[derive(Debug)]
pub struct Held<'s, D: Domain> {
    claims: Claims,
    /// The last of the unlinkings under these stripes.
    last_unlinking: u64,
    stripes: &'s Stripes,
    domain: &'s D,
}

impl<D: Domain> Held<'_, D> {
    /// Takes the stripe of this number if it is free.
    #[inline(always)]
    fn try_add(&mut self, number: usize) -> bool {
        let stripe = &self.stripes.all[number];
        let taken = stripe.try_take(self.domain);
        if taken {
            self.claims |= Claims(1 << number);
            let unlinking = stripe.last_unlinking.load(Ordering::Relaxed);
            self.last_unlinking = self.last_unlinking.max(unlinking);
        }
        taken
    }

    /// Whether no node whose stripe is among these has been unlinked since there had been so many
    /// [unlinkings](Stripes::unlinkings) of any.
    #[inline(always)]
    pub fn none_unlinked_since(&self, unlinkings: u64) -> bool {
        self.last_unlinking <= unlinkings
    }

    /// Whether these are all of `claims`, and perhaps more.
    #[inline(always)]
    pub fn covers(&self, claims: Claims) -> bool {
        self.claims | claims == self.claims
    }
}

impl<D: Domain> Holding for Held<'_, D> {
    #[inline(always)]
    fn require(&self, claims: Claims) -> Result<(), Obstacle> {
        if self.covers(claims) { Ok(()) } else { Err(Obstacle::Needs(claims)) }
    }

    /// Counts them: who sees the count sees the store.
    #[inline]
    fn note_unlinking(&self) {
        let number = self.stripes.unlinkings.0.fetch_add(1, Ordering::Release) + 1;
        for stripe in self.claims.iter().map(|stripe| &self.stripes.all[stripe]) {
            stripe.last_unlinking.store(number, Ordering::Relaxed);
        }
    }
}

impl<D: Domain> Drop for Held<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        for number in self.claims.iter() {
            self.stripes.all[number].give_back(self.domain);
        }
    }
}

impl Default for Stripes {
    fn default() -> Self {
        let all = Box::new(std::array::from_fn(|_| Stripe::default()));
        Self { all, unlinkings: Unlinkings::default() }
    }
}

impl Stripes {
    /// How many unlinkings of nodes there have been. What they unlinked cannot be found by a walk
    /// that begins after this.
    #[inline(always)]
    pub fn unlinkings(&self) -> u64 {
        self.unlinkings.0.load(Ordering::Acquire)
    }

    /// None of them.
    #[inline(always)]
    pub fn none<'s, D: Domain>(&'s self, domain: &'s D) -> Held<'s, D> {
        Held { claims: Claims::NONE, last_unlinking: 0, stripes: self, domain }
    }

    /// Takes what is claimed if nobody else has any of it.
    #[inline(always)]
    pub fn try_take<'s, D: Domain>(&'s self, domain: &'s D, claims: Claims) -> Option<Held<'s, D>> {
        let mut held = self.none(domain);
        claims.iter().all(|number| held.try_add(number)).then_some(held)
    }

    /// Takes what is claimed in the order of numbers, so that no two writers wait for each other. The
    /// caller holds none, and has not pinned the pool: who holds a stripe may be waiting for those
    /// who have.
    #[cold]
    pub fn take<'s, D: Domain>(&'s self, domain: &'s D, claims: Claims) -> Held<'s, D> {
        let mut held = self.none(domain);
        for number in claims.iter() {
            let mut wait = LockWait::default();
            while !held.try_add(number) {
                wait.once(domain);
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use lapis_pmem::Hardware;

    use super::super::digits::Byte;
    use super::*;

    fn claims(numbers: &[u32]) -> Claims {
        numbers.iter().fold(Claims::NONE, |claims, number| claims | Claims(1 << number))
    }

    #[test]
    fn claims_are_counted_once_and_in_ascending_order() {
        assert_eq!(claims(&[9, 3, 127, 3]).iter().collect::<Vec<_>>(), [3, 9, 127]);
        assert_eq!(Claims::ALL.iter().count(), STRIPES);
        assert!(Claims::NONE.iter().next().is_none());
    }

    #[test]
    fn what_is_held_is_not_given_to_another_until_it_is_dropped() {
        let (domain, stripes) = (Hardware::detect(), Stripes::default());
        let held = stripes.take(&domain, claims(&[1, 2, 3, 4, 5]));
        assert!(held.covers(claims(&[5, 2])) && !held.covers(claims(&[5, 6])));
        assert!(matches!(held.require(claims(&[6])), Err(Obstacle::Needs(_))));
        assert!(stripes.try_take(&domain, claims(&[0, 5])).is_none());
        assert!(stripes.try_take(&domain, claims(&[0, 6])).is_some());
        drop(held);
        assert!(stripes.try_take(&domain, Claims::ALL).is_some());
    }

    #[test]
    fn an_unlinking_shows_under_the_stripes_that_were_held_and_no_others() {
        let (domain, stripes) = (Hardware::detect(), Stripes::default());
        let before = stripes.unlinkings();
        stripes.take(&domain, claims(&[7, 9])).note_unlinking();
        let after = stripes.unlinkings();
        let since = |numbers: &[u32], unlinkings| {
            stripes.take(&domain, claims(numbers)).none_unlinked_since(unlinkings)
        };
        assert!(since(&[6, 8], before) && since(&[6, 7, 9], after));
        assert!(!since(&[6, 7], before) && !since(&[9, 10], before));
    }

    #[test]
    fn branches_of_dense_and_of_sparse_keys_are_spread_over_the_stripes() {
        for step in [1u64 << 8, 1 << 40, 0x9E37_79B9_7F4A_7C15] {
            let mut counts = [0; STRIPES];
            for number in 0..64 * STRIPES as u64 {
                let key = Digits::<u64, Byte>::of_integer(number.wrapping_mul(step));
                let claims = Claims::of_branch(&key, 7);
                claims.iter().for_each(|number| counts[number] += 1);
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 16 && *most < 256, "{least} to {most} of 64 with {step:#x}");
        }
    }
}
