//! Recorded traces: what they show of themselves, what the program's own check says of its crash
//! images, and a program in C from end to end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lapis_crash::recorded::{
    DurableOnEnd, Missing, RecordedFailure, RecordedViolation, RecoverCommand,
};
use lapis_crash::{
    RecordedError, RecordedOptions, RecordedReport, Structure, check_recorded, record_structure,
};
use lapis_device::trace_file::{
    Assertion, Claim, Ending, FlushInstruction, Record, RecordedTrace, StoreKind, TraceHeader,
    TraceWriter,
};
use lapis_device::{
    CrashPoints, Event, ImageBudget, Marker, PersistKind, PersistPoint, PowerFailDomain, Trace,
};
use proptest::prelude::*;

const REGION_BYTES: u64 = 4096;

/// Writes a trace record by record; the place of each event is its number, as a line of `p.c`.
struct Program {
    records: Vec<Record>,
    line: u32,
}

impl Program {
    fn new() -> Self {
        Self { records: vec![Record::File { name: "p.c".into() }], line: 0 }
    }

    fn next(&mut self) -> u32 {
        self.line += 1;
        self.records.push(Record::Location { file: 0, line: self.line, column: 0 });
        self.line
    }

    fn store(&mut self, worker: u8, kind: StoreKind, offset: u64) -> &mut Self {
        let location = self.next();
        let bytes = u64::from(location).to_le_bytes().to_vec();
        self.records.push(Record::Store { kind, worker, location, offset, bytes });
        self
    }

    fn flush(&mut self, worker: u8, instruction: FlushInstruction, line: u64) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Flush { instruction, worker, location, line, lines: 1 });
        self
    }

    fn fence(&mut self, worker: u8) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Fence { worker, location });
        self
    }

    fn begin(&mut self, worker: u8, number: u32) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Marker { worker, location, marker: Marker::Begin(number) });
        self
    }

    fn end(&mut self, worker: u8, number: u32) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Marker { worker, location, marker: Marker::End(number) });
        self
    }

    fn volatile(&mut self, offset: u64, bytes: u64) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Volatile { worker: 0, location, offset, bytes });
        self
    }

    fn durable(&mut self, offset: u64, bytes: u64) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Durable { worker: 0, location, offset, bytes });
        self
    }

    fn in_order(&mut self, first: u64, second: u64) -> &mut Self {
        let location = self.next();
        let (first, second) = ((first, 8), (second, 8));
        self.records.push(Record::InOrder { worker: 0, location, first, second });
        self
    }

    fn trace(&self) -> RecordedTrace {
        let header =
            TraceHeader { region_bytes: REGION_BYTES, base_address: 0, writer: "test".into() };
        let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
        for record in &self.records {
            writer.write(record).unwrap();
        }
        RecordedTrace::read(writer.finish().unwrap().as_slice()).unwrap()
    }

    fn check(&self, options: &RecordedOptions) -> RecordedReport {
        check_recorded(&self.trace(), options, &|_| {}).unwrap()
    }

    fn violations(&self) -> Vec<RecordedViolation> {
        self.check(&RecordedOptions::default()).violations
    }
}

/// The lines of `p.c` that a missing durability names, and what is missing.
fn not_durable(violation: &RecordedViolation) -> (String, String, Missing) {
    match &violation.failure {
        RecordedFailure::NotDurable { stored_at, asserted_at, missing, .. } => {
            (stored_at.clone().unwrap(), asserted_at.clone().unwrap(), *missing)
        }
        other => panic!("{other:?}"),
    }
}

fn at(line: u32) -> String {
    format!("p.c:{line}")
}

use FlushInstruction::{Clflush, Clwb};
use StoreKind::{Locked, NonTemporal, Ordered, Plain};

#[test]
fn an_operation_that_persists_what_it_stores_is_in_order() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).store(0, NonTemporal, 64).flush(0, Clwb, 0).fence(0);
    let report = program.end(0, 1).check(&RecordedOptions::default());
    assert_eq!(report.violations, []);
    assert_eq!((report.acknowledgements, report.ops, report.events), (1, 1, 6));
}

