//! What a store says about itself.

use std::num::NonZeroU32;
use std::sync::Arc;

use lapis_engine::{
    Chance, Decided, EngineError, IndexKind, KeyRange, LeafLayout, MigrationStatistics, Snapshot,
    Table,
};
use lapis_pmem::{
    BLOCK_BYTES, BlockDevice, FileDevice, Guarantee, Hardware, Medium, MemoryModule, Pool,
};

use crate::directory::{LOG_FILE, PAGES_FILE};
use crate::error::Error;
use crate::store::Inner;

/// What a store is, where it is, and what it promises.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// What an acknowledged commit survives: `none`, `process-crash` or `power-fail`.
    pub durability: &'static str,
    /// Why, in a sentence.
    pub why: &'static str,
    /// What holds its bytes.
    pub tiers: Vec<Tier>,
    /// The tables.
    pub tables: Vec<TableInfo>,
    /// Bytes.
    pub bytes: Bytes,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Which way pages take between the tiers: `ssd`, `basic-nvm`, `three-tier`, `spitfire`.
    pub placement: &'static str,
    /// If chance decides, the chances, and how often it came so since the store was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationInfo>,
    /// Seconds that an opening after a crash would take now to do the log again, as it is estimated.
    pub seconds_to_redo: f64,
    /// Seconds that it may become ([`Config::most_time_to_redo`](crate::Config::most_time_to_redo)).
    pub most_seconds_to_redo: f64,
    /// Records of the log that opening found to do again; none after the store was closed.
    pub redone_records: u64,
}

/// The four chances of the placement `spitfire`, as they are now.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct MigrationInfo {
    /// A page in persistent memory that is read comes to DRAM.
    pub dram_reads: ChanceInfo,
    /// A page in persistent memory that is to be changed comes to DRAM.
    pub dram_writes: ChanceInfo,
    /// A page that is read from the SSD enters persistent memory.
    pub memory_reads: ChanceInfo,
    /// A page that is written back, or leaves DRAM, enters persistent memory.
    pub memory_writes: ChanceInfo,
    /// If they are tuned, the operations in a round of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuned_each: Option<NonZeroU32>,
    /// Rounds of tuning since the store was opened.
    pub rounds: u64,
}

/// A chance, and what came of it.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct ChanceInfo {
    /// From 0 to 1.
    pub chance: f64,
    /// How often it came so.
    pub so: u64,
    /// How often it did not.
    pub otherwise: u64,
}

fn migration_info(found: &MigrationStatistics) -> MigrationInfo {
    let info = |chance: Chance, decided: Decided| ChanceInfo {
        chance: f64::from(chance.in_thousandths()) / 1000.0,
        so: decided.so,
        otherwise: decided.otherwise,
    };
    MigrationInfo {
        dram_reads: info(found.chances.dram_reads, found.dram_reads),
        dram_writes: info(found.chances.dram_writes, found.dram_writes),
        memory_reads: info(found.chances.memory_reads, found.memory_reads),
        memory_writes: info(found.chances.memory_writes, found.memory_writes),
        tuned_each: found.chances.tuned_each,
        rounds: found.rounds,
    }
}

/// What holds bytes of a store.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tier {
    /// What it is for: `cache`, `pages`, `log`, or `log, pages, tables` in persistent memory.
    pub holds: &'static str,
    /// What it lies on.
    pub medium: &'static str,
    /// The file, if there is one.
    pub path: Option<String>,
    /// Bytes that it takes, or may take of DRAM.
    pub bytes: u64,
    /// What its contents survive by themselves.
    pub survives: &'static str,
    /// What is known of persistent memory.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryInfo>,
}

