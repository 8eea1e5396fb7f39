//! Showing that every flush and every fence is necessary.

use lapis_device::{PersistKind, PersistPoint};

use crate::explore::explore;
use crate::options::ExploreOptions;
use crate::run::Run;
use crate::structure::Progress;
use crate::subject::Subject;

/// A flush or fence, and what became of the structure without it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PersistPointRow {
    /// File, line and kind.
    pub name: String,
    /// Whether the checker found a violation with it switched off.
    pub killed: bool,
    /// Images tried until then.
    pub images: u64,
    /// The violation.
    pub by: Option<String>,
    #[serde(skip)]
    pub(crate) order: (String, u32, u32, &'static str),
}

/// Switches off each persist point in the subject's own source files in turn. `seeds` are tried one
/// after the other until one kills.
///
/// # Errors
/// What went wrong without any crash.
pub fn persist_points<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    seeds: &[u64],
    progress: &Progress<'_>,
) -> Result<Vec<PersistPointRow>, String> {
    let mut rows = Vec::new();
    for point in own_points(subject, options, seeds)? {
        let mut row = PersistPointRow {
            name: name(&point),
            killed: false,
            images: 0,
            by: None,
            order: (point.file.to_owned(), point.line, point.column, point.kind.name()),
        };
        for &seed in seeds {
            let options = ExploreOptions {
                seed,
                violation_limit: 1,
                suppress: Some(point),
                ..options.clone()
            };
            match explore(subject, &options, &|_| {}) {
                Ok(report) => {
                    row.images += report.images;
                    row.by = report.violations.first().map(|violation| violation.what.clone());
                }
                // Without the point the structure does not even work without a crash.
                Err(what) => row.by = Some(what),
            }
            if row.by.is_some() {
                row.killed = true;
                break;
            }
        }
        rows.push(row);
        progress(rows.len() as u64);
    }
    Ok(rows)
}

fn own_points<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    seeds: &[u64],
) -> Result<Vec<PersistPoint>, String> {
    let mut points: Vec<PersistPoint> = Vec::new();
    for &seed in seeds {
        let options = ExploreOptions { seed, suppress: None, ..options.clone() };
        for point in Run::record(subject, &options)?.points {
            if subject.owns_source(point.file) && !points.contains(&point) {
                points.push(point);
            }
        }
    }
    points.sort_by_key(|point| {
        (point.file, point.line, point.column, point.kind == PersistKind::Fence)
    });
    Ok(points)
}

fn name(point: &PersistPoint) -> String {
    format!("{}:{}:{} {}", point.file, point.line, point.column, point.kind.name())
}
