//! Drawing a figure as SVG.
//!
//! ```text
//!  title
//!  +-- panel ----------+ +-- panel ----------+   PANEL_WIDTH × PANEL_HEIGHT each, two in a row
//!  | title             | |                   |
//!  | y |               | |                   |
//!  |   +-------- x     | |                   |
//!  +-------------------+ +-------------------+
//!  legend of what was measured
//!  legend of what was modelled, one for each profile
//!  caption
//! ```

use std::collections::BTreeSet;
use std::fmt::Write;

use super::axis::{Extent, has_place, place_name};
use super::{Axis, Panel, Plot, PlotError, Scale, Series, Shape, Source};

const PANEL_WIDTH: f64 = 540.0;
const PANEL_HEIGHT: f64 = 340.0;
/// What a panel keeps free around its axes.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 54.0;
const TITLE_HEIGHT: f64 = 40.0;
const ROW_HEIGHT: f64 = 20.0;
const FONT: &str = "font-family=\"sans-serif\"";
/// Advance of a character at 12 pixels, on the wide side: where texts follow one another.
const CHARACTER_WIDTH: f64 = 7.2;

/// The palette of Okabe and Ito, which the colour-blind can tell apart.
const COLOURS: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#8a7a00"];

/// `text` where markup may stand.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to write the others.
            control if control.is_control() && !matches!(control, '\n' | '\t') => {}
            other => escaped.push(other),
        }
    }
    escaped
}

/// How a series looks: by the place of its name in the figure.
struct Style<'a> {
    colour: &'a str,
    marker: usize,
    hollow: bool,
}

/// The SVG of a figure.
pub(super) fn draw(plot: &Plot) -> Result<String, PlotError> {
    check(plot)?;
    let mut names: Vec<&str> = Vec::new();
    for series in plot.panels.iter().flat_map(|panel| &panel.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let columns = plot.panels.len().min(2);
    let width = columns as f64 * PANEL_WIDTH;
    let caption = wrap(&plot.caption, (width / CHARACTER_WIDTH) as usize);
    let mut body = String::new();
    text(&mut body, width / 2.0, 26.0, "middle", 18, &plot.title);
    for (index, panel) in plot.panels.iter().enumerate() {
        let x = (index % columns) as f64 * PANEL_WIDTH;
        let y = TITLE_HEIGHT + (index / columns) as f64 * PANEL_HEIGHT;
        let _ = writeln!(body, "<g transform=\"translate({x:.1} {y:.1})\">");
        draw_panel(&mut body, panel, &names);
        body.push_str("</g>\n");
    }
    let mut y = TITLE_HEIGHT + plot.panels.len().div_ceil(columns) as f64 * PANEL_HEIGHT;
    y = draw_legends(&mut body, plot, &names, width, y);
    for line in &caption {
        y += ROW_HEIGHT;
        text(&mut body, 16.0, y, "start", 12, line);
    }
    let height = y + 16.0;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
        escape(&plot.title)
    ))
}

fn check(plot: &Plot) -> Result<(), PlotError> {
    let is_empty = |panel: &Panel| panel.series.iter().all(|series| series.points.is_empty());
    if plot.panels.is_empty() || plot.panels.iter().any(is_empty) {
        return Err(PlotError::Empty { title: plot.title.clone() });
    }
    for panel in &plot.panels {
        for series in &panel.series {
            for &(x, y) in &series.points {
                for (axis, value) in [(&panel.x, x), (&panel.y, y)] {
                    if !has_place(axis, value) {
                        return Err(PlotError::OffTheAxis {
                            series: series.name.clone(),
                            axis: axis.label.clone(),
                            value,
                        });
                    }
                }
            }
        }
    }
    Ok(())
}

fn style<'a>(series_name: &str, source: &Source, names: &[&str]) -> Style<'a> {
    let index = names.iter().position(|name| *name == series_name).unwrap_or(0);
    Style {
        colour: COLOURS[index % COLOURS.len()],
        marker: index % 5,
        hollow: source.is_modelled(),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, size: u32, what: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" {FONT}>{}\
         </text>",
        escape(what)
    );
}

