//! Opening, creating and damaging pools: every refusal is typed and leaves the file as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lapis_pmem::{
    Caches, FlushMethod, Hardware, Link, MIN_POOL_BYTES, PCell, Pool, PoolError, RegionError,
    RegionOptions, RootError,
};

const OPTIONS: fn() -> RegionOptions =
    || RegionOptions { reserve_bytes: 1 << 30, ..RegionOptions::default() };

struct Scratch {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn scratch() -> Scratch {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    Scratch { _directory: directory, path }
}

fn created(path: &Path) -> Pool {
    Pool::create_file(path, 1 << 20, &OPTIONS()).unwrap()
}

/// Creates a pool with one root, closes it, lets `damage` edit the bytes, and returns what opening
/// says, having checked that opening did not change the file.
fn open_damaged(damage: impl FnOnce(&mut Vec<u8>)) -> PoolError {
    let scratch = scratch();
    let pool = created(&scratch.path);
    let node = pool.allocate::<PCell<u64>>().unwrap();
    node.store(pool.domain(), 7);
    let node = pool.fence(node.flush());
    let _ = pool.publish_root("seven", 1, node).unwrap().persist();
    drop(pool);
    let mut bytes = fs::read(&scratch.path).unwrap();
    damage(&mut bytes);
    fs::write(&scratch.path, &bytes).unwrap();
    let error = Pool::open_file(&scratch.path, &OPTIONS()).expect_err("damage must be refused");
    assert!(fs::read(&scratch.path).unwrap() == bytes, "a refused open changed the file");
    error
}

#[test]
fn a_root_survives_closing_and_reopening_at_another_address() {
    let scratch = scratch();
    let pool = created(&scratch.path);
    let node = pool.allocate::<PCell<u64>>().unwrap();
    node.store(pool.domain(), 42);
    let node = pool.fence(node.flush());
    let _ = pool.publish_root("answer", 9, node).unwrap().persist();
    let uuid = pool.uuid();
    drop(pool);

    let elsewhere = lapis_pmem::Region::anonymous(1 << 20, 1 << 20).unwrap();
    let pool = Pool::open_file(&scratch.path, &OPTIONS()).unwrap();
    assert!(pool.opened_clean());
    assert_eq!(pool.generation(), 2);
    assert_eq!(pool.uuid(), uuid);
    let link: Link<PCell<u64>> = pool.root("answer").unwrap();
    assert_eq!(pool.at(link).load(pool.domain()), 42);
    assert_eq!(pool.roots().len(), 1);
    assert_eq!(pool.roots()[0].1, 9);
    drop(elsewhere);
}

#[test]
fn an_abandoned_pool_opens_unclean_and_keeps_what_was_persisted() {
    let scratch = scratch();
    let pool = created(&scratch.path);
    let node = pool.fence(pool.allocate::<PCell<u64>>().unwrap().flush());
    let _ = pool.publish_root("r", 0, node).unwrap().persist();
    pool.abandon();
    drop(pool);
    let pool = Pool::open_file(&scratch.path, &OPTIONS()).unwrap();
    assert!(!pool.opened_clean());
    assert!(pool.needs_reclaim());
    assert!(pool.root::<PCell<u64>>("r").is_some());
}

#[test]
fn a_second_opener_is_refused() {
    let scratch = scratch();
    let _pool = created(&scratch.path);
    let error = Pool::open_file(&scratch.path, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::Region(RegionError::AlreadyOpen(_))), "{error}");
}

#[test]
fn something_else_is_not_a_pool() {
    assert!(matches!(open_damaged(|bytes| bytes[0] ^= 0xFF), PoolError::NotAPool));
}

#[test]
fn a_short_text_file_is_not_a_pool() {
    let scratch = scratch();
    fs::write(&scratch.path, b"hello").unwrap();
    let error = Pool::open_file(&scratch.path, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::NotAPool), "{error}");
    assert_eq!(fs::read(&scratch.path).unwrap(), b"hello");
}

/// A pool in a file with a block of so many bytes behind a root, closed.
fn with_long_block(path: &Path, tail_bytes: usize) {
    let pool = created(path);
    let mut node = pool.allocate_with_tail::<PCell<u64>>(tail_bytes).unwrap();
    node.store(pool.domain(), 7);
    node.write_tail(0, &vec![7; tail_bytes]);
    let node = pool.fence(node.flush());
    let _ = pool.publish_root("seven", 1, node).unwrap().persist();
}

