//! What is refused, and that nothing is lost by it.

use std::sync::Arc;

use lapis_blocks::page::{
    CostModel, DirtyLines, PageError, PageScheme, PageStore, PageStoreOptions, PageStoreRoot,
};
use lapis_pmem::{Link, Pool};

use super::{create_in, options, page_of, store_in};

fn pool() -> Arc<Pool> {
    Arc::new(Pool::create_anonymous(1 << 20).unwrap())
}

fn refused(options: PageStoreOptions) -> PageError {
    PageStore::create(&pool(), &options).unwrap_err()
}

#[test]
fn page_sizes_other_than_powers_of_two_from_4_to_64_kib() {
    for page_bytes in [0, 1, 2048, 4095, 5000, 12288, 131072] {
        let error = refused(PageStoreOptions { page_bytes, ..options(PageScheme::HYBRID) });
        assert!(
            matches!(error, PageError::BadPageSize { page_bytes: named } if named == page_bytes)
        );
    }
}

#[test]
fn stores_without_pages_lanes_or_enough_names() {
    let options = options(PageScheme::HYBRID);
    for wrong in [
        PageStoreOptions { lanes: 0, ..options },
        PageStoreOptions { lanes: 65537, ..options },
        PageStoreOptions { capacity_pages: 0, ..options },
        PageStoreOptions { page_ids: 15, ..options },
        PageStoreOptions { page_ids: usize::MAX, capacity_pages: usize::MAX, ..options },
    ] {
        let error = refused(wrong);
        assert!(matches!(error, PageError::BadOptions { .. }), "{wrong:?}: {error}");
    }
}

#[test]
fn a_region_that_is_too_small() {
    let options = PageStoreOptions {
        page_ids: 1 << 31,
        capacity_pages: 1 << 31,
        ..options(PageScheme::COPY_ON_WRITE)
    };
    let error = refused(options);
    assert!(
        matches!(error, PageError::RegionTooSmall { needed_bytes, .. } if needed_bytes > 1 << 44)
    );
    let region = lapis_pmem::Region::anonymous(1 << 20, 1 << 20).unwrap();
    let pool = Pool::create(region, lapis_pmem::Hardware::detect()).unwrap();
    let options = PageStoreOptions { page_ids: 64, capacity_pages: 64, ..options };
    let error = PageStore::create(&pool, &options).unwrap_err();
    assert!(matches!(error, PageError::RegionTooSmall { .. }), "{error}");
    // The pool is as it was.
    let options = PageStoreOptions { capacity_pages: 8, ..options };
    drop(PageStore::create(&pool, &options).unwrap());
}

#[test]
fn wrong_bytes_wrong_lines_and_wrong_ids_leave_the_page_as_it_was() {
    for scheme in PageScheme::all() {
        let options = options(scheme);
        let store = store_in(&pool(), &options);
        let (page, all) = (page_of(1, &options), DirtyLines::all(options.page_bytes));
        store.write_page(31, &page, &all).unwrap();
        let other = page_of(2, &options);
        let error = store.write_page(31, &other[1..], &all).unwrap_err();
        assert!(matches!(
            error,
            PageError::WrongPageSize { given_bytes: 16383, expected_bytes: 16384 }
        ));
        let mut beyond = DirtyLines::none();
        beyond.mark_line(256);
        let error = store.write_page(31, &other, &beyond).unwrap_err();
        assert!(matches!(error, PageError::DirtyBeyondPage { line: 256, last: 255 }), "{error}");
        for id in [32, u64::from(u32::MAX) + 1, u64::MAX] {
            let error = store.write_page(id, &other, &all).unwrap_err();
            assert!(matches!(error, PageError::IdOutOfRange { last: 31, .. }), "{error}");
            assert!(matches!(store.contains(id), Err(PageError::IdOutOfRange { .. })));
            assert!(matches!(store.delete_page(id), Err(PageError::IdOutOfRange { .. })));
        }
        let mut read = page_of(0, &options);
        let error = store.read_page(31, &mut read[1..]).unwrap_err();
        assert!(matches!(error, PageError::WrongPageSize { .. }), "{error}");
        store.read_page(31, &mut read).unwrap();
        assert!(read == page, "{scheme}");
        assert_eq!(store.check(), []);
    }
}

