//! Up to how many dirty lines a µlog is faster than copying the page.

use lapis_blocks::page::PageScheme;
use serde::Serialize;

use super::Row;
use crate::experiment::{Side, in_order};

/// Threads and dirty lines of section 3.2.4 of the paper, for pages of 16 KiB.
pub const PUBLISHED_CROSSOVERS: [(usize, f64); 2] = [(1, 28.0), (7, 40.0)];

/// Where the curves of µlog and copy-on-write cross.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossover {
    /// Threads or logical workers.
    pub threads: usize,
    /// Of what was measured here; null if nothing was or the curves do not cross.
    pub measured_lines: Option<f64>,
    /// Of what was modelled.
    pub modelled_lines: Option<f64>,
    /// The paper's.
    pub published_lines: Option<f64>,
}

/// The crossovers for each number of threads that there are rows for.
pub fn crossovers(rows: &[Row]) -> Vec<Crossover> {
    let mut threads = in_order(rows.iter().map(|row| row.case.threads));
    threads.sort_unstable();
    threads
        .into_iter()
        .map(|threads| Crossover {
            threads,
            measured_lines: crossing(rows, threads, Side::Measured),
            modelled_lines: crossing(rows, threads, Side::Modelled),
            published_lines: PUBLISHED_CROSSOVERS
                .into_iter()
                .find(|published| published.0 == threads && rows[0].case.page_bytes == 16 << 10)
                .map(|published| published.1),
        })
        .collect()
}

/// Costs by dirty lines, in rising order.
pub(super) fn costs(
    rows: &[Row],
    variant: PageScheme,
    threads: usize,
    side: Side,
) -> Vec<(usize, f64)> {
    let mut costs: Vec<(usize, f64)> = rows
        .iter()
        .filter(|row| row.case.variant == variant && row.case.threads == threads)
        .filter_map(|row| Some((row.case.dirty_lines, row.figures(side)?.ns_per_page)))
        .collect();
    costs.sort_by_key(|cost| cost.0);
    costs
}

/// The last crossing, on the straight lines between the points.
fn crossing(rows: &[Row], threads: usize, side: Side) -> Option<f64> {
    let copies = costs(rows, PageScheme::COPY_ON_WRITE, threads, side);
    let logs = costs(rows, PageScheme::MICRO_LOG, threads, side);
    let differences: Vec<(f64, f64)> = copies
        .iter()
        .filter_map(|(lines, copy)| {
            let log = logs.iter().find(|log| log.0 == *lines)?;
            Some((*lines as f64, log.1 - copy))
        })
        .collect();
    differences.windows(2).rev().find_map(|pair| {
        let ((low, below), (high, above)) = (pair[0], pair[1]);
        (below <= 0.0 && above > 0.0).then(|| low + (high - low) * below / (below - above))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Case, Rate};
    use super::*;
    use crate::experiment::OnModel;
    use crate::experiment::meter::CountsPerOperation;

    /// Rows of a machine on which a copy takes 3,000 ns and a µlog 1,000 and 50 for each line;
    /// measured for one thread, modelled for one and seven, where copies take half as long again.
    pub(in super::super) fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for threads in [1, 7] {
            for dirty_lines in [1, 16, 64, 256] {
                let copy_ns = if threads == 1 { 3000.0 } else { 4500.0 };
                let log_ns = 1000.0 + 50.0 * dirty_lines as f64;
                for (variant, ns) in
                    [(PageScheme::COPY_ON_WRITE, copy_ns), (PageScheme::MICRO_LOG, log_ns)]
                {
                    let rate = Rate { pages_per_s: threads as f64 * 1e9 / ns, ns_per_page: ns };
                    rows.push(Row {
                        case: Case {
                            variant,
                            dirty_lines,
                            threads,
                            page_bytes: 16384,
                            barriers: 2,
                            ordering_fences: 1,
                        },
                        measured: (threads == 1).then_some(rate),
                        modelled: Some(OnModel {
                            profile: "optane-100".into(),
                            figures: rate,
                            counts: CountsPerOperation {
                                fences: 3.0,
                                flushes: 1.0,
                                wpq_inserts: 257.0,
                                media_writes: 260.0,
                                media_reads: 4.0,
                                llc_misses: 2.0,
                                flushed_reads: 0.0,
                            },
                        }),
                    });
                }
            }
        }
        rows
    }

    #[test]
    fn curves_cross_where_the_costs_are_equal() {
        let found = crossovers(&rows());
        assert_eq!(found.len(), 2);
        assert!((found[0].measured_lines.unwrap() - 40.0).abs() < 1e-9, "{found:?}");
        assert!((found[0].modelled_lines.unwrap() - 40.0).abs() < 1e-9, "{found:?}");
        assert!((found[1].modelled_lines.unwrap() - 70.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found[1].threads, found[1].measured_lines), (7, None));
        assert_eq!((found[0].published_lines, found[1].published_lines), (Some(28.0), Some(40.0)));
    }

    #[test]
    fn curves_that_do_not_cross_have_no_crossover() {
        let below: Vec<Row> = rows().into_iter().filter(|row| row.case.dirty_lines < 20).collect();
        assert_eq!(crossovers(&below)[0].modelled_lines, None);
        assert!(crossovers(&[]).is_empty());
    }
}
