//! The demo, made small.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::runner::{Scene, ended, lapis, run, text};

const SMALL: [&str; 11] = [
    "demo",
    "--records",
    "500",
    "--kills",
    "2",
    "--images",
    "100",
    "--threads",
    "3",
    "--seed",
    "1",
];

#[test]
fn the_demo_loses_nothing_and_reports_it() {
    let outcome = run(SMALL.iter().chain(&["--json"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = outcome.json();
    assert_eq!((&report["records"], &report["lost"]), (&500.into(), &0.into()));
    assert_eq!((&report["kills"], &report["unexpected"]), (&2.into(), &0.into()));
    assert_eq!(report["crash"]["violations"], 0);
    assert!(report["crash"]["images"].as_u64().unwrap() > 0);
    assert!(report["acknowledged"].as_u64().unwrap() > 0);
    assert!(report["ops_per_s"].as_f64().unwrap() > 0.0);
    for count in ["flushes", "fences", "wpq_inserts", "media_writes"] {
        assert!(report["per_put"][count].is_f64(), "{count}");
    }
    assert!(report["per_put"]["fences"].as_f64().unwrap() > 0.9, "{report}");
    assert!(report["per_put_on_ssd"]["ssd_flushes"].as_f64().unwrap() > 0.9, "{report}");
}

#[test]
fn the_demo_goes_on_with_other_text_where_there_are_no_crates() {
    let home = tempfile::tempdir().unwrap();
    let output = lapis().args(SMALL).env("CARGO_HOME", home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("text files under"), "{text}");
    assert!(text.contains("Where to go next"), "{text}");
}

#[test]
fn a_demo_that_is_stopped_leaves_nothing_behind() {
    let scene = Scene::new();
    let place = scene.store();
    std::fs::create_dir(&place).unwrap();
    let is_empty = || place.read_dir().unwrap().next().is_none();
    let words = ["demo", "--records", "20000", "--dir", text(&place)];
    let mut command = lapis();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    let outcome = ended(words.map(str::to_owned).to_vec(), child);
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stdout).contains("stopped early"), "{outcome:?}");
    assert!(is_empty());
}
