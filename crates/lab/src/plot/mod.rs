//! Figures of experiments, as SVG and as HTML that needs nothing else.
//!
//! A [`Plot`] has panels side by side, as the figures of papers do; a panel has lines or groups of
//! bars over one pair of axes. Each series says where its values come from ([`Source`]), and the two
//! kinds never look alike: what was measured here is drawn solid and filled, what was modelled for a
//! device profile dashed and hollow, and the legend lists them apart. The same name has the same
//! colour and marker in both.
//!
//! The text is the same for the same figure, to the byte, on every machine. Every point carries its
//! values as a tooltip.
//!
//! ```
//! use lapis_lab::plot::{Axis, Panel, Plot, Source};
//! let mut panel = Panel::new("one thread", Axis::log2("dirty lines"), Axis::linear("pages/s"));
//! panel.line("page-cow", Source::Measured, vec![(1.0, 300e3), (256.0, 290e3)]);
//! panel.line("page-cow", Source::modelled("optane-100"), vec![(1.0, 280e3), (256.0, 270e3)]);
//! let plot = Plot::new("Page propagation", "After Fig. 7 of van Renen et al.", vec![panel]);
//! assert!(plot.svg().unwrap().starts_with("<svg"));
//! ```

mod axis;
mod svg;

use std::path::{Path, PathBuf};

pub use axis::{Axis, Scale};
use svg::escape;

/// Why a figure was not made. No file was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// There is nothing to draw.
    #[error("the figure {title:?} has nothing to show")]
    Empty {
        /// The figure.
        title: String,
    },
    /// A value has no place on its axis.
    #[error("{value} in the series {series:?} has no place on the axis {axis:?}")]
    OffTheAxis {
        /// The series.
        series: String,
        /// The axis.
        axis: String,
        /// The value.
        value: f64,
    },
    /// Neither SVG nor HTML.
    #[error("{path}: a figure is written as .svg or .html")]
    FileKind {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
}

/// Where the values of a series come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// This machine and its clock.
    Measured,
    /// The modelled machine, with the device profile of this name.
    Modelled(String),
}

impl Source {
    /// Modelled with that device profile.
    pub fn modelled(profile: &str) -> Self {
        Self::Modelled(profile.to_owned())
    }

    fn is_modelled(&self) -> bool {
        matches!(self, Self::Modelled(_))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Measured => f.write_str("measured here"),
            Self::Modelled(profile) => write!(f, "modelled: {profile}"),
        }
    }
}

/// What a series is drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Markers, joined by a line.
    Line,
    /// Bars; those of several series at one place stand side by side.
    Bars,
}

/// Values that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What they are of; determines colour and marker.
    pub name: String,
    /// Where they come from.
    pub source: Source,
    /// Lines or bars.
    pub shape: Shape,
    /// Horizontal and vertical values, in the order in which a line joins them.
    pub points: Vec<(f64, f64)>,
}

/// One pair of axes and what is drawn over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Stands above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

impl Panel {
    /// An empty panel.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, series: Vec::new() }
    }

    /// Adds a line with markers.
    pub fn line(&mut self, name: &str, source: Source, points: Vec<(f64, f64)>) -> &mut Self {
        self.series.push(Series { name: name.to_owned(), source, shape: Shape::Line, points });
        self
    }

    /// Adds a set of bars.
    pub fn bars(&mut self, name: &str, source: Source, points: Vec<(f64, f64)>) -> &mut Self {
        self.series.push(Series { name: name.to_owned(), source, shape: Shape::Bars, points });
        self
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Stands above it.
    pub title: String,
    /// Stands beneath it: which figure of which paper this is the counterpart of, and what else a
    /// reader needs.
    pub caption: String,
    /// Its panels, two in a row. At least one.
    pub panels: Vec<Panel>,
}

impl Plot {
    /// A figure of these panels.
    pub fn new(title: &str, caption: &str, panels: Vec<Panel>) -> Self {
        Self { title: title.to_owned(), caption: caption.to_owned(), panels }
    }

    /// The figure as an SVG element, which is also a whole SVG file.
    ///
    /// # Errors
    /// [`PlotError::Empty`], [`PlotError::OffTheAxis`].
    pub fn svg(&self) -> Result<String, PlotError> {
        svg::draw(self)
    }

    /// The figure in an HTML document of its own.
    ///
    /// # Errors
    /// As [`Plot::svg`].
    pub fn html(&self) -> Result<String, PlotError> {
        html_document(&self.title, &[self])
    }

    /// Writes the figure to a file whose name ends in `.svg` or `.html`.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn save(&self, path: &Path) -> Result<(), PlotError> {
        let text = match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => self.svg()?,
            Some("html" | "htm") => self.html()?,
            _ => return Err(PlotError::FileKind { path: path.to_owned() }),
        };
        std::fs::write(path, text).map_err(|why| PlotError::File { path: path.to_owned(), why })
    }
}

