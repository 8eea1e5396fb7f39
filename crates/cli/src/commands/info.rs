//! `lapis info`: what a store is, and what it promises on the medium it lies on.

use clap::Args;
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

Sizes of the tables take a visit to every entry, and so are shown only with --statistics.")]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Count the entries, nodes and bytes of each table
    #[arg(long)]
    statistics: bool,
}

/// Runs `lapis info`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let store = arguments.store.open()?;
    let info = store.info(arguments.statistics);
    output.json(&info)?;
    output.line(format_args!("store       {}", info.uuid))?;
    output.line(format_args!("durability  {}: {}", info.durability, info.why))?;
    output.line(format_args!("flush       {}", info.flush))?;
    output.line(format_args!(
        "bytes       {} of storage, {}{} in use, {} of log",
        human_bytes(info.bytes.storage),
        if info.bytes.exact { "" } else { "at least " },
        human_bytes(info.bytes.allocated),
        human_bytes(info.bytes.log)
    ))?;
    output.line(format_args!(
        "opened      {} times; {}",
        grouped(info.generation),
        if info.opened_clean {
            "it had been closed in order"
        } else {
            "it had not been closed and was recovered"
        }
    ))?;
    let mut tiers = Table::new(2, "tier | path | size | may grow to");
    for tier in &info.tiers {
        tiers.push([
            tier.medium.to_owned(),
            tier.path.clone().unwrap_or_default(),
            human_bytes(tier.bytes),
            human_bytes(tier.capacity_bytes),
        ]);
    }
    output.table(&tiers)?;
    let mut tables = Table::new(2, "table | index | entries | nodes | mean depth | index bytes");
    for entry in &info.tables {
        let mut row = vec![entry.name.clone(), entry.index.to_string()];
        match &entry.statistics {
            Some(sizes) => row.extend([
                grouped(sizes.entries),
                grouped(sizes.nodes),
                format!("{:.2}", sizes.mean_depth),
                human_bytes(sizes.bytes),
            ]),
            None => row.extend(["-", "-", "-", "-"].map(str::to_owned)),
        }
        tables.push(row);
    }
    output.table(&tables)?;
    Ok(Verdict::Good)
}