fn draw_panel(out: &mut String, panel: &Panel, names: &[&str]) {
    let points = || panel.series.iter().flat_map(|series| series.points.iter());
    let x = Extent::over(&panel.x, points().map(|point| point.0));
    let y = Extent::over(&panel.y, points().map(|point| point.1));
    let (right, bottom) = (PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM);
    let (across, down) = (right - LEFT, bottom - TOP);
    text(out, LEFT + across / 2.0, TOP - 12.0, "middle", 14, &panel.title);
    draw_axes(out, panel, &x, &y);
    let bar_series = panel.series.iter().filter(|series| series.shape == Shape::Bars).count();
    let mut bars_so_far = 0;
    for series in &panel.series {
        let style = style(&series.name, &series.source, names);
        let class = if style.hollow { "modelled" } else { "measured" };
        let _ = writeln!(out, "<g class=\"series {class}\">");
        let place = |&(at, value): &(f64, f64)| {
            (LEFT + x.place(at) * across, bottom - y.place(value) * down)
        };
        match series.shape {
            Shape::Line => {
                let path: Vec<_> = series.points.iter().map(place).collect();
                draw_line(out, &path, &style);
                for (point, &(at_x, at_y)) in series.points.iter().zip(&path) {
                    let tip = tooltip(&panel.x, series, *point);
                    draw_marker(out, at_x, at_y, &style, Some(&tip));
                }
            }
            Shape::Bars => {
                let share = if matches!(panel.x.scale, Scale::Categories(_)) {
                    x.category_share()
                } else {
                    1.0 / (series.points.len() as f64 + 1.0)
                };
                let width = 0.8 * share * across / bar_series as f64;
                let shift = (bars_so_far as f64 - bar_series as f64 / 2.0) * width;
                for point in &series.points {
                    let (at_x, at_y) = place(point);
                    let from_y = bottom - y.base() * down;
                    let corner = (at_x + shift, at_y.min(from_y));
                    let tip = tooltip(&panel.x, series, *point);
                    draw_bar(out, corner, width, (from_y - at_y).abs(), &style, &tip);
                }
                bars_so_far += 1;
            }
        }
        out.push_str("</g>\n");
    }
}

fn draw_axes(out: &mut String, panel: &Panel, x: &Extent<'_>, y: &Extent<'_>) {
    let (right, bottom) = (PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM);
    let (across, down) = (right - LEFT, bottom - TOP);
    for (place, name) in y.ticks() {
        let at = bottom - place * down;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"
        );
        text(out, LEFT - 6.0, at + 4.0, "end", 12, &name);
    }
    for (place, name) in x.ticks() {
        let at = LEFT + place * across;
        let end = bottom + 5.0;
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{end}\" stroke=\"black\"/>"
        );
        text(out, at, bottom + 18.0, "middle", 12, &name);
    }
    let _ = writeln!(
        out,
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>"
    );
    text(out, LEFT + across / 2.0, bottom + 40.0, "middle", 13, &panel.x.label);
    let middle = TOP + down / 2.0;
    let _ = writeln!(
        out,
        "<text transform=\"translate(18 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" \
         font-size=\"13\" {FONT}>{}</text>",
        escape(&panel.y.label)
    );
}

fn tooltip(x: &Axis, series: &Series, (at, value): (f64, f64)) -> String {
    format!("{} ({}): {}, {value}", series.name, series.source, place_name(x, at))
}

fn draw_line(out: &mut String, path: &[(f64, f64)], style: &Style<'_>) {
    let dash = if style.hollow { " stroke-dasharray=\"6 4\"" } else { "" };
    let points: Vec<String> = path.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{dash}/>",
        points.join(" "),
        style.colour
    );
}