#[test]
fn a_store_that_is_not_flushed_by_the_end_of_its_operation_is_found() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).store(0, Plain, 64).flush(0, Clwb, 0).fence(0);
    let found = program.end(0, 1).violations();
    assert_eq!(found.len(), 1);
    assert_eq!(not_durable(&found[0]), (at(3), at(6), Missing::Flush));
    assert_eq!((found[0].operation.as_deref(), found[0].acknowledged), (Some("1"), None));
}

#[test]
fn a_store_that_is_flushed_and_not_fenced_is_found() {
    let mut program = Program::new();
    let found = program.begin(0, 1).store(0, Plain, 8).flush(0, Clwb, 0).end(0, 1).violations();
    assert_eq!(not_durable(&found[0]), (at(2), at(4), Missing::Fence));
}

#[test]
fn the_fence_of_another_worker_makes_nothing_durable() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).flush(0, Clwb, 0).fence(1);
    assert_eq!(not_durable(&program.end(0, 1).violations()[0]).2, Missing::Fence);
}

#[test]
fn a_store_after_the_flush_is_found() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).flush(0, Clwb, 0).store(0, Plain, 16).fence(0);
    let found = program.end(0, 1).violations();
    assert_eq!(not_durable(&found[0]), (at(4), at(6), Missing::Flush));
    assert_eq!(found.len(), 1);
}

#[test]
fn a_clflush_needs_no_fence() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).flush(0, Clflush, 0);
    assert_eq!(program.end(0, 1).violations(), []);
}

#[test]
fn a_clflush_completes_no_other_flush() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 64).flush(0, Clwb, 1);
    program.store(0, Plain, 8).flush(0, Clflush, 0);
    assert_eq!(not_durable(&program.end(0, 1).violations()[0]), (at(2), at(6), Missing::Fence));
}

#[test]
fn a_locked_store_completes_flushes_on_x86_and_not_where_it_is_said_not_to() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).flush(0, Clwb, 0).volatile(128, 8);
    program.store(0, Locked, 128).end(0, 1);
    assert_eq!(program.violations(), []);
    let portable = RecordedOptions { locked_completes: false, ..RecordedOptions::default() };
    assert_eq!(program.check(&portable).violations.len(), 1);
}

#[test]
fn what_is_declared_volatile_may_be_lost() {
    let mut program = Program::new();
    program.volatile(0, 16).begin(0, 1).store(0, Plain, 8).store(0, Plain, 16);
    let found = program.end(0, 1).violations();
    assert_eq!(found.len(), 1);
    assert_eq!(not_durable(&found[0]).0, at(4));
}

#[test]
fn where_only_assertions_count_the_end_of_an_operation_asks_nothing() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).end(0, 1);
    let options =
        RecordedOptions { durable_on_end: DurableOnEnd::Asserted, ..RecordedOptions::default() };
    assert_eq!(program.check(&options).violations, []);
    let report = program.durable(0, 64).check(&options);
    assert_eq!(not_durable(&report.violations[0]), (at(2), at(4), Missing::Flush));
    assert_eq!((report.assertions, report.acknowledgements), (1, 0));
}

#[test]
fn a_store_that_another_has_covered_is_not_missed() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).begin(1, 2).store(1, Plain, 8);
    program.flush(1, Clwb, 0).fence(1).end(1, 2);
    assert_eq!(program.end(0, 1).violations(), []);
}

#[test]
fn the_same_fault_in_many_operations_is_one_violation_with_its_count() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).end(0, 1);
    let events = program.records[program.records.len() - 5..].to_vec();
    for _ in 0..6 {
        program
            .records
            .extend(events.iter().filter(|it| !matches!(it, Record::Location { .. })).cloned());
    }
    let found = program.violations();
    assert_eq!((found.len(), found[0].times), (1, 7));
}

#[test]
fn an_order_that_a_fence_makes_is_kept() {
    let mut program = Program::new();
    program.store(0, Plain, 8).flush(0, Clwb, 0).fence(0).store(0, Plain, 64);
    assert_eq!(program.in_order(8, 64).violations(), []);
}

