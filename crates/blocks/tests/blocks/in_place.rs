//! Cells that are updated in place: values, counts and refusals.

use std::sync::Arc;

use lapis_blocks::in_place::{
    Arithmetic, CellArray, CellArrayRoot, CellKind, CowCell, FamCell, InPlace, InPlaceError,
    LogCell,
};
use lapis_blocks::log::{Layout, Log, Placement};
use lapis_blocks::pop_log::PopLog;
use lapis_blocks::{LogKind, with_cell, with_log};
use lapis_device::{Config, Counts, Modelled};
use lapis_pmem::{Domain, Hardware, Link, Pool, Region};
use proptest::prelude::*;

const POOL_BYTES: usize = 1 << 20;
/// A log that is small enough to be full now and then.
const LOG: Layout = Layout { bytes: 8192, placement: Placement::Padded, size_fields: 1 };

fn modelled_pool() -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    let machine = Modelled::over(&region, Config::counting());
    Arc::new(Pool::create(region, machine).unwrap())
}

fn hardware_pool() -> Arc<Pool<Hardware>> {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    Arc::new(Pool::create(region, Hardware::detect()).unwrap())
}

fn log_cells<D: Domain>(pool: &Arc<Pool<D>>) -> LogCell<D, PopLog<D>> {
    LogCell::make_in(pool, LOG).unwrap()
}

fn array<D: Domain, S: InPlace<D>>(
    pool: &Arc<Pool<D>>,
    scheme: S,
    value_bytes: usize,
    len: usize,
) -> CellArray<D, S> {
    let made = pool.fence(CellArray::create(pool, &scheme, value_bytes, len).unwrap());
    let root = made.link();
    let _ = pool.publish_root("cells", 0, made).unwrap().persist();
    CellArray::open(pool, scheme, root).unwrap()
}

/// Barriers and lines written per update of values of 16, 32 and 64 bytes.
fn costs<S: InPlace<Modelled>>(scheme: impl Fn(&Arc<Pool<Modelled>>) -> S) -> [(u64, u64); 3] {
    [16, 32, 64].map(|value_bytes| {
        let pool = modelled_pool();
        let cells = array(&pool, scheme(&pool), value_bytes, 4);
        let value = vec![7; value_bytes];
        cells.update(0, &value).unwrap();
        let before = pool.domain().counts();
        // Two, because the copies of a copy-on-write cell take turns.
        cells.update(0, &value).unwrap();
        cells.update(0, &value).unwrap();
        let Counts { fences, flushes, wpq_flush, .. } = pool.domain().counts() - before;
        assert_eq!(flushes, wpq_flush, "every line flushed was dirty");
        assert!(fences % 2 == 0 && flushes % 2 == 0, "two updates cost the same");
        (fences / 2, flushes / 2)
    })
}

#[test]
fn a_copy_on_write_update_takes_two_barriers_and_two_lines() {
    assert_eq!(costs(|_| CowCell), [(2, 2), (2, 2), (2, 2)]);
}

#[test]
fn a_logged_update_takes_the_lines_of_the_paper_and_the_barriers_of_an_append_and_one() {
    fn is_logged<L: Log<Modelled>>() {
        for size_fields in [1, 8] {
            let layout = Layout { size_fields, ..LOG };
            // A footer or a size is a barrier and a line more.
            let more = L::BARRIERS - 1;
            let expected = [(2, 2), (2, 2), (2, 3)].map(|(a, b)| (a + more, b + more));
            let found = costs(|pool| LogCell::<_, L>::make_in(pool, layout).unwrap());
            assert_eq!(found, expected, "{}", L::NAME);
        }
    }
    for kind in LogKind::ALL {
        with_log!(kind, Modelled, |L| is_logged::<L>());
    }
}

#[test]
fn an_update_of_failure_atomic_memory_takes_one_barrier_and_the_lines_of_the_paper() {
    assert_eq!(costs(|_| FamCell::default()), [(1, 1), (1, 2), (1, 3)]);
}

