//! A run of `lapis crash` that is told to stop prints what it has found.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::runner::{Outcome, Scene, ended, lapis, text};
use crate::traces::one_operation;

/// Starts a run, and sends it a signal as soon as it does not end it.
fn stopped(arguments: &[&str], signal: i32) -> Outcome {
    let words: Vec<_> = ["crash"].iter().chain(arguments).map(ToString::to_string).collect();
    let mut command = lapis();
    command.args(&words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    while !catches(&child, signal) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Two at once, as `timeout` does, are one.
    let send = format!("kill -{signal} {0} && kill -{signal} {0} || true", child.id());
    assert!(Command::new("sh").args(["-c", &send]).status().unwrap().success());
    ended(words, child)
}

/// Whether the process has a handler for the signal.
fn catches(child: &Child, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = line.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    // Of a process that has ended too early, which the assertions on its output tell.
    caught.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

/// So much that it does not end by itself.
const LONG: [&str; 5] = ["wort", "--images", "0", "--ops", "3000"];

#[test]
fn a_run_that_is_interrupted_prints_what_it_has_found_and_that_it_was_stopped() {
    let run = stopped(&LONG, 2);
    assert_eq!(run.code, Some(130), "{run:?}");
    let said = String::from_utf8(run.stdout).unwrap();
    for part in ["images", "never passed: ", "stopped early", "nothing found in"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_run_that_is_terminated_ends_with_its_one_json_object() {
    let run = stopped(&[&LONG[..], &["--json"]].concat(), 15);
    assert_eq!(run.code, Some(143), "{run:?}");
    let report = run.json();
    assert_eq!(report["stopped"], true);
    assert!(report["images"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn workers_and_all_structures_are_stopped_likewise() {
    let workers = ["wort:u64", "--workers", "2", "--schedules", "100000", "--json"];
    let run = stopped(&workers, 15);
    assert_eq!((run.code, &run.json()["stopped"]), (Some(143), &true.into()), "{run:?}");
    let run = stopped(&["--all", "--budget", "1h", "--json"], 15);
    assert_eq!((run.code, &run.json()["stopped"]), (Some(143), &true.into()), "{run:?}");
}

#[test]
fn a_check_of_a_trace_tells_the_violations_found_until_it_is_stopped() {
    let scene = Scene::new();
    let path = scene.file("p.trace", one_operation(false));
    // The trace shows one of itself; the command does not end.
    let check = ["--trace", text(&path), "--recover", "sleep 100;", "--recover-seconds", "100"];
    let run = stopped(&[&check[..], &["--json"]].concat(), 15);
    assert_eq!(run.code, Some(1), "{run:?}");
    let report = run.json();
    assert_eq!((&report["stopped"], &report["images"]), (&true.into(), &0.into()));
    assert_eq!(report["violations"][0]["failure"]["stored_at"], "list.c:12");
}
