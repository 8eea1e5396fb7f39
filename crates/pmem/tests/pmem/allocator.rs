//! The allocator: its costs, its limits, and that no block is ever lost or handed out twice.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lapis_pmem::{
    AllocError, BlockVisitor, Committed, Domain, Hardware, Link, Owned, PAGE_FRAME_BYTES, PCell,
    PageFrame, PersistCounts, Pool, PoolError, Region, RegionOptions, Watched,
};
use proptest::prelude::*;

type Counting = Watched<PersistCounts>;

fn counting_pool(bytes: usize) -> Pool<Counting> {
    Pool::create(Region::anonymous(bytes, 1 << 34).unwrap(), Watched::new(PersistCounts::default()))
        .unwrap()
}

/// Lines flushed and fences so far.
fn persists(pool: &Pool<Counting>) -> (u64, u64) {
    let counts = pool.domain().watcher();
    (counts.flushes(), counts.fences())
}

pub fn keep<D: Domain>(block: Owned<'_, D, PCell<u64>, lapis_pmem::Dirty>) -> Link<PCell<u64>> {
    block.flush().release()
}

/// A block of so many bytes, which is kept.
fn take<D: Domain>(pool: &Pool<D>, bytes: usize) -> Result<Link<PCell<u64>>, AllocError> {
    pool.allocate_with_tail::<PCell<u64>>(bytes - 8).map(keep)
}

fn free<D: Domain>(pool: &Pool<D>, block: Link<PCell<u64>>, bytes: usize) {
    pool.free_unshared(block, bytes, Committed::nothing_to_do());
}

/// Bytes of a chunk.
const CHUNK: usize = 1 << 16;

/// Makes or opens a pool in memory that outlives it. One follows another.
fn pool_in(
    memory: &Region,
    make: fn(Region, Watched<PersistCounts>) -> Result<Pool<Counting>, PoolError>,
) -> Pool<Counting> {
    // SAFETY: `memory` outlives the pools, which use it one after the other.
    let alias = unsafe { memory.alias_of(memory.mapped_bytes()) };
    make(alias, Watched::new(PersistCounts::default())).unwrap()
}

/// A file for pools that are opened one after the other.
struct PoolFile {
    directory: tempfile::TempDir,
    options: RegionOptions,
}

impl PoolFile {
    fn create(bytes: usize, reserve_bytes: usize) -> (Self, Pool) {
        let options = RegionOptions { reserve_bytes, ..Default::default() };
        let file = Self { directory: tempfile::tempdir().unwrap(), options };
        let pool = Pool::create_file(&file.path(), bytes, &file.options).unwrap();
        (file, pool)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("p")
    }

    fn open(&self) -> Pool {
        Pool::open_file(&self.path(), &self.options).unwrap()
    }

    /// What a crash leaves of a pool.
    fn after_crash(&self, pool: Pool) -> Pool {
        pool.abandon();
        drop(pool);
        self.open()
    }
}

#[test]
fn of_a_block_with_room_for_more_only_the_front_is_written_back() {
    let pool = counting_pool(1 << 20);
    let lines_of = |tail_bytes| {
        let block = pool.allocate_with_tail::<PCell<u64>>(1016).unwrap();
        let before = persists(&pool).0;
        drop(block.flush_front(tail_bytes));
        persists(&pool).0 - before
    };
    assert_eq!([0, 56, 57, 1016].map(lines_of), [1, 1, 2, 16]);
}

#[test]
#[cfg_attr(miri, ignore = "time")]
fn allocation_costs_less_than_a_tenth_of_a_flush_and_of_a_fence_for_every_slab_size() {
    for bytes in [8usize, 16, 48, 64, 100, 144, 256, 512, 1000, 2048, 4096, 5000, 16_000, 32_768] {
        let pool = counting_pool(1 << 20);
        let before = persists(&pool);
        const ALLOCATIONS: u64 = 3000;
        for _ in 0..ALLOCATIONS {
            let block = pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap();
            std::mem::forget(block);
        }
        let after = persists(&pool);
        let flushes = (after.0 - before.0) as f64 / ALLOCATIONS as f64;
        let fences = (after.1 - before.1) as f64 / ALLOCATIONS as f64;
        assert!(flushes < 0.1 && fences < 0.1, "{bytes} bytes: {flushes} flushes, {fences} fences");
    }
}