/// Several figures in one HTML document, each with its values in a table beneath it. It refers to
/// nothing outside of itself.
///
/// # Errors
/// As [`Plot::svg`].
pub fn html_document(title: &str, plots: &[&Plot]) -> Result<String, PlotError> {
    let title = escape(title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{title}</title>\n<style>\n\
         body {{ font-family: sans-serif; margin: 2em auto; max-width: 1120px; }}\n\
         svg {{ max-width: 100%; height: auto; }}\n\
         table {{ border-collapse: collapse; font-size: 80%; }}\n\
         td, th {{ border: 1px solid #ccc; padding: 0.1em 0.6em; text-align: right; }}\n\
         </style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    for plot in plots {
        html.push_str("<figure>\n");
        html.push_str(&plot.svg()?);
        html.push_str("</figure>\n<details>\n<summary>Values</summary>\n<table>\n");
        for panel in &plot.panels {
            push_values(&mut html, panel);
        }
        html.push_str("</table>\n</details>\n");
    }
    html.push_str("</body>\n</html>\n");
    Ok(html)
}

fn push_values(html: &mut String, panel: &Panel) {
    let (x, y) = (escape(&panel.x.label), escape(&panel.y.label));
    let title = escape(&panel.title);
    html.push_str(&format!("<tr><th>{title}</th><th>source</th><th>{x}</th><th>{y}</th></tr>\n"));
    for series in &panel.series {
        let (name, source) = (escape(&series.name), escape(&series.source.to_string()));
        for &(at, value) in &series.points {
            let at = escape(&axis::place_name(&panel.x, at));
            html.push_str(&format!(
                "<tr><td>{name}</td><td>{source}</td><td>{at}</td><td>{value}</td></tr>\n"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let mut lines = Panel::new("a < b", Axis::log2("lines"), Axis::linear("pages/s"));
        lines.line("cow & co", Source::Measured, vec![(1.0, 10.0), (256.0, 20.0)]);
        lines.line("cow & co", Source::modelled("optane-100"), vec![(1.0, 5.0), (256.0, 9.0)]);
        let names = ["update", "read"];
        let mut bars = Panel::new("bars", Axis::categories("", names), Axis::log10("ns"));
        bars.bars("log", Source::Measured, vec![(0.0, 100.0), (1.0, 1000.0)]);
        Plot::new("Title \"quoted\"", "After Fig. 7.", vec![lines, bars])
    }

    #[test]
    fn the_same_figure_is_the_same_text() {
        assert_eq!(plot().html().unwrap(), plot().html().unwrap());
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        let html = plot().html().unwrap();
        for raw in ["a < b", "cow & co", "\"quoted\""] {
            assert!(!html.contains(raw), "{raw} is not escaped");
        }
        assert!(html.contains("a &lt; b") && html.contains("cow &amp; co"));
    }

    #[test]
    fn measured_is_solid_and_modelled_dashed_and_each_has_its_legend() {
        let svg = plot().svg().unwrap();
        let group = |class: &str| {
            let from = svg.find(&format!("<g class=\"series {class}\"")).unwrap();
            let text = &svg[from..];
            text[..text.find("</g>").unwrap()].to_owned()
        };
        assert!(!group("measured").contains("stroke-dasharray"));
        assert!(group("modelled").contains("stroke-dasharray"));
        assert_eq!(svg.matches(">measured here<").count(), 1);
        assert_eq!(svg.matches(">modelled: optane-100<").count(), 1);
    }

    #[test]
    fn the_caption_names_the_figure_of_the_paper() {
        assert!(plot().svg().unwrap().contains("After Fig. 7."));
    }

    #[test]
    fn every_point_of_every_series_is_there_with_its_value() {
        let svg = plot().svg().unwrap();
        assert_eq!(svg.matches("<title>cow &amp; co").count(), 4);
        assert!(svg.contains("<title>log (measured here): read, 1000</title>"), "{svg}");
    }

    #[test]
    fn the_table_of_the_document_has_all_values() {
        let html = plot().html().unwrap();
        assert!(html.contains("<td>modelled: optane-100</td><td>256</td><td>9</td>"), "{html}");
        assert!(html.contains("<td>update</td><td>100</td>"));
        assert!(!html.contains("http-equiv") && !html.contains("<script"));
    }

    #[test]
    fn a_figure_without_points_is_refused() {
        let empty = Plot::new("t", "", Vec::new());
        assert!(matches!(empty.svg(), Err(PlotError::Empty { .. })));
        let mut panel = Panel::new("p", Axis::linear("x"), Axis::linear("y"));
        panel.line("s", Source::Measured, Vec::new());
        assert!(matches!(Plot::new("t", "", vec![panel]).svg(), Err(PlotError::Empty { .. })));
    }

    #[test]
    fn a_value_that_has_no_place_is_refused() {
        let bad = [(f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 1.0), (1.0, -1.0)];
        for point in bad {
            let mut panel = Panel::new("p", Axis::log2("x"), Axis::log10("y"));
            panel.line("s", Source::Measured, vec![point]);
            let error = Plot::new("t", "", vec![panel]).svg().unwrap_err();
            assert!(matches!(error, PlotError::OffTheAxis { .. }), "{point:?}: {error}");
        }
        let mut panel = Panel::new("p", Axis::categories("x", ["one"]), Axis::linear("y"));
        panel.bars("s", Source::Measured, vec![(1.0, 1.0)]);
        let error = Plot::new("t", "", vec![panel]).svg().unwrap_err();
        assert!(matches!(error, PlotError::OffTheAxis { value: 1.0, .. }), "{error}");
    }

    #[test]
    fn the_name_of_the_file_says_which_format_it_gets() {
        let folder = tempfile::tempdir().unwrap();
        plot().save(&folder.path().join("a.svg")).unwrap();
        plot().save(&folder.path().join("a.html")).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("a.svg").starts_with("<svg "));
        assert!(read("a.html").starts_with("<!DOCTYPE html>"));
        let error = plot().save(&folder.path().join("a.png")).unwrap_err();
        assert!(matches!(error, PlotError::FileKind { .. }), "{error}");
    }
}
