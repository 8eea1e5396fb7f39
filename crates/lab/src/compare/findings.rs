//! What was found: a row for each store and workload, and how Lapis stands to the best of the others.

use serde::Serialize;

use super::case::Measured;
use super::peer::StoreName;
use super::workload::Workload;
use crate::experiment::table::{Table, decimals, grouped, human_bytes};
use crate::experiment::{Findings, in_order, section_of_tables};

/// A workload on a store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The store.
    pub store: StoreName,
    /// What was done.
    pub workload: Workload,
    /// `immediate` or `eventual`.
    pub durability: &'static str,
    /// By how many threads.
    pub threads: usize,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Measured,
    /// Bytes that the store's files took afterwards.
    pub bytes: u64,
}

impl Row {
    pub(super) fn new(
        store: StoreName,
        workload: Workload,
        threads: usize,
        measured: Measured,
        bytes: u64,
    ) -> Self {
        let durability = if workload.is_durable() { "immediate" } else { "eventual" };
        Self { store, workload, durability, threads, measured, bytes }
    }
}

/// A workload that a store was not asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The store.
    pub store: StoreName,
    /// The workload.
    pub workload: Workload,
    /// Why.
    pub why: &'static str,
}

/// How Lapis, with persistent memory or without, stands to the best of the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The workload, or what else was measured.
    pub workload: String,
    /// By how many threads.
    pub threads: usize,
    /// Which Lapis.
    pub store: StoreName,
    /// What it came to.
    pub lapis: f64,
    /// What the best of the others did.
    pub best: f64,
    /// Which that is.
    pub best_store: StoreName,
    /// How many times better Lapis is: below 1 it is worse.
    pub ratio: f64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Records that were loaded.
    pub records: u64,
    /// By store and workload.
    pub rows: Vec<Row>,
    /// Lapis beside the best.
    pub ratios: Vec<Ratio>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

/// A figure of a row, and how it is shown.
struct Column {
    /// What it is called, if that is not the workload.
    name: Option<&'static str>,
    workload: Workload,
    threads: usize,
    of: fn(&Row) -> f64,
    is_better_low: bool,
    show: fn(f64) -> String,
}

/// Everything that is compared.
fn columns() -> Vec<Column> {
    let mut columns = Vec::new();
    for workload in Workload::rows() {
        for &threads in workload.threads() {
            if workload != Workload::FirstRead {
                let show = |rate: f64| grouped(rate as u64);
                columns.push(Column {
                    name: None,
                    workload,
                    threads,
                    of: |row| row.measured.ops_per_s,
                    is_better_low: false,
                    show,
                });
            }
        }
    }
    let milliseconds = |figure: f64| decimals(Some(figure), 2);
    let bytes = |figure: f64| human_bytes(figure as u64);
    let mut low = |name, workload, of, show| {
        columns.push(Column {
            name: Some(name),
            workload,
            threads: 1,
            of,
            is_better_low: true,
            show,
        });
    };
    low("open, ms", Workload::Get, |row| row.measured.open_ms, milliseconds);
    let first_read = |row: &Row| row.measured.open_ms;
    low("first read after a kill, ms", Workload::FirstRead, first_read, milliseconds);
    low("size on disk after load-random", Workload::LoadRandom, |row| row.bytes as f64, bytes);
    let memory = |row: &Row| row.measured.peak_memory_bytes as f64;
    low("peak memory of load-random", Workload::LoadRandom, memory, bytes);
    low("peak memory of get", Workload::Get, memory, bytes);
    columns
}

impl Column {
    fn name(&self) -> String {
        match self.name {
            Some(name) => name.to_owned(),
            None => self.workload.name().to_owned(),
        }
    }

    /// A row of a table, of those that some store has; with ratios of these.
    fn cells(
        &self,
        rows: &[Row],
        stores: &[StoreName],
        compared: &[StoreName],
    ) -> Option<Vec<String>> {
        let figures: Vec<_> = stores.iter().map(|&store| self.figure(rows, store)).collect();
        figures.iter().any(Option::is_some).then(|| {
            let shown = figures.into_iter().map(|it| it.map_or("–".to_owned(), self.show));
            let ratio = |&store| self.ratio(rows, store).map(|ratio| ratio.ratio);
            let ratios = compared.iter().map(|store| decimals(ratio(store), 2));
            let first = [self.name(), self.threads.to_string()];
            first.into_iter().chain(shown).chain(ratios).collect()
        })
    }

    fn figure(&self, rows: &[Row], store: StoreName) -> Option<f64> {
        let found = rows.iter().find(|row| {
            row.store == store && row.workload == self.workload && row.threads == self.threads
        });
        found.map(self.of)
    }

