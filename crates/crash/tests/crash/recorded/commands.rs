//! The images of a trace, shown to a command that recovers on them and checks.

use std::time::Duration;

use lapis_crash::recorded::RecoverCommand;
use lapis_crash::{RecordedError, RecordedOptions, check_recorded};
use lapis_device::trace_file::{FlushInstruction, StoreKind};

use crate::recorded::program::Program;
use FlushInstruction::Clwb;
use StoreKind::Plain;

/// Two words in two lines, the second stored without waiting for the first.
fn unordered() -> Program {
    let mut program = Program::new();
    program.begin(0, 7).store(0, Plain, 0).store(0, Plain, 64);
    program.flush(0, Clwb, 0).flush(0, Clwb, 1).fence(0).end(0, 7);
    program
}

pub fn recovering(command: &str) -> RecordedOptions {
    let time_limit = Duration::from_secs(20);
    RecordedOptions {
        file: "x.trace".into(),
        recover: Some(RecoverCommand { command: command.into(), time_limit }),
        ..RecordedOptions::default()
    }
}

/// Refuses the second word without the first.
const SECOND_NEEDS_FIRST: &str = "check() { a=$(od -An -tu1 -j0 -N1 \"$1\"); \
     b=$(od -An -tu1 -j64 -N1 \"$1\"); echo $a $b; [ $b -eq 0 ] || [ $a -ne 0 ]; }; check";

#[test]
fn a_command_that_takes_every_image_finds_nothing() {
    let report = unordered().check(&recovering("true"));
    assert_eq!(report.violations, []);
    // Neither, one, the other and both; and again both when it is acknowledged.
    assert_eq!((report.crash_points, report.images), (2, 5));
}

#[test]
fn a_command_sees_the_image_that_is_wrong_and_the_replay_is_of_it() {
    let program = unordered();
    let report = program.check(&recovering(SECOND_NEEDS_FIRST));
    assert_eq!(report.violations.len(), 1);
    let violation = &report.violations[0];
    assert_eq!((violation.position, violation.image.as_slice()), (5, &[0, 1][..]));
    assert_eq!(violation.what, "the command refused the image with exit code 1: 0 3");
    assert!(violation.replay.starts_with("lapis crash --trace x.trace --recover "));
    assert!(violation.replay.ends_with(" --at 5 --image 0,1"), "{}", violation.replay);
    assert_eq!(report.distinct_states, 3);

    let mut replay = recovering(SECOND_NEEDS_FIRST);
    replay.replay = Some((5, vec![0, 1]));
    let again = program.check(&replay);
    assert_eq!((again.images, again.violations.len()), (1, 1));
    replay.replay = Some((5, vec![0, 1, 0]));
    let refused = check_recorded(&program.trace(), &replay, &|_| {});
    assert!(matches!(refused, Err(RecordedError::NoSuchImage)));
    replay.replay = Some((4, vec![]));
    let refused = check_recorded(&program.trace(), &replay, &|_| {});
    assert!(matches!(refused, Err(RecordedError::NoSuchImage)));
}

#[test]
fn a_command_that_changes_its_image_does_not_change_the_next() {
    let command = "spoil() { od -An -tu1 \"$1\" | grep -q 99 && exit 1; printf c >\"$1\"; }; spoil";
    assert_eq!(unordered().check(&recovering(command)).violations, []);
}

#[test]
fn a_command_is_told_what_was_acknowledged_and_what_is_in_flight() {
    let command = "say() { echo \"$LAPIS_ACKNOWLEDGED/$LAPIS_IN_FLIGHT\"; exit 1; }; say";
    let report = unordered().check(&recovering(command));
    let said: Vec<_> = report.violations.iter().map(|violation| violation.what.clone()).collect();
    let sentence = |what| format!("the command refused the image with exit code 1: {what}");
    assert_eq!(said, [sentence("/7"), sentence("7/")]);
}

#[test]
fn a_command_that_never_ends_is_ended_and_the_image_refused() {
    let mut options = recovering("sleep 60;");
    options.image_limit = 1;
    options.recover.as_mut().unwrap().time_limit = Duration::from_millis(50);
    let report = unordered().check(&options);
    assert_eq!(report.violations[0].what, "the command did not end within 0.05 s");
    assert!(report.seconds < 30.0);
}

#[test]
fn a_command_that_is_not_there_is_an_error_and_no_violation() {
    let options = recovering("/nonexistent/check");
    let refused = check_recorded(&unordered().trace(), &options, &|_| {});
    assert!(matches!(refused, Err(RecordedError::NoCommand { .. })), "{refused:?}");
}

#[test]
fn a_command_that_dies_of_a_signal_refuses_the_image() {
    let report = unordered().check(&recovering("kill -SEGV $$;"));
    assert!(report.violations[0].what.contains("signal 11"), "{:?}", report.violations[0]);
}
