//! A pool far smaller than its data, on real threads; and what it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis_buffer::page::SMALLEST_PAGE_BYTES;
use lapis_buffer::{
    BufferError, BufferManager, BufferOptions, LogError, NoLog, PageDamage, PageKind, PageNumber,
    Placement, SpaceError, SpaceOptions, WriteAheadLog,
};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{BlockDevice, BlockOperation, DirectTransfers, FileDevice, Hardware};

type Manager = BufferManager<Hardware>;

pub(crate) fn options(frames: usize) -> BufferOptions {
    BufferOptions {
        frames,
        mini_frames: 0,
        most_changed_frames: frames / 2,
        swizzling: true,
        space: SpaceOptions { page_bytes: SMALLEST_PAGE_BYTES, batch_pages: 8 },
    }
}

fn device() -> ModelledSsd {
    ModelledSsd::new(1, SsdConfig::default()).unwrap()
}

fn manager(device: &ModelledSsd, frames: usize) -> Manager {
    let device = Arc::new(device.clone());
    BufferManager::create(crate::hardware(), device, Arc::new(NoLog), &options(frames)).unwrap()
}

/// The words of a page that count, in different lines of it.
const WORDS: [usize; 4] = [32, 1000, 2048, 4088];

pub(crate) fn add(manager: &Manager, number: PageNumber, count: u64) {
    let mut page = manager.fix_exclusive(number).unwrap();
    let now = page.read().word(WORDS[0]);
    let mut page = page.write(0);
    WORDS.iter().for_each(|&at| page.set_word(at, now + count));
}

pub(crate) fn total(manager: &Manager, number: PageNumber) -> Result<u64, BufferError> {
    manager.retry(|| {
        let page = manager.fix(number)?;
        let words = WORDS.map(|at| page.read().word(at));
        page.validate()?;
        assert_eq!(words, [words[0]; 4], "half of a change");
        Ok(words[0])
    })
}

pub(crate) fn allocate(manager: &Manager, count: usize) -> Vec<PageNumber> {
    (0..count).map(|_| manager.allocate_page(PageKind(16), |_| 0).unwrap().number()).collect()
}

/// Threads that add to random pages, others that read them, and one that writes back.
pub(crate) fn torment(manager: &Manager, numbers: &[PageNumber], rounds: u64) -> u64 {
    torment_by(manager, numbers, rounds, |number, turn| {
        if !turn.is_multiple_of(3) {
            total(manager, number).unwrap();
            return 0;
        }
        add(manager, number, 1);
        1
    })
}

/// The same with turns that say what they have added.
pub(crate) fn torment_by(
    manager: &Manager,
    numbers: &[PageNumber],
    rounds: u64,
    turn: impl Fn(PageNumber, u64) -> u64 + Sync,
) -> u64 {
    let (turn, stop) = (&turn, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                scope.spawn(move || {
                    let mut random = worker + 1;
                    let turns = (0..rounds).map(|round| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                        let number = numbers[(random >> 33) as usize % numbers.len()];
                        turn(number, round + worker)
                    });
                    turns.sum::<u64>()
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if !manager.write_back_early().unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        joined.into_iter().map(|added| added.unwrap()).sum()
    })
}

pub(crate) fn sum(manager: &Manager, numbers: &[PageNumber]) -> u64 {
    numbers.iter().map(|&number| total(manager, number).unwrap()).sum()
}