#[test]
fn cells_take_the_words_of_their_scheme() {
    let words = |value_bytes| {
        let fam = FamCell::default();
        [
            InPlace::<Hardware>::cell_words(&CowCell, value_bytes),
            InPlace::<Hardware>::cell_words(&fam, value_bytes),
        ]
    };
    assert_eq!(words(16), [5, 5]);
    assert_eq!(words(64), [17, 17]);
    assert_eq!(words(256), [65, 67]);
}

/// Updates until the log has been full several times, and opens everything anew.
fn holds_what_was_stored<L: Log<Hardware>>(layout: Layout) {
    let pool = hardware_pool();
    let cells = array(&pool, LogCell::<_, L>::make_in(&pool, layout).unwrap(), 40, 3);
    let value = |round: u64| [round.to_le_bytes(), (!round).to_le_bytes()].concat().repeat(3);
    for round in 0..3000u64 {
        cells.update((round % 3) as usize, &value(round)[..40]).unwrap();
    }
    let log = cells.scheme().log();
    assert!(log.end().number() - log.start().number() <= 1024, "{}", L::NAME);
    let root = cells.root();
    drop(cells);
    let cells = CellArray::open(&pool, LogCell::<_, L>::open_in(&pool).unwrap(), root).unwrap();
    let mut found = [0; 40];
    for last in 2997..3000u64 {
        cells.read((last % 3) as usize, &mut found).unwrap();
        assert_eq!(found, value(last)[..40], "{}", L::NAME);
    }
}

#[test]
fn a_full_log_of_cells_is_cleared_and_values_stay_whatever_the_log() {
    for kind in LogKind::ALL {
        for placement in Placement::ALL {
            for size_fields in [1, 64] {
                let layout = Layout { placement, size_fields, ..LOG };
                with_log!(kind, Hardware, |L| holds_what_was_stored::<L>(layout));
            }
        }
    }
}

#[test]
fn clearing_the_log_leaves_no_entry_that_names_a_cell() {
    let pool = hardware_pool();
    let cells = array(&pool, log_cells(&pool), 16, 3);
    cells.update(1, &[5; 16]).unwrap();
    cells.scheme().clear_log().unwrap();
    assert_eq!(cells.scheme().log().iter().count(), 0);
}

#[test]
fn an_array_opens_again_with_its_values_in_either_arithmetic() {
    let pool = hardware_pool();
    let cells = array(&pool, FamCell::with(Arithmetic::Scalar).unwrap(), 100, 7);
    let value: Vec<u8> = (0..100).map(|byte| byte * 2).collect();
    cells.update(6, &value).unwrap();
    let root = cells.root();
    drop(cells);
    let cells = CellArray::open(&pool, FamCell::default(), root).unwrap();
    let mut found = vec![0; 100];
    cells.read(6, &mut found).unwrap();
    assert_eq!(found, value);
}

#[test]
fn impossible_arrays_are_refused() {
    let pool = hardware_pool();
    let create = |value_bytes, len| CellArray::create(&pool, &CowCell, value_bytes, len).map(drop);
    assert!(matches!(create(7, 1), Err(InPlaceError::BadValueSize { value_bytes: 7 })));
    assert!(matches!(create(257, 1), Err(InPlaceError::BadValueSize { value_bytes: 257 })));
    assert!(matches!(create(8, 0), Err(InPlaceError::NoCells)));
    assert!(matches!(create(8, POOL_BYTES), Err(InPlaceError::Full(_))));
    assert!(matches!(create(8, usize::MAX / 2), Err(InPlaceError::Full(_))));
    create(8, 1).unwrap();
}

