//! What recovery does to a torn end is durable before anything is appended, and each of its flushes
//! and fences is needed for that.

use lapis_blocks::log::{LogError, Placement};
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_device::{Config, ImageBudget, Modelled, PersistPoint};

use super::{
    Entries, Numbers, contents, create, for_each_kind, memory, modelled, open, options, restart,
};
use crate::power_cuts::power_cuts;
use crate::torn::Append;

/// An append of some hundred bytes, and the memory when it is stored in part, before what follows
/// behind a second barrier.
fn torn<K: RingKind>(placement: Placement, seed: u64) -> (Append<RingLog<Modelled, K>>, Vec<u8>) {
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
    let append = Append::new(&log, &[0xFF; 300]);
    let footer = (!append.appended.0.number()).to_ne_bytes();
    let root = log.root().offset() as usize;
    let sizes = root..root + 128 + if K::NAME == "header-log" { 8 * 64 } else { 0 };
    let image = append.image(|index| {
        let at = append.words[index];
        let second = sizes.contains(&at) || append.after[at..at + 8] == footer;
        !second && numbers.below(3) > 0
    });
    (append, image)
}

fn a_torn_end_is_cleaned_and_used_again<K: RingKind>() {
    for placement in Placement::ALL {
        for seed in 0..8 {
            let (append, image) = torn::<K>(placement, seed);
            append.assert_torn(&image);
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
    for (append, image) in &images {
        let (good, found) = survives::<K>(image, &append.acknowledged, None);
        assert!(good, "a recovery does not survive power cuts");
        points.extend(found.iter().filter(|point| !points.contains(point)).collect::<Vec<_>>());
    }
    if K::NAME == "header-log" {
        assert_eq!(points, [], "its end is always clean");
        return;
    }
    assert!(points.len() >= 2, "{points:?}");
    for point in points {
        let survives = |(append, image): &(Append<_>, Vec<u8>)| {
            survives::<K>(image, &append.acknowledged, Some(point)).0
        };
        assert!(!images.iter().all(survives), "not shown to be necessary: {point:?}");
    }
}

for_each_kind! {
    a_torn_end_is_cleaned_and_used_again
    each_persist_of_recovery_is_necessary
}
