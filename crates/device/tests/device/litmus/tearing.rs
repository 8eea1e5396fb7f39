//! Stores that are wider than eight bytes or not aligned, and what a line's eight words may become.

use std::collections::BTreeSet;

use lapis_device::{CrashPoints, ImageBudget, PowerFailDomain};
use lapis_pmem::Domain;

use crate::litmus::bench::{B, Bench};

/// The first bytes that memory may hold at the end, with all subsets of words of a line enumerated.
fn bytes_at_end<const N: usize>(bench: &Bench) -> BTreeSet<[u8; N]> {
    let trace = bench.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr).with_exact_units(8);
    points.advance().unwrap();
    let states = points.states();
    assert!(states.is_exact());
    let budget = ImageBudget { exhaustive_limit: u64::MAX, ..ImageBudget::default() };
    let images = states.images(budget).map(|image| {
        let mut memory = [0; 128];
        for (line, bytes) in states.overrides(&image) {
            memory[line as usize * 64..][..64].copy_from_slice(&bytes);
        }
        memory[..N].try_into().unwrap()
    });
    images.collect()
}

fn copy(bench: &Bench, offset: usize, bytes: &[u8]) {
    // SAFETY: inside the mapped region, and no other thread uses it.
    unsafe { bench.domain.copy(bench.region.base().add(offset), bytes) };
}

#[test]
fn sixteen_bytes_tear_into_two_words_in_either_order() {
    let bench = Bench::new();
    copy(&bench, 0, &[1; 16]);
    let legal = [[0u8; 16], [1; 16]].into_iter().chain([
        std::array::from_fn(|at| u8::from(at < 8)),
        std::array::from_fn(|at| u8::from(at >= 8)),
    ]);
    assert_eq!(bytes_at_end::<16>(&bench), legal.collect());
}

#[test]
fn eight_unaligned_bytes_tear_at_the_boundary_of_the_words() {
    let bench = Bench::new();
    copy(&bench, 5, &[1; 8]);
    let torn = |range: std::ops::Range<usize>| -> [u8; 16] {
        std::array::from_fn(|at| u8::from(range.contains(&at)))
    };
    let legal = BTreeSet::from([torn(0..0), torn(5..8), torn(8..13), torn(5..13)]);
    assert_eq!(bytes_at_end::<16>(&bench), legal);
}

#[test]
fn four_aligned_bytes_within_a_word_are_whole() {
    let bench = Bench::new();
    copy(&bench, 4, &[1; 4]);
    assert_eq!(bytes_at_end::<8>(&bench), BTreeSet::from([[0; 8], [0, 0, 0, 0, 1, 1, 1, 1]]));
}

#[test]
fn a_store_across_two_lines_tears_between_them() {
    let bench = Bench::new();
    copy(&bench, 62, &[1; 4]);
    let found: BTreeSet<[u8; 4]> = bytes_at_end::<128>(&bench)
        .into_iter()
        .map(|memory| memory[62..66].try_into().unwrap())
        .collect();
    let legal = BTreeSet::from([[0; 4], [1, 1, 0, 0], [0, 0, 1, 1], [1; 4]]);
    assert_eq!(found, legal);
}

#[test]
fn a_flush_of_one_line_makes_its_part_of_a_store_across_two_durable() {
    let bench = Bench::new();
    copy(&bench, 62, &[1; 4]);
    bench.flush(0);
    bench.fence();
    // Byte 62 is the last but one of the first line's words, byte 65 the second of the next line's.
    let halves: BTreeSet<[u8; 2]> = bench
        .at_end([7, B])
        .into_iter()
        .map(|[first, second]| [first.to_le_bytes()[6], second.to_le_bytes()[1]])
        .collect();
    assert_eq!(halves, BTreeSet::from([[1, 0], [1, 1]]));
}

#[test]
fn a_whole_line_of_unordered_words_has_all_256_states_when_asked_for() {
    for nontemporal in [false, true] {
        let bench = Bench::new();
        if nontemporal {
            bench.nontemporal(0, &[u64::MAX; 8]);
        } else {
            bench.copy(0, &[u64::MAX; 8]);
        }
        let masks: BTreeSet<u8> = bytes_at_end::<64>(&bench)
            .iter()
            .map(|line| (0..8).fold(0, |mask, word| mask | (line[word * 8] & 1) << word))
            .collect();
        assert_eq!(masks.len(), 256);
    }
}

/// What exploration does instead, for its images would be too many: every state given is legal, and
/// those that violations hide in are there, but not all.
#[test]
fn by_default_a_line_of_more_than_three_unordered_words_is_thinned() {
    let bench = Bench::new();
    bench.copy(0, &[1; 4]);
    let trace = bench.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::Adr);
    points.advance().unwrap();
    let states = points.states();
    assert!(!states.is_exact());
    // Of the 16 subsets the prefixes (5), each word alone (3 more) and each word missing (3 more).
    assert_eq!(states.image_count(), 5 + 3 + 3);
}
