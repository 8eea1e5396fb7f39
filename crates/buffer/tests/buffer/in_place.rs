//! Pages that are read and changed in persistent memory, and the four chances.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lapis_buffer::page::SMALLEST_PAGE_BYTES;
use lapis_buffer::{
    BufferError, BufferManager, Decided, Migration, PageNumber, Placement, TierStatistics,
    WriteAheadLog,
};
use lapis_pmem::Hardware;

use crate::lines::word;
use crate::pool::{ToldLog, add, allocate, options, sum, torment, total};
use crate::tier::{FRAMES, Media, OPTIONS};

type Manager = BufferManager<Hardware>;

fn spitfire(chances: &str) -> Placement {
    Placement::Spitfire(chances.parse::<Migration>().unwrap())
}

/// Everything enters persistent memory and nothing leaves it.
const IN_PLACE: &str = "0,0,1,1";

/// Pages, of which `count` are in persistent memory and not in DRAM.
fn pages_in_memory(manager: &Manager, count: usize) -> Vec<PageNumber> {
    let numbers = allocate(manager, count + FRAMES);
    manager.write_all().unwrap();
    // Whoever leaves DRAM for the last of them does not come back.
    for _ in 0..4 {
        assert_eq!(sum(manager, &numbers), 0);
    }
    let before = manager.statistics();
    let is_there = |page: &PageNumber| {
        let before = manager.statistics().tier.migration.unwrap().dram_reads.otherwise;
        assert_eq!(word(manager, *page, 40), 0);
        manager.statistics().tier.migration.unwrap().dram_reads.otherwise > before
    };
    let found: Vec<_> = numbers.into_iter().filter(is_there).take(count).collect();
    assert_eq!(found.len(), count, "{before:?}");
    found
}

fn tier(manager: &Manager) -> TierStatistics {
    manager.statistics().tier
}

#[test]
fn what_is_read_in_persistent_memory_takes_no_frame_and_loads_no_line() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(spitfire(IN_PLACE));
    let pages = pages_in_memory(&manager, 12);
    let before = manager.statistics();
    for _ in 0..5 {
        assert_eq!(sum(&manager, &pages), 0);
    }
    let after = manager.statistics();
    assert_eq!((after.evictions, after.loads), (before.evictions, before.loads));
    assert_eq!((after.tier.loads, after.tier.lines_loaded), (0, 0), "{after:?}");
    let [was, is] = [before, after].map(|it| it.tier.migration.unwrap().dram_reads);
    assert_eq!((is.so, is.otherwise - was.otherwise), (0, 60));
}

#[test]
fn what_is_changed_in_persistent_memory_is_there_at_once_and_durable() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(spitfire(IN_PLACE));
    let pages = pages_in_memory(&manager, 5);
    let before = tier(&manager);
    pages.iter().zip(1..).for_each(|(&page, count)| add(&manager, page, count));
    let after = tier(&manager);
    assert_eq!(after.writes_in_place - before.writes_in_place, 5);
    // The words that are added to are in four lines, and the header is not changed without a log.
    assert_eq!(after.lines_written - before.lines_written, 20);
    assert_eq!((after.loads, manager.statistics().changed_frames), (0, 0));
    assert_eq!(sum(&manager, &pages), 15);
    // Nothing is written back, nothing is closed.
    drop(manager);
    assert_eq!(sum(&media.open(Placement::BasicNvm).unwrap(), &pages), 15);
}

