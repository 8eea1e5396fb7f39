//! Trees on pages: against a map, among threads, on schedules of the modelled machine, and redone from the log.

mod damage;
mod interleavings;
mod lines;
mod mini_pages;
mod model;
mod recovery;
mod threads;

use std::sync::Arc;

use lapis_buffer::{
    BufferManager, BufferOptions, NoLog, PersistentTier, Placement, SpaceOptions, TierOptions,
};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{FlushMethod, Hardware, Pool, Region};
use lapis_tree::LeafLayout;

const LAYOUTS: [LeafLayout; 2] = [LeafLayout::Sorted, LeafLayout::Hashed];

/// This machine, of which pages in DRAM need no flush.
fn hardware() -> Hardware {
    Hardware::with_method(FlushMethod::PageCacheNone).expect("it takes no instruction")
}

/// Small pages in few frames.
fn options(frames: usize) -> BufferOptions {
    BufferOptions {
        frames,
        mini_frames: frames / 2,
        most_changed_frames: frames / 2,
        swizzling: true,
        space: SpaceOptions { page_bytes: 4096, batch_pages: 8 },
    }
}

/// A pool of so many frames over an SSD that loses nothing.
fn pool(frames: usize) -> Arc<BufferManager<Hardware>> {
    let device = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
    let made = BufferManager::create(hardware(), device, Arc::new(NoLog), &options(frames));
    Arc::new(made.unwrap())
}

/// The same, with so many frames of persistent memory between.
fn tiered_pool(
    options: &BufferOptions,
    warm_frames: usize,
    placement: Placement,
) -> Arc<BufferManager<Hardware>> {
    let page_bytes = options.space.page_bytes;
    let memory_bytes = (2 * warm_frames * page_bytes).next_multiple_of(4 << 20);
    let region = Region::anonymous(memory_bytes, memory_bytes).unwrap();
    let memory = Arc::new(Pool::create(region, hardware()).unwrap());
    let tier = TierOptions { frames: warm_frames, page_bytes, lanes: 8, identity: 1 };
    let root = memory.fence(PersistentTier::create(&memory, &tier).unwrap()).release();
    let tier = PersistentTier::open(memory, root).unwrap();
    let device = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
    let log = Arc::new(NoLog);
    let made = BufferManager::create_with_tier(tier, device, log, options, placement);
    Arc::new(made.unwrap())
}

/// A sequence of numbers that look random.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