#[test]
fn cells_that_are_not_there_and_values_of_another_size_are_refused() {
    let cells = array(&hardware_pool(), CowCell, 16, 3);
    let beyond = cells.update(3, &[1; 16]);
    assert!(matches!(beyond, Err(InPlaceError::NoSuchCell { index: 3, len: 3 })));
    let longer = cells.update(2, &[1; 17]);
    assert!(matches!(longer, Err(InPlaceError::WrongLength { value_bytes: 16, given_bytes: 17 })));
    assert!(matches!(cells.read(0, &mut [0; 8]), Err(InPlaceError::WrongLength { .. })));
}

#[test]
fn another_kinds_reader_is_refused() {
    let pool = hardware_pool();
    let root = array(&pool, CowCell, 16, 3).root();
    let error = CellArray::open(&pool, FamCell::default(), root).unwrap_err();
    assert!(matches!(
        error,
        InPlaceError::OtherKind { found: CellKind::Cow, expected: CellKind::Fam }
    ));
}

#[test]
fn what_is_no_array_is_refused() {
    let pool = hardware_pool();
    for offset in [0, 64, POOL_BYTES as u64 - 64, 1 << 40] {
        let error = CellArray::open(&pool, CowCell, Link::from_bits(offset)).unwrap_err();
        assert!(matches!(error, InPlaceError::NotAnArray { .. }), "{offset}: {error}");
    }
}

/// Changes a word of the header, counted in words.
fn with_header_word(word: usize, value: u64) -> InPlaceError {
    let pool = hardware_pool();
    let root: Link<CellArrayRoot> = array(&pool, CowCell, 16, 3).root();
    let header = pool.try_slice(root.cast::<lapis_pmem::PCell<u64>>(), 8).unwrap();
    header[word].store(pool.domain(), value);
    CellArray::open(&pool, CowCell, root).unwrap_err()
}

#[test]
fn a_newer_format_and_a_damaged_header_are_refused() {
    assert!(matches!(with_header_word(1, 2), InPlaceError::NewerVersion { found: 2, .. }));
    for word in [2, 3, 4, 5] {
        let error = with_header_word(word, 9);
        assert!(matches!(error, InPlaceError::Damaged { .. }), "word {word}: {error}");
    }
}

#[test]
fn a_cell_that_no_crash_leaves_behind_is_reported_and_left() {
    let pool = hardware_pool();
    let cells = array(&pool, FamCell::default(), 16, 2);
    cells.update(1, &[3; 16]).unwrap();
    let root = cells.root();
    let words = pool.try_slice(root.cast::<lapis_pmem::PCell<u64>>(), 24).unwrap();
    let damaged = words[17].load(pool.domain()) ^ 1 << 63;
    words[17].store(pool.domain(), damaged);
    drop(cells);
    let error = CellArray::open(&pool, FamCell::default(), root).unwrap_err();
    assert!(matches!(error, InPlaceError::Damaged { .. }), "{error}");
    assert_eq!(words[17].load(pool.domain()), damaged);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn cells_hold_what_was_last_stored_in_them(
        (value_bytes, updates) in (8usize..=256).prop_flat_map(|bytes| {
            let value = prop::collection::vec(any::<u8>(), bytes);
            (Just(bytes), prop::collection::vec((0usize..4, value), 0..24))
        }),
        kind in prop::sample::select(CellKind::ALL.to_vec()),
    ) {
        fn agrees<S: InPlace<Hardware>>(
            cells: &CellArray<Hardware, S>,
            updates: &[(usize, Vec<u8>)],
        ) -> bool {
            let mut model = vec![vec![0; cells.value_bytes()]; 4];
            for (index, value) in updates {
                cells.update(*index, value).unwrap();
                model[*index].clone_from(value);
            }
            let mut found = vec![0; cells.value_bytes()];
            (0..4).all(|index| {
                cells.read(index, &mut found).unwrap();
                found == model[index]
            })
        }
        let pool = hardware_pool();
        let all_agree = with_cell!(kind, Hardware, PopLog<Hardware>, |S| {
            agrees(&array(&pool, S::make_in(&pool, LOG).unwrap(), value_bytes, 4), &updates)
        });
        prop_assert!(all_agree);
    }
}
