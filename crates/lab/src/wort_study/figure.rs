//! The results as one figure: the counterparts of Figs. 7 to 10, recovery, and byte-string keys.

use super::ranges::PERCENTS;
use super::results::Operations;
use super::{MeasuredOperations, ModelledTime, RangeCase, RangeTimes, StudyResults};
use crate::experiment::in_order as distinct;
use crate::keys::Distribution;
use crate::plot::{Axis, Panel, Plot, Source};

/// What the figure is the counterpart of.
const CAPTION: &str = "The counterparts of Figs. 7 to 10 and of section 5.4 of Lee et al., WORT (FAST 2017), at the sizes \
     that were run. Measured: this machine, anonymous memory. Modelled: virtual time.";

/// The figure.
pub(super) fn figure(results: &StudyResults) -> Plot {
    let (integers, strings) = (results.of_integers(), results.of_strings());
    let mut panels = measured(&integers, "");
    panels.extend(modelled(results, &integers));
    panels.extend(ranges(results));
    panels.extend(recovery(results));
    panels.extend(measured(&strings, ", byte strings"));
    panels.extend(modelled(results, &strings));
    Plot::new("The WORT study", CAPTION, panels)
}

/// Bars of inserts and searches that were measured: kinds of keys side by side, a bar for each structure.
fn measured(rows: &[Operations<'_>], what: &str) -> Vec<Panel> {
    let places = distinct(rows.iter().filter(|row| row.measured.is_some()).map(|row| row.keys));
    let panel = |operation: &str, ns: fn(&MeasuredOperations) -> f64| {
        let x = Axis::categories("keys", &places);
        let mut panel = Panel::new(
            &format!("{operation}{what}, measured"),
            x,
            Axis::linear("ns per operation"),
        );
        for structure in distinct(rows.iter().map(|row| row.structure)) {
            let point = |row: &Operations<'_>| {
                Some((
                    places.iter().position(|&place| place == row.keys)? as f64,
                    ns(row.measured?),
                ))
            };
            let of = rows.iter().filter(|row| row.structure == structure);
            let points: Vec<_> = of.filter_map(point).collect();
            if !points.is_empty() {
                panel.bars(&structure.name(), Source::Measured, points);
            }
        }
        panel
    };
    let panels =
        [panel("insert", |found| found.insert_ns), panel("search", |found| found.search_ns)];
    panels.into_iter().filter(|panel| !panel.series.is_empty()).collect()
}

/// Lines over the pairs of latencies, one for each structure, for each kind of keys.
fn modelled(results: &StudyResults, rows: &[Operations<'_>]) -> Vec<Panel> {
    let panel = |keys: &str, operation: &str, ns: fn(&ModelledTime) -> f64| {
        let of = rows.iter().filter(|row| row.keys == keys);
        let of: Vec<_> = of.filter_map(|row| Some((row.structure, row.modelled?))).collect();
        let latencies = of.first()?.1.times.iter().map(|time| time.latency);
        let mut panel = Panel::new(
            &format!("{operation}, {keys} keys, modelled"),
            Axis::categories("read/write latency (ns)", latencies),
            Axis::linear("ns per operation"),
        );
        for (structure, found) in of {
            let points = found.times.iter().enumerate().map(|(at, time)| (at as f64, ns(time)));
            let source = Source::modelled(&results.profile);
            panel.line(&structure.name(), source, points.collect());
        }
        Some(panel)
    };
    let mut panels = Vec::new();
    for keys in distinct(rows.iter().map(|row| row.keys)) {
        panels.extend(panel(keys, "insert", |time| time.insert_ns));
        panels.extend(panel(keys, "search", |time| time.search_ns));
    }
    panels
}

/// Bars: the shares of the keys side by side, for each distribution that was measured.
fn ranges(results: &StudyResults) -> Vec<Panel> {
    let rows = || results.ranges.iter().filter_map(|row| Some((row.case, row.measured?)));
    let panel = |distribution: Distribution| {
        let x = Axis::categories("of the keys", PERCENTS.map(|percent| format!("{percent} %")));
        let title = format!("ranges, {distribution} keys, measured");
        let mut panel = Panel::new(&title, x, Axis::log10("ns per query"));
        let of = || rows().filter(|(case, _)| case.distribution == distribution);
        for structure in distinct(of().map(|(case, _)| case.structure)) {
            let of = of().filter(|(case, _)| case.structure == structure);
            let point = |(case, found): (RangeCase, RangeTimes)| {
                let place = PERCENTS.iter().position(|&percent| percent == case.percent)?;
                Some((place as f64, found.query_ns))
            };
            panel.bars(&structure.name(), Source::Measured, of.filter_map(point).collect());
        }
        panel
    };
    distinct(rows().map(|(case, _)| case.distribution)).into_iter().map(panel).collect()
}

/// Lines over the size; for more threads than one of what they help.
fn recovery(results: &StudyResults) -> Option<Panel> {
    let mut panel = Panel::new(
        "opening after a crash, measured",
        Axis::log2("keys"),
        Axis::log10("µs until the first answer"),
    );
    let rows = || results.recovery.iter().filter(|row| row.threads == 1 || row.rebuilds);
    for line in distinct(rows().map(|row| (row.structure, row.threads))) {
        let of = rows().filter(|row| (row.structure, row.threads) == line);
        let points = of.map(|row| (row.keys as f64, row.pool_open_us + row.index_open_us));
        let name = match line {
            (structure, 1) => structure.name(),
            (structure, threads) => format!("{structure} ({threads} threads)"),
        };
        panel.line(&name, Source::Measured, points.collect());
    }
    (!panel.series.is_empty()).then_some(panel)
}
