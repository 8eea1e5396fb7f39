//! Locks for writers, which lie in the host's memory.
//!
//! There is a fixed number of them, and each stands for all nodes whose branch gives its number: the
//! digits before the branch position and the position itself. Neither changes in a node's life (I3),
//! a node and its copies agree in them, and they are known of a node that is yet to be made. The root
//! has a stripe of its own number, too. What the rules are is told in the header comment of
//! [`Wort`](crate::Wort)'s module.

use std::ops::{BitOr, BitOrAssign};

use lapis_pmem::Domain;
use lapis_pmem::host_lock::{HostGuard, lock, try_lock};
use parking_lot::{Mutex, MutexGuard};

use super::change::Obstacle;
use super::digits::{Digits, Span};
use crate::key::IndexKey;

/// How many there are: as many as a [`Claims`] has bits.
const STRIPES: usize = u128::BITS as usize;
/// A change seldom claims more.
const FEW: usize = 3;

/// On a line of its own, since writers of different nodes take them at the same time.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(Mutex<()>);

/// The locks of a tree.
#[derive(Debug)]
pub struct Stripes(Box<[Stripe]>);

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

    #[inline(always)]
    fn is_empty(self) -> bool {
        self.0 == 0
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

type Guard<'s, D> = HostGuard<'s, D, MutexGuard<'s, ()>>;

/// Stripes that a writer has taken; it lets go of them when this is dropped.
#[derive(Debug)]
pub struct Held<'s, D: Domain> {
    claims: Claims,
    few: [Option<Guard<'s, D>>; FEW],
    others: Vec<Guard<'s, D>>,
}

impl<'s, D: Domain> Held<'s, D> {
    /// None.
    #[inline(always)]
    pub fn nothing() -> Self {
        Self { claims: Claims::NONE, few: [const { None }; FEW], others: Vec::new() }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Whether these are all of `claims`, and perhaps more.
    #[inline(always)]
    pub fn covers(&self, claims: Claims) -> bool {
        self.claims | claims == self.claims
    }

    /// Says what is missing if they are not.
    #[inline(always)]
    pub fn require(&self, claims: Claims) -> Result<(), Obstacle> {
        if self.covers(claims) { Ok(()) } else { Err(Obstacle::Needs(claims)) }
    }

    #[inline(always)]
    fn add(&mut self, at: usize, guard: Guard<'s, D>) {
        match self.few.get_mut(at) {
            Some(place) => *place = Some(guard),
            None => self.others.push(guard),
        }
    }
}

impl Default for Stripes {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Stripe::default()).collect())
    }
}

impl Stripes {
    /// Takes what is claimed if nobody else has any of it.
    #[inline]
    pub fn try_take<'s, D: Domain>(&'s self, domain: &'s D, claims: Claims) -> Option<Held<'s, D>> {
        let mut held = Held::nothing();
        for (at, number) in claims.iter().enumerate() {
            held.add(at, try_lock(domain, &self.0[number].0)?);
        }
        held.claims = claims;
        Some(held)
    }

    /// Takes what is claimed in the order of numbers, so that no two writers wait for each other. The
    /// caller holds none, and has not pinned the pool: who holds a stripe may be waiting for those
    /// who have.
    #[cold]
    pub fn take<'s, D: Domain>(&'s self, domain: &'s D, claims: Claims) -> Held<'s, D> {
        let mut held = Held::nothing();
        for (at, number) in claims.iter().enumerate() {
            held.add(at, lock(domain, &self.0[number].0));
        }
        held.claims = claims;
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
        assert!(Claims::NONE.is_empty() && Claims::NONE.iter().next().is_none());
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
