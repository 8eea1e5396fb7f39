//! `dax-writer write DIR MEMORY SEED LONGEST INDEXES THREADS OPERATIONS` writes to a store in DIR, which is made if it is not
//! there, with its persistent memory in MEMORY: THREADS threads do OPERATIONS each, on a B+-tree and a table for each of
//! INDEXES (separated by commas), and one more table is dropped and made again. It says `begin` first, `ready MEDIUM` when
//! it has the tables, and `ack THREAD N done` when a thread's first N operations are durable, each by one `write(1)`. What is
//! there already is gone on with.
//!
//! `dax-writer verify DIR SEED LONGEST INDEXES ACKNOWLEDGED` opens what a power cut left, compares it with the numbers
//! acknowledged (one for each thread, or `none` if it was not ready), and goes on for a while. Exit code 1 if anything is wrong.
//!
//! `dax-writer indexes` lists the kinds of indexes.

mod operations;
mod remade;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use lapis::{Config, Error, IndexKind, Store, Table, TableOptions};
use operations::Plan;
use remade::remake;

/// Small, so that pages move between all media.
const PAGE_BYTES: usize = 4096;
const CACHE_BYTES: usize = 64 * PAGE_BYTES;
const LOG_BYTES: u64 = 1 << 20;
const MEMORY_BYTES: usize = 16 << 20;
/// Operations of each thread after what was left was compared.
const OPERATIONS_AFTER: u64 = 12;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn config(directory: &Path) -> Config {
    Config::new(directory).page_bytes(PAGE_BYTES).cache_bytes(CACHE_BYTES).log_bytes(LOG_BYTES)
}

/// The kinds of the tables, in the order of their numbers, which are their names.
fn kinds(indexes: &str) -> Result<Vec<Option<IndexKind>>, Failure> {
    let names = indexes.split(',').filter(|name| !name.is_empty());
    let kinds = names.map(|name| IndexKind::from_name(name).map(Some).ok_or("no such index"));
    Ok(std::iter::once(Ok(None)).chain(kinds).collect::<Result<_, _>>()?)
}

fn tables(store: &Store, kinds: &[Option<IndexKind>]) -> Result<Vec<Table>, Error> {
    let table = |(number, kind): (usize, &Option<IndexKind>)| match store.table(&number.to_string())
    {
        Err(Error::NoSuchTable { .. }) => {
            let options = TableOptions { index: *kind, ..TableOptions::default() };
            store.create_table_with(&number.to_string(), &options)
        }
        found => found,
    };
    kinds.iter().enumerate().map(table).collect()
}

/// One `write(1)`.
fn say(line: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(format!("{line}\n").as_bytes())?;
    output.flush()
}

