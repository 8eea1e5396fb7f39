//! Several threads, and work in the background.

use std::sync::atomic::{AtomicBool, Ordering};

use lapis_engine::{Durability, KeyRange, Transaction};
use lapis_pmem::Hardware;

use crate::harness::{Random, Rig, contents, small};

const ACCOUNTS: u64 = 200;
const TOTAL: u64 = ACCOUNTS * 100;

fn amount(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn value(amount: u64) -> Vec<u8> {
    let mut value = amount.to_le_bytes().to_vec();
    value.resize(64, 7);
    value
}

/// Transfers between accounts of two tables while others add them up and checkpoints run; then the power is cut.
#[test]
fn money_is_neither_made_nor_lost() {
    let rig = Rig::new(small());
    let tables = ["left", "right"].map(|name| rig.engine.create_table(name).unwrap());
    for table in &tables {
        for account in 0..ACCOUNTS {
            let key = account.to_be_bytes();
            rig.engine.put(table, &key, &value(50), Durability::Eventual).unwrap();
        }
    }
    let over = AtomicBool::new(false);
    let transfer = |seed: u64, transfers: u32| {
        let mut random = Random::new(seed);
        for _ in 0..transfers {
            let (from, to) = (random.below(2 * ACCOUNTS), random.below(2 * ACCOUNTS));
            let place =
                |account: u64| (&tables[(account % 2) as usize], (account / 2).to_be_bytes());
            let body = |transaction: &mut Transaction<Hardware>| {
                let ((from_table, from), (to_table, to)) = (place(from), place(to));
                let has = amount(&transaction.get(from_table, &from)?.unwrap());
                let moved = has.min(3);
                transaction.put(from_table, &from, &value(has - moved))?;
                let has = amount(&transaction.get(to_table, &to)?.unwrap());
                transaction.put(to_table, &to, &value(has + moved))
            };
            rig.engine.retry(body, Durability::Immediate).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let writers = [1, 2, 3].map(|seed| scope.spawn(move || transfer(seed, 1500)));
        let background = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                rig.engine.maintain().unwrap();
                std::thread::yield_now();
            }
        });
        let reader = scope.spawn(|| {
            let mut times = 0;
            while times < 20 || !over.load(Ordering::Relaxed) {
                let snapshot = rig.engine.snapshot().unwrap();
                let sum = |table| {
                    let all = snapshot.scan(table, KeyRange::all()).unwrap();
                    all.map(|entry| amount(&entry.unwrap().1)).sum::<u64>()
                };
                assert_eq!(sum(&tables[0]) + sum(&tables[1]), TOTAL);
                times += 1;
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        background.join().unwrap();
        reader.join().unwrap();
    });
    assert_eq!(rig.engine.statistics().kept_versions, 0);
    let rig = rig.after_power_cut();
    let entries = ["left", "right"].map(|table| contents(&rig.engine, table));
    let sum: u64 = entries.iter().flatten().map(|(_, value)| amount(value)).sum();
    assert_eq!(sum, TOTAL);
}

#[test]
fn threads_that_commit_at_once_share_syncs() {
    let (rig, table) = Rig::with_table();
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let (rig, table) = (&rig, &table);
            scope.spawn(move || {
                for number in 0..200_u32 {
                    let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                    rig.engine.put(table, &key, b"", Durability::Immediate).unwrap();
                }
            });
        }
    });
    assert_eq!(contents(&rig.engine, "t").len(), 1600);
    let log = rig.engine.statistics().log;
    assert!(log.syncs <= log.commits, "{log:?}");
}
