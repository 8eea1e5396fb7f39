//! The figure and the table.

use super::{FIGURE, Results, Variant};
use crate::plot::{Axis, Panel, Plot, Source};

/// The figure: inserts and lookups side by side, throughput over the size of the group.
pub fn plot(results: &Results) -> Plot {
    let inserts =
        [Variant::InsertReads, Variant::InsertWrites, Variant::InsertBoth, Variant::InsertOnce];
    let panels = [("inserts", &inserts[..]), ("lookups", &[Variant::Lookup][..])];
    let panels = panels.map(|(title, variants)| {
        let mut panel = Panel::new(title, Axis::linear("tasks in flight"), Axis::linear("Mop/s"));
        for variant in variants.iter().map(|variant| variant.name()) {
            let rows = || results.rows.iter().filter(|row| row.variant == variant);
            let measured: Vec<_> =
                rows().filter_map(|row| Some((row.group as f64, row.measured?.mops))).collect();
            if !measured.is_empty() {
                panel.line(variant, Source::Measured, measured);
            }
            let modelled = rows().filter_map(|row| Some((row.group, row.modelled.as_ref()?)));
            let modelled: Vec<_> = modelled.collect();
            if let Some((_, first)) = modelled.first() {
                let source = Source::modelled(&first.profile);
                let points = modelled.iter().map(|(group, of)| (*group as f64, of.mops)).collect();
                panel.line(variant, source, points);
            }
        }
        panel
    });
    Plot::new("Interleaving", FIGURE, panels.into())
}

/// The table in Markdown: a line for each variant and size of groups.
pub fn markdown(results: &Results) -> String {
    use std::fmt::Write;
    let mut text = String::from(
        "| operation | in flight | Mop/s, measured here | speed-up | Mop/s, modelled | speed-up \
         | fences per operation | misses |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let figure = |number: Option<f64>| number.map_or("–".to_owned(), |n| format!("{n:.2}"));
    for row in &results.rows {
        let (measured, modelled) = (row.measured, row.modelled.as_ref());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            row.variant,
            row.group,
            figure(measured.map(|found| found.mops)),
            figure(measured.map(|found| found.speed_up)),
            figure(modelled.map(|found| found.mops)),
            figure(modelled.map(|found| found.speed_up)),
            figure(modelled.map(|found| found.fences)),
            figure(modelled.map(|found| found.misses)),
        );
    }
    text
}
