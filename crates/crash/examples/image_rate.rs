//! How many images per second of one core are recovered and checked, for each structure:
//! `cargo run --release -p lapis-crash --example image_rate`. Seconds are those of the processor, so
//! that whatever else the machine does changes little.

use lapis_crash::subjects::IndexSubject;
use lapis_crash::{
    CrashError, ExploreOptions, ExploreReport, Structure, explore, explore_structure,
};
use lapis_device::Modelled;
use lapis_index::{FastFair, IndexOptions, PClht, Wort};

const KEYS: u64 = 1000;
const OPERATIONS: usize = 30;

fn options() -> ExploreOptions {
    ExploreOptions {
        ops: OPERATIONS,
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

fn row(name: &str, explore: impl FnOnce() -> Result<ExploreReport, String>) -> Result<(), String> {
    let before = processor_seconds().ok_or("no processor time is known here")?;
    let report = explore()?;
    let seconds = processor_seconds().ok_or("no processor time is known here")? - before;
    if let Some(violation) = report.violations.first() {
        return Err(violation.what.clone());
    }
    let rate = |images: u64| images as f64 / seconds;
    println!(
        "| {name} | {} | {} | {seconds:.2} | {:.0} | {:.2e} |",
        report.crash_points,
        report.images,
        rate(report.images),
        rate(report.images_covered),
    );
    Ok(())
}

fn main() -> Result<(), String> {
    println!("| structure | crash points | images tried | seconds | tried/s | decided/s |");
    println!("|---|---:|---:|---:|---:|---:|");
    // Crashes in the operations after the index was filled.
    let filled = ExploreOptions { first_operation: KEYS as usize + 1, ..options() };
    macro_rules! index {
        ($name:literal, $index:ident) => {
            let subject = IndexSubject::<$index<Modelled, u64>, u64>::new(
                $name,
                $name,
                IndexOptions::default(),
                KEYS,
            );
            row(concat!($name, ", 1,000 keys"), || {
                explore(&subject.filled(KEYS), &filled, &|_| {})
            })?;
        };
    }
    index!("WORT", Wort);
    index!("FAST & FAIR", FastFair);
    index!("P-CLHT", PClht);
    for structure in Structure::ALL {
        row(&format!("`lapis crash {structure}`"), || {
            explore_structure(structure, None, &options(), &|_| {})
                .map_err(|error: CrashError| error.to_string())
        })?;
    }
    Ok(())
}
