//! Devices that fail.

use lapis_engine::{Durability, EngineError};
use lapis_pmem::BlockOperation;

use crate::harness::{Rig, contents, small};

const NOW: Durability = Durability::Immediate;

/// Puts numbers until one is refused; returns it, and why.
fn put_until_refused(rig: &Rig, first: u32) -> (u32, EngineError) {
    let table = rig.engine.table("t").unwrap();
    for number in first..1_000_000 {
        if let Err(error) = rig.engine.put(&table, &number.to_be_bytes(), &[1; 200], NOW) {
            return (number, error);
        }
    }
    panic!("nothing failed")
}

#[test]
fn a_log_that_fails_ends_acknowledgements_for_good_and_takes_back_none() {
    for (operation, after) in
        [BlockOperation::Write, BlockOperation::Flush].into_iter().flat_map(|it| [(it, 0), (it, 7)])
    {
        let rig = Rig::new(small());
        rig.engine.create_table("t").unwrap();
        rig.log.fail_after(operation, after);
        let (refused, error) = put_until_refused(&rig, 0);
        assert!(matches!(error, EngineError::Stopped { .. }), "{error}");
        let table = rig.engine.table("t").unwrap();
        for _ in 0..3 {
            let again = rig.engine.put(&table, b"again", b"", NOW);
            assert!(matches!(again, Err(EngineError::Stopped { .. })));
        }
        assert!(matches!(rig.engine.begin(), Err(EngineError::Stopped { .. })));
        let found = contents(&rig.after_power_cut().engine, "t").len() as u32;
        // What was refused may be there or not.
        assert!(found == refused || found == refused + 1, "{found} of {refused}");
    }
}

#[test]
fn pages_that_cannot_be_written_stop_the_engine_and_lose_nothing() {
    for operation in [BlockOperation::Write, BlockOperation::Flush] {
        let rig = Rig::new(small());
        rig.engine.create_table("t").unwrap();
        rig.pages.fail_after(operation, 3);
        let (refused, _) = put_until_refused(&rig, 0);
        assert!(refused > 10, "pages are not written at once");
        let found = contents(&rig.after_power_cut().engine, "t").len() as u32;
        assert!(found == refused || found == refused + 1, "{found} of {refused}");
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_others_can() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table("t").unwrap();
    for number in 0..5000_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[1; 200], Durability::Eventual).unwrap();
    }
    rig.engine.checkpoint().unwrap();
    rig.pages.fail_after(BlockOperation::Read, 0);
    let read = |number: u32| rig.engine.get(&table, &number.to_be_bytes());
    let failed = (0..5000).filter(|&number| read(number).is_err()).count();
    assert_eq!(failed, 1, "one request failed, and the next one did not");
}
