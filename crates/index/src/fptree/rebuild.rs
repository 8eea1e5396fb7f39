//! Opening: the micro-logs are replayed, the leaves are walked, the inner nodes are built.
//!
//! Takes time in proportion to the number of leaves, which is the price of inner nodes that cost
//! nothing to change. The walk follows the links of the leaves and so is one cache miss per leaf; the
//! least key of each leaf takes the whole leaf (and, of byte strings, every key), and that is
//! shared out over threads.

use lapis_blocks::fp_leaf::slots_in;
use lapis_pmem::{Domain, LINE_BYTES, Link, Pool};

use super::leaf::{HEADER_BYTES, Leaf, LeafHeader};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::leaf_list;

/// The word of the least key of a leaf. Words that are no key are passed over.
fn least<D: Domain, K: IndexKey + ?Sized>(pool: &Pool<D>, leaf: Leaf<'_>) -> Option<u64> {
    let domain = pool.domain();
    let mut least: Option<u64> = None;
    for slot in slots_in(leaf.bitmap(domain)) {
        let word = leaf.slots[slot].key.load(domain);
        let is_less = match least {
            None => K::with_word(pool, word, |_| ()).is_some(),
            Some(least) => {
                K::with_word(pool, word, |key| key.cmp_word(pool, least).is_lt()).unwrap_or(false)
            }
        };
        if is_less {
            least = Some(word);
        }
    }
    least
}

/// Has the lines of a leaf that will be looked at soon on their way.
fn prefetch<D: Domain>(pool: &Pool<D>, leaf: Leaf<'_>) {
    for line in 0..(HEADER_BYTES + size_of_val(leaf.slots)) / LINE_BYTES {
        let offset = leaf.link.offset() + (line * LINE_BYTES) as u64;
        pool.prefetch(Link::<LeafHeader>::from_bits(offset));
    }
}

/// Walks the leaves and finds the least key of each, with so many threads at most. In ascending
/// order, or the tree is damaged.
pub(super) fn collect<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    first: Link<LeafHeader>,
    slots: usize,
    threads: Option<usize>,
) -> Result<Vec<(u64, Link<LeafHeader>)>, IndexError> {
    let at = |link| Leaf::try_at(pool, link, slots).ok_or(leaf_list::OUTSIDE);
    let leaves = leaf_list::follow(first, at, |leaf| leaf.next(pool.domain()))?;
    let least = leaf_list::least_of_each(pool, &leaves, threads, |part, at| {
        if let Some(&soon) = part.get(at + 2) {
            prefetch(pool, soon);
        }
        least::<D, K>(pool, part[at])
    });
    // An empty leaf beside others is damage, which the check reports and searches pass by.
    let mut found: Vec<(u64, Link<LeafHeader>)> = Vec::with_capacity(leaves.len());
    for (number, (least, leaf)) in least.into_iter().zip(&leaves).enumerate() {
        match least {
            None if number > 0 => {}
            least => found.push((least.unwrap_or_default(), leaf.link)),
        }
    }
    let ascending = found.iter().skip(1).is_sorted_by(|one, other| {
        K::with_word(pool, one.0, |key| key.cmp_word(pool, other.0).is_lt()) == Some(true)
    });
    if ascending {
        Ok(found)
    } else {
        Err(IndexError::Damaged { what: "its leaves are not in order".into() })
    }
}
