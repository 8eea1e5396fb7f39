//! Barriers, flushes and lines, counted on the modelled machine: what section 3.2 says they are.

use std::sync::Arc;

use lapis_blocks::page::{
    CostModel, CostPoint, DirtyLines, PageScheme, PageStore, PageStoreOptions,
};
use lapis_device::{Config, Counts, MachineShape, Modelled, XpBufferShape};
use lapis_pmem::{Pool, Region};

use super::{options, page_of, store_in};

type Store = PageStore<Modelled>;

fn store_of(options: &PageStoreOptions) -> Store {
    let region = Region::anonymous(16 << 20, 16 << 20).unwrap();
    // A module that adds no writes of its own, so that media writes can be told exactly.
    let shape = MachineShape::default();
    let xp_buffer = XpBufferShape { own_writes_permille: 0, ..shape.xp_buffer };
    let counting = Some(MachineShape { xp_buffer, ..shape });
    let domain = Modelled::over(&region, Config { counting, ..Config::default() });
    let pool = Arc::new(Pool::create(region, domain).unwrap());
    store_in(&pool, options)
}

/// A store in which page 0 was written and a page of its lane copied besides, so that the lane has a
/// spare slot that names a page.
fn store_with_pages(options: &PageStoreOptions) -> Store {
    let store = store_of(options);
    let all = DirtyLines::all(options.page_bytes);
    for id in [0, 4, 4] {
        store.write_page(id, &page_of(1, options), &all).unwrap();
    }
    store
}

fn cost(store: &Store, work: impl FnOnce(&Store)) -> Counts {
    let domain = store.pool().domain();
    domain.drain();
    let before = domain.counts();
    work(store);
    domain.drain();
    domain.counts() - before
}

fn every(step: usize, count: usize) -> DirtyLines {
    let mut dirty = DirtyLines::none();
    (0..count).for_each(|index| dirty.mark_line(index * step));
    dirty
}

/// Fences, flushed lines and non-temporally written lines of one write of page 0 with these lines
/// dirty.
fn write_cost(options: &PageStoreOptions, dirty: &DirtyLines) -> (u64, u64, u64) {
    let store = store_with_pages(options);
    let page = page_of(2, options);
    let counts = cost(&store, |store| {
        store.write_page(0, &page, dirty).unwrap();
    });
    assert_eq!(counts.wpq_eviction, 0);
    (counts.fences, counts.flushes, counts.nontemporal_lines)
}

#[test]
fn a_copy_is_two_barriers_and_an_ordering_fence_whatever_is_dirty() {
    for count in [1, 28, 256] {
        let options = options(PageScheme::COPY_ON_WRITE);
        assert_eq!(write_cost(&options, &every(1, count)), (3, 1, 256), "{count} dirty");
    }
}

#[test]
fn a_loading_copy_writes_the_same_and_reads_the_clean_lines() {
    let options = options(PageScheme::COPY_ON_WRITE_LOADING);
    for count in [1, 28, 256] {
        assert_eq!(write_cost(&options, &every(1, count)), (3, 1, 256), "{count} dirty");
    }
    let store = store_with_pages(&options);
    let counts = cost(&store, |store| {
        store.write_page(0, &page_of(2, &options), &every(2, 100)).unwrap();
    });
    let words_of_clean_lines = (256 - 100) * 8;
    assert!(counts.loads >= words_of_clean_lines, "{} loads", counts.loads);
}

#[test]
fn a_log_is_four_barriers_and_writes_dirty_lines_twice() {
    for count in [1u64, 28, 40, 256] {
        let dirty = every(1, count as usize);
        let found = write_cost(&options(PageScheme::MICRO_LOG), &dirty);
        assert_eq!(found, (4, 2, 2 * count), "{count} dirty");
    }
}

#[test]
fn a_log_of_a_page_with_many_lines_writes_two_lines_more() {
    let options = PageStoreOptions { page_bytes: 65536, ..options(PageScheme::MICRO_LOG) };
    assert_eq!(write_cost(&options, &every(16, 28)), (4, 2, 2 * 28 + 2));
}

#[test]
fn a_checksum_is_one_barrier() {
    assert_eq!(write_cost(&options(PageScheme::CHECKSUM), &every(1, 1)), (1, 1, 256));
}

#[test]
fn a_hybrid_logs_below_the_crossover_and_copies_above() {
    let options = options(PageScheme::HYBRID);
    let store = store_with_pages(&options);
    let point =
        |writers, copy_ns| CostPoint { writers, copy_ns, log_ns: 200.0, log_line_ns: 100.0 };
    let model = CostModel { page_bytes: 16384, points: vec![point(1, 3000.0), point(7, 4200.0)] };
    for (writers, dirty, fences) in [(1, 28, 4), (1, 29, 3), (7, 29, 4), (7, 40, 4), (7, 41, 3)] {
        store.set_cost_model(&model, writers).unwrap();
        let counts = cost(&store, |store| {
            store.write_page(0, &page_of(2, &options), &every(1, dirty)).unwrap();
        });
        assert_eq!(counts.fences, fences, "{writers} writers, {dirty} dirty lines");
    }
}

