//! A table that is dropped while others use it, on schedules of the modelled machine.

use std::sync::Arc;

use lapis_device::{Config, Modelled, RunEnd, SchedulePolicy, WorkerProgram};
use lapis_engine::{Durability, Engine, EngineError, Table};

use crate::harness::{modelled, settle};

/// Ways to use a table: see [`use_table`].
const WAYS: u64 = 6;
/// Bytes of a value that is in chunks.
const LONG: usize = 9000;

/// What a table's key has.
fn value_of(table: &str, bytes: usize) -> Vec<u8> {
    table.as_bytes().iter().copied().cycle().take(bytes).collect()
}

/// Reads or writes a key in one of the ways. What was read.
fn use_table(
    engine: &Engine<Modelled>,
    table: &Arc<Table<Modelled>>,
    key: &[u8],
    way: u64,
) -> Result<Option<Vec<u8>>, EngineError> {
    let (new, durability) = (value_of(table.name(), LONG), Durability::Eventual);
    match way {
        0 => engine.get(table, key),
        1 => engine.put(table, key, table.name().as_bytes(), durability).map(|_| None),
        2 => engine.put(table, key, &new, durability).map(|_| None),
        3 => engine.snapshot()?.get(table, key),
        4 => {
            let mut transaction = engine.begin()?;
            let old = transaction.get(table, key)?;
            transaction.put(table, key, &new)?;
            transaction.commit(durability).map(|_| old)
        }
        _ => {
            let first = engine.range::<&[u8]>(table, ..)?.next().transpose()?;
            Ok(first.filter(|(found, _)| found == key).map(|(_, value)| value))
        }
    }
}

/// A worker uses a table in these ways that another drops, to make a new one where it was.
fn use_while_dropped(policy: &SchedulePolicy, ways: &[u64]) -> Result<(), String> {
    let (machine, engine) = modelled(Config::concurrent());
    let (table, key) = (engine.create_table("old").unwrap(), b"key");
    let new = value_of("new", LONG);
    engine.put(&table, key, &value_of("old", LONG), Durability::Eventual).unwrap();
    let mut wrong = None;
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| {
            for &way in ways {
                match use_table(&engine, &table, key, way) {
                    Ok(None) | Err(EngineError::Dropped { .. }) => {}
                    Ok(Some(found)) if found == value_of("old", found.len()) => {}
                    Ok(Some(found)) => wrong = Some(found.escape_ascii().to_string()),
                    Err(error) => wrong = Some(error.to_string()),
                }
            }
        }),
        Box::new(|| {
            engine.drop_table("old").unwrap();
            settle(&engine);
            let table = engine.create_table("new").unwrap();
            engine.put(&table, key, &new, Durability::Eventual).unwrap();
        }),
    ];
    let end = machine.run_workers(policy, programs).end;
    let found = engine.get(&engine.table("new").unwrap(), key).unwrap();
    settle(&engine);
    match (end, wrong, engine.check()) {
        (RunEnd::Completed, None, problems) if found == Some(new) && problems.is_empty() => Ok(()),
        (end, wrong, problems) => Err(format!("{end:?}, {wrong:?}, {problems:?}")),
    }
}

#[test]
fn who_uses_a_table_while_it_is_dropped_gets_what_it_had_or_is_refused() {
    let (seeds, events, mixed) = (50, 500, [0, 2, 4, 1, 3, 5]);
    for way in 0..WAYS {
        for policy in SchedulePolicy::of_seeds(seeds, 1, events) {
            assert_eq!(use_while_dropped(&policy, &[way]), Ok(()), "{way}, {policy:?}");
        }
    }
    for policy in SchedulePolicy::of_seeds(seeds, 3, 6 * events) {
        assert_eq!(use_while_dropped(&policy, &mixed), Ok(()), "{policy:?}");
    }
}
