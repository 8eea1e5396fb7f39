//! Few images for a long trace.

use lapis_device::trace_file::{FlushInstruction, Record, StoreKind};

use crate::recorded::commands::recovering;
use crate::recorded::program::Program;

/// The same over and over, and once, in the middle, something else: a word that may persist before another.
fn long_run() -> Program {
    let mut program = Program::new();
    let places: Vec<u32> = (0..4).map(|_| program.next()).collect();
    for number in 0..600 {
        let place = |at: usize| Some(places[at]);
        let bytes = u64::to_le_bytes(number).to_vec();
        let (kind, location) = (StoreKind::Plain, places[0]);
        program.records.push(Record::Store { kind, worker: 0, location, offset: 1024, bytes });
        program.at_place(place(1)).flush(0, FlushInstruction::Clwb, 16);
        program.at_place(place(2)).fence(0);
        if number == 333 {
            program.at_place(None).store(0, StoreKind::Plain, 0).store(0, StoreKind::Plain, 64);
            program
                .flush(0, FlushInstruction::Clwb, 0)
                .flush(0, FlushInstruction::Clwb, 1)
                .fence(0);
        }
    }
    program
}

#[test]
fn what_happens_once_in_a_long_trace_is_tried_with_few_images() {
    let command = "check() { a=$(od -An -tu1 -j0 -N1 \"$1\"); b=$(od -An -tu1 -j64 -N1 \"$1\"); \
                   [ $b -eq 0 ] || [ $a -ne 0 ]; }; check";
    let mut options = recovering(command);
    options.image_limit = 30;
    let report = long_run().check(&options);
    assert_eq!(report.violations.len(), 1, "{report:?}");
    assert!((25..=30).contains(&report.images), "{report:?}");
    assert!(report.crash_points < 40 && report.crash_points_in_trace > 500, "{report:?}");
    assert_eq!(report.kinds_tried, report.kinds_of_crash_points);
}
