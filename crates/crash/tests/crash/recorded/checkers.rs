//! Checks that stay, made with `include/lapis_check.h` or not.

use std::path::PathBuf;
use std::time::Duration;

use lapis_crash::recorded::RecordedFailure;
use lapis_crash::{RecordedError, RecordedReport, check_recorded};
use lapis_device::trace_file::{FlushInstruction, StoreKind};

use crate::recorded::c_program::compiled;
use crate::recorded::commands::recovering;
use crate::recorded::program::Program;

/// Two words in two lines, in flight together: four images.
fn two_words() -> Program {
    let mut program = Program::new();
    program.begin(0, 7).store(0, StoreKind::Plain, 0).store(0, StoreKind::Plain, 64);
    program.flush(0, FlushInstruction::Clwb, 0).flush(0, FlushInstruction::Clwb, 1).fence(0);
    program
}

/// What a check in C says of the images, where there is a compiler.
fn checked(what: &str) -> Option<RecordedReport> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("check.c");
    let text = format!(
        "#define LAPIS_CHECK_IMPLEMENTATION\n#include \"lapis_check.h\"\n\
         static int check(void *image, uint64_t bytes, void *context) {{\n\
         volatile unsigned char *byte = image; (void)context; (void)bytes; (void)byte; {what} return 0; }}\n\
         int main(int count, char **arguments) {{\n\
         return lapis_check(arguments[count - 1], NULL, check, NULL); }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let program: PathBuf = compiled(&source, directory.path(), &["-std=c99"])?;
    let mut options = recovering(program.to_str().unwrap());
    options.recover.as_mut().unwrap().time_limit = Duration::from_millis(300);
    Some(check_recorded(&two_words().trace(), &options, &|_| {}).unwrap())
}

#[test]
fn a_check_that_hangs_is_killed_counted_and_asked_about_the_next_image() {
    let Some(report) = checked("while (byte[64] && !byte[0]) ;") else { return };
    assert_eq!((report.images, report.did_not_end), (4, 1));
    let failures: Vec<_> = report.violations.iter().map(|it| &it.failure).collect();
    assert!(matches!(failures[..], [RecordedFailure::DidNotEnd { .. }]), "{failures:?}");
    assert_eq!(report.violations[0].image, [0, 1]);
}

#[test]
fn hanging_and_refusing_at_one_place_are_two_verdicts() {
    let what =
        "while (byte[64] && !byte[0]) ; if (byte[0] && !byte[64]) { printf(\"lost\"); return 3; }";
    let Some(report) = checked(what) else { return };
    let said: Vec<_> = report.violations.iter().map(|it| it.what.as_str()).collect();
    let refused = "the command refused the image with exit code 3: lost";
    assert_eq!(said, [refused, "the command did not end within 0.3 s"]);
}

#[test]
fn a_check_that_crashes_refuses_that_image_and_no_other() {
    let Some(report) = checked("if (byte[64] && !byte[0]) { *(volatile int *)1 = 1; }") else {
        return;
    };
    assert_eq!((report.images, report.violations.len()), (4, 1));
    assert_eq!(report.violations[0].what, "the command was ended by signal 11");
    assert_eq!(report.violations[0].times, 1);
}

#[test]
fn what_a_check_stores_into_its_image_the_next_does_not_see() {
    let Some(report) = checked("if (byte[128]) return 1; byte[128] = 1;") else { return };
    assert_eq!((report.images, &report.violations[..]), (4, &[][..]));
}

#[test]
fn a_check_is_told_what_was_promised() {
    let what = "const char *said = getenv(\"LAPIS_IN_FLIGHT\"); \
                if (said == NULL || strcmp(said, \"7\")) return 1; \
                if (*getenv(\"LAPIS_ACKNOWLEDGED\")) return 2;";
    let Some(report) = checked(what) else { return };
    assert_eq!(report.violations, []);
}

#[test]
fn a_command_that_connects_and_says_something_else_is_an_error() {
    let python = "import os,socket;s=socket.socket(socket.AF_UNIX);\
                  s.connect(os.environ['LAPIS_CHECKER']);s.send(b'hello\\n');s.recv(1)";
    if std::process::Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    let options = recovering(&format!("python3 -c \"{python}\""));
    let refused = check_recorded(&two_words().trace(), &options, &|_| {});
    assert!(matches!(refused, Err(RecordedError::Greeting { .. })), "{refused:?}");
}
