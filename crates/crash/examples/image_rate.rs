//! How many images per second of one core are recovered and checked, for each structure:
//! `cargo run --release -p lapis-crash --example image_rate`. Seconds are those that the processor
//! works for this process, which has one thread at work, so that whatever else the machine does
//! changes little. What there is to do before the first image (running and recording the
//! operations, the crash points before those asked about) is measured on its own and taken off.
//! Each row is the best of three. The first columns are with every image checked whole, which is the
//! default; in the others all are recovered and their contents compared, and a part is checked whole.
//!
//! An image counts when its verdict is established: by running it, or because it agrees with one that
//! was run in every byte that was read of that (`known_images`). How many were run is given too, and
//! of how many of these only the operations that follow a recovery, and the rate of what was run.
//!
//! An argument names the only rows to measure: those whose name contains it.

use lapis_crash::subjects::IndexSubject;
use lapis_crash::{
    CrashError, ExploreOptions, ExploreReport, Structure, explore, explore_structure,
};
use lapis_device::Modelled;
use lapis_index::{FastFair, IndexOptions, PClht, Wort};

const KEYS: u64 = 1000;
/// Operations from creation on.
const OPERATIONS_FROM_CREATION: usize = 100;
const RUNS: usize = 3;

fn options(ops: usize) -> ExploreOptions {
    ExploreOptions {
        ops,
        threads: 1,
        samples: 16,
        exhaustive_limit: 64,
        crash_in_recovery_every: 0,
        ..ExploreOptions::default()
    }
}

/// Seconds that the processor has worked for this process (Linux: hundredths).
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<_> = text.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

type Explore<'e> = &'e dyn Fn(&ExploreOptions) -> Result<ExploreReport, String>;

/// The processor time of exploring, and what it came to.
fn timed(explore: Explore<'_>, options: &ExploreOptions) -> Result<(f64, ExploreReport), String> {
    let before = processor_seconds().ok_or("no processor time is known here")?;
    let report = explore(options)?;
    let seconds = processor_seconds().ok_or("no processor time is known here")? - before;
    match report.violations.first() {
        Some(violation) => Err(violation.what.clone()),
        None => Ok((seconds, report)),
    }
}

fn row(name: &str, options: &ExploreOptions, explore: Explore<'_>) -> Result<(), String> {
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return Ok(());
    }
    // Nothing is that late, so that everything but the images is done.
    let no_images = ExploreOptions { first_operation: usize::MAX, ..options.clone() };
    let mut set_up = f64::MAX;
    for _ in 0..RUNS {
        set_up = set_up.min(timed(explore, &no_images)?.0);
    }
    print!("| {name} | {set_up:.2}");
    for (whole_check_every, whole_check_at_each_point) in [(1, true), (8, true), (8, false)] {
        let options =
            ExploreOptions { whole_check_every, whole_check_at_each_point, ..options.clone() };
        let (mut best, mut images, mut known, mut partly) = (f64::MAX, 0, 0, 0);
        for _ in 0..RUNS {
            let (seconds, report) = timed(explore, &options)?;
            best = best.min(seconds);
            images = report.images;
            (known, partly) = (report.images_by_proof, report.images_partly_by_proof);
        }
        let per_s = |images: u64| images as f64 / (best - set_up);
        print!(" | {images} | {:.0}", per_s(images));
        if whole_check_every == 1 {
            let run = images - known;
            print!(" | {run} | {partly} | {:.0}", per_s(run));
        }
    }
    println!(" |");
    Ok(())
}

fn main() -> Result<(), String> {
    println!(
        "| structure | set-up s | images, all whole | per s | of them run | in part | per s \
         | images, 1 in 8 and one per crash point whole | per s | images, 1 in 8 whole | per s |"
    );
    println!("|---|{}", "---:|".repeat(10));
    // Crashes in the operations after the index was filled.
    macro_rules! index {
        ($name:literal, $index:ident, $operations:literal) => {
            let filled =
                ExploreOptions { first_operation: KEYS as usize + 1, ..options($operations) };
            let subject = IndexSubject::<$index<Modelled, u64>, u64>::new(
                $name,
                &[$name],
                IndexOptions::default(),
                KEYS,
            )
            .filled(KEYS);
            row(concat!($name, ", 1,000 keys"), &filled, &|options| {
                explore(&subject, options, &|_| {})
            })?;
        };
    }
    index!("WORT", Wort, 1500);
    index!("FAST & FAIR", FastFair, 30);
    index!("P-CLHT", PClht, 60);
    for structure in Structure::ALL {
        let options = options(OPERATIONS_FROM_CREATION);
        row(&format!("`lapis crash {structure}`"), &options, &|options| {
            explore_structure(structure, None, options, &|_| {})
                .map_err(|error: CrashError| error.to_string())
        })?;
    }
    Ok(())
}
