//! A program in C from end to end.

use std::path::{Path, PathBuf};
use std::process::Command;

use lapis_crash::recorded::{RecordedFailure, RecordedViolation};
use lapis_crash::{LineState, RecordedOptions, check_recorded};
use lapis_device::trace_file::RecordedTrace;

use crate::recorded::commands::recovering;
use crate::recorded::program::not_durable;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Compiles a source file, or says why not.
pub fn compiled(source: &Path, directory: &Path, options: &[&str]) -> Option<PathBuf> {
    let compiler = if source.extension().is_some_and(|it| it == "cpp") { "c++" } else { "cc" };
    if !Command::new(compiler).arg("--version").output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: there is no `{compiler}` on this machine");
        return None;
    }
    let program = directory.join(source.file_stem().unwrap());
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg(format!("-I{ROOT}/include"))
        .arg("-o")
        .arg(&program)
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Compiles the example in C and traces it, or says why not.
fn ring(directory: &Path, options: &[&str]) -> Option<(PathBuf, RecordedTrace)> {
    let source = format!("{ROOT}/examples/bring-your-own/c/ring.c");
    let program = compiled(Path::new(&source), directory, &[&["-std=c99"], options].concat())?;
    let trace = directory.join("ring.trace");
    let status = Command::new(&program).arg("write").arg(&trace).status().unwrap();
    assert!(status.success());
    let trace = RecordedTrace::read(std::fs::read(trace).unwrap().as_slice()).unwrap();
    Some((program, trace))
}

#[test]
fn a_ring_in_c_survives_by_its_own_check() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, trace)) = ring(directory.path(), &[]) else { return };
    let options = recovering(&format!("{} check", program.display()));
    let report = check_recorded(&trace, &options, &|_| {}).unwrap();
    assert_eq!(report.violations, []);
    assert_eq!((report.ops, report.acknowledgements, report.assertions), (40, 40, 48));
    assert!(report.images > 100 && report.distinct_states > 30, "{report:?}");
    assert_eq!(report.performance.findings, []);
}

#[test]
fn the_fault_planted_in_the_ring_in_c_is_found_by_its_assertion_and_by_its_check() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, trace)) = ring(directory.path(), &["-DPLANTED_BUG"]) else { return };
    let mut options = recovering(&format!("{} check", program.display()));
    options.shrink = true;
    let report = check_recorded(&trace, &options, &|_| {}).unwrap();
    let asserted = |violation: &&RecordedViolation| {
        matches!(violation.failure, RecordedFailure::NotInOrder { .. })
    };
    let refused = |violation: &&RecordedViolation| {
        matches!(violation.failure, RecordedFailure::Refused { .. })
    };
    let order = report.violations.iter().find(asserted).expect("the assertion fails");
    assert_eq!(order.times, 24, "once per push");
    let image = report.violations.iter().find(refused).expect("the check fails");
    assert!(image.what.contains("of entry"), "{}", image.what);

    // Of the two lines, the entry's is missing and the tail's is there, whichever is told.
    for violation in [order, image] {
        let told = violation.shrunk.as_ref().expect("the first of each is told");
        let states: Vec<_> = told.lines.iter().map(|line| (line.line, line.state)).collect();
        assert_eq!(states, [(0, LineState::Persisted), (1, LineState::Lost)], "{told}");
        let text = told.to_string();
        for part in ["operation 1 begins", "– lost", "– made it", "ring.c:", "✗ the power is cut"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let replay = &image.shrunk.as_ref().unwrap().replay;
    assert!(replay.contains(" --at ") && replay.contains(" --image 1,0"), "{replay}");
}

#[test]
fn asked_again_or_run_for_each_image_a_check_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, trace)) = ring(directory.path(), &["-DPLANTED_BUG"]) else { return };
    let starts = directory.path().join("starts");
    let check = |before: &str, threads| {
        let _ = std::fs::remove_file(&starts);
        let (starts, program) = (starts.display(), program.display());
        let mut options =
            recovering(&format!("echo >>{starts}; exec env {before} {program} check"));
        (options.threads, options.image_limit) = (Some(threads), 100);
        check_recorded(&trace, &options, &|_| {}).unwrap()
    };
    let started = || std::fs::read_to_string(&starts).unwrap().lines().count();
    let each = check("-u LAPIS_CHECKER", 1);
    assert_eq!(started(), 100);
    for threads in [1, 3] {
        let mut again = check("", threads);
        assert!(started() <= threads, "{} starts for {threads} threads", started());
        again.violations.iter_mut().zip(&each.violations).for_each(|(it, other)| {
            // The command is in it, and it is another one.
            it.replay.clone_from(&other.replay);
        });
        assert_eq!(again.violations, each.violations);
        assert_eq!((again.images, again.distinct_states), (each.images, each.distinct_states));
        assert_eq!(again.exhaustive_points, each.exhaustive_points);
    }
}

#[test]
fn a_wrapper_in_cpp_leaves_each_store_to_its_caller() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("wrapper.cpp");
    let text = include_str!("wrapper.cpp");
    std::fs::write(&source, text).unwrap();
    let Some(program) = compiled(&source, directory.path(), &["-std=c++11"]) else { return };
    let trace = directory.path().join("wrapper.trace");
    assert!(Command::new(program).arg(&trace).status().unwrap().success());
    let trace = RecordedTrace::read(std::fs::read(trace).unwrap().as_slice()).unwrap();
    let report = check_recorded(&trace, &RecordedOptions::default(), &|_| {}).unwrap();
    let callers = text.lines().zip(1..).filter(|(line, _)| line.contains("/* not flushed */"));
    let callers: Vec<u32> = callers.map(|(_, line)| line).collect();
    let stored_at: Vec<_> = report.violations.iter().map(|it| not_durable(it).0).collect();
    assert_eq!(
        stored_at,
        callers.iter().map(|line| format!("caller.cpp:{line}")).collect::<Vec<_>>()
    );
    assert_eq!(callers.len(), 2);
}

#[test]
fn an_image_with_pointers_lies_where_the_memory_lay() {
    let directory = tempfile::tempdir().unwrap();
    let source = format!("{}/tests/crash/recorded/pointers.c", env!("CARGO_MANIFEST_DIR"));
    let options = &["-std=c99"];
    let Some(program) = compiled(Path::new(&source), directory.path(), options) else { return };
    let trace = directory.path().join("pointers.trace");
    assert!(Command::new(&program).arg("write").arg(&trace).status().unwrap().success());
    let trace = RecordedTrace::read(std::fs::read(trace).unwrap().as_slice()).unwrap();
    assert_eq!(trace.header.base_address, 0x2000_0000_0000);
    for before in ["", "env -u LAPIS_CHECKER "] {
        let mut options = recovering(&format!("{before}{}", program.display()));
        options.image_limit = 40;
        let report = check_recorded(&trace, &options, &|_| {}).unwrap();
        let said: Vec<_> = report.violations.iter().map(|it| it.what.as_str()).collect();
        let expected =
            "the command refused the image with exit code 1: the node at 0x200000000040 is empty";
        assert_eq!(said, [expected]);
    }
}
