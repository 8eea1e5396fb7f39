//! The tables and the figure.

use super::{Case, IndexResults, MANY, Operation, Row};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{Findings, in_order};
use crate::plot::{Axis, Panel, Plot, Source};

/// The section of a document that the modelled counts belong in (module [`crate::document`]).
const TRAFFIC_SECTION: &str = "lapis lab index: traffic";

/// The section that says what modelled operations gain where many are done at once.
const MANY_SECTION: &str = "lapis lab index: many at once";
/// Fewer misses of lines that were just flushed than this are not mentioned.
const LEAST_FLUSHED_READS: f64 = 0.02;

impl IndexResults {
    /// What the model says of many at once, for each structure that was asked to do both; none if none was.
    fn many_at_once(&self) -> Option<String> {
        let headings = "index | keys | get | get-many | gain | insert | insert-many | gain";
        let mut table = Table::new(2, headings);
        let mut any = false;
        for get in self.rows.iter().filter(|row| row.case.operation == Operation::Get) {
            let of = |operation| {
                let it = |row: &&Row| {
                    row.case.operation == operation
                        && (row.case.index, row.case.distribution)
                            == (get.case.index, get.case.distribution)
                };
                self.rows.iter().find(it)?.modelled.as_ref()?.figures.mops
            };
            let Some(found) = get.modelled.as_ref() else { continue };
            let pairs =
                [(Operation::Get, Operation::GetMany), (Operation::Insert, Operation::InsertMany)]
                    .map(|(one, many)| of(one).zip(of(many)));
            any |= pairs.iter().any(Option::is_some);
            let cells = pairs.iter().flat_map(|pair| {
                let (one, many) = pair.unzip();
                let gain = pair.map(|(one, many)| many / one);
                [decimals(one, 2), decimals(many, 2), decimals(gain, 2)]
            });
            let keys = format!("{} {}", found.figures.keys, get.case.distribution);
            table.push([format!("`{}`", get.case.index), keys].into_iter().chain(cells));
        }
        any.then(|| table.markdown())
    }
}

impl Findings for IndexResults {
    fn tables(&self) -> Vec<Table> {
        let headings = "index | operation | keys | Mop/s | p50 ns | p99 ns | Mop/s* | flushes | \
             fences | WPQ | media w | media w/WPQ | media r | misses | depth | B/key";
        let mut table = Table::new(3, headings);
        for Row { case, measured, modelled } in &self.rows {
            let counts = modelled.as_ref().map(|found| found.counts);
            table.push([
                case.index.to_string(),
                case.operation.to_string(),
                match modelled.as_ref().map(|found| found.figures.keys) {
                    Some(keys) if keys != case.keys => {
                        format!("{} {}, modelled {keys}", case.keys, case.distribution)
                    }
                    _ => format!("{} {}", case.keys, case.distribution),
                },
                match measured {
                    Some(found) if found.repetitions > 1 => {
                        format!("{:.3} ({:.3}–{:.3})", found.mops, found.mops_min, found.mops_max)
                    }
                    found => decimals(found.map(|found| found.mops), 3),
                },
                decimals(measured.map(|found| found.p50_ns as f64), 0),
                decimals(measured.map(|found| found.p99_ns as f64), 0),
                decimals(modelled.as_ref().and_then(|found| found.figures.mops), 3),
                decimals(counts.map(|of| of.flushes), 2),
                decimals(counts.map(|of| of.fences), 2),
                decimals(counts.map(|of| of.wpq_inserts), 2),
                decimals(counts.map(|of| of.media_writes), 2),
                decimals(modelled.as_ref().and_then(|found| found.figures.media_per_wpq), 2),
                decimals(counts.map(|of| of.media_reads), 2),
                decimals(counts.map(|of| of.llc_misses), 2),
                format!("{:.2}", case.depth),
                format!("{:.1}", case.bytes_per_key),
            ]);
        }
        vec![table]
    }

