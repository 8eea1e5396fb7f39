//! The demo's second half: the store on the modelled machine, where the power can be cut between
//! any two steps, and where everything that reaches the media is counted.

use lapis_crash::{ExploreOptions, StopFlag, Structure, explore_structure};
use lapis_engine::Placement;
use lapis_lab::experiment::OPTANE_100;
use lapis_lab::key_value::KeyValue;
use lapis_lab::modelled_store::{CountError, ModelledStore};

use super::operations::{Action, Actions, Keys, Stamp};
use super::summary::{CrashSummary, PerPut};
use crate::commands::ycsb::not_counted;
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

/// Where the explored stores have their pages.
const EXPLORED: [&str; 4] =
    ["store:ssd", "store:basic-nvm", "store:three-tier", "store:nvm-direct"];

/// Explores the crashes of the store's transactions, up to `images` of them, as many in each placement, until it is
/// stopped.
pub fn explore(
    seed: u64,
    images: u64,
    stop: StopFlag,
    output: &mut Output,
) -> Result<CrashSummary, Failure> {
    let options = ExploreOptions {
        ops: EXPLORED_OPERATIONS,
        seed,
        image_limit: (images / EXPLORED.len() as u64).max(1),
        exhaustive_limit: EXHAUSTIVE_LIMIT,
        samples: SAMPLES,
        stop,
        ..ExploreOptions::default()
    };
    let bar = progress::count(images, "images");
    let mut found = CrashSummary::default();
    for store in EXPLORED {
        let before = found.images;
        let tell = |done| bar.set_position(before + done);
        let report = explore_structure(Structure::Store, Some(store), &options, &tell)
            .map_err(|error| Failure::refused(error.to_string()))?;
        found.images += report.images;
        found.crash_points += report.crash_points;
        found.distinct_states += report.distinct_states;
        found.seconds += report.seconds;
        found.violations += report.violations.len() as u64;
        for violation in report.violations {
            let (what, again) = (violation.what, &violation.replay);
            output.announce(format_args!("   ! {what}; `{again}` shows it again"))?;
            found.replays.push(violation.replay);
        }
    }
    bar.finish_and_clear();
    output.announce(format_args!(
        "   {EXPLORED_OPERATIONS} operations, {} moments, {} images of the memory recovered and checked in {:.1} s",
        grouped(found.crash_points),
        grouped(found.images),
        found.seconds
    ))?;
    Ok(found)
}

/// Counts what the puts of the workload do, over a part of the demo's records.
pub fn count_puts(keys: &Keys, loaded: usize, placement: Placement) -> Result<PerPut, Failure> {
    let modelled = ModelledStore::create(OPTANE_100, placement).map_err(not_counted)?;
    let target = modelled.target();
    let records = loaded.min(COUNTED_RECORDS);
    for index in 0..records {
        let written = target.write(keys.key(index), keys.text(index));
        written.map_err(|error| not_counted(error.into()))?;
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
    let per_put = modelled.count(records as u64, |target| {
        for &(number, index) in &puts {
            let index = if index < records { index } else { loaded + index - records };
            let value = keys.value(index, Stamp { round: 0, thread: 0, number });
            target.write(keys.key(index), &value)?;
        }
        Ok::<_, CountError>(puts.len() as u64)
    });
    let per_put = per_put.map_err(not_counted)?;
    Ok(PerPut { puts: puts.len() as u64, counts: per_put })
}