#[test]
fn a_range_of_a_page_is_shown_and_none_beyond_it() {
    for scheme in PageScheme::all() {
        let options = options(scheme);
        let store = store_in(&pool(), &options);
        let mut page = page_of(1, &options);
        page[100..103].copy_from_slice(b"abc");
        store.write_page(31, &page, &DirtyLines::all(options.page_bytes)).unwrap();
        assert_eq!(store.with_bytes(31, 99..104, <[u8]>::to_vec).unwrap(), page[99..104]);
        assert!(store.with_bytes(31, 16384..16384, <[u8]>::is_empty).unwrap());
        for range in [16380..16385, 16385..16385, std::ops::Range { start: 3, end: 2 }] {
            let error = store.with_bytes(31, range, <[u8]>::len).unwrap_err();
            assert!(matches!(error, PageError::WrongPageSize { .. }), "{error}");
        }
        let error = store.with_bytes(30, 0..1, <[u8]>::len).unwrap_err();
        assert!(matches!(error, PageError::NoSuchPage { id: 30 }), "{error}");
    }
}

#[test]
fn pages_that_are_not_there() {
    let options = options(PageScheme::HYBRID);
    let store = store_in(&pool(), &options);
    let mut page = page_of(9, &options);
    assert!(matches!(store.read_page(3, &mut page), Err(PageError::NoSuchPage { id: 3 })));
    assert!(matches!(store.delete_page(3), Err(PageError::NoSuchPage { id: 3 })));
    assert_eq!(page, page_of(9, &options), "the buffer was written to");
}

#[test]
fn a_full_store_keeps_its_pages_and_takes_another_when_one_is_deleted() {
    for scheme in PageScheme::all() {
        let options = options(scheme);
        let store = store_in(&pool(), &options);
        let all = DirtyLines::all(options.page_bytes);
        for id in 0..16 {
            store.write_page(id, &page_of(id as u8, &options), &all).unwrap();
        }
        let error = store.write_page(16, &page_of(99, &options), &all).unwrap_err();
        assert!(matches!(error, PageError::Full { capacity_pages: 16 }), "{scheme}: {error}");
        // What is there can still be written, all of it.
        for id in 0..16 {
            store.write_page(id, &page_of(50 + id as u8, &options), &all).unwrap();
        }
        store.delete_page(5).unwrap();
        store.write_page(16, &page_of(99, &options), &all).unwrap();
        let mut read = page_of(0, &options);
        for id in (0..16).filter(|&id| id != 5) {
            store.read_page(id, &mut read).unwrap();
            assert!(read == page_of(50 + id as u8, &options), "{scheme}: page {id}");
        }
        assert_eq!(store.check(), []);
    }
}

#[test]
fn something_else_than_a_page_store() {
    let pool = pool();
    let root = create_in(&pool, &options(PageScheme::HYBRID));
    for offset in [0, 8, root.offset() + 64, 1 << 40] {
        let link: Link<PageStoreRoot> = Link::from_bits(offset);
        let error = PageStore::open(Arc::clone(&pool), link).unwrap_err();
        assert!(matches!(error, PageError::NotAPageStore { .. }), "{offset:#x}: {error}");
    }
}

#[test]
fn a_cost_model_that_says_nothing_leaves_the_old_one() {
    let store = store_in(&pool(), &options(PageScheme::HYBRID));
    let before = store.copy_from_lines();
    let empty = CostModel { page_bytes: 4096, points: Vec::new() };
    let error = store.set_cost_model(&empty, 1).unwrap_err();
    assert!(matches!(error, PageError::BadCostModel { .. }), "{error}");
    assert_eq!(store.copy_from_lines(), before);
}
