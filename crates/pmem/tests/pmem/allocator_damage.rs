//! The allocator of a damaged pool: nothing of somebody's is given to anybody else.

use lapis_pmem::{Committed, Hardware, Link, PCell, Pool, Region};

use crate::allocator::{HIGH_WATER_OFFSET, keep};

#[test]
#[cfg_attr(miri, ignore = "files")]
fn damaged_saved_bitmaps_make_no_panic_and_no_count_wrong() {
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p");
    let options = lapis_pmem::RegionOptions { reserve_bytes: 1 << 30, ..Default::default() };
    // Sizes whose slabs have bits behind the last block's, and of more and less than one word.
    const SIZES: [usize; 4] = [48, 144, 1000, 4000];
    for damage in [0x00, 0xFF, 0x5A] {
        let _ = std::fs::remove_file(&path);
        let pool = Pool::create_file(&path, 1 << 20, &options).unwrap();
        let mut live = Vec::new();
        for bytes in SIZES {
            for _ in 0..100 {
                let link = keep(pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap());
                live.push((link, bytes));
            }
        }
        drop(pool);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (link, bytes) in &live {
            let slab = link.offset() / 65536 * 65536;
            // No more than the bitmap: the first block of a slab begins where it ends, or later.
            let words =
                (65536 / bytes.next_multiple_of(16)).div_ceil(64) - usize::from(*bytes < 64);
            file.write_all_at(&vec![damage; words * 8], slab).unwrap();
        }
        drop(file);
        let pool = Pool::open_file(&path, &options).unwrap();
        let blocks_bytes = pool.usage().allocated_bytes;
        assert!(blocks_bytes <= pool.usage().touched_bytes, "{:?}", pool.usage());
        for &(link, bytes) in &live {
            pool.free_unshared(link, bytes, Committed::nothing_to_do());
        }
        for bytes in SIZES {
            let blocks: Vec<_> = (0..3000)
                .map(|_| pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap())
                .collect();
            drop(blocks);
        }
        assert!(pool.usage().allocated_bytes <= blocks_bytes, "{:?}", pool.usage());
        // As who follows a damaged link does.
        let no_block = Link::<PCell<u64>>::from_bits(live[0].0.offset() / 65536 * 65536);
        pool.free_unshared(no_block, live[0].1, Committed::nothing_to_do());
        assert!(pool.usage().allocated_bytes <= blocks_bytes, "{:?}", pool.usage());
        drop(pool);
        // What is reachable decides what is free, as after a crash.
        let pool = Pool::open_file(&path, &options).unwrap();
        pool.reclaim(&pool.reachable(|_| {}));
        assert_eq!(pool.usage().allocated_bytes, 0);
    }
}

/// The descriptor of a slab or run, as the header comment of the allocator has it.
fn descriptor(kind: u64, class: u64, chunks: u64) -> u64 {
    kind | class << 8 | chunks << 32
}

