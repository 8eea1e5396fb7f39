//! The engine on files of pages and of log: loads, reads, scans, durable puts. `cargo bench -p lapis-engine --bench transactions -- [DIRECTORY]`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lapis_engine::{Durability, Engine, EngineOptions, KeyRange, Storage};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, DirectTransfers, FileDevice, Hardware};

/// What `cargo bench` adds to the arguments.
const CARGOS: &str = "--bench";
const RECORDS: u64 = 500_000;
const BATCH: u64 = 1000;
const VALUE: [u8; 100] = [7; 100];
const LOG_BLOCKS: u64 = 2 + (256 << 20) / BLOCK_BYTES as u64;
const TIME: Duration = Duration::from_secs(2);
const SCANNED: usize = 100;

/// How often all threads together could do it in a second.
fn rate(threads: u64, once: impl Fn(u64) + Sync) -> f64 {
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (done, once) = (&done, &once);
            scope.spawn(move || {
                let mut number = thread + 1;
                while begun.elapsed() < TIME {
                    for _ in 0..16 {
                        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                        once(number >> 20);
                    }
                    done.fetch_add(16, Ordering::Relaxed);
                }
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// The key of a number: in order, or scattered.
fn key(number: u64, scattered: bool) -> [u8; 8] {
    let number = number % RECORDS;
    let number = if scattered { number.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { number };
    number.to_be_bytes()
}

fn row(what: &str, rate: f64) {
    println!("{what:<44} {rate:>12.0}");
}

fn engine_in(directory: &Path, name: &str) -> Result<Engine<Hardware>, Box<dyn Error>> {
    let create = |kind: &str, blocks| -> Result<Arc<dyn BlockDevice>, Box<dyn Error>> {
        let path = directory.join(format!("{name}.{kind}"));
        let _ = std::fs::remove_file(&path);
        Ok(Arc::new(FileDevice::create(&path, blocks, DirectTransfers::Never)?))
    };
    let mut options = EngineOptions::new(1);
    options.buffer.frames = 16_384;
    options.buffer.most_changed_frames = 8_192;
    let (pages, log) = (create("pages", 1)?, create("log", LOG_BLOCKS)?);
    Ok(Engine::create(Hardware::detect(), Storage::ssd(pages, log), &options)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().skip(1).find(|argument| argument != CARGOS);
    let directory = directory.map_or_else(std::env::temp_dir, PathBuf::from).join("lapis-bench");
    std::fs::create_dir_all(&directory)?;
    println!("{:<44} {:>12}", "", "a second");
    for scattered in [false, true] {
        let engine = engine_in(&directory, "engine")?;
        let table = engine.create_table("t")?;
        let begun = Instant::now();
        for first in (0..RECORDS).step_by(BATCH as usize) {
            let mut transaction = engine.begin()?;
            for number in first..first + BATCH {
                transaction.put(&table, &key(number, scattered), &VALUE)?;
            }
            transaction.commit(Durability::Eventual)?;
        }
        engine.sync()?;
        let loaded = RECORDS as f64 / begun.elapsed().as_secs_f64();

        let order = if scattered { "scattered" } else { "sorted" };
        row(&format!("load, {order}, by {BATCH}"), loaded);

        for threads in [1, 2] {
            let got = rate(threads, |number| {
                let found = engine.get(&table, &key(number, scattered)).expect("it is read");
                assert_eq!(found.as_deref(), Some(&VALUE[..]));
            });
            row(&format!("get, {order}, {threads} thread(s)"), got);
        }
        let snapshot = engine.snapshot()?;
        let scanned = rate(1, |number| {
            let from = key(number, scattered).to_vec();
            let scan = snapshot.scan(&table, KeyRange::new(&(from..))).expect("it is scanned");
            assert!(scan.take(SCANNED).all(|entry| entry.is_ok()));
        });
        drop(snapshot);
        row(&format!("scan of {SCANNED}, {order}"), scanned);
        for threads in [1, 2] {
            let later = Durability::Eventual;
            let put = rate(threads, |number| {
                engine.put(&table, &key(number, scattered), &VALUE, later).expect("it is put");
            });
            row(&format!("put that waits for nothing, {order}, {threads} thread(s)"), put);
        }
        for threads in [1, 8] {
            let before = engine.statistics().log;
            let put = rate(threads, |number| {
                let now = Durability::Immediate;
                engine.put(&table, &key(number, scattered), &VALUE, now).expect("it is put");
            });
            let log = engine.statistics().log;
            let (commits, syncs) = (log.commits - before.commits, log.syncs - before.syncs);
            let shared = commits as f64 / syncs as f64;
            println!(
                "put that is durable, {order}, {threads} thread(s): {put:.0} a second, {shared:.1} commits a sync"
            );
        }
    }
    Ok(std::fs::remove_dir_all(&directory)?)
}
