//! What recovery does to a torn end is durable before anything is appended, and each of its flushes
//! and fences is needed for that.

use lapis_blocks::log::{LogError, Placement, Position};
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_device::{Config, ImageBudget, Modelled, PersistPoint};

use super::{Numbers, contents, create, for_each_kind, memory, modelled, open, options, restart};
use crate::power_cuts::power_cuts;

type Entries = Vec<(Position, Vec<u8>)>;

/// Entries, and the memory when another of some hundred bytes is stored in part, before what follows
/// behind a second barrier.
fn torn<K: RingKind>(placement: Placement, seed: u64) -> (Entries, Vec<u8>) {
    let pool = modelled(Config::default());
    let log = create::<K, _>(&pool, options(placement));
    let mut numbers = Numbers(seed);
    // Once around the ring, so that polarity and zeroing matter.
    for _ in 0..60 {
        let length = 1 + numbers.below(200);
        log.append(&numbers.bytes(length)).unwrap();
        log.truncate(log.end()).unwrap();
    }
    log.append(&numbers.bytes(70)).unwrap();
    let (before, entries) = (memory(&pool), contents(&log));
    let footer = !log.append(&[0xFF; 300]).unwrap().number();
    let mut image = before.clone();
    let root = log.root().offset() as usize;
    let sizes = root..root + 128 + if K::NAME == "header-log" { 8 * 64 } else { 0 };
    for (at, word) in memory(&pool).chunks(8).enumerate().map(|(index, word)| (8 * index, word)) {
        let second = sizes.contains(&at) || *word == footer.to_ne_bytes();
        if before[at..at + 8] != *word && !second && numbers.below(3) > 0 {
            image[at..at + 8].copy_from_slice(word);
        }
    }
    (entries, image)
}

/// A torn append may have become whole but for its last word.
fn opens_to<K: RingKind>(image: &[u8], entries: &Entries) -> Option<RingLog<Modelled, K>> {
    let log = open::<K, _>(&restart(image, Config::default())).ok()?;
    (contents(&log) == *entries && log.check().is_empty()).then_some(log)
}

fn a_torn_end_is_cleaned_and_used_again<K: RingKind>() {
    for placement in Placement::ALL {
        for seed in 0..8 {
            let (mut entries, image) = torn::<K>(placement, seed);
            let log = opens_to::<K>(&image, &entries).expect("the acknowledged entry");
            let position = log.append(b"next").unwrap();
            entries.push((position, b"next".to_vec()));
            let image = memory(log.pool());
            assert!(opens_to::<K>(&image, &entries).is_some());
        }
    }
}

/// Recovers from `image` and appends, with a persist point switched off; returns whether every power
/// cut on the way is survived, and the points of the recovery.
fn survives<K: RingKind>(
    image: &[u8],
    entries: &Entries,
    suppress: Option<PersistPoint>,
) -> (bool, Vec<PersistPoint>) {
    let config = Config { suppress, ..Config::tracing() };
    let pool = restart(image, config);
    pool.domain().take_trace();
    let base = memory(&pool);
    let log = match open::<K, _>(&pool) {
        Ok(log) => log,
        Err(LogError::Damaged(_)) => return (false, Vec::new()),
        Err(error) => panic!("{error}"),
    };
    let mut after = entries.clone();
    // Over the torn one, in other bits.
    after.push((log.append(&[0xA7; 310]).unwrap(), vec![0xA7; 310]));
    let points = pool.domain().persist_points();
    let of_recovery = |point: &PersistPoint| {
        let file = point.file;
        ["recovery.rs", "kind.rs", "rawl.rs"].iter().any(|name| file.ends_with(name))
    };
    let points = points.iter().map(|found| found.point).filter(of_recovery).collect();
    let trace = pool.domain().take_trace();
    let budget = ImageBudget { exhaustive_limit: 64, samples: 24, seed: 0 };
    let survived = power_cuts(&trace, &base, budget, |_, pool| {
        open::<K, _>(pool).is_ok_and(|log| {
            let found = contents(&log);
            (found == *entries || found == after) && log.check().is_empty()
        })
    });
    (survived.is_some(), points)
}

fn each_persist_of_recovery_is_necessary<K: RingKind>() {
    let mut points: Vec<PersistPoint> = Vec::new();
    let images: Vec<_> = (0..6).map(|seed| torn::<K>(Placement::Padded, seed)).collect();
    for (entries, image) in &images {
        let (good, found) = survives::<K>(image, entries, None);
        assert!(good, "a recovery does not survive power cuts");
        points.extend(found.iter().filter(|point| !points.contains(point)).collect::<Vec<_>>());
    }
    if K::NAME == "header-log" {
        assert_eq!(points, [], "its end is always clean");
        return;
    }
    assert!(points.len() >= 2, "{points:?}");
    for point in points {
        let found =
            images.iter().any(|(entries, image)| !survives::<K>(image, entries, Some(point)).0);
        assert!(found, "not shown to be necessary: {point:?}");
    }
}

for_each_kind! {
    a_torn_end_is_cleaned_and_used_again
    each_persist_of_recovery_is_necessary
}