#[test]
#[cfg_attr(miri, ignore = "time")]
fn the_steady_state_of_freeing_and_allocating_has_no_flush_and_no_fence() {
    let pool = counting_pool(1 << 20);
    let blocks: Vec<_> = (0..50).map(|_| pool.allocate::<PCell<u64>>().unwrap()).collect();
    drop(blocks);
    let before = persists(&pool);
    for _ in 0..1000 {
        let blocks: Vec<_> = (0..50).map(|_| pool.allocate::<PCell<u64>>().unwrap()).collect();
        drop(blocks);
    }
    assert_eq!(persists(&pool), before);
}

#[test]
fn a_new_slab_costs_one_flush_and_one_fence_and_the_mark_once_in_sixteen_chunks() {
    let pool = counting_pool(4 << 20);
    let mut costs = Vec::new();
    for _ in 0..40 {
        let before = persists(&pool);
        // 15 blocks of 4096 bytes fill a slab.
        for _ in 0..15 {
            std::mem::forget(pool.allocate_with_tail::<PCell<u64>>(4088).unwrap());
        }
        let after = persists(&pool);
        costs.push((after.0 - before.0, after.1 - before.1));
    }
    assert!(costs.iter().all(|&cost| cost == (1, 1) || cost == (2, 2)), "{costs:?}");
    assert!(costs.iter().filter(|&&cost| cost == (2, 2)).count() <= 40 / 16 + 1, "{costs:?}");
}

#[test]
#[cfg_attr(miri, ignore = "time")]
fn freed_memory_is_used_again() {
    let pool = counting_pool(1 << 20);
    for _ in 0..200 {
        let blocks: Vec<_> =
            (0..200).map(|_| pool.allocate_with_tail::<PCell<u64>>(1000).unwrap()).collect();
        drop(blocks);
    }
    assert!(pool.usage().storage_bytes <= 2 << 20, "{:?}", pool.usage());
    assert_eq!(pool.usage().allocated_bytes, 0);
}

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn large_blocks_come_back_and_neighbours_merge() {
    let pool = counting_pool(1 << 20);
    for round in 1..20 {
        let block = pool.allocate_with_tail::<PCell<u64>>(round * 1_000_000).unwrap();
        drop(block);
    }
    assert!(pool.usage().storage_bytes < 60_000_000, "{:?}", pool.usage());
}

#[test]
fn a_large_block_that_is_freed_before_its_descriptor_is_read_again_is_free_once() {
    let region = Region::anonymous(4 << 20, 4 << 20).unwrap();
    let large = |pool: &_, chunks: usize| take(pool, chunks * CHUNK).unwrap();
    let created = pool_in(&region, Pool::create);
    let (first, second) = (large(&created, 1), large(&created, 3));
    large(&created, 1);
    free(&created, first, CHUNK);
    drop(created);
    let opened = pool_in(&region, Pool::open);
    free(&opened, second, 3 * CHUNK);
    let (four, three) = (large(&opened, 4).offset(), large(&opened, 3).offset());
    assert_eq!(four, first.offset(), "the room of both");
    assert!(three >= four + 4 * CHUNK as u64, "{three:#x} is in the block at {four:#x}");
}

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn a_large_block_has_the_place_of_one_that_was_freed_and_of_what_was_never_used_behind() {
    let take = |pool: &_, chunks: usize| self::take(pool, chunks * CHUNK);
    let free = |pool: &_, block, chunks: usize| self::free(pool, block, chunks * CHUNK);
    let region = Region::anonymous(4 << 20, 4 << 20).unwrap();
    let created = pool_in(&region, Pool::create);
    let (first, second) = (take(&created, 10).unwrap(), take(&created, 20).unwrap());
    free(&created, second, 20);
    // There are 63 chunks: 10 are in use, 33 were never used.
    assert!(take(&created, 54).is_err());
    let before = persists(&created);
    let both = created.allocate_with_tail::<PCell<u64>>(50 * CHUNK - 8).unwrap();
    let after = persists(&created);
    let both = keep(both);
    assert_eq!(both, second);
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2), "its descriptor, and the mark");
    let third = take(&created, 3).unwrap();
    assert!(third.offset() >= both.offset() + 50 * CHUNK as u64);
    assert!(take(&created, 1).is_err());
    drop(created);
    let opened = pool_in(&region, Pool::open);
    assert_eq!(opened.usage().allocated_bytes, 63 * CHUNK as u64);
    free(&opened, first, 10);
    assert_eq!(take(&opened, 10).unwrap(), first);

    // Not over the next chunk table.
    let pool = counting_pool(1 << 20);
    take(&pool, FIRST_TABLE_CHUNKS - 101).unwrap();
    let last = take(&pool, 100).unwrap();
    free(&pool, last, 100);
    let over = take(&pool, 200).unwrap().offset() as usize / CHUNK;
    assert_eq!(over, FIRST_TABLE_CHUNKS + SECOND_TABLE_CHUNKS);
    assert_eq!(take(&pool, 100).unwrap(), last);
}

