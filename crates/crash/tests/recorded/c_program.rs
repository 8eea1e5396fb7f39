//! A program in C from end to end.

use std::path::{Path, PathBuf};
use std::process::Command;

use lapis_crash::check_recorded;
use lapis_crash::recorded::{RecordedFailure, RecordedViolation};
use lapis_device::trace_file::RecordedTrace;

use crate::commands::recovering;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Compiles the example in C and traces it, or says why not.
fn ring(directory: &Path, options: &[&str]) -> Option<(PathBuf, RecordedTrace)> {
    if !Command::new("cc").arg("--version").output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: there is no `cc` on this machine");
        return None;
    }
    let program = directory.join("ring");
    let output = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg(format!("-I{ROOT}/include"))
        .arg("-o")
        .arg(&program)
        .arg(format!("{ROOT}/examples/bring-your-own/c/ring.c"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    let options = recovering(&format!("{} check", program.display()));
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
}
