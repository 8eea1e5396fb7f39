//! Lines that a point lookup loads from persistent memory.

use std::sync::Arc;

use lapis_buffer::page::DEFAULT_PAGE_BYTES;
use lapis_buffer::{BufferOptions, Placement, SpaceOptions};
use lapis_tree::{LeafLayout, NoStructureLog, Tree};

use crate::{LAYOUTS, Random, options, tiered_pool};

const RECORDS: u64 = 40_000;
const GETS: u64 = 4000;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Hundredths of a line that a put writes and that a get loads, of a tree in persistent memory with a tenth of its pages in
/// DRAM.
fn lines_of_a_put_and_a_get(leaves: LeafLayout, value_bytes: usize) -> [u64; 2] {
    let pages = RECORDS as usize * (28 + value_bytes) / (DEFAULT_PAGE_BYTES / 2);
    let space = SpaceOptions { page_bytes: DEFAULT_PAGE_BYTES, ..options(0).space };
    let options = BufferOptions { space, mini_frames: 0, ..options(pages / 20) };
    let manager = tiered_pool(&options, 2 * pages, Placement::ThreeTier);
    let tree = Tree::create_with(Arc::clone(&manager), NoStructureLog, leaves).unwrap();
    for number in 0..RECORDS {
        tree.put(&key(number), &vec![7; value_bytes], 0, None).unwrap();
    }
    let (mut random, mut value) = (Random(1), Vec::new());
    let mut get = || assert!(tree.get(&key(random.below(RECORDS)), &mut value).unwrap());
    // Until all of it is in persistent memory.
    (0..5 * GETS).for_each(|_| get());
    let before = manager.statistics().tier;
    (0..GETS).for_each(|_| get());
    let after = manager.statistics().tier;
    [100 * after.lines_written / RECORDS, 100 * (after.lines_loaded - before.lines_loaded) / GETS]
}

#[test]
fn of_hashed_leaves_a_get_loads_half_of_the_lines_and_a_put_writes_a_quarter_at_most() {
    let measured = |value_bytes| {
        let [sorted, hashed] = LAYOUTS.map(|leaves| lines_of_a_put_and_a_get(leaves, value_bytes));
        println!(
            "values of {value_bytes}: sorted {sorted:?}, hashed {hashed:?} hundredths of a line"
        );
        (sorted, hashed)
    };
    let (sorted, hashed) = measured(8);
    assert!(4 * hashed[0] <= sorted[0] && 2 * hashed[1] <= sorted[1], "{hashed:?} of {sorted:?}");
    // A record of 110 bytes lies in nearly three lines, whatever finds it.
    let (sorted, hashed) = measured(100);
    assert!(hashed[0] < sorted[0] && 4 * hashed[1] <= 3 * sorted[1], "{hashed:?} of {sorted:?}");
}