#[test]
fn threads_lose_nothing_in_a_pool_far_smaller_than_the_data() {
    let device = device();
    let manager = manager(&device, 12);
    let (pages, rounds) = if cfg!(miri) { (24, 8) } else { (200, 8000) };
    let numbers = allocate(&manager, pages);
    let added = torment(&manager, &numbers, rounds);
    assert_eq!(sum(&manager, &numbers), added);
    let statistics = manager.statistics();
    assert!(statistics.evictions > rounds && statistics.loads > rounds, "{statistics:?}");
    assert!(statistics.pages_written > rounds / 2, "{statistics:?}");
    manager.close().unwrap();
    assert_eq!((manager.statistics().changed_frames, manager.oldest_change()), (0, None));
    drop(manager);
    let device = Arc::new(device);
    let manager =
        BufferManager::open(crate::hardware(), device, Arc::new(NoLog), &options(12)).unwrap();
    assert_eq!(sum(&manager, &numbers), added);
    assert!(manager.space().unwrap().check().is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn threads_lose_nothing_on_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ssd");
    let added;
    let numbers;
    {
        let device = FileDevice::create(&path, 1, DirectTransfers::IfPossible).unwrap();
        let (device, log) = (Arc::new(device), Arc::new(NoLog));
        let manager = BufferManager::create(crate::hardware(), device, log, &options(16)).unwrap();
        numbers = allocate(&manager, 100);
        added = torment(&manager, &numbers, 500);
        manager.close().unwrap();
    }
    let device = Arc::new(FileDevice::open(&path, DirectTransfers::Never).unwrap());
    let manager =
        BufferManager::open(crate::hardware(), device, Arc::new(NoLog), &options(16)).unwrap();
    assert_eq!(sum(&manager, &numbers), added);
}

#[test]
fn no_more_frames_are_changed_than_may_be() {
    let device = device();
    let manager = manager(&device, 16);
    let numbers = allocate(&manager, 100);
    for round in 0..5 {
        for &number in &numbers {
            add(&manager, number, round);
            assert!(manager.statistics().changed_frames <= 8);
        }
    }
    assert!(manager.statistics().back_pressure > 50);
}

#[test]
fn a_page_that_is_used_again_and_again_stays() {
    let device = device();
    let manager = manager(&device, 8);
    let numbers = allocate(&manager, 40);
    manager.write_all().unwrap();
    total(&manager, numbers[0]).unwrap();
    let mut loads_of_others = 0;
    for &number in &numbers[1..] {
        total(&manager, numbers[0]).unwrap();
        let before = manager.statistics().loads;
        total(&manager, number).unwrap();
        loads_of_others += manager.statistics().loads - before;
        let before = manager.statistics().loads;
        total(&manager, numbers[0]).unwrap();
        assert_eq!(manager.statistics().loads, before);
    }
    assert!(loads_of_others > 25);
}

#[test]
fn in_memory_nothing_is_evicted_and_a_full_pool_says_so() {
    let manager = BufferManager::in_memory(crate::hardware(), &options(8)).unwrap();
    assert_eq!(manager.placement(), Placement::MainMemory);
    let numbers = allocate(&manager, 8);
    numbers.iter().for_each(|&number| add(&manager, number, number.get()));
    let full = manager.allocate_page(PageKind(16), |_| 0);
    assert!(matches!(full, Err(BufferError::NoFrame { frames: 8 })));
    let page = manager.fix_exclusive(numbers[3]).unwrap();
    manager.free_page(page, 0).unwrap();
    assert!(matches!(total(&manager, numbers[3]), Err(BufferError::NotInUse { .. })));
    assert_eq!(allocate(&manager, 1), [numbers[3]]);
    assert_eq!(total(&manager, numbers[3]).unwrap(), 0, "a new page is empty");
    assert_eq!(total(&manager, numbers[7]).unwrap(), 8);
    manager.write_all().unwrap();
    manager.close().unwrap();
}

#[test]
fn frames_that_are_all_latched_are_an_error_and_no_wait_for_ever() {
    let device = device();
    let manager = manager(&device, 4);
    let latched: Vec<_> =
        (0..4).map(|_| manager.allocate_page(PageKind(16), |_| 0).unwrap()).collect();
    let full = manager.allocate_page(PageKind(16), |_| 0);
    assert!(matches!(full, Err(BufferError::NoFrame { frames: 4 })));
    drop(latched);
    assert!(manager.allocate_page(PageKind(16), |_| 0).is_ok());
}

#[test]
fn a_page_that_was_freed_is_gone_and_its_number_comes_back() {
    let device = device();
    let manager = manager(&device, 8);
    let numbers = allocate(&manager, 3);
    manager.write_all().unwrap();
    let page = manager.fix_exclusive(numbers[1]).unwrap();
    manager.free_page(page, 0).unwrap();
    let gone = total(&manager, numbers[1]);
    assert!(matches!(gone, Err(BufferError::Space(SpaceError::NotInUse { .. }))), "{gone:?}");
    assert_eq!(allocate(&manager, 1)[0].get(), 4);
    manager.space().unwrap().write_freed(u64::MAX).unwrap();
    assert_eq!(allocate(&manager, 1), [numbers[1]]);
}

#[test]
fn damage_and_failures_are_of_one_page_and_do_not_stay() {
    let device = device();
    let manager = manager(&device, 4);
    let numbers = allocate(&manager, 20);
    manager.write_all().unwrap();
    // Superblock, journal and map come before page 1, and 20 pages are far more than 4 frames.
    device.rot(1 + 2 * 9 + 1, 1, 3);
    for _ in 0..3 {
        match total(&manager, numbers[0]) {
            Err(BufferError::Space(SpaceError::Page { number, damage })) => {
                assert_eq!((number, damage), (numbers[0], PageDamage::Checksum));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(total(&manager, numbers[1]).unwrap(), 0);
    }
    device.fail_after(BlockOperation::Read, 0);
    let failed = total(&manager, numbers[7]);
    assert!(matches!(failed, Err(BufferError::Space(SpaceError::Device(_)))), "{failed:?}");
    assert_eq!(total(&manager, numbers[7]).unwrap(), 0);
}

#[test]
fn a_failed_flush_is_told_to_everybody_who_needs_pages_written_and_reading_goes_on() {
    let device = device();
    let manager = manager(&device, 8);
    let numbers = allocate(&manager, 20);
    manager.write_all().unwrap();
    add(&manager, numbers[0], 5);
    device.fail_after(BlockOperation::Flush, 0);
    assert!(matches!(manager.write_all(), Err(BufferError::Space(SpaceError::Device(_)))));
    for _ in 0..2 {
        let refused = manager.write_all();
        assert!(matches!(refused, Err(BufferError::Space(SpaceError::WritesLost { .. }))));
        assert!(manager.close().is_err());
    }
    assert_eq!(total(&manager, numbers[0]).unwrap(), 5);
    assert_eq!(total(&manager, numbers[19]).unwrap(), 0);
}

/// A log that is durable when it is told to be, unless it is broken.
#[derive(Debug, Default)]
pub(crate) struct ToldLog {
    flushed: AtomicU64,
    pub(crate) broken: AtomicBool,
}

impl WriteAheadLog for ToldLog {
    fn flushed_lsn(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed)
    }

    fn flush_to(&self, lsn: u64) -> Result<(), LogError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(LogError { reason: "it is broken".to_owned() });
        }
        self.flushed.fetch_max(lsn, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_page_is_written_only_when_the_log_is_ahead() {
    let (device, log) = (device(), Arc::new(ToldLog::default()));
    let (medium, hook) = (Arc::new(device.clone()), Arc::clone(&log) as Arc<dyn WriteAheadLog>);
    let manager = BufferManager::create(crate::hardware(), medium, hook, &options(8)).unwrap();
    let mut page = manager.allocate_page(PageKind(16), |_| 41).unwrap();
    page.write(42).set_word(100, 1);
    drop(page);
    assert_eq!(manager.oldest_change(), Some(41));
    log.broken.store(true, Ordering::Relaxed);
    let before = device.counts();
    assert!(matches!(manager.write_all(), Err(BufferError::Log(_))));
    assert_eq!(device.counts(), before);
    log.broken.store(false, Ordering::Relaxed);
    manager.write_all().unwrap();
    assert_eq!(log.flushed_lsn(), 42);
    assert_eq!(manager.oldest_change(), None);
}

#[test]
fn a_pool_of_too_few_frames_is_refused() {
    let refused = BufferManager::in_memory(crate::hardware(), &options(3));
    assert!(matches!(refused, Err(BufferError::TooFewFrames { frames: 3, fewest: 4 })));
}

#[test]
fn redo_begins_with_the_earliest_change_in_whatever_order_they_come() {
    let manager = manager(&device(), 8);
    let number = allocate(&manager, 1)[0];
    manager.write_all().unwrap();
    for (lsn, oldest, latest) in [(20, 20, 20), (10, 10, 20), (15, 10, 20), (25, 10, 25)] {
        let mut page = manager.fix_exclusive(number).unwrap();
        page.write(lsn);
        assert_eq!(page.read().lsn(), latest);
        drop(page);
        assert_eq!(manager.oldest_change(), Some(oldest));
    }
    manager.write_all().unwrap();
    manager.fix_exclusive(number).unwrap().write(12);
    assert_eq!(manager.oldest_change(), Some(12), "though the page's LSN is 25");
}

#[test]
fn a_reserved_page_is_changed_when_it_is_written_and_not_before() {
    let manager = manager(&device(), 8);
    let mut page = manager.reserve_page(PageKind(16)).unwrap();
    assert_eq!(manager.statistics().changed_frames, 0);
    page.write(7);
    let number = page.number();
    drop(page);
    assert_eq!(manager.oldest_change(), Some(7));
    let spare = manager.reserve_page(PageKind(16)).unwrap();
    manager.free_page(spare, 0).unwrap();
    assert_eq!(manager.space().unwrap().used_pages(), 2, "until a batch says that it is free");
    manager.write_all().unwrap();
    assert_eq!(manager.space().unwrap().used_pages(), 1);
    assert_eq!(total(&manager, number).unwrap(), 0);
}

#[test]
fn a_page_that_was_freed_holds_back_the_log_until_it_is_free_on_the_device() {
    let manager = manager(&device(), 8);
    let number = allocate(&manager, 1)[0];
    manager.write_all().unwrap();
    assert_eq!(manager.oldest_change(), None);
    manager.free_page(manager.fix_exclusive(number).unwrap(), 5).unwrap();
    assert_eq!(manager.oldest_change(), Some(5));
    manager.write_all().unwrap();
    assert_eq!(manager.oldest_change(), None);
    assert_eq!(manager.space().unwrap().used_pages(), 0);
}

#[test]
fn a_page_is_freed_without_being_read_whether_it_is_in_memory_or_not() {
    let manager = manager(&device(), 8);
    let numbers = allocate(&manager, 20);
    manager.write_all().unwrap();
    let before = manager.statistics().loads;
    for &number in &numbers {
        manager.free_unread(number, 0).unwrap();
    }
    assert_eq!(manager.statistics().loads, before);
    let again = manager.free_unread(numbers[3], 0);
    assert!(matches!(again, Err(BufferError::Space(SpaceError::NotInUse { .. }))), "{again:?}");
    manager.space().unwrap().write_freed(0).unwrap();
    assert_eq!(manager.space().unwrap().used_pages(), 0);
}