#[test]
fn an_order_without_a_fence_is_found_with_both_stores() {
    let mut program = Program::new();
    program.store(0, Plain, 8).flush(0, Clwb, 0).store(0, Plain, 64).fence(0);
    let found = program.in_order(8, 64).violations();
    let expected = RecordedFailure::NotInOrder {
        first_stored_at: Some(at(1)),
        second_stored_at: Some(at(3)),
        asserted_at: Some(at(5)),
    };
    assert_eq!(found[0].failure, expected);
}

#[test]
fn an_ordered_store_needs_no_fence_after_a_store_to_its_line() {
    let mut program = Program::new();
    program.store(0, Plain, 8).store(0, Ordered, 16);
    assert_eq!(program.in_order(8, 16).violations(), []);
    assert_eq!(program.in_order(16, 8).violations().len(), 1);
}

#[test]
fn plain_stores_of_one_line_are_in_no_order() {
    let mut program = Program::new();
    program.store(0, Plain, 8).store(0, Plain, 16);
    assert_eq!(program.in_order(8, 16).violations().len(), 1);
}

/// The words of two lines.
const WORDS: [u64; 4] = [0, 8, 64, 72];

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0u8..2, 0usize..4, 0u8..10).prop_map(|(worker, word, kind)| {
        let (line, start) = ((WORDS[word] / 64) as u32, (WORDS[word] % 64) as u8);
        let (bytes, value) = (8, 0);
        match kind {
            0 | 1 => Event::Store { worker, start, bytes, line, value },
            2 => Event::OrderedStore { worker, start, bytes, line, value },
            3 => Event::Locked { worker, start, bytes, line, value },
            4 => Event::NonTemporal { worker, start, bytes, line, value },
            5..=7 => Event::Flush { worker, point: 0, line },
            _ => Event::Fence { worker, point: 1 },
        }
    });
    proptest::collection::vec(event, 1..14).prop_map(|mut events| {
        // Each store a value of its own, so that a lost one shows.
        for (index, event) in events.iter_mut().enumerate() {
            if let Event::Store { value, .. }
            | Event::OrderedStore { value, .. }
            | Event::Locked { value, .. }
            | Event::NonTemporal { value, .. } = event
            {
                *value = index as u64 + 1;
            }
        }
        events
    })
}

fn recorded(events: Vec<Event>, claim: Claim) -> RecordedTrace {
    let point = |kind| PersistPoint { file: "p.c", line: 1, column: 1, kind };
    let points = vec![point(PersistKind::Flush), point(PersistKind::Fence)];
    let mut recorded = RecordedTrace::of_run(Trace { events, points }, &[0; REGION_BYTES as usize]);
    let position = recorded.trace.events.len();
    recorded.assertions = vec![Assertion { position, worker: 0, place: 0, claim }];
    recorded
}

fn holds(events: &[Event], claim: Claim, locked_completes: bool) -> bool {
    let options = RecordedOptions { locked_completes, ..RecordedOptions::default() };
    let recorded = recorded(events.to_vec(), claim);
    check_recorded(&recorded, &options, &|_| {}).unwrap().violations.is_empty()
}

/// The words of every image of every crash point, those of the end last.
fn images(events: &[Event], locked_completes: bool) -> Vec<Vec<[u64; 4]>> {
    let trace = recorded(events.to_vec(), Claim::Durable { offset: 0, bytes: 8 }).trace;
    let domain = if locked_completes { PowerFailDomain::Adr } else { PowerFailDomain::AdrPortable };
    let mut points = CrashPoints::new(&trace, &[0; REGION_BYTES as usize], domain);
    let mut durable = [[0u8; 64]; 2];
    let mut all = Vec::new();
    let budget = ImageBudget { exhaustive_limit: 1 << 20, ..ImageBudget::default() };
    while points.advance().is_some() {
        for (line, bytes) in points.newly_durable() {
            durable[line as usize] = *bytes;
        }
        let states = points.states();
        let found = states.images(budget).map(|image| {
            let mut lines = durable;
            for (line, bytes) in states.overrides(&image) {
                lines[line as usize] = bytes;
            }
            WORDS.map(|offset| {
                let (line, start) = ((offset / 64) as usize, (offset % 64) as usize);
                u64::from_le_bytes(lines[line][start..start + 8].try_into().unwrap())
            })
        });
        all.push(found.collect());
    }
    all
}