fn shorten(path: &Path, bytes: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_truncated_pool_says_how_much_is_missing_and_what_to_do() {
    let scratch = scratch();
    with_long_block(&scratch.path, 600_000);
    shorten(&scratch.path, 512 * 1024);
    let error = Pool::open_file(&scratch.path, &OPTIONS()).unwrap_err();
    assert!(error.to_string().contains("truncate -s 1048576"), "{error}");
    let PoolError::Truncated { expected_bytes, found_bytes } = error else {
        panic!("{error}");
    };
    assert_eq!((expected_bytes, found_bytes), (1 << 20, 512 * 1024));
    let error = open_damaged(|bytes| bytes.truncate(100));
    assert!(matches!(error, PoolError::Truncated { .. }), "{error}");
}

#[test]
fn a_pool_that_lacks_nothing_but_free_chunks_is_opened_and_grows_again() {
    let scratch = scratch();
    with_long_block(&scratch.path, 100_000);
    // In the middle of an extent, behind the block.
    shorten(&scratch.path, 600_000);
    let pool = Pool::open_file(&scratch.path, &OPTIONS()).unwrap();
    assert_eq!(pool.usage().storage_bytes, 589_824);
    let seven: Link<PCell<u64>> = pool.root("seven").unwrap();
    assert_eq!(pool.tail(seven, 100_000), [7; 100_000]);
    let more = pool.allocate_with_tail::<PCell<u64>>(1 << 20).unwrap();
    assert!(pool.usage().storage_bytes > 1 << 20);
    drop(more);
    drop(pool);
    let length = fs::metadata(&scratch.path).unwrap().len();
    let pool = Pool::open_file(&scratch.path, &OPTIONS()).unwrap();
    assert_eq!(pool.usage().storage_bytes, length);
}

#[test]
fn a_newer_version_is_refused_by_number() {
    let error = open_damaged(|bytes| bytes[8] = 9);
    assert!(matches!(error, PoolError::NewerVersion { found: 9, supported: 1 }), "{error}");
}

#[test]
fn a_wrong_checksum_is_refused() {
    assert!(matches!(open_damaged(|bytes| bytes[40] ^= 1), PoolError::WrongChecksum));
}

#[test]
fn unknown_required_features_are_refused() {
    let error = open_damaged(|bytes| {
        bytes[16] = 4;
        let mut head = bytes[..56].to_vec();
        head[..8].copy_from_slice(b"LAPISPM1");
        let sum = xxhash_rust::xxh3::xxh3_64(&head);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    });
    assert!(matches!(error, PoolError::UnknownFeatures { unknown: 4 }), "{error}");
}

#[test]
fn an_impossible_high_water_mark_is_damage() {
    let error = open_damaged(|bytes| bytes[80..88].copy_from_slice(&u64::MAX.to_le_bytes()));
    assert!(matches!(error, PoolError::Damaged { .. }), "{error}");
}

#[test]
fn an_interrupted_creation_is_told_from_damage() {
    let error = open_damaged(|bytes| bytes[..8].copy_from_slice(b"LAPISNEW"));
    assert!(matches!(error, PoolError::InterruptedCreation), "{error}");
    let scratch = scratch();
    fs::write(&scratch.path, b"").unwrap();
    let error = Pool::open_file(&scratch.path, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::InterruptedCreation), "{error}");
    fs::write(&scratch.path, vec![0; 1 << 20]).unwrap();
    let error = Pool::open_file(&scratch.path, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::InterruptedCreation), "{error}");
}

#[test]
fn too_small_a_pool_is_not_created() {
    let scratch = scratch();
    let error = Pool::create_file(&scratch.path, 1000, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::TooSmall { minimum_bytes: MIN_POOL_BYTES, .. }), "{error}");
    assert!(!scratch.path.exists());
}

#[test]
fn creating_over_an_existing_file_is_refused() {
    let scratch = scratch();
    fs::write(&scratch.path, b"precious").unwrap();
    let error = Pool::create_file(&scratch.path, 1 << 20, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::Region(RegionError::Exists)), "{error}");
    assert_eq!(fs::read(&scratch.path).unwrap(), b"precious");
}

#[test]
fn a_missing_file_is_not_found() {
    let scratch = scratch();
    let error = Pool::open_file(&scratch.path, &OPTIONS()).unwrap_err();
    assert!(matches!(error, PoolError::Region(RegionError::NotFound)), "{error}");
}