/// Keeps this thread on one processor, since a fence completes the flushes of its own processor.
fn pin(thread: usize) -> std::io::Result<()> {
    let processors = thread::available_parallelism()?.get();
    let mut set = rustix::thread::CpuSet::new();
    set.set(thread % processors);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

fn write(arguments: &[String]) -> Result<(), Failure> {
    let [directory, memory, seed, longest, indexes, threads, operations] = arguments else {
        return Err("the arguments are DIR MEMORY SEED LONGEST INDEXES THREADS OPERATIONS".into());
    };
    let kinds = kinds(indexes)?;
    let plan = Plan { seed: seed.parse()?, longest: longest.parse()?, tables: kinds.len() };
    let (threads, operations) = (threads.parse::<usize>()?, operations.parse::<u64>()?);
    let processors = rustix::thread::sched_getaffinity(None)?;
    // The thread in the background inherits this.
    pin(0)?;
    say("begin")?;
    let config = config(Path::new(directory)).contain_memory_faults(true);
    let store = Store::open(config.persistent_memory(memory, MEMORY_BYTES))?;
    rustix::thread::sched_setaffinity(None, &processors)?;
    let tables = tables(&store, &kinds)?;
    let info = store.info(false)?;
    let media =
        info.tiers.iter().filter_map(|tier| Some((tier.medium, tier.memory.as_ref()?.flush)));
    say(&format!("ready {} {:?}", info.durability, media.collect::<Vec<_>>()))?;
    thread::scope(|scope| {
        let work = |thread| {
            let (store, tables) = (&store, &tables);
            move || -> Result<(), Failure> {
                pin(thread)?;
                let done = plan.done(tables, thread)?;
                say(&format!("ack {thread} {done} done"))?;
                for operation in done..done + operations {
                    let remade = if thread == 0 { remake(store, operation) } else { Ok(()) };
                    match remade.and_then(|()| plan.execute(store, tables, thread, operation)) {
                        Err(Error::Full(_)) => {
                            return Ok(say(&format!("full {thread} {operation}"))?);
                        }
                        done => done?,
                    }
                    say(&format!("ack {thread} {} done", operation + 1))?;
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    drop(tables);
    store.close()?;
    Ok(say("closed")?)
}

/// Whether the tables are what they have to be after so many operations of each thread.
fn compare(store: &Store, tables: &[Table], plan: Plan, done: &[u64]) -> Result<(), Failure> {
    let expected = plan.expected(done);
    for (table, expected) in tables.iter().zip(&expected) {
        let name = table.index_kind().map_or("b+tree", IndexKind::name);
        let found = plan.found(table, done.len())?;
        let entries = if table.is_ordered() { table.len()? } else { found.len() as u64 };
        if entries != found.len() as u64 {
            return Err(format!("{name}: {entries} entries, {} are found", found.len()).into());
        }
        let keys = expected.keys().chain(found.keys());
        let differs = keys.filter(|key| expected.get(*key) != found.get(*key));
        if let Some(key) = differs.min() {
            let bytes = |value: Option<&Vec<u8>>| value.map(Vec::len);
            let (expected, found) = (bytes(expected.get(key)), bytes(found.get(key)));
            let key = String::from_utf8_lossy(key);
            return Err(format!("{name}: `{key}` has {found:?} bytes, not {expected:?}").into());
        }
    }
    match store.check() {
        report if report.ok => Ok(()),
        report => Err(report.problems.join("; ").into()),
    }
}

fn verify(arguments: &[String]) -> Result<(), Failure> {
    let [directory, seed, longest, indexes, acknowledged] = arguments else {
        return Err("the arguments are DIR SEED LONGEST INDEXES ACKNOWLEDGED".into());
    };
    let kinds = kinds(indexes)?;
    let plan = Plan { seed: seed.parse()?, longest: longest.parse()?, tables: kinds.len() };
    let was_ready = acknowledged != "none";
    let acknowledged: Vec<u64> = match was_ready {
        true => acknowledged.split(',').map(str::parse).collect::<Result<_, _>>()?,
        false => vec![0],
    };
    let config = || config(Path::new(directory)).create(false);
    let store = match Store::open(config()) {
        Err(Error::NoStore { .. }) if !was_ready => return Ok(say("none yet")?),
        opened => opened?,
    };
    if was_ready {
        (0..kinds.len()).try_for_each(|number| store.table(&number.to_string()).map(drop))?;
    }
    if !remade::is_whole(&store)? {
        return Err("the table that is made again and again is not whole".into());
    }
    let tables = tables(&store, &kinds)?;
    let mut done = Vec::new();
    for (thread, acknowledged) in acknowledged.iter().enumerate() {
        let there = plan.done(&tables, thread)?;
        // The next one may have been under way.
        if !(*acknowledged..=acknowledged + u64::from(was_ready)).contains(&there) {
            return Err(
                format!("thread {thread}: {there} done, {acknowledged} acknowledged").into()
            );
        }
        done.push(there);
    }
    compare(&store, &tables, plan, &done)?;
    let found = done.clone();
    for (thread, done) in done.iter_mut().enumerate() {
        for operation in *done..*done + OPERATIONS_AFTER {
            plan.execute(&store, &tables, thread, operation)?;
        }
        *done += OPERATIONS_AFTER;
    }
    compare(&store, &tables, plan, &done).map_err(|error| format!("after going on: {error}"))?;
    drop(tables);
    store.close()?;
    let store = Store::open(config())?;
    let tables = self::tables(&store, &kinds)?;
    compare(&store, &tables, plan, &done).map_err(|error| format!("opened again: {error}"))?;
    Ok(say(&format!("{found:?} of {acknowledged:?}"))?)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((command, arguments)) if command == "write" => write(arguments),
        Some((command, arguments)) if command == "verify" => verify(arguments),
        Some((command, [])) if command == "indexes" => {
            let names = IndexKind::ALL.map(IndexKind::name);
            say(&names.join(" ")).map_err(Failure::from)
        }
        _ => Err("write, verify or indexes".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("WRONG {error}");
            ExitCode::FAILURE
        }
    }
}