    fn notes(&self) -> Vec<String> {
        let runs = self.rows.iter().find_map(|row| row.measured).map_or(1, |it| it.repetitions);
        let of_runs = match runs {
            1 => String::new(),
            runs => {
                format!(" Of {runs} runs the one with the median Mop/s, the least and the most.")
            }
        };
        let measured = format!(
            "Mop/s to p99: measured here, in {} pages, the time of this machine.{of_runs}",
            self.pages
        );
        let mut of_many = self.rows.iter().filter(|row| row.case.operation.at_once() > 1);
        let many = of_many.any(|row| row.measured.is_some()).then(|| {
            format!("Latencies of get-many and insert-many are those of whole calls, of {MANY} keys each.")
        });
        let profile = self.rows.iter().find_map(|row| Some(&row.modelled.as_ref()?.profile));
        let modelled = profile.map(|profile| {
            format!(
                "Mop/s* to misses: modelled for {profile}, in virtual time and per operation; WPQ in lines, \
                 media in units of 64 bytes."
            )
        });
        let found = || self.rows.iter().filter_map(|row| Some((row, row.modelled.as_ref()?)));
        let fewer =
            found().find(|(row, found)| found.figures.keys < row.case.keys).map(|(_, found)| {
                format!(
                    "Modelled with {} keys; --modelled-keys asks for more, \
                 --modelled-repetitions for more operations.",
                    found.figures.keys
                )
            });
        let fits = found().any(|(_, found)| found.figures.cached_share > 0.5).then(|| {
            "Of some indexes the modelled caches hold half and more, so little is evicted and misses are \
             few; more keys, or --caches-for-keys, count what larger ones do."
                .to_owned()
        });
        let flushed_reads: Vec<String> = found()
            .filter(|(_, found)| found.counts.flushed_reads >= LEAST_FLUSHED_READS)
            .map(|(row, found)| {
                let Case { index, operation, .. } = row.case;
                format!("{index} {operation} {:.2}", found.counts.flushed_reads)
            })
            .collect();
        let flushed_reads = (!flushed_reads.is_empty()).then(|| {
            let rows = flushed_reads.join(", ");
            format!("Misses of lines that the same worker had just flushed: {rows}.")
        });
        let notes = std::iter::once(measured).chain(many).chain(modelled);
        notes.chain(flushed_reads).chain(fewer).chain(fits).collect()
    }

    /// What was modelled. Of measured times it says nothing, so it is the same on every run and
    /// every machine.
    fn sections(&self) -> Vec<(String, String)> {
        let headings = "index | operation | keys | flushes | fences | WPQ inserts | media writes | \
             misses";
        let mut table = Table::new(2, headings);
        for Row { case, modelled, .. } in &self.rows {
            let Some(found) = modelled else { continue };
            let of = found.counts;
            let counts = [of.flushes, of.fences, of.wpq_inserts, of.media_writes, of.llc_misses];
            let words = [
                format!("`{}`", case.index),
                case.operation.to_string(),
                format!("{} {}", found.figures.keys, case.distribution),
            ];
            table.push(words.into_iter().chain(counts.map(|count| format!("{count:.2}"))));
        }
        let many = self.many_at_once().map(|table| (MANY_SECTION.to_owned(), table));
        std::iter::once((TRAFFIC_SECTION.to_owned(), table.markdown())).chain(many).collect()
    }

    /// Bars: the operations side by side, a panel for each distribution and each machine.
    fn figure(&self) -> Option<Plot> {
        let mut panels = Vec::new();
        for distribution in in_order(self.rows.iter().map(|row| row.case.distribution)) {
            let rows = self.rows.iter().filter(|row| row.case.distribution == distribution);
            let rows: Vec<&Row> = rows.collect();
            let here = |row: &Row| Some((Source::Measured, row.measured?.mops));
            let there = |row: &Row| {
                let found = row.modelled.as_ref()?;
                Some((Source::modelled(&found.profile), found.figures.mops?))
            };
            panels.extend(bars(&format!("{distribution} keys, measured here"), &rows, here));
            panels.extend(bars(&format!("{distribution} keys, modelled"), &rows, there));
        }
        let threads = self.rows.first().map_or(0, |row| row.case.threads);
        Some(Plot::new("Indexes side by side", &format!("Threads, or workers: {threads}."), panels))
    }
}

/// A bar for each index over each operation.
fn bars(
    title: &str,
    rows: &[&Row],
    value: impl Fn(&Row) -> Option<(Source, f64)>,
) -> Option<Panel> {
    let operations: Vec<Operation> = in_order(rows.iter().map(|row| row.case.operation));
    let x = Axis::categories("operation", &operations);
    let mut panel = Panel::new(title, x, Axis::linear("Mop/s"));
    let indexes: Vec<&'static str> = in_order(rows.iter().map(|row| row.case.index));
    for index in indexes {
        let of = rows.iter().filter(|row| row.case.index == index);
        let mut source = None;
        let points: Vec<(f64, f64)> = of
            .filter_map(|row| {
                let place = operations.iter().position(|&one| one == row.case.operation)?;
                let (from, mops) = value(row)?;
                source = Some(from);
                Some((place as f64, mops))
            })
            .collect();
        if let Some(source) = source {
            panel.bars(index, source, points);
        }
    }
    (!panel.series.is_empty()).then_some(panel)
}
