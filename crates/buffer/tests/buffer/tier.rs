//! Pages in persistent memory: they get there when they come and go, stay there when the manager goes, and are
//! not taken for what they are not.

use std::sync::Arc;

use lapis_blocks::page::{DirtyLines, PageStore};
use lapis_buffer::page::SMALLEST_PAGE_BYTES;
use lapis_buffer::{
    BufferError, BufferManager, BufferOptions, NoLog, PersistentTier, Placement, TierError,
    TierOptions, TierRoot, WriteAheadLog,
};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{Committed, Hardware, Link, Pool};

use crate::pool::{add, allocate, options, sum, torment, total};

pub(crate) const OPTIONS: TierOptions =
    TierOptions { frames: 30, page_bytes: SMALLEST_PAGE_BYTES, lanes: 4, identity: 11 };
pub(crate) const FRAMES: usize = 12;

/// A pool and an SSD, which outlive their managers.
pub(crate) struct Media {
    pool: Arc<Pool<Hardware>>,
    root: Link<TierRoot>,
    device: ModelledSsd,
}

impl Media {
    pub(crate) fn new(options: &TierOptions) -> Self {
        let pool = Arc::new(Pool::create_anonymous(4 << 20).unwrap());
        let root = pool.fence(PersistentTier::create(&pool, options).unwrap());
        let link = root.link();
        let _: Committed = pool.publish_root("tier", 0, root).unwrap().persist();
        let device = ModelledSsd::new(1, SsdConfig::default()).unwrap();
        Self { pool, root: link, device }
    }

    fn tier(&self) -> PersistentTier<Hardware> {
        PersistentTier::open(Arc::clone(&self.pool), self.root).unwrap()
    }

    pub(crate) fn create(&self, placement: Placement) -> BufferManager<Hardware> {
        self.create_with(&options(FRAMES), placement)
    }

    pub(crate) fn create_with(
        &self,
        options: &BufferOptions,
        placement: Placement,
    ) -> BufferManager<Hardware> {
        self.create_over(Arc::new(NoLog), options, placement)
    }

    pub(crate) fn create_over(
        &self,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
        placement: Placement,
    ) -> BufferManager<Hardware> {
        let device = Arc::new(self.device.clone());
        BufferManager::create_with_tier(self.tier(), device, log, options, placement).unwrap()
    }

    pub(crate) fn open(
        &self,
        placement: Placement,
    ) -> Result<BufferManager<Hardware>, BufferError> {
        self.open_with(&options(FRAMES), placement)
    }

    pub(crate) fn open_with(
        &self,
        options: &BufferOptions,
        placement: Placement,
    ) -> Result<BufferManager<Hardware>, BufferError> {
        let device = Arc::new(self.device.clone());
        let log = Arc::new(NoLog);
        BufferManager::open_with_tier(self.tier(), device, log, options, placement)
    }
}

/// Those with persistent memory, the last with chances by which pages often come to DRAM.
pub(crate) fn placements() -> [Placement; 3] {
    let spitfire = "spitfire:0.2,0.9,0.2,0.5".parse().unwrap();
    [Placement::BasicNvm, Placement::ThreeTier, spitfire]
}

#[test]
fn threads_lose_nothing_in_three_tiers_far_smaller_than_the_data() {
    for placement in placements() {
        let media = Media::new(&OPTIONS);
        let manager = media.create(placement);
        let (pages, rounds) = if cfg!(miri) { (60, 8) } else { (200, 8000) };
        let numbers = allocate(&manager, pages);
        let added = torment(&manager, &numbers, rounds);
        assert_eq!(sum(&manager, &numbers), added);
        let statistics = manager.statistics();
        println!("{placement}: {statistics:?}");
        if !cfg!(miri) {
            let tier = statistics.tier;
            for often in [tier.loads, tier.admissions, tier.denials, tier.evictions] {
                assert!(often > rounds / 10, "{placement}: {statistics:?}");
            }
        }
        manager.close().unwrap();
        drop(manager);
        assert_eq!(sum(&media.open(placement).unwrap(), &numbers), added);
    }
}

#[test]
fn what_fits_into_persistent_memory_is_not_read_from_the_ssd_again() {
    for placement in placements() {
        let media = Media::new(&OPTIONS);
        let manager = media.create(placement);
        let numbers = allocate(&manager, OPTIONS.frames - 2);
        // Denied once, admitted then.
        (0..6).for_each(|_| assert_eq!(sum(&manager, &numbers), 0));
        let before = manager.statistics();
        (0..4).for_each(|_| assert_eq!(sum(&manager, &numbers), 0));
        let after = manager.statistics();
        let in_memory = before.tier.admissions - before.tier.evictions + FRAMES as u64;
        assert!(in_memory >= numbers.len() as u64, "{before:?}");
        assert_eq!(after.loads, before.loads, "{placement}: {after:?}");
        assert!(after.tier.loads > before.tier.loads, "{placement}: {after:?}");
    }
}

