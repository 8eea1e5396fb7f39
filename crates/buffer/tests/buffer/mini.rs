//! Mini pages: frames of sixteen lines. Pages have 4 KiB, which are 64 lines.

use lapis_buffer::page::SMALLEST_PAGE_BYTES;
use lapis_buffer::{BufferManager, BufferOptions, PageNumber, Placement, TierOptions};
use lapis_pmem::Hardware;
use proptest::prelude::*;

use crate::lines::{during, word};
use crate::pool::{allocate, options, sum, torment_by};
use crate::tier::{FRAMES, Media, OPTIONS};

type Manager = BufferManager<Hardware>;

const LINES: usize = SMALLEST_PAGE_BYTES / 64;

/// Few whole frames, which others keep busy, and so many mini frames.
fn with_minis(mini_frames: usize) -> BufferOptions {
    BufferOptions { mini_frames, ..options(FRAMES) }
}

/// Pages that are in mini frames, with their headers, and a manager of them.
fn mini_pages(media: &Media, count: usize) -> (Manager, Vec<PageNumber>) {
    let manager = media.create_with(&with_minis(16), Placement::ThreeTier);
    let pages = allocate(&manager, 40);
    (0..8).for_each(|_| assert_eq!(sum(&manager, &pages), 0));
    // Which frame a page takes depends on where the clock is.
    let is_mini = |page: &PageNumber| {
        let loaded = during(&manager, || assert_eq!(word(&manager, *page, 40), 0));
        (loaded.mini_loads, loaded.lines_loaded) == (1, 1)
    };
    let minis: Vec<_> = pages.into_iter().filter(is_mini).take(count).collect();
    assert_eq!(minis.len(), count, "{:?}", manager.statistics());
    (manager, minis)
}

/// The first words of lines.
fn words(
    manager: &Manager,
    page: PageNumber,
    lines: impl Iterator<Item = usize> + Clone,
) -> Vec<u64> {
    let read = manager.retry(|| {
        let page = manager.fix(page)?;
        let words = lines.clone().map(|line| page.read().word(line * 64 + 48)).collect();
        page.validate()?;
        Ok(words)
    });
    read.unwrap()
}

#[test]
fn sixteen_lines_of_a_page_are_read_and_changed_in_a_mini_frame() {
    let media = Media::new(&OPTIONS);
    let (manager, pages) = mini_pages(&media, 1);
    let page = pages[0];
    let used = during(&manager, || {
        let mut held = manager.fix_exclusive(page).unwrap();
        let mut view = held.write(0);
        (0..16).for_each(|line| view.set_word(line * 192 + 48, line as u64));
        drop(held);
        let expected: Vec<_> = (0..16).collect();
        assert_eq!(words(&manager, page, (0..16).map(|line| line * 3)), expected);
    });
    assert_eq!((used.lines_loaded, used.promotions), (15, 0));
    let written = during(&manager, || manager.write_all().unwrap());
    assert_eq!((written.pages_written, written.lines_written), (1, 16));
    drop(manager);
    let manager = media.open(Placement::BasicNvm).unwrap();
    assert_eq!([0, 9, 45].map(|line| word(&manager, page, line * 64 + 48)), [0, 3, 15]);
}

#[test]
fn a_reader_of_one_line_more_finds_the_page_promoted_and_no_line_is_loaded_twice() {
    let media = Media::new(&OPTIONS);
    let (manager, pages) = mini_pages(&media, 1);
    let few = during(&manager, || assert_eq!(words(&manager, pages[0], 0..16), [0; 16]));
    assert_eq!((few.lines_loaded, few.promotions), (15, 0));
    let more = during(&manager, || assert_eq!(words(&manager, pages[0], 0..20), [0; 20]));
    assert_eq!((more.lines_loaded, more.promotions, more.loads), (4, 1, 0));
    let all = during(&manager, || assert_eq!(words(&manager, pages[0], 0..LINES), [0; LINES]));
    assert_eq!((all.lines_loaded as usize, all.promotions), (LINES - 20, 0));
}

