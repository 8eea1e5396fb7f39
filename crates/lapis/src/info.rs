//! What a store says about itself: info and check.

use lapis_index::{IndexKind, Statistics};
use lapis_pmem::Domain;

use crate::engine::Engine;
use crate::transaction::turn_to_look;
use crate::value;

/// What a store is, where it is, and what it promises.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// What an acknowledged write survives: `none`, `process-crash` or `power-fail`.
    pub durability: &'static str,
    /// Why, in a sentence.
    pub why: &'static str,
    /// How lines are written back.
    pub flush: String,
    /// The storage beneath.
    pub tiers: Vec<Tier>,
    /// The tables.
    pub tables: Vec<TableInfo>,
    /// Bytes.
    pub bytes: Bytes,
    /// Identity of the store.
    pub uuid: String,
    /// How often it has been opened.
    pub generation: u64,
    /// Whether the last user closed it.
    pub opened_clean: bool,
    /// Format of the pool.
    pub format_version: u32,
}

/// A piece of storage.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tier {
    /// What it lies on.
    pub medium: &'static str,
    /// The file, if there is one.
    pub path: Option<String>,
    /// Bytes of storage now.
    pub bytes: u64,
    /// Bytes it may grow to.
    pub capacity_bytes: u64,
}

/// How the bytes are used.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Bytes {
    /// Storage taken.
    pub storage: u64,
    /// In blocks that are in use; a lower bound where `exact` is false.
    pub allocated: u64,
    /// Whether `allocated` is exact: it is not between a crash and the next reclaim.
    pub exact: bool,
    /// In the write-ahead log.
    pub log: u64,
}

/// What a table is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: IndexKind,
    /// Sizes of the index; only where they were asked for, because finding them visits everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
}

/// What a check found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct CheckReport {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
    /// Tables checked.
    pub tables: u64,
    /// Entries checked, values and their checksums included.
    pub entries: u64,
    /// Reachable blocks.
    pub blocks: u64,
    /// Blocks that are allocated and not reachable. Known only if the last user closed the store,
    /// or free space has been found again since.
    pub leaked_blocks: Option<u64>,
}

/// Problems reported at most; the rest is counted.
const MOST_PROBLEMS: usize = 100;

pub(crate) fn info<D: Domain>(engine: &Engine<D>, flush: String, statistics: bool) -> Info {
    let pool = &engine.pool;
    let region = pool.region();
    let _turn = turn_to_look(engine);
    let usage = pool.usage();
    let tables = engine.tables();
    Info {
        durability: region.guarantee().name(),
        why: region.why(),
        flush,
        tiers: vec![Tier {
            medium: region.medium().name(),
            path: region.path().map(|path| path.display().to_string()),
            bytes: usage.storage_bytes,
            capacity_bytes: region.reserved_bytes() as u64,
        }],
        tables: tables
            .iter()
            .map(|table| TableInfo {
                name: table.name.clone(),
                index: table.kind(),
                statistics: statistics.then(|| table.index.statistics()),
            })
            .collect(),
        bytes: Bytes {
            storage: usage.storage_bytes,
            allocated: usage.allocated_bytes,
            exact: usage.exact,
            log: engine.log().statistics().segment_bytes,
        },
        uuid: pool.uuid().to_string(),
        generation: pool.generation(),
        opened_clean: pool.opened_clean(),
        format_version: lapis_pmem::FORMAT_VERSION,
    }
}

/// Walks everything and says what is wrong. Changes nothing.
pub(crate) fn check<D: Domain>(engine: &Engine<D>) -> CheckReport {
    let _turn = turn_to_look(engine);
    let mut report = CheckReport::default();
    report.problems.extend(engine.catalog_problems());
    report.problems.extend(engine.log().check().into_iter().map(|what| format!("log: {what}")));
    for table in engine.tables() {
        report.tables += 1;
        let name = &table.name;
        report
            .problems
            .extend(table.index.check().into_iter().map(|what| format!("table {name:?}: {what}")));
        let _guard = engine.pool.pin();
        table.index.for_each(&mut |key, link| {
            report.entries += 1;
            if let Err(error) = value::read(&engine.pool, link) {
                let key = key.escape_ascii();
                report.problems.push(format!("table {name:?}, key {key}: {error}"));
            }
            std::ops::ControlFlow::Continue(())
        });
    }
    let reachable = engine.reachable();
    report.blocks = reachable.block_count();
    if engine.pool.needs_reclaim() {
        report.problems.extend(reachable.problems().iter().map(ToString::to_string));
    } else {
        let audit = engine.pool.audit(&reachable);
        report.leaked_blocks = Some(audit.leaked.len() as u64);
        report.problems.extend(audit.problems.iter().map(ToString::to_string));
        let unallocated = audit.unallocated.iter();
        report.problems.extend(
            unallocated.map(|at| format!("the block at {at:#x} is in use but counted as free")),
        );
        if !audit.leaked.is_empty() {
            let (count, first) = (audit.leaked.len(), audit.leaked[0]);
            report
                .problems
                .push(format!("{count} blocks are allocated but unreachable, at {first:#x} first"));
        }
    }
    if report.problems.len() > MOST_PROBLEMS {
        let more = report.problems.len() - MOST_PROBLEMS;
        report.problems.truncate(MOST_PROBLEMS);
        report.problems.push(format!("and {more} more"));
    }
    report.ok = report.problems.is_empty();
    report
}
