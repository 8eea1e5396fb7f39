//! Arbitrary damage: random bytes laid over an image of a store. Whatever they are, opening,
//! checking and reading end, with an answer, an error or the panic that is documented for links
//! that lead nowhere ([`lapis_pmem::Pool::at`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use lapis::{Hardware, IndexKind, Store};
use lapis_pmem::{Pool, Region};
use proptest::prelude::*;

use crate::fixture::{image, store_root};
use crate::harness::KINDS;

/// Longer than any case takes by orders of magnitude: only what never ends takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the documented panics begin; and what the allocator's assertion says in a debug build when
/// two entries have come to refer to one value and redoing the last record replaces both.
const DOCUMENTED: [&str; 3] = ["the pool is damaged", "the index is damaged", "double free"];

fn open(image: &[u8]) -> Option<Store> {
    let region = Region::anonymous(image.len(), 1 << 26).unwrap();
    // SAFETY: that many bytes are mapped and nobody else knows the region.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), region.base(), image.len()) };
    Store::open_on(Pool::open(region, Hardware::detect()).ok()?).ok()
}

fn read_everything(image: &[u8]) {
    let Some(store) = open(image) else { return };
    let _ = store.check();
    for table in store.tables() {
        let table = store.table(&table.name).unwrap();
        for direction in 0..2 {
            let mut entries = table.iter().unwrap();
            if direction == 1 {
                entries = entries.backward();
            }
            // More entries than the image can have: a cycle.
            let count = entries.take(image.len()).count();
            assert!(count < image.len(), "iteration goes on for ever");
        }
        for key in [b"a".as_slice(), b"long", b"ab\0", &[0, 0, 0, 7]] {
            let _ = table.get(key);
        }
    }
    let _ = store.info(true);
}

/// Runs one case; the error says what is wrong.
fn survives(image: Vec<u8>) -> Result<(), String> {
    let (sender, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| read_everything(&image)));
        let result = result.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
        });
        let _ = sender.send(result);
    });
    match outcome.recv_timeout(PATIENCE) {
        Ok(Err(text)) if !DOCUMENTED.iter().any(|start| text.starts_with(start)) => Err(text),
        Ok(_) => Ok(()),
        Err(_) => Err("it never ends".to_owned()),
    }
}

#[test]
fn the_images_themselves_are_sound() {
    for kind in KINDS {
        let store = open(&image(kind)).unwrap();
        assert!(store.check().ok, "{kind}");
        drop(store);
        read_everything(&image(kind));
    }
}

proptest! {
    // The same cases on every run; other ones are the fuzzer's (fuzz/store_image).
    #![proptest_config(ProptestConfig {
        max_shrink_iters: 0,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn random_bytes_over_what_is_not_zero_do_no_harm(
        kind in prop::sample::select(KINDS.to_vec()),
        spots in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..9)), 1..6),
    ) {
        let mut image = image(kind);
        let used: Vec<usize> = (0..image.len()).step_by(8).filter(|&at| image[at..at + 8] != [0; 8]).collect();
        for (spot, bytes) in spots {
            let at = used[spot.index(used.len())];
            image[at..at + bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        }
        prop_assert_eq!(survives(image), Ok(()));
    }

    #[test]
    fn words_copied_from_elsewhere_in_the_image_do_no_harm(
        kind in prop::sample::select(KINDS.to_vec()),
        copies in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let mut image = image(kind);
        let used: Vec<usize> = (0..image.len()).step_by(8).filter(|&at| image[at..at + 8] != [0; 8]).collect();
        for (from, to) in copies {
            let (from, to) = (used[from.index(used.len())], used[to.index(used.len())]);
            image.copy_within(from..from + 8, to);
        }
        prop_assert_eq!(survives(image), Ok(()));
    }
}

#[test]
fn a_list_of_tables_that_leads_back_into_itself_is_an_error() {
    let mut image = image(IndexKind::Wort);
    let root = store_root(&image);
    let first = u64::from_le_bytes(image[root + 16..root + 24].try_into().unwrap()) as usize;
    image.copy_within(root + 16..root + 24, first);
    assert!(open(&image).is_none());
}
