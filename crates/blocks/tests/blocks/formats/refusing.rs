//! What is newer, of no version, of another kind, or open already, is refused by name, and not written to.

use std::sync::Arc;

use lapis_blocks::fp_leaves::{FpLeaves, FpLeavesError, FpLeavesRoot};
use lapis_blocks::in_place::{CellArray, CellArrayRoot, CowCell, FamCell, InPlaceError};
use lapis_blocks::log::{Layout, Log, LogError};
use lapis_blocks::page::{PageError, PageScheme, PageStore, PageStoreRoot};
use lapis_blocks::{LogKind, with_log};
use lapis_device::Modelled;
use lapis_pmem::Link;

use super::contents::*;
use super::{fixture, root, with_word};

/// Where the version stands in every root.
const VERSION: u64 = 8;

struct Newer;

impl EachLog for Newer {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, _: Layout) {
        let pool = with_word(fixture(), name, VERSION, 2);
        let error = L::open(Arc::clone(&pool), root(&pool, name)).err();
        assert!(
            matches!(error, Some(LogError::NewerVersion { found: 2, supported: 1 })),
            "{name}: {error:?}"
        );
    }
}

#[test]
fn newer_logs_are_refused() {
    each_log(&mut Newer);
}

struct NoVersion;

impl EachLog for NoVersion {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, _: Layout) {
        let pool = with_word(fixture(), name, VERSION, 0);
        let error = L::open(Arc::clone(&pool), root(&pool, name)).err();
        assert!(matches!(error, Some(LogError::Damaged(_))), "{name}: {error:?}");
    }
}

#[test]
fn logs_of_no_version_are_damaged() {
    each_log(&mut NoVersion);
}

#[test]
fn newer_pages_cells_and_leaves_are_refused() {
    for scheme in PageScheme::all() {
        let name = scheme.name;
        let pool = with_word(fixture(), name, VERSION, 2);
        let error = PageStore::open(Arc::clone(&pool), root(&pool, name)).unwrap_err();
        assert!(matches!(error, PageError::NewerVersion { found: 2, supported: 1 }), "{error}");
    }
    let pool = with_word(fixture(), "cow-cell", VERSION, 2);
    let error = CellArray::open(&pool, CowCell, root(&pool, "cow-cell")).unwrap_err();
    assert!(matches!(error, InPlaceError::NewerVersion { found: 2, supported: 1 }), "{error}");
    let pool = with_word(fixture(), "fp-leaves", VERSION, 2);
    let error = FpLeaves::open(&pool, root(&pool, "fp-leaves")).unwrap_err();
    assert!(matches!(error, FpLeavesError::NewerVersion { found: 2 }), "{error}");
}

/// Tries every other log's reader.
struct OtherReaders;

impl EachLog for OtherReaders {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, _: Layout) {
        fn refuses<L: Log<Modelled>>(name: &str, own: &str) {
            if L::NAME == own {
                return;
            }
            let pool = fixture();
            let error = L::open(Arc::clone(&pool), root(&pool, name)).err();
            assert!(
                matches!(error, Some(LogError::NotALog { .. })),
                "{name}, read as {}: {error:?}",
                L::NAME
            );
        }
        for kind in LogKind::ALL {
            with_log!(kind, Modelled, |Other| refuses::<Other>(name, L::NAME));
        }
    }
}

#[test]
fn the_reader_of_another_log_refuses() {
    each_log(&mut OtherReaders);
}

#[test]
fn the_reader_of_something_else_refuses() {
    let pool = fixture();
    let leaves: Link<FpLeavesRoot> = root(&pool, "cow-cell");
    let error = FpLeaves::open(&pool, leaves).unwrap_err();
    assert!(matches!(error, FpLeavesError::NotLeaves { .. }), "{error}");
    let pages: Link<PageStoreRoot> = root(&pool, "fp-leaves");
    let error = PageStore::open(Arc::clone(&pool), pages).unwrap_err();
    assert!(matches!(error, PageError::NotAPageStore { .. }), "{error}");
    let cells: Link<CellArrayRoot> = root(&pool, "page-cow");
    let error = CellArray::open(&pool, CowCell, cells).unwrap_err();
    assert!(matches!(error, InPlaceError::NotAnArray { .. }), "{error}");
    let error = CellArray::open(&pool, FamCell::default(), root(&pool, "cow-cell")).unwrap_err();
    assert!(matches!(error, InPlaceError::OtherKind { .. }), "{error}");
}

struct OpenedTwice;

impl EachLog for OpenedTwice {
    fn visit<L: Log<Modelled>>(&mut self, name: &str, _: Layout) {
        let pool = fixture();
        let open = || L::open(Arc::clone(&pool), root(&pool, name));
        let first = open().unwrap();
        assert!(matches!(open().err(), Some(LogError::InUse)), "{name}");
        drop(first);
        assert!(open().is_ok(), "{name}");
    }
}

#[test]
fn a_log_that_is_open_is_refused() {
    each_log(&mut OpenedTwice);
}

#[test]
fn pages_and_leaves_that_are_open_are_refused() {
    let pool = fixture();
    for scheme in PageScheme::all() {
        let open = || PageStore::open(Arc::clone(&pool), root(&pool, scheme.name));
        let first = open().unwrap();
        assert!(matches!(open().err(), Some(PageError::InUse)), "{}", scheme.name);
        drop(first);
        assert!(open().is_ok(), "{}", scheme.name);
    }
    let open = || FpLeaves::open(&pool, root(&pool, "fp-leaves"));
    let first = open().unwrap();
    assert!(matches!(open().err(), Some(FpLeavesError::InUse)));
    drop(first);
    assert!(open().is_ok());
}
