//! Bytes that no crash leaves behind: reported, or harmless, and never a panic.

use std::sync::Arc;

use lapis_blocks::page::{DirtyLines, PageError, PageScheme, PageStore, PageStoreRoot};
use lapis_pmem::{Link, Pool};
use proptest::prelude::*;

use super::{create_in, options, page_of};

/// A pool with a store of a few pages.
fn pool_with_pages(scheme: PageScheme) -> (Arc<Pool>, Link<PageStoreRoot>) {
    let options = options(scheme);
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    let root = create_in(&pool, &options);
    let store = PageStore::open(Arc::clone(&pool), root).unwrap();
    let mut some = DirtyLines::none();
    some.mark(100, 500);
    for id in 0..6 {
        let page = page_of(id as u8, &options);
        store.write_page(id, &page, &DirtyLines::all(options.page_bytes)).unwrap();
        store.write_page(id, &page, &some).unwrap();
    }
    (pool, root)
}

fn byte_at(pool: &Pool, root: Link<PageStoreRoot>, at: usize) -> *mut u8 {
    pool.region().base().wrapping_add(root.offset() as usize + at)
}

fn overwrite(pool: &Pool, root: Link<PageStoreRoot>, at: usize, bytes: &[u8]) {
    let start = byte_at(pool, root, at);
    // SAFETY: within the block of the store, which is not open.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn open_error(pool: &Arc<Pool>, root: Link<PageStoreRoot>) -> PageError {
    PageStore::open(Arc::clone(pool), root).unwrap_err()
}

#[test]
fn a_newer_format_is_named() {
    let (pool, root) = pool_with_pages(PageScheme::HYBRID);
    overwrite(&pool, root, 8, &2u64.to_le_bytes());
    let error = open_error(&pool, root);
    assert!(matches!(error, PageError::NewerVersion { found: 2, supported: 1 }), "{error}");
}

#[test]
fn a_root_that_was_changed_has_a_wrong_checksum() {
    for at in (16..56).step_by(8) {
        let (pool, root) = pool_with_pages(PageScheme::HYBRID);
        overwrite(&pool, root, at, &[0xFF]);
        let error = open_error(&pool, root);
        assert!(matches!(&error, PageError::Damaged(damage) if damage.what.contains("checksum")));
    }
}

#[test]
fn slots_that_name_impossible_or_too_many_pages_are_damage() {
    let (pool, root) = pool_with_pages(PageScheme::COPY_ON_WRITE);
    overwrite(&pool, root, 256, &100u64.to_le_bytes());
    assert!(matches!(open_error(&pool, root), PageError::Damaged(_)));

    // Three slots name page 0: a lane has one slot that is not current.
    let (pool, root) = pool_with_pages(PageScheme::COPY_ON_WRITE);
    for slot in 10..13 {
        overwrite(&pool, root, 256 + slot * 64, &1u64.to_le_bytes());
    }
    assert!(matches!(open_error(&pool, root), PageError::Damaged(_)));
}

#[test]
fn a_torn_page_with_a_checksum_is_found_and_the_older_version_is_there() {
    let scheme = PageScheme::CHECKSUM;
    let (pool, root) = pool_with_pages(scheme);
    // Page 5 was written last in its lane; so its older version is in the lane's spare slot.
    let mut slot = None;
    for candidate in 0..20 {
        let mut words = [0u64; 2];
        // SAFETY: within the block of the store, which nobody writes to.
        unsafe {
            byte_at(&pool, root, 256 + candidate * 64)
                .cast::<u64>()
                .copy_to_nonoverlapping(words.as_mut_ptr(), 2);
        }
        if (words[0] as u32, words[1]) == (6, 2) {
            slot = Some(candidate);
        }
    }
    let headers = 256 + 20 * 64;
    let contents = usize::next_multiple_of(headers, 256) + slot.unwrap() * 16384;
    overwrite(&pool, root, contents + 9000, &[0xEE; 64]);
    let store = PageStore::open(Arc::clone(&pool), root).unwrap();
    assert_eq!(store.statistics().torn_slots, 1);
    let mut read = page_of(0, &options(scheme));
    store.read_page(5, &mut read).unwrap();
    assert!(read == page_of(5, &options(scheme)));
    assert_eq!(store.check(), []);
}

#[test]
fn the_log_of_a_deletion_that_was_cut_is_not_applied_to_the_next_page() {
    let (pool, root) = pool_with_pages(PageScheme::MICRO_LOG);
    // Page 2 has the log of its lane. Of its deletion the slot's word got through, and not the log's.
    overwrite(&pool, root, 256 + 2 * 64, &0u64.to_le_bytes());
    let options = options(PageScheme::MICRO_LOG);
    let open = || PageStore::open(Arc::clone(&pool), root).unwrap();
    let store = open();
    assert_eq!(store.check(), []);
    let page = page_of(9, &options);
    store.write_page(2, &page, &DirtyLines::all(options.page_bytes)).unwrap();
    drop(store);
    let mut read = page_of(0, &options);
    open().read_page(2, &mut read).unwrap();
    assert!(read == page);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_change_to_headers_and_logs_is_reported_or_harmless(
        scheme in proptest::sample::select(PageScheme::all()),
        at in 0usize..6000,
        bytes in proptest::collection::vec(any::<u8>(), 1..24),
    ) {
        let (pool, root) = pool_with_pages(scheme);
        overwrite(&pool, root, at, &bytes);
        if let Ok(store) = PageStore::open(Arc::clone(&pool), root) {
            let options = options(scheme);
            let mut read = page_of(0, &options);
            for id in 0..32 {
                let there = store.contains(id).unwrap();
                prop_assert_eq!(store.read_page(id, &mut read).is_ok(), there);
            }
            let all = DirtyLines::all(options.page_bytes);
            let _ = store.write_page(1, &page_of(7, &options), &all);
            let _ = store.check();
        }
    }
}