    fn ratio(&self, rows: &[Row], store: StoreName) -> Option<Ratio> {
        let lapis = self.figure(rows, store)?;
        let others = StoreName::ALL.into_iter().filter(|store| store.is_other());
        let figures = others.filter_map(|store| Some((self.figure(rows, store)?, store)));
        let (best, best_store) = match self.is_better_low {
            true => figures.min_by(|one, other| one.0.total_cmp(&other.0)),
            false => figures.max_by(|one, other| one.0.total_cmp(&other.0)),
        }?;
        let ratio = if self.is_better_low { best / lapis } else { lapis / best };
        let workload = self.name();
        Some(Ratio { workload, threads: self.threads, store, lapis, best, best_store, ratio })
    }
}

impl Comparison {
    pub(super) fn new(records: u64, rows: Vec<Row>, skipped: Vec<Skipped>) -> Self {
        let of = |store| {
            let (columns, rows) = (columns(), &rows);
            columns.into_iter().filter_map(move |column| column.ratio(rows, store))
        };
        let ratios = of(StoreName::Lapis).chain(of(StoreName::LapisWithMemory)).collect();
        Self { records, rows, ratios, skipped }
    }
}

impl Findings for Comparison {
    fn tables(&self) -> Vec<Table> {
        let stores = in_order(self.rows.iter().map(|row| row.store));
        let (others, compared): (Vec<_>, Vec<_>) =
            stores.iter().copied().partition(|store| store.is_other());
        let table = |what: &str, columns: Vec<Column>| {
            let names = stores.iter().map(|store| store.name().to_owned());
            let ratios = compared.iter().map(|store| format!("{store} to best"));
            let headings: Vec<_> = names.chain(ratios.filter(|_| !others.is_empty())).collect();
            let headings = format!("{what} | threads | {}", headings.join(" | "));
            let mut table = Table::new(1, &headings);
            let rows =
                columns.iter().filter_map(|column| column.cells(&self.rows, &stores, &compared));
            rows.for_each(|row| table.push(row));
            table
        };
        let title = format!("{} records of 16 and 100 bytes", grouped(self.records));
        let rates = table("operations per second", columns()).titled(title);
        let costs = columns().into_iter().filter(|column| column.name.is_none());
        let costs = costs.map(|column| Column {
            of: |row| row.measured.cpu_ns,
            is_better_low: true,
            ..column
        });
        let costs = table("processor time, ns per operation", costs.collect());
        vec![rates, costs]
    }

    fn notes(&self) -> Vec<String> {
        let skipped =
            self.skipped.iter().map(|it| format!("{} {}: {}", it.store, it.workload, it.why));
        let memory = "peak memory is the process's, mapped files of LMDB included";
        skipped.chain([memory.to_owned()]).collect()
    }

    fn sections(&self) -> Vec<(String, String)> {
        section_of_tables("lapis lab compare", &self.tables())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(store: StoreName, workload: Workload, ops_per_s: f64, open_ms: f64) -> Row {
        let measured =
            Measured { ops_per_s, cpu_ns: 1.0, p99_ns: 1, open_ms, peak_memory_bytes: 1 };
        Row::new(store, workload, 1, measured, 1)
    }

    #[test]
    fn lapis_is_compared_with_the_best_of_the_others_whichever_way_is_better() {
        let rows = vec![
            row(StoreName::Lapis, Workload::Get, 50.0, 4.0),
            row(StoreName::Redb, Workload::Get, 100.0, 1.0),
            row(StoreName::Fjall, Workload::Get, 10.0, 2.0),
        ];
        let found = Comparison::new(3, rows, Vec::new());
        let get = &found.ratios[0];
        assert_eq!((get.ratio, get.best_store), (0.5, StoreName::Redb));
        let open = found.ratios.iter().find(|ratio| ratio.workload == "open, ms").unwrap();
        assert_eq!((open.ratio, open.best_store), (0.25, StoreName::Redb));
    }

    #[test]
    fn json_has_the_fields_that_are_promised() {
        let rows = vec![row(StoreName::Lapis, Workload::Get, 5.0, 4.0)];
        let json = serde_json::to_value(Comparison::new(3, rows, Vec::new())).unwrap();
        for field in ["store", "workload", "durability", "threads", "ops_per_s", "p99_ns", "bytes"]
        {
            assert!(!json["rows"][0][field].is_null(), "{field}");
        }
        assert_eq!(json["rows"][0]["open_ms"], 4.0);
        assert_eq!(json["ratios"], serde_json::json!([]));
    }
}