#[test]
#[cfg_attr(miri, ignore = "time")]
fn chunks_whose_descriptor_is_damaged_are_given_to_nobody_and_neither_are_those_of_others() {
    const CHUNK: u64 = 1 << 16;
    const BYTES: usize = 8 << 20;
    // Of one chunk, of eight, and runs; each descriptor has others behind it.
    const SIZES: [usize; 6] = [4096, 2000, 6000, 30_000, 150_000, 300_000];
    const SLAB: u64 = 1;
    const LARGE: u64 = 2;
    let make = || {
        let region = Region::anonymous(BYTES, BYTES).unwrap();
        // SAFETY: `region` outlives the pool.
        let pool = Pool::create(unsafe { region.alias() }, Hardware::detect()).unwrap();
        let take = |bytes| {
            (keep(pool.allocate_with_tail::<PCell<u64>>(bytes - 8).unwrap()).offset(), bytes as u64)
        };
        let live = SIZES.map(take);
        drop(pool);
        (region, live)
    };
    let (region, live) = make();
    // SAFETY: mapped, aligned, and no pool is open.
    let mark = unsafe { region.base().add(HIGH_WATER_OFFSET).cast::<u64>().read() };
    let mut tried = 0;
    for damaged in 0..SIZES.len() {
        let chunk = live[damaged].0 / CHUNK;
        let words = (0..64).map(|bit| Err(1 << bit)).chain(
            [
                // Another class, another number of chunks, an end behind the mark or in the next table, other kinds.
                descriptor(SLAB, 0, 1),
                descriptor(SLAB, 25, 8),
                descriptor(SLAB, 25, 1),
                descriptor(SLAB, 200, 1),
                descriptor(LARGE, 0, mark - chunk + 1),
                descriptor(LARGE, 0, u64::from(u32::MAX)),
                descriptor(LARGE, 1, 1),
                descriptor(LARGE, 0, 0),
                descriptor(0, 0, 3),
                descriptor(7, 0, 1),
            ]
            .map(Ok),
        );
        for word in words {
            for is_clean in [true, false] {
                let (region, live) = make();
                // SAFETY: mapped, aligned, and no pool is open.
                let word = unsafe {
                    let place = region.base().add(4096 + 8 * chunk as usize).cast::<u64>();
                    let found = place.read();
                    place.write(word.unwrap_or_else(|bit| found ^ bit));
                    (found, place.read())
                };
                // A run that is another size and fits, or a slab of another class of as many chunks, or nothing at all:
                // nothing says that these are damaged.
                let is_plausible = |word: u64| match word & 0xFF {
                    0 => word == 0,
                    1 => {
                        word & 0xFFFF_00FF == 1 && {
                            let class = word >> 8 & 0xFF;
                            let is_of_eight =
                                (25..33).contains(&class) || (34..37).contains(&class);
                            class < 37 && word >> 32 == if is_of_eight { 8 } else { 1 }
                        }
                    }
                    2 => {
                        let chunks = word >> 32;
                        word & 0xFFFF_FFFF == 2 && chunks > 0 && chunk + chunks <= mark
                    }
                    _ => false,
                };
                assert!(is_plausible(word.0));
                if is_plausible(word.1) {
                    continue;
                }
                tried += 1;
                // SAFETY: `region` outlives the pools, which use the memory one after the other.
                let open = || Pool::open(unsafe { region.alias() }, Hardware::detect()).unwrap();
                if !is_clean {
                    open().abandon();
                }
                let pool = open();
                if !is_clean {
                    let reachable = pool.reachable(|visitor| {
                        for &(offset, bytes) in &live {
                            if offset / CHUNK != chunk {
                                let link = Link::<PCell<u64>>::from_bits(offset);
                                assert!(visitor.visit(link, bytes as usize), "{word:x?}");
                            }
                        }
                    });
                    pool.reclaim(&reachable);
                }
                let audit = pool.audit(&pool.reachable(|_| {}));
                let [problem] = &audit.problems[..] else { panic!("{word:x?}: {audit:?}") };
                assert_eq!(
                    problem.to_string(),
                    format!("the descriptor of chunk {chunk} is damaged")
                );
                for bytes in [4096, 2000, 6000, 30_000, 65_000, 16].map(|bytes| bytes as u64) {
                    for _ in 0..40 {
                        let Ok(block) = pool.allocate_with_tail::<PCell<u64>>(bytes as usize - 8)
                        else {
                            break;
                        };
                        let start = keep(block).offset();
                        let is_apart = |&(live, size): &(u64, u64)| {
                            start + bytes <= live || live + size <= start
                        };
                        assert!(start + bytes <= BYTES as u64, "{word:x?}");
                        assert!(
                            live.iter().all(is_apart),
                            "{bytes} bytes at {start:#x}, {word:x?} of chunk {chunk}, {is_clean}, {live:x?}"
                        );
                    }
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}
