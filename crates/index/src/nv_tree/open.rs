//! Opening: the inner nodes are built from the leaves.

use lapis_pmem::{Domain, Link, Pool};

use super::inner::{Entry, Separator};
use super::leaf::{Leaf, LeafHeader, compare_words, leaf_at};
use crate::index::IndexError;
use crate::key::IndexKey;

/// A thread that builds inner nodes has this many leaves at the least.
const LEAVES_PER_THREAD: usize = 1024;

/// What the inner nodes are built from: of each leaf in the list, from `first` on, its least key
/// and its link. On up to `threads` threads, or as many as the machine has processors: one follows
/// the links, then all look into the leaves.
pub(super) fn entries_of<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    first: Link<LeafHeader>,
    capacity: usize,
    threads: Option<usize>,
) -> Result<Vec<Entry>, IndexError> {
    let leaves = list(pool, first, capacity)?;
    // A machine that runs one worker at a time has no threads of its own.
    let alone = D::DETERMINISTIC || pool.domain().worker().is_some();
    let worthwhile = if alone { 1 } else { leaves.len() / LEAVES_PER_THREAD + 1 };
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match worthwhile {
        1 => 1,
        most => threads.unwrap_or_else(processors).clamp(1, most),
    };
    let words: Vec<u64> = if threads == 1 {
        least_words::<D, K>(pool, &leaves)
    } else {
        std::thread::scope(|scope| {
            let parts: Vec<_> = leaves
                .chunks(leaves.len().div_ceil(threads))
                .map(|part| scope.spawn(|| least_words::<D, K>(pool, part)))
                .collect();
            let words = parts.into_iter().map(|part| match part.join() {
                Ok(words) => words,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            words.flatten().collect()
        })
    };
    // I5: the leaves are in order and share no key.
    if !words.is_sorted_by(|one, other| compare_words::<D, K>(pool, *one, *other).is_lt()) {
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

/// Follows the links.
fn list<D: Domain>(
    pool: &Pool<D>,
    first: Link<LeafHeader>,
    capacity: usize,
) -> Result<Vec<Leaf<'_>>, IndexError> {
    let domain = pool.domain();
    let mut leaves: Vec<Leaf<'_>> = Vec::new();
    let mut link = first;
    // A circle comes by the leaf that is remembered, since that is replaced ever more seldom (Brent).
    let mut remembered = Link::NULL;
    while !link.is_null() {
        let leaf =
            leaf_at(pool, link, capacity).ok_or_else(|| damaged("a leaf is outside the pool"))?;
        let count = leaf.header.count.load(domain) as usize;
        if !(1..=capacity).contains(&count) {
            return Err(damaged("a leaf has an impossible count"));
        }
        if link == remembered {
            return Err(damaged("its leaves are linked in a circle"));
        }
        leaves.push(leaf);
        if leaves.len().is_power_of_two() {
            remembered = link;
        }
        link = leaf.next(domain);
    }
    Ok(leaves)
}

/// The word of the least key in the records of each leaf. Deleted ones do no harm: what a leaf ever
/// held is in its range.
fn least_words<D: Domain, K: IndexKey + ?Sized>(pool: &Pool<D>, leaves: &[Leaf<'_>]) -> Vec<u64> {
    let domain = pool.domain();
    let least = |leaf: &Leaf<'_>| {
        let words = leaf.records[..leaf.count(domain)].iter().map(|record| record.key.load(domain));
        let least = words.min_by(|one, other| compare_words::<D, K>(pool, *one, *other));
        least.unwrap_or_default()
    };
    leaves.iter().map(least).collect()
}

fn damaged(what: &str) -> IndexError {
    IndexError::Damaged { what: what.into() }
}