#[test]
fn each_chance_decides_what_it_says() {
    // Which way all go: into DRAM when read and when changed, into persistent memory from the SSD and from DRAM.
    let run = |chances| {
        let manager = Media::new(&OPTIONS).create(spitfire(chances));
        let numbers = allocate(&manager, 60);
        for round in 0..4 {
            numbers.iter().for_each(|&number| add(&manager, number, 1));
            assert_eq!(sum(&manager, &numbers), 60 * (round + 1));
        }
        let statistics = manager.statistics();
        (statistics.tier, statistics.tier.migration.unwrap())
    };
    let only_so = |decided: Decided| decided.so > 0 && decided.otherwise == 0;
    let only_otherwise = |decided: Decided| decided.otherwise > 0 && decided.so == 0;
    let (tier, found) = run("1,0,0,1");
    assert!(only_so(found.dram_reads) && only_so(found.memory_writes), "{found:?}");
    assert!(tier.loads > 0 && tier.admissions > 0, "{tier:?}");
    assert_eq!((tier.writes_in_place, tier.loads_from_ssd), (0, 0));
    let (tier, found) = run("0,1,1,0");
    assert!(only_otherwise(found.dram_reads) && only_so(found.dram_writes), "{found:?}");
    assert!(only_so(found.memory_reads) && only_otherwise(found.memory_writes), "{found:?}");
    assert!(tier.loads > 0 && tier.loads_from_ssd > 0, "{tier:?}");
    assert_eq!((tier.writes_in_place, tier.admissions), (0, 0));
    let (tier, found) = run("0,0,1,0");
    assert!(only_otherwise(found.dram_writes), "{found:?}");
    // One workspace is enough for one thread.
    assert_eq!(tier.writes_in_place, found.dram_writes.otherwise);
    assert_eq!(tier.loads, 0, "{tier:?}");
}

#[test]
fn a_change_in_persistent_memory_is_written_when_the_log_is_durable_or_stays_in_dram() {
    let (media, log) = (Media::new(&OPTIONS), Arc::new(ToldLog::default()));
    let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
    let manager = media.create_over(hook, &options(FRAMES), spitfire(IN_PLACE));
    let pages = pages_in_memory(&manager, 3);
    let change = |page, lsn| {
        manager.fix_exclusive(page).unwrap().write(lsn).set_word(100, lsn);
    };
    change(pages[0], 41);
    assert_eq!((log.flushed_lsn(), manager.oldest_change()), (41, None));
    log.broken.store(true, Ordering::Relaxed);
    change(pages[1], 42);
    change(pages[2], 43);
    assert_eq!((log.flushed_lsn(), manager.oldest_change()), (41, Some(42)));
    let words = || pages.iter().map(|&page| word(&manager, page, 100)).collect::<Vec<_>>();
    assert_eq!(words(), [41, 42, 43]);
    assert!(matches!(manager.write_all(), Err(BufferError::Log(_))));
    log.broken.store(false, Ordering::Relaxed);
    manager.write_all().unwrap();
    assert_eq!((log.flushed_lsn(), manager.oldest_change()), (43, None));
    assert_eq!(words(), [41, 42, 43]);
    drop(manager);
    let manager = media.open(spitfire(IN_PLACE)).unwrap();
    assert_eq!(pages.iter().map(|&page| word(&manager, page, 100)).sum::<u64>(), 126);
}

#[test]
fn a_page_that_stays_in_a_workspace_is_read_right_whatever_was_there_before() {
    let (media, log) = (Media::new(&OPTIONS), Arc::new(ToldLog::default()));
    let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
    let manager = media.create_over(hook, &options(FRAMES), spitfire(IN_PLACE));
    let pages = pages_in_memory(&manager, 2);
    let (first, second) = (pages[0], pages[1]);
    let lines = || (1..SMALLEST_PAGE_BYTES / 64).map(|line| line * 64 + 8);
    let change = |page, lsn, at| {
        manager.fix_exclusive(page).unwrap().write(lsn).set_word(at, lsn);
    };
    lines().for_each(|at| change(second, at as u64, at));
    log.broken.store(true, Ordering::Relaxed);
    // All of the first page is in the workspace, and stays there until it is freed.
    lines().for_each(|at| change(first, 5000, at));
    manager.free_page(manager.fix_exclusive(first).unwrap(), 5001).unwrap();
    // Then one line of the second is, and stays there.
    change(second, 5002, 48);
    assert_eq!(manager.oldest_change(), Some(5001));
    let words = |manager: &Manager| lines().map(|at| word(manager, second, at)).collect::<Vec<_>>();
    let expected: Vec<_> = lines().map(|at| at as u64).collect();
    assert_eq!((words(&manager), word(&manager, second, 48)), (expected.clone(), 5002));
    lines().for_each(|at| change(second, 5003, at + 8));
    assert_eq!(words(&manager), expected);
    log.broken.store(false, Ordering::Relaxed);
    manager.write_all().unwrap();
    drop(manager);
    assert_eq!(words(&media.open(spitfire(IN_PLACE)).unwrap()), expected);
}