/// Where the header has the high-water mark.
pub const HIGH_WATER_OFFSET: usize = 80;
/// Chunks that the first table names, and those that the second one takes.
const FIRST_TABLE_CHUNKS: usize = 7680;
const SECOND_TABLE_CHUNKS: usize = 128;

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn a_pool_that_ends_shortly_before_the_next_chunk_table_puts_nothing_into_it_when_it_is_opened() {
    let table = FIRST_TABLE_CHUNKS..FIRST_TABLE_CHUNKS + SECOND_TABLE_CHUNKS;
    let bytes = (table.end + 400) * CHUNK;
    // Ends of the last run, as far from the table as the mark is moved ahead, and up to it.
    for end in (table.start - 17..=table.start).step_by(4) {
        let region = Region::anonymous(bytes, bytes).unwrap();
        let take = |pool: &_, chunks: usize| {
            let first = take(pool, chunks * CHUNK).unwrap().offset() as usize / CHUNK;
            (first, first + chunks)
        };
        let pool = pool_in(&region, Pool::create);
        assert_eq!(take(&pool, end - 1), (1, end));
        drop(pool);
        let mut runs = vec![(1, end)];
        for chunks in [200, 60] {
            let (first, after) = take(&pool_in(&region, Pool::open), chunks);
            let is_apart = |&(start, end): &(usize, usize)| after <= start || end <= first;
            assert!(runs.iter().all(is_apart), "{first} to {after} is in one of {runs:?}");
            assert!(is_apart(&(table.start, table.end)), "{first} to {after} is in the table");
            runs.push((first, after));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn a_mark_in_a_chunk_table_as_in_a_shortened_pool_is_taken_for_one_before_the_table() {
    let table = FIRST_TABLE_CHUNKS..FIRST_TABLE_CHUNKS + SECOND_TABLE_CHUNKS;
    let bytes = (table.end + 400) * CHUNK;
    for mark in [table.start + 1, table.start + 16, table.end - 1, table.end] {
        let region = Region::anonymous(bytes, bytes).unwrap();
        let pool = pool_in(&region, Pool::create);
        keep(pool.allocate_with_tail::<PCell<u64>>((table.start - 100) * CHUNK).unwrap());
        drop(pool);
        // SAFETY: mapped, aligned, and no pool is open.
        unsafe { region.base().add(HIGH_WATER_OFFSET).cast::<u64>().write(mark as u64) };
        let pool = pool_in(&region, Pool::open);
        // More than there are before the table.
        let block = pool.allocate_with_tail::<PCell<u64>>(300 * CHUNK).unwrap();
        let first = keep(block).offset() as usize / CHUNK;
        assert!(!table.contains(&first) && first + 301 < bytes / CHUNK, "{mark}: {first}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn room_is_made_for_a_coming_chunk_table_too_and_there_is_none_for_more_than_any_pool_has() {
    // So much that it cannot grow by more than is missing.
    let most = FIRST_TABLE_CHUNKS + SECOND_TABLE_CHUNKS + 95;
    let region = Region::anonymous(FIRST_TABLE_CHUNKS * CHUNK, most * CHUNK).unwrap();
    let pool = Pool::create(region, Hardware::detect()).unwrap();
    keep(pool.allocate_with_tail::<PCell<u64>>((FIRST_TABLE_CHUNKS - 10) * CHUNK).unwrap());
    pool.ensure_headroom(100 * CHUNK).unwrap();
    let mapped = pool.region().mapped_bytes();
    for _ in 0..100 {
        take(&pool, CHUNK).unwrap();
    }
    assert_eq!(pool.region().mapped_bytes(), mapped);
    for bytes in [1 << 48, (1 << 48) + CHUNK, usize::MAX] {
        let error = pool.ensure_headroom(bytes).unwrap_err();
        assert!(matches!(error, AllocError::Full { .. }), "{error}");
    }
    assert_eq!(pool.region().mapped_bytes(), mapped);
}

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn a_gibibyte_block_can_be_had_and_written() {
    let pool = counting_pool(1 << 20);
    let mut block = pool.allocate_with_tail::<PCell<u64>>(1 << 30).unwrap();
    block.write_tail((1 << 30) - 5, b"hello");
    let link = keep(block);
    assert_eq!(&pool.tail(link, 1 << 30)[(1 << 30) - 5..], b"hello");
}

#[test]
fn blocks_larger_than_a_segment_are_refused() {
    let pool = counting_pool(1 << 20);
    let error = pool.allocate_with_tail::<PCell<u64>>(usize::MAX / 2).unwrap_err();
    assert!(matches!(error, AllocError::TooLarge { .. }), "{error}");
}

#[test]
fn a_full_pool_is_an_error_and_freeing_makes_room() {
    let region = Region::anonymous(1 << 20, 1 << 20).unwrap();
    let pool = Pool::create(region, Watched::new(PersistCounts::default())).unwrap();
    let mut blocks = Vec::new();
    let error = loop {
        match pool.allocate_with_tail::<PCell<u64>>(1000) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AllocError::Full { .. }), "{error}");
    assert!(blocks.len() > 800);
    assert!(pool.allocate_with_tail::<PCell<u64>>(300_000).is_err());
    blocks.truncate(10);
    assert!(pool.allocate_with_tail::<PCell<u64>>(1000).is_ok());
    drop(blocks);
    assert!(pool.allocate_with_tail::<PCell<u64>>(300_000).is_ok());
}

/// A size of which slabs have eight chunks of 64 KiB, and 15 blocks at least.
const SLAB_OF_EIGHT_BYTES: usize = 30_000;

/// A pool that cannot grow and has room for so many slabs of blocks of that size.
fn pool_with_room_for(slabs: usize) -> Pool<Counting> {
    let region = Region::anonymous(4 << 20, 4 << 20).unwrap();
    let pool = Pool::create(region, Watched::new(PersistCounts::default())).unwrap();
    let room = pool.allocate_with_tail::<PCell<u64>>(((slabs * 8) << 16) - 8).unwrap();
    while let Ok(block) = pool.allocate_with_tail::<PCell<u64>>(40_000) {
        keep(block);
    }
    drop(room);
    pool
}

#[test]
fn a_block_that_another_thread_keeps_at_hand_is_given_out_before_the_pool_is_full() {
    let pool = pool_with_room_for(1);
    let take = || take(&pool, SLAB_OF_EIGHT_BYTES);
    take().unwrap();
    std::thread::scope(|scope| scope.spawn(take).join().unwrap()).unwrap();
    let others = std::iter::from_fn(|| take().ok()).count();
    assert!(others >= 13, "{others}");
}

#[test]
fn a_large_block_has_the_place_of_small_ones_that_are_kept_at_hand() {
    let pool = pool_with_room_for(2);
    let take = || pool.allocate_with_tail::<PCell<u64>>(SLAB_OF_EIGHT_BYTES).ok();
    let small: Vec<_> = std::iter::from_fn(take).collect();
    assert!(small.len() >= 30, "{}", small.len());
    drop(small);
    // An empty slab stays if it is the only one of its class.
    assert!(pool.allocate_with_tail::<PCell<u64>>((8 << 16) - 8).is_ok());
}

/// A directory of blocks hung from one root, so that reachability is whatever the test says.
struct Directory {
    root: Link<[PCell<u64>; 512]>,
}

impl Directory {
    fn new<D: Domain>(pool: &Pool<D>) -> Self {
        let mut block = pool.allocate::<[PCell<u64>; 512]>().unwrap();
        block.zero();
        let block = pool.fence(block.flush());
        let root = block.link();
        let _ = pool.publish_root("directory", 0, block).unwrap().persist();
        Self { root }
    }

    fn visit_blocks<D: Domain>(
        &self,
        visitor: &mut BlockVisitor<'_, D>,
        sizes: &BTreeMap<u64, usize>,
    ) {
        visitor.visit(self.root, 4096);
        for (&offset, &bytes) in sizes {
            visitor.visit(Link::<PCell<u64>>::from_bits(offset), bytes);
        }
    }
}

/// A page that is referred to from nowhere but the test.
fn keep_page<D: Domain>(pool: &Pool<D>, bytes: usize) -> Link<PageFrame> {
    let page = pool.allocate_with_tail::<PageFrame>(bytes - PAGE_FRAME_BYTES).unwrap();
    page.flush().release()
}

const PAGES: [usize; 6] = [4096, 8192, 12288, 16384, 32768, 65536];

#[test]
#[cfg_attr(miri, ignore = "memory")]
fn page_frames_begin_at_multiples_of_4096_in_the_pool_and_in_memory() {
    let pool = counting_pool(1 << 20);
    for bytes in PAGES {
        for _ in 0..40 {
            // Other blocks lie between.
            std::mem::forget(pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap());
            let link = keep_page(&pool, bytes);
            assert!(link.offset().is_multiple_of(4096), "{bytes} bytes at {:#x}", link.offset());
            let address = std::ptr::from_ref(pool.at(link)).addr();
            assert!(address.is_multiple_of(4096));
        }
    }
}

#[test]
fn page_frames_are_used_again_and_never_as_blocks_of_another_alignment() {
    let pool = counting_pool(1 << 20);
    for bytes in PAGES {
        let first = keep_page(&pool, bytes);
        pool.free_unshared(first, bytes, Committed::nothing_to_do());
        if bytes <= 32768 {
            let block = pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap();
            assert_ne!(block.link().offset(), first.offset());
        }
        assert_eq!(keep_page(&pool, bytes), first);
    }
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn reclaim_keeps_reachable_page_frames_and_frees_the_others() {
    let (file, pool) = PoolFile::create(1 << 20, 1 << 30);
    let pages: Vec<_> =
        PAGES.map(|bytes| [0; 5].map(|_| (keep_page(&pool, bytes), bytes))).concat();
    let pool = file.after_crash(pool);
    let kept: Vec<_> = pages.iter().copied().step_by(2).collect();
    let reachable = pool.reachable(|visitor| {
        for &(link, bytes) in &kept {
            assert!(visitor.visit(link, bytes));
        }
    });
    assert_eq!(reachable.problems(), []);
    pool.reclaim(&reachable);
    assert!(pool.audit(&reachable).is_clean());
    // As a block of its size that is no page frame it is none.
    let (link, bytes) = kept[0];
    let wrong = pool.reachable(|visitor| {
        assert!(!visitor.visit(Link::<PCell<u64>>::from_bits(link.offset()), bytes));
    });
    assert_eq!(wrong.problems().len(), 1);
    let again: Vec<_> = PAGES.map(|bytes| [0; 2].map(|_| keep_page(&pool, bytes))).concat();
    for link in again {
        assert!(link.offset().is_multiple_of(4096));
        assert!(kept.iter().all(|(other, _)| *other != link), "handed out twice");
    }
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn what_was_free_before_a_crash_is_given_out_after_a_reclaim() {
    const BYTES: usize = 100_000;
    let (file, pool) = PoolFile::create(4 << 20, 4 << 20);
    let blocks: Vec<_> = std::iter::from_fn(|| take(&pool, BYTES).ok()).collect();
    let last = blocks.len() - 1;
    // Free runs apart from each other, of one block and of two, and one at the end.
    let is_kept = |place: usize| place != last && (place.is_multiple_of(5) || place % 5 == 2);
    let (kept, freed): (Vec<_>, Vec<_>) =
        blocks.into_iter().enumerate().partition(|&(place, _)| is_kept(place));
    assert!(kept.len() > 8 && freed.len() > 12, "{} and {}", kept.len(), freed.len());
    for &(_, link) in &freed {
        free(&pool, link, BYTES);
    }
    let pool = file.after_crash(pool);
    let reachable = pool.reachable(|visitor| {
        kept.iter().for_each(|&(_, link)| assert!(visitor.visit(link, BYTES)));
    });
    assert_eq!(pool.reclaim(&reachable).freed_chunks, 0);
    assert_eq!(std::iter::from_fn(|| take(&pool, BYTES).ok()).count(), freed.len());
    assert!(pool.audit(&reachable).unallocated.is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn after_a_crash_unreachable_blocks_become_free_and_reachable_ones_stay() {
    let (file, pool) = PoolFile::create(1 << 20, 1 << 30);
    let root = Directory::new(&pool);
    let mut live = BTreeMap::new();
    for index in 0..2000usize {
        let bytes = 16 + index * 37 % 60_000;
        let link = take(&pool, bytes).unwrap();
        if index % 3 == 0 {
            live.insert(link.offset(), bytes);
        }
    }
    let pool = file.after_crash(pool);
    assert!(pool.needs_reclaim());
    let early = pool.allocate::<PCell<u64>>().unwrap();
    assert!(!live.contains_key(&early.link().offset()));
    drop(early);
    let reachable = pool.reachable(|visitor| root.visit_blocks(visitor, &live));
    assert_eq!(reachable.problems(), []);
    let report = pool.reclaim(&reachable);
    assert_eq!(report.reachable_blocks, live.len() as u64 + 1);
    assert!(!pool.needs_reclaim());
    let audit = pool.audit(&reachable);
    assert!(audit.is_clean(), "{audit:?}");
    let before = pool.usage().storage_bytes;
    for index in 0..1000usize {
        let bytes = 16 + index * 37 % 60_000;
        let block = pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap();
        assert!(!live.contains_key(&block.link().offset()), "a reachable block was reused");
        std::mem::forget(block);
    }
    assert!(pool.usage().storage_bytes <= before + (1 << 20), "freed memory was not reused");
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn crashes_without_a_reclaim_cost_no_more_chunks_than_were_handed_out() {
    const CRASHES: u64 = 40;
    let (file, pool) = PoolFile::create(1 << 20, 1 << 30);
    drop(pool);
    let mut handed_out = Vec::new();
    let touched = [0; 2].map(|_| {
        for _ in 0..CRASHES {
            let pool = file.open();
            // What is freed is there for the next one, whatever becomes of this one.
            drop(pool.allocate_with_tail::<PCell<u64>>(10 * CHUNK).unwrap());
            handed_out.push(keep(pool.allocate::<PCell<u64>>().unwrap()).offset());
            pool.abandon();
        }
        file.open().usage().touched_bytes
    });
    assert!(
        touched[1] - touched[0] <= CRASHES * CHUNK as u64,
        "a slab for each crash: {touched:?}"
    );
    handed_out.sort_unstable();
    handed_out.dedup();
    assert_eq!(handed_out.len() as u64, 2 * CRASHES, "handed out twice");
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_reclaim_that_is_told_of_broken_references_frees_nothing_and_is_still_to_be_done() {
    const BYTES: usize = 100_000;
    let (file, pool) = PoolFile::create(8 << 20, 8 << 20);
    let [parent, child, other] =
        [64, BYTES, 1000].map(|bytes| (take(&pool, bytes).unwrap(), bytes));
    let pool = file.after_crash(pool);
    let broken = pool.reachable(|visitor| {
        assert!(visitor.visit(other.0, other.1));
        // The child hangs below it.
        assert!(!visitor.visit(Link::<PCell<u64>>::from_bits(parent.0.offset() + 16), parent.1));
    });
    assert_eq!(pool.reclaim(&broken), lapis_pmem::ReclaimReport::default());
    assert!(pool.needs_reclaim());
    assert_eq!(pool.reclaim_and_audit(&broken).problems.len(), 1);
    let live = [parent, child, other];
    let is_live = |at: u64| {
        live.iter()
            .any(|&(link, bytes)| (link.offset()..link.offset() + bytes as u64).contains(&at))
    };
    for bytes in [BYTES, 1000] {
        while let Ok(block) = take(&pool, bytes) {
            assert!(!is_live(block.offset()));
        }
    }
    // Once the reference is whole again, everything else is free.
    let whole = pool.reachable(|visitor| {
        live.iter().for_each(|&(link, bytes)| assert!(visitor.visit(link, bytes)));
    });
    assert!(pool.reclaim(&whole).freed_chunks > 50);
    assert!(!pool.needs_reclaim() && pool.audit(&whole).is_clean());
}

#[test]
fn a_visitor_reports_references_that_are_not_blocks_and_blocks_reached_twice() {
    let pool = counting_pool(1 << 20);
    let link = take(&pool, 100).unwrap();
    let reachable = pool.reachable(|visitor| {
        assert!(visitor.visit(link, 100));
        assert!(!visitor.visit(link, 100));
        assert!(!visitor.visit(Link::<PCell<u64>>::from_bits(link.offset() + 8), 100));
        assert!(!visitor.visit(link, 5000));
        assert!(!visitor.visit(Link::<PCell<u64>>::from_bits(1 << 40), 8));
        assert!(!visitor.visit(Link::<PCell<u64>>::NULL, 8));
    });
    assert_eq!(reachable.problems().len(), 5, "{:?}", reachable.problems());
}

#[test]
fn an_audit_finds_a_leak() {
    let pool = counting_pool(1 << 20);
    let link = keep(pool.allocate::<PCell<u64>>().unwrap());
    let audit = pool.audit(&pool.reachable(|_| {}));
    assert_eq!(audit.leaked, [link.offset()]);
}

#[test]
fn an_audit_finds_a_large_leak_and_no_block_that_is_reachable_or_retired() {
    const BYTES: usize = 100_000;
    let pool = counting_pool(1 << 20);
    let blocks = [0; 3].map(|_| take(&pool, BYTES).unwrap());
    let [lost, held, retired] = blocks;
    let guard = pool.pin();
    pool.retire(retired, BYTES, Committed::nothing_to_do(), &guard);
    let audit = pool.audit(&pool.reachable(|visitor| assert!(visitor.visit(held, BYTES))));
    assert_eq!((audit.leaked, audit.allocated_blocks), (vec![lost.offset()], 3));
}

#[test]
fn a_retired_block_waits_for_the_guards_that_were_alive() {
    let pool = counting_pool(1 << 20);
    let link = keep(pool.allocate::<PCell<u64>>().unwrap());
    let guard = pool.pin();
    {
        let writer = pool.pin();
        pool.retire(link, 8, Committed::nothing_to_do(), &writer);
    }
    assert!(pool.audit(&pool.reachable(|_| {})).is_clean(), "limbo is not a leak");
    let other = pool.allocate::<PCell<u64>>().unwrap();
    assert_ne!(other.link(), link);
    drop(guard);
    let again = pool.allocate::<PCell<u64>>().unwrap();
    assert_eq!(again.link(), link);
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn what_was_retired_before_a_clean_shutdown_is_free_after_it() {
    let (file, pool) = PoolFile::create(1 << 20, 1 << 30);
    let blocks = [100, 100_000].map(|bytes| (take(&pool, bytes).unwrap(), bytes));
    let guard = pool.pin();
    for (block, bytes) in blocks {
        pool.retire(block, bytes, Committed::nothing_to_do(), &guard);
    }
    drop(guard);
    drop(pool);
    let pool = file.open();
    assert!(!pool.needs_reclaim());
    let audit = pool.audit(&pool.reachable(|_| {}));
    assert!(audit.is_clean(), "{audit:?}");
}

#[test]
fn a_reclaim_leaves_what_readers_may_see_and_frees_the_rest() {
    const BYTES: [usize; 2] = [100, 100_000];
    let pool = counting_pool(1 << 20);
    let lost = BYTES.map(|bytes| take(&pool, bytes).unwrap());
    let retired = BYTES.map(|bytes| take(&pool, bytes).unwrap());
    let guard = pool.pin();
    for (block, bytes) in retired.into_iter().zip(BYTES) {
        pool.retire(block, bytes, Committed::nothing_to_do(), &guard);
    }
    let nothing = pool.reachable(|_| {});
    pool.reclaim(&nothing);
    let audit = pool.audit(&nothing);
    assert!(audit.is_clean(), "{audit:?}");
    assert_eq!(audit.allocated_blocks, 2);
    let taken = BYTES.map(|bytes| take(&pool, bytes).unwrap());
    assert_eq!(taken, lost);
}

#[test]
fn threads_never_share_a_block() {
    let rounds = if cfg!(miri) { 200 } else { 20_000_u64 };
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4u64 {
            let pool = &pool;
            scope.spawn(move || {
                let mut mine = Vec::new();
                for round in 0..rounds {
                    let bytes = 8 + (round * 13 % 500) as usize;
                    let block = pool.allocate_with_tail::<PCell<u64>>(bytes).unwrap();
                    block.store(pool.domain(), thread << 32 | round);
                    mine.push((block, thread << 32 | round));
                    if mine.len() > 100 {
                        let (block, value) = mine.swap_remove((round % 100) as usize);
                        assert_eq!(block.load(pool.domain()), value);
                    }
                }
            });
        }
    });
    assert_eq!(pool.usage().allocated_bytes, 0);
}

#[test]
fn what_no_block_can_be_is_not_taken_back_for_one() {
    let pool = counting_pool(1 << 20);
    let good = take(&pool, 100).unwrap().offset();
    let end = pool.region().mapped_bytes() as u64;
    let bad = [
        (0, 100),
        (16, 100),
        (65536 - 64, 100),
        (good + 8, 100),
        (end - 64, 50 + 14 + 1),
        // The blocks of that size have 96 bytes.
        (end - 80, 70),
        (end, 8),
        (1 << 46, 8),
        (good, 1 << 21),
        (good, usize::MAX),
    ];
    let (unshared, guard) = (Committed::nothing_to_do, pool.pin());
    let refuses =
        |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    for (offset, bytes) in bad {
        let link = Link::<PCell<u64>>::from_bits(offset);
        assert!(refuses(&|| pool.free_unshared(link, bytes, unshared())), "{offset:#x}, {bytes}");
        assert!(refuses(&|| pool.retire(link, bytes, unshared(), &guard)), "{offset:#x}, {bytes}");
    }
    let link = Link::<PageFrame>::from_bits(good);
    assert!(refuses(&|| pool.free_unshared(link, 4096, unshared())), "not where a page begins");
    pool.retire(Link::<PCell<u64>>::from_bits(good), 100, unshared(), &guard);
    drop(guard);
    assert_eq!(pool.usage().allocated_bytes, 0);
}

#[test]
#[cfg_attr(miri, ignore = "time")]
fn what_one_thread_retires_and_another_frees_is_used_again_though_that_one_allocates_no_such_size()
{
    const ROUNDS: usize = 400;
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    let turn = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                for _ in 0..64 {
                    let block = pool.allocate_with_tail::<PCell<u64>>(4088).unwrap();
                    let guard = pool.pin();
                    pool.retire(keep(block), 4096, Committed::nothing_to_do(), &guard);
                }
                turn.wait();
                turn.wait();
            }
        });
        for _ in 0..ROUNDS {
            turn.wait();
            // Each time all that is at hand, so that what was retired is asked for.
            for _ in 0..64 {
                keep(pool.allocate::<PCell<u64>>().unwrap());
            }
            turn.wait();
        }
    });
    let retired = ROUNDS * 64 * 4096;
    let mapped = pool.region().mapped_bytes();
    assert!(mapped < retired / 4, "{mapped} bytes are mapped, and {retired} were retired");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn blocks_never_overlap_and_survive_clean_and_unclean_reopening(
        steps in prop::collection::vec((any::<u8>(), 8usize..70_000), 1..300),
    ) {
        let (file, mut pool) = PoolFile::create(1 << 20, 1 << 30);
        let root = Directory::new(&pool);
        let mut live: BTreeMap<u64, usize> = BTreeMap::new();
        for (action, bytes) in steps {
            match action {
                0..=150 => {
                    let bytes = if action < 120 { 8 + bytes % 600 } else { bytes };
                    let link = take(&pool, bytes).unwrap();
                    let (start, end) = (link.offset(), link.offset() + bytes as u64);
                    if let Some((&before, &length)) = live.range(..end).next_back() {
                        prop_assert!(before + length as u64 <= start, "overlap");
                    }
                    live.insert(start, bytes);
                }
                151..=235 => {
                    if let Some((&offset, &bytes)) = live.iter().nth(bytes % live.len().max(1)) {
                        live.remove(&offset);
                        free(&pool, Link::from_bits(offset), bytes);
                    }
                }
                _ => {
                    if action % 2 == 0 {
                        pool.abandon();
                    }
                    drop(pool);
                    pool = file.open();
                    if action % 3 == 0 {
                        let reachable = pool.reachable(|visitor| root.visit_blocks(visitor, &live));
                        pool.reclaim(&reachable);
                    }
                }
            }
        }
        let reachable = pool.reachable(|visitor| root.visit_blocks(visitor, &live));
        prop_assert_eq!(reachable.problems(), []);
        pool.reclaim(&reachable);
        let audit = pool.audit(&reachable);
        prop_assert!(audit.is_clean(), "{:?}", audit);
        prop_assert_eq!(audit.allocated_blocks, live.len() as u64 + 1);
    }
}
