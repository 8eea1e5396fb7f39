//! When a part is known, on walks over a few words.
//!
//! The walk goes through parts 1, 2 and 3 of which 2 lies in 1. Each reads one word: the first one of
//! the line of its number.

use lapis_device::{Config, LineRead};
use lapis_pmem::{
    EXTENT_BYTES, GenerationLock, LINE_BYTES, LockGeneration, Observed, PCell, Region,
};

use super::*;

struct Walker {
    region: Region,
    domain: Modelled,
    memory: PartMemory<u64>,
}

impl Walker {
    fn new() -> Self {
        let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
        let domain = Modelled::over(&region, Config { watching: true, ..Config::tracking() });
        let mut walker = Self { region, domain, memory: PartMemory::default() };
        walker.memory.begin_point(&[]);
        walker.memory.begin_run(&[]);
        walker
    }

    fn word(&self, line: u32, word: usize) -> &PCell<u64> {
        let offset = line as usize * LINE_BYTES + 8 * word;
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        unsafe { &*self.region.base().add(offset).cast::<PCell<u64>>() }
    }

    fn read(&self, line: u32) -> u64 {
        self.word(line, 0).load(&self.domain)
    }

    /// The parts gone through, and the sum of the words of all.
    fn walk(&mut self) -> (Vec<PartName>, u64) {
        let Self { region, domain, memory } = self;
        let word = |line: PartName| {
            let offset = line as usize * LINE_BYTES;
            // SAFETY: as in `word`.
            unsafe { &*region.base().add(offset).cast::<PCell<u64>>() }.load(domain)
        };
        let mut walk = memory.walk(domain);
        let mut gone = Vec::new();
        let sum = [1, 3].map(|name| go_through(&mut walk, &word, name, &mut gone));
        (gone, sum.iter().sum())
    }

    /// Stores as a run does.
    fn store(&self, line: u32, word: usize, value: u64) {
        self.word(line, word).store(&self.domain, value);
    }

    /// Another run, on an image with these words otherwise.
    fn next_run(&mut self, differing: &[(u32, usize)]) {
        self.domain.revert(&mut self.region);
        let bytes = |&(line, word): &(u32, usize)| BytesOfLine { line, bytes: 0xFF << (8 * word) };
        let differing: Vec<_> = differing.iter().map(bytes).collect();
        self.memory.begin_run(&differing);
    }
}

/// Passes over a part or goes through it; returns the sum of its words.
fn go_through(
    walk: &mut Walk<'_, u64>,
    word: &impl Fn(PartName) -> u64,
    name: PartName,
    gone: &mut Vec<PartName>,
) -> u64 {
    if let Some(sum) = walk.known(name) {
        walk.passed(name);
        return *sum;
    }
    gone.push(name);
    walk.begin(name);
    let inner = if name == 1 { go_through(walk, word, 2, gone) } else { 0 };
    let sum = word(name) + inner;
    let told = walk.keeps().then_some(sum);
    walk.end(told);
    sum
}

const NONE: [PartName; 0] = [];

#[test]
fn what_is_as_it_was_is_passed_over() {
    let mut walker = Walker::new();
    assert_eq!(walker.walk().0, [1, 2, 3]);
    walker.next_run(&[]);
    assert_eq!(walker.walk().0, NONE);
    assert_eq!(walker.memory.passed(), 2, "the inner part went with the one around it");
}

#[test]
fn a_part_is_gone_through_again_where_the_image_has_a_byte_of_it_otherwise() {
    let mut walker = Walker::new();
    walker.walk();
    walker.next_run(&[(2, 0)]);
    assert_eq!(walker.walk().0, [1, 2], "and so is the part around it");
    walker.next_run(&[(3, 0)]);
    assert_eq!(walker.walk().0, [3]);
    walker.next_run(&[(1, 1), (2, 7), (4, 0)]);
    assert_eq!(walker.walk().0, NONE, "those bytes are read in no part");
    walker.next_run(&[(1, 0)]);
    assert_eq!(walker.walk().0, [1], "what lies in it is known all the same");
}

#[test]
fn a_part_is_gone_through_again_where_the_run_has_changed_a_byte_of_it() {
    let mut walker = Walker::new();
    walker.walk();
    walker.next_run(&[]);
    walker.store(2, 0, 5);
    walker.store(3, 1, 6);
    assert_eq!(walker.walk(), (vec![1, 2], 5));
    assert_eq!(walker.walk(), (vec![1, 2], 5), "for the rest of the run");
    walker.store(3, 0, 7);
    assert_eq!(walker.walk(), (vec![1, 2, 3], 12));
    walker.next_run(&[]);
    assert_eq!(walker.walk(), (vec![], 0), "what it came to durably is still known");
}