fn draw_marker(out: &mut String, x: f64, y: f64, style: &Style<'_>, tip: Option<&str>) {
    let (left, right, up, low) = (x - 4.0, x + 4.0, y - 4.0, y + 4.0);
    let path = match style.marker {
        0 => format!("M{left:.1} {y:.1}A4 4 0 1 0 {right:.1} {y:.1}A4 4 0 1 0 {left:.1} {y:.1}Z"),
        1 => format!("M{left:.1} {up:.1}H{right:.1}V{low:.1}H{left:.1}Z"),
        2 => format!("M{x:.1} {up:.1}L{right:.1} {low:.1}H{left:.1}Z"),
        3 => format!("M{x:.1} {up:.1}L{right:.1} {y:.1}L{x:.1} {low:.1}L{left:.1} {y:.1}Z"),
        _ => format!("M{x:.1} {low:.1}L{right:.1} {up:.1}H{left:.1}Z"),
    };
    let fill = if style.hollow { "white" } else { style.colour };
    let tip = tip.map(|tip| format!("<title>{}</title>", escape(tip))).unwrap_or_default();
    let colour = style.colour;
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.4\">{tip}</path>"
    );
}

fn draw_bar(
    out: &mut String,
    (x, y): (f64, f64),
    width: f64,
    height: f64,
    style: &Style<'_>,
    tip: &str,
) {
    let (fill, dash) =
        if style.hollow { ("white", " stroke-dasharray=\"6 4\"") } else { (style.colour, "") };
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{fill}\" stroke=\"{}\"{dash}><title>{}</title></rect>",
        style.colour,
        escape(tip)
    );
}

/// One legend for each source; returns where the last one ends.
fn draw_legends(out: &mut String, plot: &Plot, names: &[&str], width: f64, mut y: f64) -> f64 {
    let series = || plot.panels.iter().flat_map(|panel| &panel.series);
    let sources: BTreeSet<&Source> = series().map(|series| &series.source).collect();
    for source in sources {
        y += ROW_HEIGHT;
        let heading = source.to_string();
        text(out, 16.0, y, "start", 12, &heading);
        let indent = 16.0 + 24.0 * CHARACTER_WIDTH;
        let mut x = indent;
        for name in names {
            let Some(one) = series().find(|one| one.name == *name && one.source == *source) else {
                continue;
            };
            let room = 44.0 + name.chars().count() as f64 * CHARACTER_WIDTH;
            if x > indent && x + room > width {
                (x, y) = (indent, y + ROW_HEIGHT);
            }
            let style = style(name, source, names);
            match one.shape {
                Shape::Line => {
                    draw_line(out, &[(x, y - 4.0), (x + 28.0, y - 4.0)], &style);
                    draw_marker(out, x + 14.0, y - 4.0, &style, None);
                }
                Shape::Bars => draw_bar(out, (x + 6.0, y - 10.0), 16.0, 10.0, &style, name),
            }
            text(out, x + 34.0, y, "start", 12, name);
            x += room;
        }
    }
    y
}

/// Breaks at spaces after at most `columns` characters, where there are spaces.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_left_out() {
        assert_eq!(escape("a\u{0}b'\"<&>"), "ab&#39;&quot;&lt;&amp;&gt;");
    }

    #[test]
    fn captions_break_at_spaces() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert!(wrap(" ", 7).is_empty());
    }

    #[test]
    fn bars_of_two_series_stand_side_by_side_in_their_category() {
        let mut panel = Panel::new("p", Axis::categories("x", ["one"]), Axis::linear("y"));
        panel.bars("a", Source::Measured, vec![(0.0, 2.0)]);
        panel.bars("b", Source::Measured, vec![(0.0, 1.0)]);
        let mut out = String::new();
        draw_panel(&mut out, &panel, &["a", "b"]);
        let attribute = |bar: &str, name: &str| -> f64 {
            let from = bar.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
            bar[from..].split('"').next().unwrap().parse().unwrap()
        };
        let bars: Vec<&str> = out.lines().filter(|line| line.starts_with("<rect")).collect();
        let (first, second) = (bars[0], bars[1]);
        let end = attribute(first, "x") + attribute(first, "width");
        assert!((end - attribute(second, "x")).abs() < 0.11, "{out}");
        // Heights are in proportion, since the axis starts at zero.
        let ratio = attribute(first, "height") / attribute(second, "height");
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn a_name_has_one_colour_whatever_the_source() {
        let measured = style("b", &Source::Measured, &["a", "b"]);
        let modelled = style("b", &Source::modelled("p"), &["a", "b"]);
        assert_eq!((measured.colour, measured.marker), (modelled.colour, modelled.marker));
        assert!(!measured.hollow && modelled.hollow);
    }
}
