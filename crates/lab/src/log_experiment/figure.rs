//! The results as a figure.

use lapis_blocks::log::Placement;

use super::{LogResults, Row, Sharing};
use crate::plot::{Axis, Panel, Plot, Source};

/// Appends per second by the size of entries: a panel for each placement, number of threads and way
/// of sharing.
pub fn figure(results: &LogResults) -> Plot {
    let mut groups: Vec<(usize, Placement, Sharing)> = Vec::new();
    for row in &results.rows {
        let group = (row.threads, row.placement, row.sharing);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let panels = groups.into_iter().map(|(threads, placement, sharing)| {
        let title = match sharing {
            Sharing::Own => format!("{placement} entries, one thread"),
            Sharing::PerThread => format!("{placement} entries, {threads} threads, a log each"),
            Sharing::Shared => format!("{placement} entries, {threads} threads, one log"),
        };
        let y = Axis::linear("million appends per second");
        let mut panel = Panel::new(&title, Axis::log2("entry (bytes)"), y);
        let of: Vec<&Row> = results
            .rows
            .iter()
            .filter(|row| {
                (row.threads, row.placement, row.sharing) == (threads, placement, sharing)
            })
            .collect();
        let mut variants = Vec::new();
        for row in &of {
            if variants.contains(&row.variant) {
                continue;
            }
            variants.push(row.variant);
            let points = |value: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
                let own = of.iter().filter(|other| other.variant == row.variant);
                own.filter_map(|row| Some((row.size_bytes as f64, value(row)? / 1e6))).collect()
            };
            let measured = points(&|row| row.measured.map(|m| m.appends_per_s));
            if !measured.is_empty() {
                panel.line(row.variant.name(), Source::Measured, measured);
            }
            let modelled = points(&|row| row.modelled.as_ref().map(|m| m.appends_per_s));
            if !modelled.is_empty() {
                let source = Source::modelled(&results.profile);
                panel.line(row.variant.name(), source, modelled);
            }
        }
        panel
    });
    Plot::new(
        "Appends to logs",
        "The counterpart of Fig. 8 of van Renen et al., Building blocks for persistent memory (VLDB \
         Journal 29, 2020): dense entries are its left chart, padded ones its right. Measured: this \
         machine, anonymous memory. Modelled: virtual time.",
        panels.collect(),
    )
}
