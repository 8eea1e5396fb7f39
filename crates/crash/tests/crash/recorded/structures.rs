//! Traces of our own structures.

use lapis_crash::recorded::DurableOnEnd;
use lapis_crash::{RecordedOptions, Structure, check_recorded, record_structure};
use lapis_device::trace_file::{Ending, RecordedTrace};
use lapis_index::IndexKind;

use crate::recorded::commands::recovering;

#[test]
fn our_own_structures_are_recorded_and_read_back() {
    let (subject, trace) =
        record_structure(Structure::Index(IndexKind::FastFair), None, 60, 3).unwrap();
    assert_eq!(subject, "fast-fair:u64");
    let file = trace.write(Vec::new()).unwrap();
    let again = RecordedTrace::read(file.as_slice()).unwrap();
    assert_eq!(again.ending, Ending::Complete);
    let options = RecordedOptions {
        durable_on_end: DurableOnEnd::Asserted,
        locked_completes: false,
        image_limit: 4,
        ..recovering("true")
    };
    let report = check_recorded(&again, &options, &|_| {}).unwrap();
    // The creation and the shutdown are operations too.
    assert_eq!((report.ops, report.violations.len()), (62, 0));
    assert_eq!(report.performance, lapis_crash::performance_bugs(&trace, &|_| "operation".into()));
}

#[test]
fn of_a_structure_with_several_subjects_one_can_be_chosen() {
    let (subject, _) =
        record_structure(Structure::Index(IndexKind::Wort), Some("wort:bytes"), 5, 3).unwrap();
    assert_eq!(subject, "wort:bytes");
    assert!(record_structure(Structure::Index(IndexKind::Wort), Some("wort:none"), 5, 3).is_err());
}
