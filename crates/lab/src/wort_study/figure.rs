//! The results as one figure: the counterparts of Figs. 7 to 10, recovery, and byte-string keys.

use super::{Contestant, ModelledOperations, ModelledTime, OperationsRow, StudyResults};
use crate::experiment::in_order as distinct;
use crate::keys::Distribution;
use crate::plot::{Axis, Panel, Plot, Source};

/// What the figure is the counterpart of.
const CAPTION: &str = "The counterparts of Figs. 7 to 10 and of section 5.4 of Lee et al., WORT (FAST 2017), at the sizes \
     that were run. Measured: this machine, anonymous memory. Modelled: virtual time.";

/// The figure.
pub(super) fn figure(results: &StudyResults) -> Plot {
    let mut panels = Vec::new();
    panels.extend(measured(results, "insert, measured", |row| Some(row.measured?.insert_ns)));
    panels.extend(measured(results, "search, measured", |row| Some(row.measured?.search_ns)));
    for distribution in distinct(results.operations.iter().map(|row| row.distribution)) {
        panels.extend(modelled(results, distribution, true));
        panels.extend(modelled(results, distribution, false));
    }
    panels.extend(ranges(results));
    panels.extend(recovery(results));
    panels.extend(strings(results));
    Plot::new("The WORT study", CAPTION, panels)
}

/// Bars: the distributions side by side, a bar for each structure.
fn measured(
    results: &StudyResults,
    title: &str,
    value: impl Fn(&OperationsRow) -> Option<f64>,
) -> Option<Panel> {
    let rows = results.operations.iter();
    bars(
        title,
        rows.filter_map(|row| Some((row.distribution, row.structure, value(row)?))).collect(),
    )
}

/// Bars: kinds of keys side by side, a bar for each structure.
fn bars<K: PartialEq + std::fmt::Display>(
    title: &str,
    found: Vec<(K, Contestant, f64)>,
) -> Option<Panel> {
    let places = distinct(found.iter().map(|(keys, ..)| keys));
    let mut panel =
        Panel::new(title, Axis::categories("keys", &places), Axis::linear("ns per operation"));
    for structure in distinct(found.iter().map(|(_, structure, _)| *structure)) {
        let of = found.iter().filter(|(_, one, _)| *one == structure);
        let point = |(keys, _, ns): &(K, Contestant, f64)| {
            Some((places.iter().position(|&place| place == keys)? as f64, *ns))
        };
        panel.bars(&structure.name(), Source::Measured, of.filter_map(point).collect());
    }
    (!panel.series.is_empty()).then_some(panel)
}

/// Lines over the pairs of latencies.
fn modelled(results: &StudyResults, distribution: Distribution, inserts: bool) -> Option<Panel> {
    let of = results.operations.iter().filter(|row| row.distribution == distribution);
    let rows = of.filter_map(|row| Some((row.structure, row.modelled.as_ref()?)));
    by_latency(results, &distribution.to_string(), rows.collect(), inserts)
}

/// Lines over the pairs of latencies, one for each structure.
fn by_latency(
    results: &StudyResults,
    keys: &str,
    rows: Vec<(Contestant, &ModelledOperations)>,
    inserts: bool,
) -> Option<Panel> {
    let operation = if inserts { "insert" } else { "search" };
    let (_, first) = rows.first()?;
    let mut panel = Panel::new(
        &format!("{operation}, {keys} keys, modelled"),
        Axis::categories("read/write latency (ns)", first.times.iter().map(|time| time.latency)),
        Axis::linear("ns per operation"),
    );
    for (structure, found) in rows {
        let ns = |time: &ModelledTime| if inserts { time.insert_ns } else { time.search_ns };
        let points = found.times.iter().enumerate().map(|(at, time)| (at as f64, ns(time)));
        let source = Source::modelled(&results.profile);
        panel.line(&structure.name(), source, points.collect());
    }
    Some(panel)
}

/// Byte-string keys: bars of what was measured, lines of what was modelled.
fn strings(results: &StudyResults) -> Vec<Panel> {
    let rows = &results.strings;
    let measured = |value: fn(&super::MeasuredOperations) -> f64| {
        let rows = rows.iter();
        rows.filter_map(|row| Some((row.strings, row.structure, value(row.measured.as_ref()?))))
            .collect()
    };
    let mut panels = Vec::new();
    panels.extend(bars("insert, byte strings, measured", measured(|found| found.insert_ns)));
    panels.extend(bars("search, byte strings, measured", measured(|found| found.search_ns)));
    for kind in distinct(rows.iter().map(|row| row.strings)) {
        for inserts in [true, false] {
            let of = rows.iter().filter(|row| row.strings == kind);
            let of = of.filter_map(|row| Some((row.structure, row.modelled.as_ref()?)));
            panels.extend(by_latency(results, kind.name(), of.collect(), inserts));
        }
    }
    panels
}

/// Bars: the shares of the keys side by side, for each distribution that was measured.
fn ranges(results: &StudyResults) -> Vec<Panel> {
    let mut panels: Vec<(Distribution, Panel)> = Vec::new();
    for row in &results.ranges {
        let Some(found) = row.measured else { continue };
        let place = super::ranges::PERCENTS.iter().position(|&percent| percent == row.percent);
        let at = panels.iter().position(|(of, _)| *of == row.distribution).unwrap_or_else(|| {
            let x =
                Axis::categories("of the keys", super::ranges::PERCENTS.map(|p| format!("{p} %")));
            let title = format!("ranges, {} keys, measured", row.distribution);
            panels.push((row.distribution, Panel::new(&title, x, Axis::log10("ns per query"))));
            panels.len() - 1
        });
        let panel = &mut panels[at].1;
        let name = row.structure.name();
        let point = (place.unwrap_or_default() as f64, found.query_ns);
        match panel.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => {
                panel.bars(&name, Source::Measured, vec![point]);
            }
        }
    }
    panels.into_iter().map(|(_, panel)| panel).collect()
}

/// Lines over the size, for the fewest threads and the most.
fn recovery(results: &StudyResults) -> Option<Panel> {
    let mut panel = Panel::new(
        "opening after a crash, measured",
        Axis::log2("keys"),
        Axis::log10("µs until the first answer"),
    );
    for row in &results.recovery {
        let name = match row.threads {
            1 => row.structure.name(),
            threads => format!("{} ({threads} threads)", row.structure),
        };
        if row.threads > 1 && !row.rebuilds {
            continue;
        }
        let point = (row.keys as f64, row.pool_open_us + row.index_open_us);
        match panel.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => {
                panel.line(&name, Source::Measured, vec![point]);
            }
        }
    }
    (!panel.series.is_empty()).then_some(panel)
}