#[test]
fn what_changes_durably_is_forgotten_until_it_has_been_gone_through() {
    let mut walker = Walker::new();
    walker.walk();
    walker.next_run(&[]);
    walker.memory.changes_durably(BytesOfLine { line: 2, bytes: 0xFF00 });
    assert_eq!(walker.walk().0, NONE, "another word");
    walker.memory.changes_durably(BytesOfLine { line: 2, bytes: 1 });
    // SAFETY: inside the mapped region; what becomes durable is written past the machine.
    unsafe { walker.region.base().add(2 * LINE_BYTES).write(9) };
    assert_eq!(walker.walk(), (vec![1, 2], 9));
    assert_eq!(walker.walk(), (vec![], 9));
}

#[test]
fn nothing_is_learnt_of_a_part_from_an_image_that_has_it_otherwise() {
    let mut walker = Walker::new();
    walker.next_run(&[(2, 0)]);
    assert_eq!(walker.walk().0, [1, 2, 3]);
    assert_eq!(walker.walk().0, [1, 2]);
    walker.next_run(&[]);
    assert_eq!(walker.walk().0, [1, 2]);
    assert_eq!(walker.walk().0, NONE);
}

#[test]
fn a_part_that_lies_in_two_others_makes_both_unknown() {
    let mut walker = Walker::new();
    let through = |walker: &mut Walker, name: PartName| {
        let mut walk = walker.memory.walk(&walker.domain);
        let known = walk.known(name).is_some();
        if !known {
            walk.begin(name);
            if walk.known(2).is_some() {
                walk.passed(2);
            }
            let told = walk.keeps().then_some(0);
            walk.end(told);
        }
        known
    };
    walker.walk();
    assert!(!through(&mut walker, 7) && through(&mut walker, 7));
    walker.next_run(&[(2, 0)]);
    assert!(!through(&mut walker, 7) && !through(&mut walker, 1));
    walker.next_run(&[]);
    walker.memory.changes_durably(BytesOfLine { line: 2, bytes: 1 });
    assert!(!through(&mut walker, 7), "of what lay in it nothing is known any more");
}

#[test]
fn what_is_read_of_watched_lines_is_noted_of_parts_that_are_passed_over() {
    let mut walker = Walker::new();
    walker.walk();
    let watched = [2, 3, 5];
    walker.domain.watch_reads(watched);
    walker.memory.begin_point(&watched);
    let mut reads = Vec::new();
    for differing in [&[][..], &[(3, 0)], &[(1, 0), (2, 0)]] {
        walker.next_run(differing);
        walker.walk();
        walker.domain.take_reads(&mut reads);
        let read = |place| LineRead { place, bytes: 0xFF, by_lock: None };
        assert_eq!(reads, [read(0), read(1)], "whatever was passed over: {differing:?}");
    }
    walker.next_run(&[]);
    walker.store(2, 0, 1);
    walker.walk();
    walker.domain.take_reads(&mut reads);
    assert_eq!(reads.len(), 1, "what was written before it was read is not");
}

#[test]
fn a_part_that_asks_a_lock_is_not_remembered() {
    let mut walker = Walker::new();
    let lock_in_line = 6;
    for _ in 0..2 {
        let mut walk = walker.memory.walk(&walker.domain);
        assert!(walk.known(6).is_none());
        walk.begin(6);
        let offset = lock_in_line * LINE_BYTES;
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        let word = unsafe { &*walker.region.base().add(offset).cast::<PCell<u64>>() };
        walker.domain.note_generation(LockGeneration::of(1));
        let lock = GenerationLock::in_word(word);
        lock.lock(&walker.domain, LockGeneration::of(1));
        lock.unlock(&walker.domain, lock.read(&walker.domain));
        assert!(!walk.keeps());
        walk.end(None);
    }
}

#[test]
fn another_memory_is_known_nothing_of() {
    let mut walker = Walker::new();
    walker.walk();
    walker.memory.forget();
    walker.next_run(&[]);
    assert_eq!(walker.walk().0, [1, 2, 3]);
    assert_eq!(walker.read(1), 0);
}
