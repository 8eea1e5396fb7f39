//! The results as one figure: the counterparts of Figs. 7 to 10, and recovery.

use super::{Contestant, OperationsRow, StudyResults};
use crate::keys::Distribution;
use crate::plot::{Axis, Panel, Plot, Source};

/// What the figure is the counterpart of.
const CAPTION: &str = "The counterparts of Figs. 7 to 10 of Lee et al., WORT (FAST 2017), at the sizes \
     that were run. Measured: this machine, anonymous memory. Modelled: virtual time.";

/// The figure.
pub fn figure(results: &StudyResults) -> Plot {
    let mut panels = Vec::new();
    panels.extend(measured(results, "insert, measured", |row| Some(row.measured?.insert_ns)));
    panels.extend(measured(results, "search, measured", |row| Some(row.measured?.search_ns)));
    let mut distributions: Vec<Distribution> = Vec::new();
    for row in &results.operations {
        if !distributions.contains(&row.distribution) {
            distributions.push(row.distribution);
        }
    }
    for distribution in distributions {
        panels.extend(modelled(results, distribution, true));
        panels.extend(modelled(results, distribution, false));
    }
    panels.extend(ranges(results));
    panels.extend(recovery(results));
    Plot::new("The WORT study", CAPTION, panels)
}

fn names(results: &StudyResults) -> Vec<Contestant> {
    let mut names = Vec::new();
    for row in &results.operations {
        if !names.contains(&row.structure) {
            names.push(row.structure);
        }
    }
    names
}

/// Bars: the distributions side by side, a bar for each structure.
fn measured(
    results: &StudyResults,
    title: &str,
    value: impl Fn(&OperationsRow) -> Option<f64>,
) -> Option<Panel> {
    let mut places: Vec<Distribution> = Vec::new();
    for row in results.operations.iter().filter(|row| row.measured.is_some()) {
        if !places.contains(&row.distribution) {
            places.push(row.distribution);
        }
    }
    let mut panel =
        Panel::new(title, Axis::categories("keys", &places), Axis::linear("ns per operation"));
    for structure in names(results) {
        let of = results.operations.iter().filter(|row| row.structure == structure);
        let points: Vec<(f64, f64)> = of
            .filter_map(|row| {
                let at = places.iter().position(|&place| place == row.distribution)?;
                Some((at as f64, value(row)?))
            })
            .collect();
        if !points.is_empty() {
            panel.bars(&structure.name(), Source::Measured, points);
        }
    }
    (!panel.series.is_empty()).then_some(panel)
}

/// Lines over the pairs of latencies.
fn modelled(results: &StudyResults, distribution: Distribution, inserts: bool) -> Option<Panel> {
    let operation = if inserts { "insert" } else { "search" };
    let rows = || {
        let of = results.operations.iter().filter(|row| row.distribution == distribution);
        of.filter_map(|row| Some((row.structure, row.modelled.as_ref()?)))
    };
    let (_, first) = rows().next()?;
    let mut panel = Panel::new(
        &format!("{operation}, {distribution} keys, modelled"),
        Axis::categories("read/write latency (ns)", first.times.iter().map(|time| time.latency)),
        Axis::linear("ns per operation"),
    );
    for (structure, found) in rows() {
        let ns = |time: &super::ModelledTime| if inserts { time.insert_ns } else { time.search_ns };
        let points = found.times.iter().enumerate().map(|(at, time)| (at as f64, ns(time)));
        let source = Source::modelled(&results.profile);
        panel.line(&structure.name(), source, points.collect());
    }
    Some(panel)
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
