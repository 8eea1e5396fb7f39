//! The demo's second half: the store on the modelled machine, where the power can be cut between
//! any two steps, and where everything that reaches the media is counted.

use lapis::{Store, StoreOptions, TableOptions};
use lapis_crash::{ExploreOptions, Structure, explore_structure};
use lapis_device::{Config, Modelled};
use lapis_pmem::{Pool, Region};

use super::operations::{Action, Actions, Keys, Stamp};
use super::summary::{CrashSummary, PerPut};
use crate::failure::Failure;
use crate::output::{Output, grouped};
use crate::progress;

/// Operations whose crashes are explored: as many as the default number of images has room for.
const EXPLORED_OPERATIONS: usize = 60;

/// At a crash point with more images than this, so many are sampled besides the extremes: few,
/// so that the budget reaches every crash point.
const EXHAUSTIVE_LIMIT: u64 = 8;
const SAMPLES: u32 = 4;

/// Records in the modelled store, and puts that are counted.
const COUNTED_RECORDS: usize = 10_000;
const COUNTED_PUTS: usize = 5_000;

/// The counts are to be the same on every run.
const COUNTING_SEED: u64 = 1;

/// Memory of the modelled store.
const COUNTED_BYTES: usize = 256 << 20;

/// Explores the crashes of the store, up to `images` of them.
pub fn explore(seed: u64, images: u64, output: &mut Output) -> Result<CrashSummary, Failure> {
    let options = ExploreOptions {
        ops: EXPLORED_OPERATIONS,
        seed,
        image_limit: images,
        exhaustive_limit: EXHAUSTIVE_LIMIT,
        samples: SAMPLES,
        ..ExploreOptions::default()
    };
    let bar = progress::count(images, "images");
    let report =
        explore_structure(Structure::Store, None, &options, &|done| bar.set_position(done));
    bar.finish_and_clear();
    let report = report.map_err(|error| Failure::refused(error.to_string()))?;
    output.announce(format_args!(
        "   {} operations, {} moments, {} images of the memory recovered and checked in {:.1} s",
        report.ops,
        grouped(report.crash_points),
        grouped(report.images),
        report.seconds
    ))?;
    for violation in &report.violations {
        output.announce(format_args!(
            "   ! {}; `{}` shows it again",
            violation.what, violation.replay
        ))?;
    }
    Ok(CrashSummary {
        images: report.images,
        crash_points: report.crash_points,
        distinct_states: report.distinct_states,
        seconds: report.seconds,
        violations: report.violations.len() as u64,
        replays: report.violations.into_iter().map(|violation| violation.replay).collect(),
    })
}

/// Counts what the puts of the workload do, over a part of the demo's records.
pub fn count_puts(keys: &Keys, loaded: usize) -> Result<PerPut, Failure> {
    let region = Region::anonymous(COUNTED_BYTES, COUNTED_BYTES)
        .map_err(|error| Failure::refused(error.to_string()))?;
    let domain = Modelled::over(&region, Config::counting());
    let pool = Pool::create(region, domain.clone())
        .map_err(|error| Failure::refused(error.to_string()))?;
    let store = Store::create_on(pool, &StoreOptions::default())?;
    let table = store.create_table(super::TABLE, &TableOptions::default())?;
    let records = loaded.min(COUNTED_RECORDS);
    for index in 0..records {
        table.put(keys.key(index), keys.text(index))?;
    }
    // One put in eleven is of a new key, as in the workload that was killed.
    let new_keys = (keys.len() - loaded).min(records / 10).max(1);
    let puts: Vec<_> = Actions::new(COUNTING_SEED, 0, 0, 1, records + new_keys)
        .filter_map(|(number, action)| match action {
            Action::Put { key } => Some((number, key)),
            _ => None,
        })
        .take(COUNTED_PUTS)
        .collect();
    let before = domain.counts();
    for &(number, index) in &puts {
        let index = if index < records { index } else { loaded + index - records };
        let value = keys.value(index, Stamp { round: 0, thread: 0, number });
        table.put(keys.key(index), &value)?;
    }
    let counts = domain.counts() - before;
    let per_put = |count: u64| count as f64 / puts.len() as f64;
    Ok(PerPut {
        puts: puts.len() as u64,
        records: records as u64,
        flushes: per_put(counts.flushes),
        fences: per_put(counts.fences),
        wpq_inserts: per_put(counts.wpq_inserts()),
        media_writes: per_put(counts.media_writes),
        media_reads: per_put(counts.media_reads),
        llc_misses: per_put(counts.llc_misses),
    })
}
