//! How many pages puts may take at worst, so that somebody can see to it before that there are as many.
//!
//! * A put splits one leaf at most (`cut_leaf` leaves room on its side), so it takes one page on each level, and
//!   each tree may grow by a page for each of its levels.
//! * A full leaf that was there before may split at the first put, and, if it has long records, once more; from then on
//!   its parts have room for a quarter of a page each, which has to be filled.
//! * An inner node that is full has seven children at least ([`largest_record`](crate::largest_record): a key is
//!   at most half of a quarter of a page), and each of its halves three. So of the nodes that were there, a seventh of those
//!   below can be full on the level above; and of those that come, a third of those below can bring another.

/// The fewest children of an inner node that has no room for one more, and of one that was split.
const CHILDREN: (u64, u64) = (7, 3);

/// What somebody is about to put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Puts {
    /// Trees.
    pub trees: u64,
    /// Records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// The most pages that they take, of trees that have `pages` in all.
pub fn most_new_pages(puts: Puts, pages: u64, page_bytes: usize) -> u64 {
    let Puts { trees, records, bytes } = puts;
    // A record has a slot, and the length of its value.
    let bytes = bytes + 16 * records;
    let leaves = records.min(2 * pages + 4 * bytes / page_bytes as u64 + 1);
    let (mut of_old, mut of_new, mut most) = (2 * pages, leaves, 0);
    while of_old + of_new > 0 {
        most += leaves.min(of_old + of_new) + trees;
        of_old /= CHILDREN.0;
        of_new /= CHILDREN.1;
    }
    if records > 0 { most } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeafLayout, NoStructureLog, Tree, largest_record};
    use lapis_buffer::{BufferManager, BufferOptions, SpaceOptions};
    use lapis_pmem::{FlushMethod, Hardware};
    use proptest::prelude::*;
    use std::sync::Arc;

    const PAGE_BYTES: usize = 4096;

    fn tree(leaves: LeafLayout) -> Tree<Hardware, NoStructureLog> {
        let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
        let space = SpaceOptions { page_bytes: PAGE_BYTES, ..SpaceOptions::default() };
        let options = BufferOptions { frames: 4096, space, ..BufferOptions::default() };
        let manager = BufferManager::in_memory(domain, &options).unwrap();
        Tree::create_with(Arc::new(manager), NoStructureLog, leaves).unwrap()
    }

    /// Pages that a tree has taken.
    fn taken(tree: &Tree<Hardware, NoStructureLog>) -> u64 {
        let statistics = tree.statistics();
        1 + statistics.splits + statistics.growths
    }

    /// A key by its number, so long.
    fn key(number: u32, bytes: usize) -> Vec<u8> {
        let mut key = number.to_be_bytes().to_vec();
        key.resize(bytes.clamp(4, largest_record(PAGE_BYTES) / 2), b'k');
        key
    }

    /// Numbers, lengths of keys, lengths of values.
    fn records(most: usize) -> impl Strategy<Value = Vec<(u32, usize, usize)>> {
        let lengths = || prop_oneof![3 => 4..20_usize, 1 => 4..480_usize, 1 => Just(465_usize)];
        proptest::collection::vec((0..4000_u32, lengths(), lengths()), 1..most)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn puts_take_no_more_pages_than_is_said(
            leaves in proptest::sample::select(vec![LeafLayout::Sorted, LeafLayout::Hashed]),
            ascending in any::<bool>(),
            mut old in records(800),
            batches in proptest::collection::vec(records(300), 1..4),
        ) {
            let tree = tree(leaves);
            // Keys in order leave full leaves.
            if ascending {
                old.sort();
            }
            for (number, key_bytes, value_bytes) in old {
                tree.put(&key(number, key_bytes), &vec![1; value_bytes], 0, None).unwrap();
            }
            for mut batch in batches {
                batch.sort();
                let before = taken(&tree);
                let mut puts = Puts { trees: 1, ..Puts::default() };
                for (number, key_bytes, value_bytes) in batch {
                    let key = key(number, key_bytes);
                    tree.put(&key, &vec![2; value_bytes], 0, None).unwrap();
                    puts.records += 1;
                    puts.bytes += (key.len() + value_bytes) as u64;
                }
                let (took, most) = (taken(&tree) - before, most_new_pages(puts, before, PAGE_BYTES));
                prop_assert!(took <= most, "{took} of {most}: {puts:?}");
            }
        }
    }

    #[test]
    fn a_put_into_a_large_store_takes_a_page_for_each_level() {
        let one = Puts { trees: 1, records: 1, bytes: 100 };
        assert_eq!(most_new_pages(one, 100, 16 << 10), 6);
        assert!(most_new_pages(one, 1 << 20, 16 << 10) < 20);
        assert_eq!(most_new_pages(Puts::default(), 100, 16 << 10), 0);
    }
}
