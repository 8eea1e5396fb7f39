//! How many images per second one core recovers and checks, for each structure:
//! `cargo run --release -p lapis-crash --example image_rate`.

use lapis_crash::subjects::IndexSubject;
use lapis_crash::{ExploreOptions, ExploreReport, Structure, explore, explore_structure};
use lapis_device::Modelled;
use lapis_index::{FastFair, IndexOptions, PClht, Wort};

const KEYS: u64 = 1000;

fn options(ops: usize) -> ExploreOptions {
    ExploreOptions { ops, threads: 1, crash_in_recovery_every: 0, ..ExploreOptions::default() }
}

fn print(name: &str, report: &ExploreReport) {
    assert!(report.violations.is_empty(), "{}", report.violations[0].what);
    println!(
        "| {name} | {} | {} | {:.0} |",
        report.crash_points, report.images, report.images_per_s
    );
}

fn main() {
    println!("| structure | crash points | images | images/s |\n|---|---:|---:|---:|");
    // Crashes in the last operations, on an index of that many keys.
    let filled = ExploreOptions {
        first_operation: KEYS as usize + 1,
        samples: 32,
        exhaustive_limit: 128,
        ..options(200)
    };
    macro_rules! index {
        ($name:literal, $index:ident, $key:ty) => {
            let subject = IndexSubject::<$index<Modelled, $key>, $key>::new(
                $name,
                $name,
                IndexOptions::default(),
                KEYS,
            )
            .filled(KEYS);
            print($name, &explore(&subject, &filled, &|_| {}).expect("it works without a crash"));
        };
    }
    index!("WORT, 1,000 integers", Wort, u64);
    index!("WORT, 1,000 strings", Wort, [u8]);
    index!("FAST & FAIR, 1,000 integers", FastFair, u64);
    index!("FAST & FAIR, 1,000 strings", FastFair, [u8]);
    index!("P-CLHT, 1,000 integers", PClht, u64);
    index!("P-CLHT, 1,000 strings", PClht, [u8]);
    for structure in Structure::ALL {
        let options = ExploreOptions { samples: 32, exhaustive_limit: 128, ..options(100) };
        let report = explore_structure(structure, None, &options, &|_| {});
        print(
            &format!("{structure}, as `lapis crash`"),
            &report.expect("it works without a crash"),
        );
    }
}
