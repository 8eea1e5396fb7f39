//! What a trace shows of itself: what operations and assertions claim.

use lapis_crash::recorded::{DurableOnEnd, Missing, RecordedFailure};
use lapis_crash::{LineState, RecordedError, RecordedOptions, check_recorded};
use lapis_device::trace_file::{FlushInstruction, Record, StoreKind};

use crate::recorded::program::{Program, at, not_durable};
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
fn a_locked_store_completes_stores_past_the_caches_on_x86_and_not_where_it_is_said_not_to() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, NonTemporal, 8).volatile(128, 8);
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
    let refused = check_recorded(&program.trace(), &options, &|_| {});
    assert!(matches!(refused, Err(RecordedError::NothingAsserted { .. })), "{refused:?}");
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

#[test]
fn a_trace_without_operations_and_assertions_is_not_judged() {
    let mut program = Program::new();
    program.store(0, Plain, 8);
    let refused = check_recorded(&program.trace(), &RecordedOptions::default(), &|_| {});
    assert!(matches!(refused, Err(RecordedError::NothingToJudge { .. })), "{refused:?}");
}

#[test]
fn a_violation_is_told_of_an_image_that_shows_it() {
    let telling = RecordedOptions { shrink: true, ..RecordedOptions::default() };
    let told = |program: &Program| {
        let found = program.check(&telling).violations.remove(0);
        found.shrunk.expect("it is the first")
    };
    let states = |told: &lapis_crash::Shrunk| -> Vec<_> {
        told.lines.iter().map(|line| (line.line, line.state)).collect()
    };
    // What is missing is, and the rest made it.
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).store(0, Plain, 64).flush(0, Clwb, 1).end(0, 1);
    let found = told(&program);
    assert_eq!(states(&found), [(0, LineState::Lost), (1, LineState::Persisted)]);
    assert_eq!(found.clause, "what an operation has stored is durable when it ends");
    // Both stores are durable where the order is asserted: the power is cut before.
    let mut program = Program::new();
    program.store(0, Plain, 8).flush(0, Clwb, 0).store(0, Plain, 64).flush(0, Clwb, 1);
    let found = told(program.fence(0).in_order(8, 64));
    assert_eq!(states(&found), [(0, LineState::Lost), (1, LineState::Persisted)]);
    // Two stores of one line, of which the second is there alone.
    let mut program = Program::new();
    program.store(0, Plain, 8).store(0, Plain, 16);
    let found = told(program.in_order(8, 16));
    assert_eq!(states(&found), [(0, LineState::Partly)]);
    let text = found.to_string();
    assert!(text.contains("(line 0, byte 0x8) = 0x0000000000000001 – lost"), "{text}");
    assert!(text.contains("(line 0, byte 0x10) = 0x0000000000000002 – made it"), "{text}");
}

#[test]
fn operations_that_have_nothing_to_do_with_a_violation_are_left_out_of_its_telling() {
    let mut program = Program::new();
    for number in 1..200 {
        program.begin(0, number).store(0, Plain, 8).flush(0, Clwb, 0).fence(0).end(0, number);
    }
    program.begin(0, 200).store(0, Plain, 64).end(0, 200);
    let telling = RecordedOptions { shrink: true, ..RecordedOptions::default() };
    let found = program.check(&telling).violations.remove(0).shrunk.expect("it is the first");
    assert!(found.timeline.len() < 12, "{found}");
    assert!(found.timeline[0].text.contains("199 operations"), "{found}");
}

#[test]
fn the_command_that_judges_a_trace_again_says_what_must_be_durable() {
    let mut program = Program::new();
    program.begin(0, 1).store(0, Plain, 8).end(0, 1).durable(0, 64);
    let asserted = RecordedOptions {
        file: "x.trace".into(),
        durable_on_end: DurableOnEnd::Asserted,
        ..RecordedOptions::default()
    };
    let found = program.check(&asserted).violations.remove(0);
    assert_eq!(found.replay, "lapis crash --trace x.trace --durable-on-end asserted");
}
