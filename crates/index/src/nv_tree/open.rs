//! Opening: the inner nodes are built from the leaves.

use lapis_pmem::{Domain, Link, Pool};

use super::inner::{Entry, Separator};
use super::leaf::{Leaf, LeafHeader, leaf_at};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::leaf_list;

/// What the inner nodes are built from: of each leaf in the list, from `first` on, its least key
/// and its link. On up to `threads` threads.
pub(super) fn entries_of<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    first: Link<LeafHeader>,
    capacity: usize,
    threads: Option<usize>,
) -> Result<Vec<Entry>, IndexError> {
    let domain = pool.domain();
    let at = |link| {
        let leaf = leaf_at(pool, link, capacity).ok_or(leaf_list::OUTSIDE)?;
        let is_possible = (1..=capacity as u64).contains(&leaf.header.count.load(domain));
        if is_possible { Ok(leaf) } else { Err("has an impossible count") }
    };
    let leaves = leaf_list::follow(first, at, |leaf| leaf.next(domain))?;
    let words = leaf_list::least_of_each(pool, &leaves, threads, |part, at| {
        least_word::<D, K>(pool, part[at])
    });
    // I5: the leaves are in order and share no key.
    if !words.is_sorted_by(|one, other| K::cmp_words(pool, *one, *other).is_lt()) {
        return Err(damaged("its leaves are not in the order of their keys"));
    }
    let entry = |(word, leaf): (&u64, &Leaf<'_>)| {
        let key = if K::INLINE {
            Separator::integer(*word)
        } else {
            K::with_word(pool, *word, |key| Separator::string(key.bytes(&mut [0; 8])))
                .ok_or_else(|| damaged("a leaf has a key outside the pool"))?
        };
        Ok(Entry { key, link: leaf.link.bits() })
    };
    words.iter().zip(&leaves).map(entry).collect()
}

/// The word of the least key in the records of a leaf. Deleted ones do no harm: what a leaf ever
/// held is in its range.
fn least_word<D: Domain, K: IndexKey + ?Sized>(pool: &Pool<D>, leaf: Leaf<'_>) -> u64 {
    let domain = pool.domain();
    let words = leaf.records[..leaf.count(domain)].iter().map(|record| record.key.load(domain));
    words.min_by(|one, other| K::cmp_words(pool, *one, *other)).unwrap_or_default()
}

fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}