#[test]
fn pages_in_persistent_memory_are_used_after_a_restart() {
    for placement in placements() {
        let media = Media::new(&OPTIONS);
        let manager = media.create(placement);
        let numbers = allocate(&manager, 20);
        (0..6).for_each(|_| assert_eq!(sum(&manager, &numbers), 0));
        numbers.iter().for_each(|&number| add(&manager, number, 1));
        manager.write_all().unwrap();
        let (there, _) = manager.resident_pages_in_tier();
        let there = there as u64;
        assert!(there > 10, "{placement}: {:?}", manager.statistics());
        // No close: what is in PM is there.
        drop(manager);
        let manager = media.open(placement).unwrap();
        assert_eq!(sum(&manager, &numbers), 20);
        let statistics = manager.statistics();
        assert_eq!(statistics.tier.kept, there, "{placement}: {statistics:?}");
        assert_eq!(statistics.loads, 20 - there, "{placement}: {statistics:?}");
    }
}

#[test]
fn a_number_that_is_given_out_again_names_the_new_page_after_a_restart() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(Placement::BasicNvm);
    let numbers = allocate(&manager, 20);
    numbers.iter().for_each(|&number| add(&manager, number, 7));
    (0..6).for_each(|_| assert_eq!(sum(&manager, &numbers), 140));
    for &number in &numbers {
        manager.free_page(manager.fix_exclusive(number).unwrap(), 0).unwrap();
        assert!(matches!(
            total(&manager, number),
            Err(BufferError::Space(_) | BufferError::NotInUse { .. })
        ));
    }
    manager.space().unwrap().write_freed(0).unwrap();
    let mut again = allocate(&manager, 20);
    again.sort_unstable();
    assert_eq!(again, numbers);
    manager.close().unwrap();
    drop(manager);
    assert_eq!(sum(&media.open(Placement::BasicNvm).unwrap(), &numbers), 0);
}

#[test]
fn an_ssd_with_pages_in_persistent_memory_is_not_opened_without_them() {
    let media = Media::new(&OPTIONS);
    media.create(Placement::ThreeTier).close().unwrap();
    let device = Arc::new(media.device.clone());
    let refused = BufferManager::open(crate::hardware(), device, Arc::new(NoLog), &options(FRAMES));
    assert!(matches!(refused, Err(BufferError::TierMissing { identity: 11 })), "{refused:?}");
}

#[test]
fn a_tier_of_another_space_is_refused() {
    let (media, other) =
        (Media::new(&OPTIONS), Media::new(&TierOptions { identity: 12, ..OPTIONS }));
    media.create(Placement::ThreeTier).close().unwrap();
    let swapped = Media { device: media.device, ..other };
    let refused = swapped.open(Placement::ThreeTier).unwrap_err();
    let expected = TierError::Foreign { expected: 11, found: 12 };
    assert_eq!(refused.to_string(), expected.to_string());
}

#[test]
fn a_placement_without_persistent_memory_is_refused_a_tier() {
    let media = Media::new(&OPTIONS);
    media.create(Placement::ThreeTier).close().unwrap();
    let refused = media.open(Placement::Ssd).unwrap_err();
    assert!(matches!(refused, BufferError::NoTier { placement: Placement::Ssd }), "{refused}");
}

#[test]
fn what_is_no_tier_is_refused() {
    let pool = Arc::new(Pool::create_anonymous(4 << 20).unwrap());
    let node = pool.allocate::<[lapis_pmem::PCell<u64>; 8]>().unwrap();
    node.iter().for_each(|word| word.store(pool.domain(), 3));
    let link = pool.fence(node.flush()).release();
    let refused = PersistentTier::open(pool, Link::from_bits(link.bits())).unwrap_err();
    assert!(matches!(refused, TierError::NotATier { .. }), "{refused}");
    let pool = Pool::<Hardware>::create_anonymous(4 << 20).unwrap();
    let refused = PersistentTier::create(&pool, &TierOptions { identity: 0, ..OPTIONS });
    assert!(matches!(refused, Err(TierError::NoIdentity)));
}

#[test]
fn a_page_in_persistent_memory_that_is_none_is_named() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(Placement::BasicNvm);
    let numbers = allocate(&manager, 20);
    (0..6).for_each(|_| assert_eq!(sum(&manager, &numbers), 0));
    drop(manager);
    let store = media.pool.at(media.root).store(media.pool.domain());
    let store = PageStore::open(Arc::clone(&media.pool), store).unwrap();
    let frame = (0..).find(|&frame| store.contains(frame).unwrap()).unwrap();
    let strange = vec![9; SMALLEST_PAGE_BYTES];
    let all = DirtyLines::all(SMALLEST_PAGE_BYTES);
    let _: Committed = store.write_page(frame, &strange, &all).unwrap();
    drop(store);
    let refused = PersistentTier::open(Arc::clone(&media.pool), media.root).unwrap_err();
    assert!(matches!(refused, TierError::Page { .. }), "{refused}");
}