#[test]
fn a_read_only_file_is_refused() {
    let scratch = scratch();
    drop(created(&scratch.path));
    let mut permissions = fs::metadata(&scratch.path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&scratch.path, permissions).unwrap();
    match Pool::open_file(&scratch.path, &OPTIONS()) {
        Err(PoolError::Region(RegionError::ReadOnly)) => {}
        // Root may write anything.
        Ok(_) => assert!(rustix::process::geteuid().is_root()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn roots_have_unique_valid_names() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    let node = || pool.fence(pool.allocate::<PCell<u64>>().unwrap().flush());
    let _ = pool.publish_root("a", 0, node()).unwrap().persist();
    assert_eq!(pool.publish_root("a", 0, node()).err(), Some(RootError::Exists));
    assert_eq!(pool.publish_root("", 0, node()).err(), Some(RootError::BadName));
    assert_eq!(pool.publish_root(&"x".repeat(41), 0, node()).err(), Some(RootError::BadName));
    let _ = pool.unpublish_root("a").unwrap().persist();
    assert!(pool.root::<PCell<u64>>("a").is_none());
    for index in 0..lapis_pmem::ROOT_CAPACITY {
        let _ = pool.publish_root(&format!("root {index}"), 0, node()).unwrap().persist();
    }
    assert_eq!(pool.publish_root("one more", 0, node()).err(), Some(RootError::Full));
}

#[test]
fn links_outside_the_pool_are_never_followed() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    for offset in [0, 1, 7, 1 << 20, (1 << 20) - 4, 1 << 40, (1 << 48) - 8] {
        assert!(pool.try_at(Link::<PCell<u64>>::from_bits(offset)).is_none(), "{offset:#x}");
        assert!(pool.try_tail(Link::<PCell<u64>>::from_bits(offset), 1 << 21).is_none());
    }
    assert!(pool.try_at(Link::<PCell<u64>>::from_bits((1 << 20) - 8)).is_some());
}

#[test]
fn a_node_is_found_with_all_that_is_behind_it_or_not_at_all() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    let nodes = |offset: u64, count| {
        let link = Link::<PCell<u64>>::from_bits(offset);
        pool.try_at_with::<_, PCell<u32>>(link, count).map(|(_, rest)| rest.len())
    };
    let end = 1 << 20;
    for (offset, count, found) in [
        (end - 16, 2, Some(2)),
        (end - 16, 3, None),
        (end - 8, 0, Some(0)),
        (end - 12, 0, None),
        (end, 0, None),
        (0, 0, None),
        (8, u16::MAX, Some(u16::MAX.into())),
        (u64::MAX >> 16 & !7, 1, None),
    ] {
        assert_eq!(nodes(offset, count), found, "{offset:#x}, {count}");
    }
}

#[test]
fn a_resident_block_outlives_other_handles_of_its_pool() {
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    let block = pool.allocate::<PCell<u64>>().unwrap();
    block.store(pool.domain(), 7);
    let resident = pool.resident(block.flush().release());
    drop(pool);
    assert_eq!(resident.load(&Hardware::detect()), 7);
}

#[test]
fn a_pool_grows_while_in_use_and_no_pointer_moves() {
    let scratch = scratch();
    let pool = Pool::create_file(&scratch.path, MIN_POOL_BYTES, &OPTIONS()).unwrap();
    let first = pool.allocate::<PCell<u64>>().unwrap();
    first.store(pool.domain(), 5);
    let address = &raw const *first;
    let mut kept = Vec::new();
    for _ in 0..3000 {
        kept.push(pool.allocate_with_tail::<PCell<u64>>(4000).unwrap());
    }
    assert!(pool.usage().storage_bytes > 12_000_000);
    assert_eq!(&raw const *first, address);
    assert_eq!(first.load(pool.domain()), 5);
    drop(kept);
    drop(first);
    drop(pool);
    assert!(Pool::open_file(&scratch.path, &OPTIONS()).unwrap().usage().storage_bytes > 12_000_000);
}

#[test]
fn a_reach_is_what_the_pool_had_when_it_was_asked_for() {
    let pool = Pool::create_anonymous(MIN_POOL_BYTES).unwrap();
    let first = pool.allocate::<PCell<u64>>().unwrap();
    let reach = pool.reach();
    assert!(std::ptr::eq(reach.try_at(first.link()).unwrap(), &raw const *first));
    for wrong in [0, first.link().bits() + 1, pool.usage().storage_bytes - 4, 1 << 47] {
        assert!(reach.try_at::<PCell<u64>>(Link::from_bits(wrong)).is_none(), "{wrong:#x}");
    }
    assert!(reach.renewed().is_none());
    let mut kept = Vec::new();
    let last = loop {
        kept.push(pool.allocate_with_tail::<PCell<u64>>(4000).unwrap());
        if let Some(last) = kept.last().filter(|last| reach.try_at(last.link()).is_none()) {
            break last.link();
        }
    };
    assert!(reach.renewed().unwrap().try_at(last).is_some());
}

#[test]
fn a_file_that_poses_as_persistent_memory_is_written_back_and_promises_no_more_than_a_file() {
    let (posing, plain) = (scratch(), scratch());
    let options = RegionOptions { caches: Caches::Volatile, ..OPTIONS() };
    let posing = Pool::create_file(&posing.path, 1 << 20, &options).unwrap();
    let plain = created(&plain.path);
    assert_eq!(posing.domain().method(), FlushMethod::detect());
    assert_eq!(posing.region().guarantee(), plain.region().guarantee());
    assert_eq!(plain.domain().method(), FlushMethod::PageCacheNone);
}
