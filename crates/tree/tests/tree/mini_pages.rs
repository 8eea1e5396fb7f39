//! What mini pages are worth: reads of small records of a table that lies in persistent memory, with the same bytes of DRAM.
//! Everything is counted, nothing is timed.

use std::sync::Arc;

use lapis_buffer::{
    BufferManager, BufferOptions, MINI_FRAME_BYTES, NoLog, PersistentTier, Placement, SpaceOptions,
    TierOptions,
};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{Hardware, Pool, Region};
use lapis_tree::{NoStructureLog, Tree};

use crate::{Random, hardware};

const PAGE_BYTES: usize = 16 << 10;
const RECORDS: u64 = 60_000;
const VALUE: [u8; 100] = [7; 100];
const POOL_BYTES: usize = 48 << 20;
const WARM_FRAMES: usize = 1000;
/// Of DRAM, about a seventh of the table.
const DRAM_BYTES: usize = 96 * PAGE_BYTES;
const READS: u64 = 60_000;

/// Of each read.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Lines taken from persistent memory.
    lines: f64,
    /// Pages that were not in DRAM.
    misses: f64,
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A table in persistent memory under so many bytes of DRAM, of which a part are mini frames.
fn table(mini_percent: usize) -> (Tree<Hardware, NoStructureLog>, Arc<BufferManager<Hardware>>) {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    let memory = Arc::new(Pool::create(region, hardware()).unwrap());
    let tier = TierOptions { frames: WARM_FRAMES, page_bytes: PAGE_BYTES, lanes: 8, identity: 1 };
    let root = memory.fence(PersistentTier::create(&memory, &tier).unwrap()).release();
    let tier = PersistentTier::open(memory, root).unwrap();
    let for_minis = DRAM_BYTES * mini_percent / 100;
    let frames = (DRAM_BYTES - for_minis) / PAGE_BYTES;
    let options = BufferOptions {
        frames,
        mini_frames: for_minis / MINI_FRAME_BYTES,
        most_changed_frames: frames / 2,
        swizzling: true,
        space: SpaceOptions { page_bytes: PAGE_BYTES, ..SpaceOptions::default() },
    };
    let device = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
    let placement = Placement::ThreeTier;
    let manager =
        BufferManager::create_with_tier(tier, device, Arc::new(NoLog), &options, placement);
    let manager = Arc::new(manager.unwrap());
    let tree = Tree::create(Arc::clone(&manager), NoStructureLog).unwrap();
    (0..RECORDS).for_each(|number| tree.put(&key(number), &VALUE, 0, None).unwrap());
    manager.write_all().unwrap();
    let mut value = Vec::new();
    // Pages enter that leave DRAM twice.
    for _ in 0..4 {
        for number in 0..RECORDS / 4 {
            assert!(tree.get(&key(number * 4), &mut value).unwrap());
        }
    }
    let (pages, _) = manager.resident_pages_in_tier();
    assert!(pages > 500, "{pages} pages, {:?}", manager.statistics());
    (tree, manager)
}

/// What reads of these records cost, once what they use often is where it will be.
fn reads(mini_percent: usize, mut next: impl FnMut() -> u64) -> Counts {
    let (tree, manager) = table(mini_percent);
    let mut value = Vec::new();
    let mut read = |count| {
        for _ in 0..count {
            assert!(tree.get(&key(next()), &mut value).unwrap());
        }
    };
    read(READS);
    let before = manager.statistics();
    read(READS);
    let after = manager.statistics();
    assert_eq!(before.loads, after.loads, "none is read from the SSD");
    let of_each = |count: u64| count as f64 / READS as f64;
    Counts {
        lines: of_each(after.tier.lines_loaded - before.tier.lines_loaded),
        misses: of_each(after.tier.loads - before.tier.loads),
    }
}

fn uniform() -> impl FnMut() -> u64 + Clone {
    let mut random = Random(1);
    move || random.below(RECORDS)
}

/// Zipf's distribution with exponent 1, as in the paper: the popular records lie anywhere.
fn zipf() -> impl FnMut() -> u64 + Clone {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=RECORDS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut random = Random(1);
    move || {
        let at = random.below(1 << 53) as f64 / (1u64 << 53) as f64 * sum;
        let rank = sums.partition_point(|&below| below < at) as u64;
        rank.wrapping_mul(2_654_435_761) % RECORDS
    }
}

/// With a quarter of DRAM for mini pages, and without.
fn compare(next: impl FnMut() -> u64 + Clone) -> [Counts; 2] {
    let compared = [25, 0].map(|percent| reads(percent, next.clone()));
    println!("{compared:?}");
    compared
}

#[test]
fn with_mini_pages_skewed_reads_take_a_third_fewer_lines_and_miss_half_as_often() {
    let [with, without] = compare(zipf());
    assert!(with.lines * 3.0 < without.lines * 2.0, "{with:?}, {without:?}");
    assert!(with.misses * 2.0 < without.misses, "{with:?}, {without:?}");
}

#[test]
fn with_mini_pages_uniform_reads_take_fewer_lines_and_miss_less_often() {
    let [with, without] = compare(uniform());
    assert!(with.lines < without.lines * 0.9, "{with:?}, {without:?}");
    assert!(with.misses < without.misses * 0.6, "{with:?}, {without:?}");
}

#[test]
#[ignore = "prints how it depends on the share of mini pages"]
fn shares() {
    for percent in [0, 10, 25, 50, 75, 90] {
        let [uniform, zipf] = [reads(percent, uniform()), reads(percent, zipf())];
        println!("{percent:2} %: uniform {uniform:?}, zipf {zipf:?}");
    }
}