/// What each word holds when nothing is lost.
fn last_values(events: &[Event]) -> [u64; 4] {
    let mut last = [0; 4];
    for event in events {
        if let Event::Store { line, start, value, .. }
        | Event::OrderedStore { line, start, value, .. }
        | Event::Locked { line, start, value, .. }
        | Event::NonTemporal { line, start, value, .. } = *event
        {
            let offset = u64::from(line) * 64 + u64::from(start);
            last[WORDS.iter().position(|&word| word == offset).unwrap()] = value;
        }
    }
    last
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_word_is_durable_if_and_only_if_no_image_of_the_model_lacks_it(
        events in events(), locked in any::<bool>(),
    ) {
        // A marker, so that the end is a crash point.
        let ended: Vec<Event> =
            [&events[..], &[Event::Marker { worker: 0, marker: Marker::End(1) }]].concat();
        let all = images(&ended, locked);
        let last = last_values(&events);
        for (word, &offset) in WORDS.iter().enumerate() {
            let kept = all.last().unwrap().iter().all(|image| image[word] == last[word]);
            prop_assert_eq!(holds(&events, Claim::Durable { offset, bytes: 8 }, locked), kept);
        }
    }

    #[test]
    fn an_order_holds_if_and_only_if_no_image_of_the_model_breaks_it(
        events in events(), locked in any::<bool>(),
    ) {
        let all = images(&events, locked);
        let last = last_values(&events);
        for (first, &a) in WORDS.iter().enumerate() {
            for (second, &b) in WORDS.iter().enumerate() {
                if last[first] == 0 || last[second] == 0 {
                    continue;
                }
                let broken = all.iter().flatten().any(|image| {
                    image[second] == last[second] && image[first] != last[first]
                });
                let claim = Claim::InOrder { first: (a, 8), second: (b, 8) };
                prop_assert_eq!(holds(&events, claim, locked), !broken, "{} {}", a, b);
            }
        }
    }
}

/// Two words in two lines, the second stored without waiting for the first.
fn unordered() -> Program {
    let mut program = Program::new();
    program.begin(0, 7).store(0, Plain, 0).store(0, Plain, 64);
    program.flush(0, Clwb, 0).flush(0, Clwb, 1).fence(0).end(0, 7);
    program
}

fn recovering(command: &str) -> RecordedOptions {
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

#[test]
fn our_own_structures_are_recorded_and_read_back() {
    let (subject, trace) = record_structure(Structure::FastFair, None, 60, 3).unwrap();
    assert_eq!(subject, "fast-fair:u64");
    let file = trace.write(Vec::new()).unwrap();
    let again = RecordedTrace::read(file.as_slice()).unwrap();
    assert_eq!(again.ending, Ending::Complete);
    let options = RecordedOptions {
        durable_on_end: DurableOnEnd::Asserted,
        locked_completes: false,
        ..RecordedOptions::default()
    };
    let report = check_recorded(&again, &options, &|_| {}).unwrap();
    // The creation and the shutdown are operations too.
    assert_eq!((report.ops, report.violations.len()), (62, 0));
    assert_eq!(report.performance, lapis_crash::performance_bugs(&trace, &|_| "operation".into()));
}

#[test]
fn of_a_structure_with_several_subjects_one_can_be_chosen() {
    let (subject, _) = record_structure(Structure::Wort, Some("wort:bytes"), 5, 3).unwrap();
    assert_eq!(subject, "wort:bytes");
    assert!(record_structure(Structure::Wort, Some("wort:none"), 5, 3).is_err());
}

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
