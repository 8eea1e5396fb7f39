//! CCEH.

use lapis_index::IndexKind::Cceh;

use super::hash_tables::beside_a_writer_of_one;
use crate::counted::Counted;

/// The new segment's header, the record, the entries of the directory, the entry; what is written past
/// the caches counts as neither. A larger directory comes on top, and now and then a slab.
#[test]
fn a_split_flushes_four_lines_and_fences_four_times_where_the_directory_stays() {
    let index = Counted::<u64>::with_nodes(Cceh, 384);
    let (mut before, mut splits) = (index.0.statistics(), 0);
    for key in 0..400 {
        let cost = index.insert(&key);
        let after = index.0.statistics();
        if after.blocks == before.blocks + 1 && after.bytes == before.bytes + 384 {
            assert!(cost == (4, 4) || cost == (5, 5), "key {key}: {cost:?}");
            splits += u32::from(cost == (4, 4));
        }
        before = after;
    }
    assert!(splits > 5, "{splits}");
}

#[test]
fn a_reader_of_another_segment_persists_nothing() {
    // There are four segments.
    assert!(beside_a_writer_of_one(Cceh) > 30);
}