/// What persistent memory is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MemoryInfo {
    /// The largest pages in which it can be mapped.
    pub mapped_page_bytes: usize,
    /// How lines are written back: an instruction, or why there is none.
    pub flush: &'static str,
    /// Who tells the kernel of the module that it lies on, if it lies on one.
    pub provider: Option<String>,
    /// Whether that module is DRAM that poses as persistent memory.
    pub emulated: bool,
    /// What of the machine survives a power cut, as the platform says.
    pub persistence_domain: Option<&'static str>,
    /// How often the module lost power without keeping all that it should have, if it counts that.
    pub unsafe_shutdowns: Option<u64>,
    /// How many of them came while the store was open last: what was acknowledged may be gone.
    pub unsafe_shutdowns_while_open: u64,
}

fn memory_info(pool: &Pool<Hardware>) -> MemoryInfo {
    let (region, module) = (pool.region(), pool.region().module());
    MemoryInfo {
        mapped_page_bytes: region.page_bytes(),
        flush: pool.domain().method().name(),
        provider: module.map(|module| module.provider.clone()),
        emulated: module.is_some_and(MemoryModule::is_emulated),
        persistence_domain: module.map(|module| module.persistence_domain.name()),
        unsafe_shutdowns: module.and_then(|module| module.unsafe_shutdowns),
        unsafe_shutdowns_while_open: pool.lost_power_unsafely(),
    }
}

/// How the bytes are used.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Bytes {
    /// Of the files.
    pub storage: u64,
    /// Of pages in use.
    pub allocated: u64,
    /// Of the log that an opening after a crash would read.
    pub log: u64,
}

/// What a table is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// What holds it: `b+tree`, `b+tree, hashed leaves`, or the name of a persistent index.
    pub index: &'static str,
    /// Its number of entries; only where it was asked for, because finding it visits all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// How long an entry lives that is not given a time, in seconds; only where that is not for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_live_s: Option<f64>,
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
}

/// Problems reported at most; the rest is counted.
const MOST_PROBLEMS: usize = 100;

impl CheckReport {
    pub(crate) fn of(tables: usize, mut problems: Vec<String>) -> Self {
        if problems.len() > MOST_PROBLEMS {
            let more = problems.len() - MOST_PROBLEMS;
            problems.truncate(MOST_PROBLEMS);
            problems.push(format!("and {more} more"));
        }
        Self { ok: problems.is_empty(), problems, tables: tables as u64 }
    }
}

/// Why a store has no better guarantee whose persistent memory is an ordinary file.
const WHY_OF_FILE: &str = "an ordinary file stands for persistent memory, behind the page cache: acknowledged \
                           writes survive a crash of the process, not a power cut; for that, make the store \
                           without --pmem, with its log on the SSD";