#[test]
fn a_change_of_one_line_more_promotes_the_page_and_keeps_what_was_changed() {
    let media = Media::new(&OPTIONS);
    let (manager, pages) = mini_pages(&media, 1);
    let changed = during(&manager, || {
        let mut held = manager.fix_exclusive(pages[0]).unwrap();
        let mut view = held.write(0);
        for line in 0..LINES {
            view.set_word(line * 64 + 48, line as u64);
            // Views that were there before find the lines where they are now.
            assert_eq!(view.read().word(line / 2 * 64 + 48), line as u64 / 2);
        }
    });
    assert_eq!((changed.lines_loaded as usize, changed.promotions), (LINES - 1, 1));
    let expected: Vec<_> = (0..LINES as u64).collect();
    assert_eq!(words(&manager, pages[0], 0..LINES), expected);
    manager.close().unwrap();
    drop(manager);
    let manager = media.open(Placement::ThreeTier).unwrap();
    assert_eq!(words(&manager, pages[0], 0..LINES), expected);
}

#[test]
fn who_finds_no_spare_block_changes_a_page_that_was_promoted_first() {
    let media = Media::new(&OPTIONS);
    let (manager, pages) = mini_pages(&media, 3);
    let used = during(&manager, || {
        let mut held: Vec<_> =
            pages.iter().map(|&page| manager.fix_exclusive(page).unwrap()).collect();
        for (page, at) in held.iter_mut().zip(1..) {
            let mut view = page.write(0);
            (0..LINES).for_each(|line| view.set_word(line * 64 + 48, at));
        }
    });
    // The first has the only spare block.
    assert_eq!(used.promotions, 3);
    for (page, at) in pages.into_iter().zip(1..) {
        assert_eq!(words(&manager, page, 0..LINES), [at; LINES]);
    }
}

#[test]
fn whoever_reads_a_whole_page_has_it_promoted() {
    let media = Media::new(&OPTIONS);
    let (manager, pages) = mini_pages(&media, 1);
    let read = during(&manager, || {
        let whole = manager.retry(|| {
            let page = manager.fix(pages[0])?;
            page.make_resident(0..SMALLEST_PAGE_BYTES);
            page.validate()?;
            Ok(())
        });
        whole.unwrap();
    });
    assert_eq!((read.lines_loaded as usize, read.promotions), (LINES - 1, 1));
}

#[test]
fn inner_nodes_take_whole_frames() {
    let manager = Media::new(&OPTIONS).create_with(&with_minis(16), Placement::ThreeTier);
    let numbers = allocate(&manager, 40);
    for &number in &numbers {
        manager.fix_exclusive(number).unwrap().write(0).set_references(64, 4);
    }
    (0..8).for_each(|_| assert_eq!(sum(&manager, &numbers), 0));
    let tier = manager.statistics().tier;
    assert!(tier.loads > 20, "{tier:?}");
    assert_eq!((tier.mini_loads, tier.lines_loaded), (0, LINES as u64 * tier.loads));
}

#[test]
fn where_lines_do_not_move_there_are_no_mini_frames() {
    let media = Media::new(&OPTIONS);
    let manager = media.create_with(&with_minis(16), Placement::BasicNvm);
    let [pages, minis] = manager.resident_pages();
    assert_eq!((pages.frames, minis.frames), (FRAMES, 0));
    drop(manager);
    let media = Media::new(&OPTIONS);
    let manager = media.create_with(&with_minis(16), Placement::ThreeTier);
    let [pages, minis] = manager.resident_pages();
    assert_eq!((pages.frames, pages.frame_bytes), (FRAMES, SMALLEST_PAGE_BYTES));
    assert_eq!((minis.frames, minis.frame_bytes), (16, 1024));
}

/// What is done to a page of the property below.
#[derive(Clone, Debug)]
enum Step {
    Read { page: usize, at: usize, bytes: usize },
    Write { page: usize, at: usize, bytes: usize, value: u8 },
    Move { page: usize, from: usize, to: usize, bytes: usize },
    Scan { page: usize },
    WriteBack,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (page, at) = (0..14usize, 32..3000usize);
    let step = prop_oneof![
        6 => (page.clone(), at.clone(), 0..600usize)
            .prop_map(|(page, at, bytes)| Step::Read { page, at, bytes }),
        6 => (page.clone(), at.clone(), 0..200usize, any::<u8>())
            .prop_map(|(page, at, bytes, value)| Step::Write { page, at, bytes, value }),
        1 => (page.clone(), at.clone(), at, 0..1000usize)
            .prop_map(|(page, from, to, bytes)| Step::Move { page, from, to, bytes }),
        1 => page.prop_map(|page| Step::Scan { page }),
        1 => Just(Step::WriteBack),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, if cfg!(miri) { 1..20 } else { 1..300 })
}

