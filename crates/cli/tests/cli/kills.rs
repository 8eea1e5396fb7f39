//! An import killed at any moment loses nothing that it had acknowledged, and resumes.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::runner::{Scene, text};

/// What kills of an import came to.
#[derive(Debug, Default)]
struct Kills {
    /// Kills that hit the import under way.
    hits: u32,
    /// Of those, how many while some of the records were acknowledged and others were not.
    midway: u32,
    /// The greatest number acknowledged.
    acknowledged: u64,
}

/// Starts an import, reads `acknowledgements` lines of it, waits `more`, and kills it. Returns the
/// last number that was acknowledged and whether the kill came before the end.
fn import_and_kill(
    scene: &Scene,
    file: &Path,
    acknowledgements: u64,
    more: Duration,
) -> (u64, bool) {
    let mut child = scene
        .command(["import", text(file), "--acknowledge"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = 0;
    let mut take = |lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                last = number.parse().unwrap();
            }
        }
    };
    take(&mut lines.by_ref().take(acknowledgements as usize));
    std::thread::sleep(more);
    child.kill().unwrap();
    take(&mut lines);
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (last, output.status.code().is_none())
}

/// Kills imports of `file` until `kills` of them were hit, each time checking the store against the
/// file; then lets the import end. `expected` holds the records in the file's order.
fn kill_and_resume(
    scene: &Scene,
    file: &Path,
    expected: &[(String, String)],
    kills: u32,
    random: &mut StdRng,
) -> Kills {
    let mut outcome = Kills::default();
    let batches = expected.len() as u64 / 100;
    while outcome.hits < kills {
        let left = batches.saturating_sub(outcome.acknowledged / 100);
        let remaining_kills = u64::from(kills - outcome.hits);
        // On average the kills share what is left of the import.
        let acknowledgements = random.random_range(..2 * left / (remaining_kills + 1) + 1);
        let more = Duration::from_micros(random.random_range(..2000));
        let (acknowledged, hit) = import_and_kill(scene, file, acknowledgements, more);
        outcome.acknowledged = outcome.acknowledged.max(acknowledged);
        if !hit {
            // It ended first; the next import of the same file starts over.
            assert!(outcome.acknowledged <= expected.len() as u64);
            std::fs::remove_dir_all(scene.store()).unwrap();
            outcome.acknowledged = 0;
            continue;
        }
        outcome.hits += 1;
        let done = outcome.acknowledged;
        outcome.midway += u32::from(done > 0 && done < expected.len() as u64);
        if !scene.store().join("pages.lapis").exists() {
            assert_eq!(outcome.acknowledged, 0);
            continue;
        }
        check(scene, expected, outcome.acknowledged);
    }
    let report = scene.run(["import", text(file), "--json"]).json();
    assert!(report["resumed_from"].as_u64().unwrap() >= outcome.acknowledged, "{report}");
    assert_eq!(report["total_records"], expected.len() as u64, "{report}");
    check(scene, expected, expected.len() as u64);
    outcome
}

/// The store must be in order, hold the acknowledged records, and nothing that is not in the file.
fn check(scene: &Scene, expected: &[(String, String)], acknowledged: u64) {
    let outcome = scene.run(["check", "--json"]);
    if outcome.code == Some(2) {
        // Killed before the store had been made: nothing can have been acknowledged.
        assert_eq!(acknowledged, 0, "{outcome:?}");
        return;
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let exported = scene.run(["export"]);
    if exported.code == Some(2) && acknowledged == 0 {
        // Killed before the table had been made.
        exported.sentence(2);
        return;
    }
    let exported = exported.good_text();
    let stored: std::collections::BTreeMap<_, _> =
        exported.lines().filter_map(|line| line.split_once('\t')).collect();
    // An import goes in the file's order, so what is stored is the beginning of the file.
    assert!(stored.len() as u64 >= acknowledged, "{} of {acknowledged}", stored.len());
    assert!(stored.len().is_multiple_of(100) || stored.len() == expected.len());
    for (key, value) in &expected[..stored.len()] {
        assert_eq!(stored.get(key.as_str()), Some(&value.as_str()), "{key}");
    }
}

fn generated(lines: u64) -> Vec<(String, String)> {
    let mut random = StdRng::seed_from_u64(99);
    (0..lines)
        .map(|number| {
            let mut value = String::new();
            for _ in 0..random.random_range(0..20) {
                write!(value, "{:x} ", random.random::<u64>()).unwrap();
            }
            (format!("{:08x}-{number}", random.random::<u64>()), value)
        })
        .collect()
}

#[test]
fn an_import_killed_ten_times_loses_nothing_and_ends_complete() {
    let scene = Scene::new();
    let records = generated(20_000);
    let lines: String = records.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect();
    let file = scene.file("generated.tsv", lines);
    let outcome = kill_and_resume(&scene, &file, &records, 10, &mut StdRng::seed_from_u64(7));
    assert_eq!(outcome.hits, 10);
    assert!(outcome.midway >= 5, "{outcome:?}");
}

/// Debian's package index, where it lies in `shared/data` beside the repository.
fn packages() -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let mut beside = repository.ancestors().skip(1).map(|at| at.join("shared/data/packages.tsv"));
    beside.find(|file| file.exists())
}

#[test]
#[ignore = "takes minutes and needs ../shared/data/packages.tsv; run with --ignored"]
fn an_import_of_real_packages_killed_fifty_times_loses_nothing() {
    let Some(file) = packages() else {
        eprintln!("skipped: there is no ../shared/data/packages.tsv");
        return;
    };
    let contents = std::fs::read_to_string(&file).unwrap();
    let records: Vec<_> = contents
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let scene = Scene::new();
    let outcome = kill_and_resume(&scene, &file, &records, 50, &mut StdRng::seed_from_u64(11));
    assert_eq!(outcome.hits, 50);
    assert!(outcome.midway >= 25, "{outcome:?}");
    let scanned = scene.run(["scan", "--prefix", "python3-", "--keys-only"]).good_text();
    let found: Vec<_> = scanned.lines().collect();
    let mut expected: Vec<_> = records
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| key.starts_with("python3-"))
        .collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let all = scene.run(["scan", "--keys-only"]).good_text();
    eprintln!(
        "{} kills, {} of them midway, {} packages, {} of them python3-, none lost",
        outcome.hits,
        outcome.midway,
        all.lines().count(),
        found.len()
    );
}