/// Why a store has a guarantee whose persistent memory has one, and a reason, of its own.
fn why(guarantee: Guarantee, memory: Option<(Guarantee, &'static str)>) -> &'static str {
    match guarantee {
        Guarantee::PowerFail if memory.is_some() => {
            "a commit waits until persistent memory has what the log says"
        }
        // Unless the other files are what makes it worse.
        Guarantee::ProcessCrash if let Some((Guarantee::ProcessCrash, why)) = memory => why,
        Guarantee::PowerFail => "a commit waits until the device has what the log says",
        Guarantee::ProcessCrash => "the files lie in memory (tmpfs), which a power cut empties",
        Guarantee::Nothing => "the store is in this process's memory and ends with it",
    }
}

/// Says what a table is; nothing of one that another thread drops while its entries are counted.
fn table_info(
    snapshot: &Snapshot<Hardware>,
    table: &Arc<Table<Hardware>>,
    count: bool,
) -> Result<Option<TableInfo>, EngineError> {
    let entries = if count && table.is_ordered() {
        match entries_of(snapshot, table) {
            Err(EngineError::Dropped { .. }) => return Ok(None),
            entries => Some(entries?),
        }
    } else {
        None
    };
    let in_tree = match table.leaves() {
        Some(LeafLayout::Hashed) => "b+tree, hashed leaves",
        _ => "b+tree",
    };
    let index = table.index_kind().map_or(in_tree, IndexKind::name);
    let time_to_live_s = table.time_to_live().map(|time| time.as_secs_f64());
    Ok(Some(TableInfo { name: table.name().to_owned(), index, entries, time_to_live_s }))
}

fn entries_of(
    snapshot: &Snapshot<Hardware>,
    table: &Arc<Table<Hardware>>,
) -> Result<u64, EngineError> {
    let mut entries = snapshot.scan(table, KeyRange::all())?;
    entries.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

fn bytes_of(device: &FileDevice) -> u64 {
    device.capacity_blocks() * BLOCK_BYTES as u64
}

pub(crate) fn info(inner: &Inner, count: bool) -> Result<Info, Error> {
    let (engine, files) = (&inner.engine, &inner.files);
    let guarantee = files.guarantee();
    let manager = engine.buffer_manager();
    let tier = |holds, device: &FileDevice, name: &str| Tier {
        holds,
        medium: device.medium().name(),
        path: files.directory.as_ref().map(|directory| directory.join(name).display().to_string()),
        bytes: bytes_of(device),
        survives: device.guarantee().name(),
        memory: None,
    };
    let cache = Tier {
        holds: "cache",
        medium: "DRAM",
        path: None,
        bytes: inner.cache_bytes as u64,
        survives: Guarantee::Nothing.name(),
        memory: None,
    };
    let mut tiers = vec![cache, tier("pages", &files.pages, PAGES_FILE)];
    tiers.extend(files.log.as_ref().map(|log| tier("log", log, LOG_FILE)));
    tiers.extend(files.memory.as_ref().map(|pool| Tier {
        holds: "log, pages, tables",
        medium: pool.region().medium().name(),
        path: pool.region().path().map(|path| path.display().to_string()),
        bytes: pool.usage().storage_bytes,
        survives: pool.region().guarantee().name(),
        memory: Some(memory_info(pool)),
    }));
    let snapshot = engine.snapshot()?;
    let mut tables = Vec::new();
    for table in engine.tables() {
        tables.extend(table_info(&snapshot, &table, count)?);
    }
    let page_bytes = manager.page_bytes();
    let pages = manager.space().map_or(0, |space| space.numbers().len());
    let metrics = engine.metrics();
    let memory = files.memory.as_ref().map(|pool| match pool.region() {
        region if region.medium() == Medium::File => (region.guarantee(), WHY_OF_FILE),
        region => (region.guarantee(), region.why()),
    });
    Ok(Info {
        durability: guarantee.name(),
        why: why(guarantee, memory),
        bytes: Bytes {
            storage: tiers.iter().skip(1).map(|tier| tier.bytes).sum(),
            allocated: (pages * page_bytes) as u64,
            log: metrics.bytes_to_redo,
        },
        tiers,
        tables,
        page_bytes,
        placement: manager.placement().name(),
        migration: manager.statistics().tier.migration.as_ref().map(migration_info),
        seconds_to_redo: metrics.time_to_redo.as_secs_f64(),
        most_seconds_to_redo: inner.longest_redo.as_secs_f64(),
        // The last one always stays.
        redone_records: engine.recovery().records.saturating_sub(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_dropped_while_its_entries_are_counted_is_left_out() {
        let store = crate::Store::in_memory().unwrap();
        store.create_table("t").unwrap().put(b"k", b"v").unwrap();
        let engine = &store.inner.engine;
        let (snapshot, found) = (engine.snapshot().unwrap(), engine.tables());
        let info = table_info(&snapshot, &found[0], true).unwrap().unwrap();
        assert_eq!(info.entries, Some(1));
        store.drop_table("t").unwrap();
        assert!(table_info(&snapshot, &found[0], true).unwrap().is_none());
    }

    #[test]
    fn the_reason_is_that_of_the_files_which_survive_least() {
        let memory = (Guarantee::PowerFail, "of the memory");
        assert!(why(Guarantee::ProcessCrash, Some(memory)).contains("tmpfs"));
        let memory = (Guarantee::ProcessCrash, "of the memory");
        assert_eq!(why(Guarantee::ProcessCrash, Some(memory)), "of the memory");
    }
}
