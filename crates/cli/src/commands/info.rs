//! `lapis info`: what a store is, and what it promises on the medium it lies on.

use clap::Args;
use lapis::{ChanceInfo, MemoryInfo, MigrationInfo};
use lapis_lab::experiment::table::Table;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, human_bytes};
use crate::store_arguments::StoreArguments;

/// Say what a store holds, where it lies and what an acknowledged write survives there
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis info --dir /tmp/store
  lapis info --dir /tmp/store --statistics --json

Counting takes a visit to every entry, and so is done only with --statistics.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Count the entries of each table
    #[arg(long)]
    statistics: bool,
}

/// Runs `lapis info`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let store = arguments.store.open_to_read()?;
    let info = store.info(arguments.statistics)?;
    output.json(&info)?;
    output.line(format_args!("durability  {}: {}", info.durability, info.why))?;
    output.line(format_args!(
        "bytes       {} of storage, {} of pages of {} in use, {} of log",
        human_bytes(info.bytes.storage),
        human_bytes(info.bytes.allocated),
        human_bytes(info.page_bytes as u64),
        human_bytes(info.bytes.log)
    ))?;
    output.line(format_args!(
        "restart     {:.1} s after a crash now, as it is estimated; {:.1} s at most",
        info.seconds_to_redo, info.most_seconds_to_redo
    ))?;
    output.line(format_args!(
        "opened      {}",
        match info.redone_records {
            0 => "it had been closed in order".to_owned(),
            redone => format!(
                "it had not been closed; {} records of the log were done again",
                grouped(redone)
            ),
        }
    ))?;
    let mut tiers = Table::new(2, "holds | medium | path | size | by itself survives");
    for tier in &info.tiers {
        tiers.push([
            tier.holds.to_owned(),
            tier.medium.to_owned(),
            tier.path.clone().unwrap_or_default(),
            human_bytes(tier.bytes),
            tier.survives.to_owned(),
        ]);
    }
    output.table(&tiers)?;
    for memory in info.tiers.iter().filter_map(|tier| tier.memory.as_ref()) {
        output.line(format_args!("{}", describe(memory)))?;
    }
    if let Some(migration) = &info.migration {
        let MigrationInfo {
            dram_reads,
            dram_writes,
            memory_reads,
            memory_writes,
            tuned_each,
            rounds,
        } = migration;
        let tuned = tuned_each.map_or(String::new(), |operations| {
            format!("; tuned each {operations} operations, {rounds} times so far")
        });
        output.line(format_args!(
            "spitfire    of pages in persistent memory come to DRAM: {} that are read, {} that are changed; enter it: {} from \
             the SSD, {} from DRAM{tuned}",
            said(dram_reads),
            said(dram_writes),
            said(memory_reads),
            said(memory_writes)
        ))?;
    }
    let mut tables = Table::new(2, "table | held by | entries");
    for table in &info.tables {
        tables.push([
            table.name.clone(),
            table.index.to_owned(),
            table.entries.map_or("-".to_owned(), grouped),
        ]);
    }
    output.table(&tables)?;
    Ok(Verdict::Good)
}

fn said(ChanceInfo { chance, so, otherwise }: &ChanceInfo) -> String {
    format!("{chance} ({so} of {} so far)", so + otherwise)
}

fn describe(memory: &MemoryInfo) -> String {
    let pages = human_bytes(memory.mapped_page_bytes as u64);
    let mut text = format!("memory      pages of {pages}, flush: {}", memory.flush);
    if let (Some(provider), Some(domain)) = (&memory.provider, memory.persistence_domain) {
        let emulated = if memory.emulated { ", emulated in DRAM" } else { "" };
        text.push_str(&format!("; module: {provider}{emulated}, survives a power cut: {domain}"));
    }
    if let Some(count) = memory.unsafe_shutdowns {
        text.push_str(&format!("; unsafe shutdowns: {count}"));
    }
    match memory.unsafe_shutdowns_while_open {
        0 => text,
        count => format!("{text}, {count} of them while the store was open: run check"),
    }
}