fn read_bytes(manager: &Manager, page: PageNumber, at: usize, bytes: usize) -> Vec<u8> {
    let read = manager.retry(|| {
        let (page, mut into) = (manager.fix(page)?, vec![0; bytes]);
        page.read().copy_to(at, &mut into);
        page.validate()?;
        Ok(into)
    });
    read.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn pages_in_tiny_pools_hold_what_a_map_holds(
        steps in steps(),
        mini_frames in 1..6usize,
        chances in proptest::option::of(proptest::array::uniform4(0..=4u16)),
    ) {
        let placement = chances.map_or(Placement::ThreeTier, |chances| {
            let chances = chances.map(|quarters| (f64::from(quarters) / 4.0).to_string());
            format!("spitfire:{}", chances.join(",")).parse().unwrap()
        });
        let tier = TierOptions { frames: 9, ..OPTIONS };
        let options = BufferOptions { mini_frames, ..options(4) };
        let media = Media::new(&tier);
        let mut manager = media.create_with(&options, placement);
        let numbers = allocate(&manager, 14);
        let mut model = vec![vec![0; SMALLEST_PAGE_BYTES]; numbers.len()];
        for step in steps {
            match step {
                Step::Read { page, at, bytes } => {
                    let found = read_bytes(&manager, numbers[page], at, bytes);
                    prop_assert_eq!(&found, &model[page][at..at + bytes]);
                }
                Step::Write { page, at, bytes, value } => {
                    let from: Vec<_> = (0..bytes).map(|byte| value ^ byte as u8).collect();
                    manager.fix_exclusive(numbers[page]).unwrap().write(0).copy_from(at, &from);
                    model[page][at..at + bytes].copy_from_slice(&from);
                }
                Step::Move { page, from, to, bytes } => {
                    let mut held = manager.fix_exclusive(numbers[page]).unwrap();
                    held.write(0).move_within(from, to, bytes);
                    model[page].copy_within(from..from + bytes, to);
                }
                Step::Scan { page } => {
                    let whole = 32..SMALLEST_PAGE_BYTES;
                    let found = read_bytes(&manager, numbers[page], 32, whole.len());
                    prop_assert_eq!(&found, &model[page][whole]);
                }
                Step::WriteBack => _ = manager.write_back().unwrap(),
                Step::Reopen => {
                    manager.close().unwrap();
                    drop(manager);
                    manager = media.open_with(&options, placement).unwrap();
                }
            }
        }
        for (number, page) in numbers.iter().zip(&model) {
            let found = read_bytes(&manager, *number, 32, SMALLEST_PAGE_BYTES - 32);
            prop_assert_eq!(&found, &page[32..]);
        }
    }
}

/// Makes the first words of the lines of a page one more, of few lines or all, or reads them.
fn turn(manager: &Manager, page: PageNumber, turn: u64) -> u64 {
    let all = turn.is_multiple_of(7);
    let lines = (0..LINES).filter(|line| all || line.is_multiple_of(9));
    if turn.is_multiple_of(3) {
        let mut page = manager.fix_exclusive(page).unwrap();
        let now = page.read().word(48);
        let mut view = page.write(0);
        // All of these are the same, and the others are of an earlier turn.
        lines.for_each(|line| view.set_word(line * 64 + 48, now + 1));
        1
    } else {
        let found = words(manager, page, lines);
        let few: Vec<_> = found.iter().step_by(if all { 9 } else { 1 }).collect();
        assert!(few.iter().all(|word| **word == found[0]), "half of a change: {found:?}");
        0
    }
}

#[test]
fn threads_lose_nothing_in_mini_frames() {
    let media = Media::new(&OPTIONS);
    let options = BufferOptions { mini_frames: 8, ..options(8) };
    let manager = media.create_with(&options, Placement::ThreeTier);
    let (pages, rounds) = if cfg!(miri) { (30, 8) } else { (60, 8000) };
    let numbers = allocate(&manager, pages);
    let added = torment_by(&manager, &numbers, rounds, |page, at| turn(&manager, page, at));
    let total = |manager: &Manager| numbers.iter().map(|&it| word(manager, it, 48)).sum::<u64>();
    assert_eq!(total(&manager), added);
    let tier = manager.statistics().tier;
    println!("{tier:?}");
    assert!(cfg!(miri) || tier.promotions > 1000 && tier.mini_loads > 1000, "{tier:?}");
    manager.close().unwrap();
    drop(manager);
    assert_eq!(total(&media.open_with(&options, Placement::ThreeTier).unwrap()), added);
}