#[test]
fn a_page_that_is_freed_in_persistent_memory_is_gone_and_its_number_is_given_out_again() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(spitfire(IN_PLACE));
    let pages = pages_in_memory(&manager, 4);
    for &page in &pages {
        add(&manager, page, 7);
        manager.free_page(manager.fix_exclusive(page).unwrap(), 0).unwrap();
        let gone = total(&manager, page).unwrap_err();
        assert!(gone.is_not_in_use(), "{gone}");
    }
    manager.space().unwrap().write_freed(0).unwrap();
    let mut again = allocate(&manager, 4);
    again.sort_unstable();
    assert_eq!(again, pages);
    assert_eq!(sum(&manager, &again), 0);
    manager.close().unwrap();
    drop(manager);
    assert_eq!(sum(&media.open(spitfire(IN_PLACE)).unwrap(), &again), 0);
}

#[test]
fn who_goes_on_reading_what_he_has_changed_in_persistent_memory_reads_that() {
    let manager = Media::new(&OPTIONS).create(spitfire(IN_PLACE));
    let page = pages_in_memory(&manager, 1)[0];
    let mut held = manager.fix_exclusive(page).unwrap();
    held.write(0).set_word(1000, 5);
    let page = held.into_optimistic();
    assert_eq!(page.read().word(1000), 5);
    page.validate().unwrap();
    // And may change it again.
    page.exclusive().unwrap().write(0).set_word(1000, 6);
    page.validate().unwrap_err();
}

#[test]
fn more_changes_at_a_time_than_there_are_workspaces_take_frames() {
    let manager = Media::new(&OPTIONS).create(spitfire(IN_PLACE));
    let pages = pages_in_memory(&manager, 3);
    let mut held: Vec<_> = pages.iter().map(|&it| manager.fix_exclusive(it).unwrap()).collect();
    held.iter_mut().zip(1..).for_each(|(page, word)| page.write(0).set_word(100, word));
    drop(held);
    assert_eq!((tier(&manager).writes_in_place, tier(&manager).loads), (1, 2));
    assert_eq!(pages.iter().map(|&page| word(&manager, page, 100)).sum::<u64>(), 6);
}

#[test]
fn threads_lose_nothing_whatever_the_chances_are() {
    for chances in [IN_PLACE, "0.5,0.5,0.5,0.5", "0.1,0,1,1", "0,0.5,0.5,1"] {
        let media = Media::new(&OPTIONS);
        let manager = media.create(spitfire(chances));
        let (pages, rounds) = if cfg!(miri) { (60, 8) } else { (80, 4000) };
        let numbers = allocate(&manager, pages);
        let added = torment(&manager, &numbers, rounds);
        assert_eq!(sum(&manager, &numbers), added);
        let tier = tier(&manager);
        println!("{chances}: {tier:?}");
        let in_place = tier.migration.unwrap().dram_reads.otherwise;
        assert!(cfg!(miri) || tier.writes_in_place > 300 && in_place > 2000, "{chances}: {tier:?}");
        drop(manager);
        let manager = media.open(spitfire(chances)).unwrap();
        // What was changed in DRAM alone is gone, and nothing else; with everything written, nothing is.
        assert!(sum(&manager, &numbers) <= added);
    }
}
