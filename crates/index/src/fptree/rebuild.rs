//! Opening: the micro-logs are replayed, the leaves are walked, the inner nodes are built.
//!
//! Takes time in proportion to the number of leaves, which is the price of inner nodes that cost
//! nothing to change. The walk follows the links of the leaves and so is one cache miss per leaf; the
//! least key of each leaf takes the whole leaf (and, of byte strings, every key), and that is
//! shared out over threads, unless the machine is one that must do the same things in the same order
//! every time.

use lapis_pmem::{Domain, Link, Pool};

use super::leaf::{Leaf, LeafHeader, positions};
use crate::index::IndexError;
use crate::key::IndexKey;

/// Leaves below which another thread is not worth starting.
const LEAVES_PER_THREAD: usize = 1024;
/// Threads by default, if the machine has so many.
const MOST_THREADS: usize = 16;

/// A leaf, and the word of its least key; none if it has no entry.
type Least = (Option<u64>, Link<LeafHeader>);

/// How many threads to use if nobody has said.
pub(super) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS)
}

/// Every leaf from `first` on, in order.
fn walk<D: Domain>(
    pool: &Pool<D>,
    first: Link<LeafHeader>,
    slots: usize,
) -> Result<Vec<Least>, IndexError> {
    let domain = pool.domain();
    let damaged = |what: String| IndexError::Damaged { what };
    let most = pool.usage().storage_bytes as usize / size_of::<LeafHeader>();
    let mut leaves = Vec::new();
    let mut link = first;
    while !link.is_null() {
        let leaf = Leaf::try_at(pool, link, slots)
            .ok_or_else(|| damaged(format!("a leaf at {link:?} is outside the pool")))?;
        leaves.push((None, link));
        if leaves.len() > most {
            return Err(damaged("its leaves go round in a circle".into()));
        }
        link = leaf.next(domain);
    }
    Ok(leaves)
}

/// The word of the least key of a leaf. Words that are no key are passed over.
fn least<D: Domain, K: IndexKey + ?Sized>(pool: &Pool<D>, leaf: Leaf<'_>) -> Option<u64> {
    let domain = pool.domain();
    let mut least: Option<u64> = None;
    for slot in positions(leaf.bitmap(domain)) {
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

/// Finds the least key of each.
fn fill_in<D: Domain, K: IndexKey + ?Sized>(pool: &Pool<D>, slots: usize, leaves: &mut [Least]) {
    for at in 0..leaves.len() {
        if let Some(&(_, soon)) = leaves.get(at + 2) {
            for line in 0..(slots * 16 + super::leaf::HEADER_BYTES) / lapis_pmem::LINE_BYTES {
                let line = (line * lapis_pmem::LINE_BYTES) as u64;
                pool.prefetch(Link::<LeafHeader>::from_bits(soon.offset() + line));
            }
        }
        let (least_word, link) = &mut leaves[at];
        *least_word = Leaf::try_at(pool, *link, slots).and_then(|leaf| least::<D, K>(pool, leaf));
    }
}

/// Walks the leaves and finds the least key of each, with so many threads at most. In ascending
/// order, or the tree is damaged.
pub(super) fn collect<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    first: Link<LeafHeader>,
    slots: usize,
    threads: usize,
) -> Result<Vec<(u64, Link<LeafHeader>)>, IndexError> {
    let mut leaves = walk(pool, first, slots)?;
    let alone = D::DETERMINISTIC || pool.domain().worker().is_some();
    let threads = if alone { 1 } else { threads.clamp(1, leaves.len() / LEAVES_PER_THREAD + 1) };
    if threads == 1 {
        fill_in::<D, K>(pool, slots, &mut leaves);
    } else {
        let share = leaves.len().div_ceil(threads);
        std::thread::scope(|scope| {
            for part in leaves.chunks_mut(share) {
                scope.spawn(move || fill_in::<D, K>(pool, slots, part));
            }
        });
    }
    // An empty leaf beside others is damage, which the check reports and searches pass by.
    let mut found: Vec<(u64, Link<LeafHeader>)> = Vec::with_capacity(leaves.len());
    for (number, (least, link)) in leaves.into_iter().enumerate() {
        match least {
            None if number > 0 => {}
            least => found.push((least.unwrap_or_default(), link)),
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