#[test]
fn the_first_write_of_a_page_is_a_copy_and_needs_no_ordering_fence() {
    for scheme in PageScheme::all() {
        let options = options(scheme);
        let store = store_of(&options);
        let counts = cost(&store, |store| {
            store.write_page(3, &page_of(2, &options), &every(1, 1)).unwrap();
        });
        let fences = if scheme == PageScheme::CHECKSUM { 1 } else { 2 };
        assert_eq!((counts.fences, counts.nontemporal_lines), (fences, 256), "{scheme}");
    }
}

#[test]
fn a_write_with_nothing_dirty_costs_nothing() {
    for scheme in PageScheme::all() {
        let options = options(scheme);
        let store = store_with_pages(&options);
        let counts = cost(&store, |store| {
            store.write_page(0, &page_of(2, &options), &DirtyLines::none()).unwrap();
        });
        assert_eq!((counts.fences, counts.wpq_inserts()), (0, 0), "{scheme}");
    }
}

#[test]
fn a_copy_writes_whole_xplines_but_for_the_header() {
    let options = options(PageScheme::COPY_ON_WRITE);
    let store = store_with_pages(&options);
    let counts = cost(&store, |store| {
        store.write_page(0, &page_of(2, &options), &every(1, 1)).unwrap();
    });
    // 64 XPLines of contents, and the one that the header lies in, which is read first.
    assert_eq!((counts.wpq_inserts(), counts.media_writes), (257, 256 + 4));
}

#[test]
fn scattered_lines_of_a_log_cost_an_xpline_each_and_neighbours_share_one() {
    let options = options(PageScheme::MICRO_LOG);
    let media_writes = |dirty: &DirtyLines| {
        let store = store_with_pages(&options);
        let counts = cost(&store, |store| {
            store.write_page(0, &page_of(2, &options), dirty).unwrap();
        });
        assert_eq!(counts.wpq_inserts(), 2 * 28 + 2);
        counts.media_writes
    };
    // 28 logged lines are 7 XPLines; those of the log's header and of the page come on top. The
    // header is written twice, which the XPLine buffer combines.
    assert_eq!(media_writes(&every(1, 28)), 4 * (7 + 1 + 7));
    assert_eq!(media_writes(&every(8, 28)), 4 * (7 + 1 + 28));
}

#[test]
fn deleting_costs_one_barrier_more_for_an_older_version_and_a_flush_for_a_log() {
    let options = options(PageScheme::HYBRID);
    let delete_cost = |prepare: &dyn Fn(&Store)| {
        let store = store_with_pages(&options);
        prepare(&store);
        let counts = cost(&store, |store| {
            store.delete_page(0).unwrap();
        });
        (counts.fences, counts.flushes)
    };
    let page = page_of(3, &options);
    assert_eq!(delete_cost(&|_| ()), (1, 1));
    let copied = |store: &Store| {
        store.write_page(0, &page, &DirtyLines::all(options.page_bytes)).unwrap();
    };
    assert_eq!(delete_cost(&copied), (2, 2));
    let logged = |store: &Store| {
        store.write_page(0, &page, &every(1, 1)).unwrap();
    };
    assert_eq!(delete_cost(&logged), (1, 2));
    let both = |store: &Store| {
        copied(store);
        logged(store);
    };
    assert_eq!(delete_cost(&both), (2, 3));
}

#[test]
fn opening_after_logged_writes_is_one_fence_and_else_none() {
    let reopen_cost = |options: &PageStoreOptions| {
        let store = store_with_pages(options);
        store.write_page(0, &page_of(3, options), &every(1, 1)).unwrap();
        let (pool, root) = (Arc::clone(store.pool()), store.root());
        drop(store);
        let before = pool.domain().counts();
        let store = PageStore::open(Arc::clone(&pool), root).unwrap();
        let fences = (pool.domain().counts() - before).fences;
        (fences, store.statistics().redone_logs)
    };
    assert_eq!(reopen_cost(&options(PageScheme::MICRO_LOG)), (1, 1));
    assert_eq!(reopen_cost(&options(PageScheme::COPY_ON_WRITE)), (0, 0));
    assert_eq!(reopen_cost(&options(PageScheme::CHECKSUM)), (0, 0));
}

#[test]
fn statistics_count_what_was_written() {
    let options = options(PageScheme::HYBRID);
    let store = store_with_pages(&options);
    store.write_page(0, &page_of(3, &options), &every(1, 2)).unwrap();
    let statistics = store.statistics();
    assert_eq!((statistics.pages, statistics.capacity_pages), (2, 16));
    assert_eq!((statistics.copies, statistics.logs), (3, 1));
    assert_eq!(statistics.lines_written, 3 * 257 + 2 * 2 + 2);
    assert_eq!((statistics.spare_slots, statistics.free_slots), (1, 16 + 4 - 2 - 1));
}
