//! Bytes laid over the image of a log: opening it gives a log or an error, and a log that opened
//! can be read, checked, appended to and truncated. Where the allocator's descriptors or bitmaps are damaged too,
//! none of this panics, and no more: what they say is free the allocator gives out, and only an audit
//! compares that with what is reachable.

#![cfg_attr(fuzzing, no_main)]

use std::sync::{Arc, LazyLock};

use lapis_blocks::log::Placement;
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_pmem::{EXTENT_BYTES, Hardware, Link, Pool, Region};

const POOL_BYTES: usize = 1 << 18;
/// The bitmaps of the slabs in the image are no longer than this. Each is where its slab begins, at
/// the beginning of an extent.
const BITMAP_BYTES: usize = 128;

/// Behind the header: what chunks are the beginning of.
const DESCRIPTORS_OFFSET: usize = 4096;

fn may_be_of_allocator(at: usize) -> bool {
    at < EXTENT_BYTES || at % EXTENT_BYTES < BITMAP_BYTES
}

/// An image with a log of a dozen entries in several segments, and where its root is.
static IMAGE: LazyLock<(Vec<u8>, u64)> = LazyLock::new(|| {
    let region = Region::anonymous(POOL_BYTES, 1 << 24).unwrap();
    // SAFETY: the alias is dropped with the pool, before the region and its bytes are read.
    let pool = Arc::new(Pool::create(unsafe { region.alias() }, Hardware::detect()).unwrap());
    let options =
        PopLogOptions { segment_bytes: 4096, spare_segments: 2, placement: Placement::Padded };
    let root = pool.fence(PopLog::create(&pool, options).unwrap());
    let link = root.link();
    let _ = pool.publish_root("log", 1, root).unwrap().persist();
    let log = PopLog::open(Arc::clone(&pool), link).unwrap();
    for length in [1usize, 48, 49, 500, 3000, 64, 6000, 10, 900] {
        log.append(&vec![length as u8; length]).unwrap();
    }
    drop((log, pool));
    // SAFETY: that many bytes are mapped.
    let bytes = unsafe { std::slice::from_raw_parts(region.base(), POOL_BYTES) }.to_vec();
    (bytes, link.bits())
});

lapis_fuzz::fuzz_target!(|input: &[u8]| {
    let (image, root) = &*IMAGE;
    let mut image = image.clone();
    let words = (DESCRIPTORS_OFFSET..image.len()).step_by(8);
    let is_used = |at: &usize| image[*at..at + 8] != [0; 8];
    let used: Vec<usize> = words.filter(is_used).collect();
    let mut sound_allocator = true;
    for spot in input.chunks_exact(11) {
        let near = used[usize::from(u16::from_le_bytes([spot[0], spot[1]])) % used.len()];
        // Words behind used ones as well: the ends of segments.
        let at = (near + usize::from(spot[2] / 16) * 8).min(image.len() - 8);
        sound_allocator &= !may_be_of_allocator(at);
        match spot[2] % 2 {
            0 => image[at..at + 8].copy_from_slice(&spot[3..]),
            _ => image[at + usize::from(spot[3] % 8)] ^= spot[4],
        }
    }
    let region = Region::anonymous(image.len(), 1 << 24).unwrap();
    // SAFETY: that many bytes are mapped and nobody else knows the region.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), region.base(), image.len()) };
    let Ok(pool) = Pool::open(region, Hardware::detect()) else { return };
    let pool = Arc::new(pool);
    let Ok(log) = PopLog::open(Arc::clone(&pool), Link::<PopLogRoot>::from_bits(*root)) else {
        return;
    };
    let entries: Result<Vec<_>, _> = log.iter().collect();
    let entries = entries.expect("a log that opened can be read");
    let problems = log.check();
    assert!(problems.is_empty(), "{problems:?}");
    let _ = pool.reachable(|visitor| log.visit_blocks(visitor));
    if !sound_allocator {
        for bytes in [8, 5000, 100] {
            if let Ok(position) = log.append(&vec![1; bytes]) {
                let _ = (log.iter().count(), log.check(), log.truncate(position));
            }
        }
        return;
    }
    let position = log.append(b"one more").expect("a log that opened can be appended to");
    assert_eq!(log.iter().count(), entries.len() + 1);
    log.truncate(position).expect("a log that opened can be truncated");
    assert_eq!(log.iter().count(), 1);
});
