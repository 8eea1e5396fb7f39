//! Devices that fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_device::ModelledSsd;
use lapis_engine::{Durability, EngineError};
use lapis_pmem::BlockOperation;

use crate::harness::{Random, Rig, contents, small};

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
    let (rig, table) = Rig::with_table();
    for number in 0..5000_u32 {
        rig.engine.put(&table, &number.to_be_bytes(), &[1; 200], Durability::Eventual).unwrap();
    }
    rig.engine.checkpoint().unwrap();
    rig.pages.fail_after(BlockOperation::Read, 0);
    let read = |number: u32| rig.engine.get(&table, &number.to_be_bytes());
    let failed = (0..5000).filter(|&number| read(number).is_err()).count();
    assert_eq!(failed, 1, "one request failed, and the next one did not");
}

/// What a key may have: more than one where an answer was an error.
type Possible = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// Transactions over two tables, which always have the same; long values; checkpoints and the work in the background.
/// Returns what may be there, and how many calls failed.
fn work(rig: &Rig, fails: impl Fn(&EngineError)) -> (Possible, u32) {
    let (engine, mut random) = (&rig.engine, Random::new(5));
    let (mut possible, mut failed) = (Possible::new(), 0);
    let tables = ["left", "right"].map(|name| engine.table(name));
    let [Ok(left), Ok(right)] = tables else { return (possible, 1) };
    for step in 0..120_u64 {
        let outcome = match step % 10 {
            8 => engine.maintain().map(|_| ()),
            9 => engine.checkpoint(),
            _ => {
                let key = vec![b'k', random.below(40) as u8];
                let bytes = [50, 700, 5000][random.below(3) as usize];
                let value = (random.below(4) > 0).then(|| vec![step as u8; bytes]);
                let outcome = engine.begin().and_then(|mut transaction| {
                    for table in [&left, &right] {
                        match &value {
                            Some(value) => transaction.put(table, &key, value)?,
                            None => _ = transaction.remove(table, &key)?,
                        }
                    }
                    transaction.commit(NOW).map(|_| ())
                });
                let may_be = possible.entry(key).or_insert_with(|| vec![None]);
                if outcome.is_ok() {
                    may_be.clear();
                }
                may_be.push(value);
                outcome
            }
        };
        if let Err(error) = outcome {
            fails(&error);
            failed += 1;
        }
    }
    (possible, failed)
}

fn check_against(rig: &Rig, possible: &Possible, what: &str) {
    let [left, right] = ["left", "right"].map(|table| contents(&rig.engine, table));
    assert_eq!(left, right, "{what}: half of a transaction");
    let found: BTreeMap<_, _> = left.into_iter().collect();
    for (key, may_be) in possible {
        let found = found.get(key).cloned();
        assert!(may_be.contains(&found), "{what}: {}", key.escape_ascii());
    }
    assert!(found.keys().all(|key| possible.contains_key(key)), "{what}: nobody put that");
    assert!(rig.engine.check().is_empty(), "{what}: {:?}", rig.engine.check());
}

fn rig_with_tables() -> Rig {
    // So few frames that pages are read again.
    let mut options = small();
    (options.buffer.frames, options.buffer.most_changed_frames) = (16, 8);
    let rig = Rig::new(options);
    for name in ["left", "right"] {
        rig.engine.create_table(name).unwrap();
    }
    rig
}

/// Every so many-th request of this kind fails on one of the devices, each in a run of its own.
fn requests_fail(operation: BlockOperation, of: fn(&Rig) -> &Arc<ModelledSsd>, step: usize) {
    let counted = {
        let rig = rig_with_tables();
        let count = |rig: &Rig| {
            let counts = lapis_pmem::BlockDevice::counts(&**of(rig));
            match operation {
                BlockOperation::Read => counts.reads,
                BlockOperation::Write => counts.writes,
                BlockOperation::Flush => counts.flushes,
                BlockOperation::Discard => counts.discards,
            }
        };
        let before = count(&rig);
        work(&rig, |error| panic!("{error}"));
        count(&rig) - before
    };
    let mut noticed = 0;
    for request in (0..counted).step_by(step) {
        let what = format!("{operation:?} {request} of {counted}");
        let rig = rig_with_tables();
        of(&rig).fail_after(operation, request);
        let (possible, failed) = work(&rig, |_| ());
        noticed += u32::from(failed > 0);
        // What could not be read once can be read now, unless it was wanted to apply what was committed.
        if operation == BlockOperation::Read && rig.engine.begin().is_ok() {
            check_against(&rig, &possible, &what);
        }
        check_against(&rig.after_power_cut(), &possible, &what);
    }
    assert!(noticed > 0, "{operation:?}: nobody noticed any of {counted}");
}

#[test]
fn whatever_request_of_the_log_fails_what_was_acknowledged_is_there() {
    requests_fail(BlockOperation::Write, |rig| &rig.log, 5);
    requests_fail(BlockOperation::Flush, |rig| &rig.log, 5);
}

#[test]
fn whatever_request_of_the_pages_fails_what_was_acknowledged_is_there() {
    requests_fail(BlockOperation::Write, |rig| &rig.pages, 17);
    requests_fail(BlockOperation::Flush, |rig| &rig.pages, 3);
    requests_fail(BlockOperation::Read, |rig| &rig.pages, 3);
}

#[test]
#[ignore = "all of them: a minute"]
fn whatever_request_fails_of_all_what_was_acknowledged_is_there() {
    for operation in [BlockOperation::Write, BlockOperation::Flush, BlockOperation::Read] {
        requests_fail(operation, |rig| &rig.pages, 1);
    }
    for operation in [BlockOperation::Write, BlockOperation::Flush] {
        requests_fail(operation, |rig| &rig.log, 1);
    }
}

#[test]
fn after_a_flush_of_the_log_that_failed_nothing_is_acknowledged() {
    for flush in 0..30 {
        let rig = rig_with_tables();
        rig.log.fail_after(BlockOperation::Flush, flush);
        let table = rig.engine.table("left").unwrap();
        let mut answers = (0..60_u8).map(|key| rig.engine.put(&table, &[key], b"", NOW).is_ok());
        assert_eq!(
            answers.by_ref().take_while(|acknowledged| *acknowledged).count(),
            flush as usize
        );
        assert!(answers.all(|acknowledged| !acknowledged));
    }
}

#[test]
fn opening_fails_by_whatever_request_fails_and_succeeds_the_next_time() {
    let rig = rig_with_tables();
    let (possible, _) = work(&rig, |error| panic!("{error}"));
    for operation in [BlockOperation::Read, BlockOperation::Write, BlockOperation::Flush] {
        let mut refused = 0;
        for request in (0..400).step_by(7) {
            for of_pages in [true, false] {
                let cut = |device: &ModelledSsd| Arc::new(device.after_power_cut());
                let (pages, log) = (cut(&rig.pages), cut(&rig.log));
                let failing = if of_pages { &pages } else { &log };
                failing.fail_after(operation, request);
                let first = crate::harness::open(&pages, &log, &small());
                refused += u32::from(first.is_err());
                drop(first);
                let again = Rig::over(cut(&pages), cut(&log), small());
                check_against(&again, &possible, &format!("opening, {operation:?} {request}"));
            }
        }
        assert!(refused > 0, "{operation:?}");
    }
}
