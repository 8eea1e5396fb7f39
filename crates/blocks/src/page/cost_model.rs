//! When a hybrid copies a page and when it logs the dirty lines.

use lapis_pmem::LINE_BYTES;
use serde::{Deserialize, Serialize};

use super::{LARGEST_PAGE_BYTES, PageError, SMALLEST_PAGE_BYTES};

/// What writing a page costs with so many threads writing, each at its own page.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostPoint {
    /// Threads that write at the same time.
    pub writers: usize,
    /// Copying the page.
    pub copy_ns: f64,
    /// Writing it through a µlog, apart from the dirty lines.
    pub log_ns: f64,
    /// Each dirty line of a µlog, more.
    pub log_line_ns: f64,
}

/// What writing pages costs on a machine: a line for the cost of a µlog over the number of dirty
/// lines, a constant for a copy, both for some numbers of writers. `lapis lab page --calibrate` makes
/// one; it is the table `page` of a device profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Bytes of the pages that the costs are of. A copy of other pages costs in proportion.
    pub page_bytes: usize,
    /// At least one, by rising number of writers.
    pub points: Vec<CostPoint>,
}

impl Default for CostModel {
    /// For the machine of the profile `optane-100`, as `lapis lab page --calibrate` found it.
    fn default() -> Self {
        let point = |writers, copy_ns, log_ns, log_line_ns| CostPoint {
            writers,
            copy_ns,
            log_ns,
            log_line_ns,
        };
        let points = vec![
            point(1, 4647.0, 988.7, 103.9),
            point(2, 5584.8, 1127.7, 95.1),
            point(4, 10756.7, 1097.5, 109.7),
            point(7, 18715.8, 851.7, 199.7),
        ];
        Self { page_bytes: 16 << 10, points }
    }
}

impl CostModel {
    /// Fits a line through costs of µlogs by dirty lines (at least two different numbers), by least
    /// squares. Returns what a µlog costs without lines, and each line.
    pub fn fit(costs: &[(usize, f64)]) -> Option<(f64, f64)> {
        let count = costs.len() as f64;
        let mean_lines = costs.iter().map(|cost| cost.0 as f64).sum::<f64>() / count;
        let mean_ns = costs.iter().map(|cost| cost.1).sum::<f64>() / count;
        let (mut product, mut square) = (0.0, 0.0);
        for &(lines, ns) in costs {
            let away = lines as f64 - mean_lines;
            product += away * (ns - mean_ns);
            square += away * away;
        }
        (square > 0.0).then(|| (mean_ns - product / square * mean_lines, product / square))
    }

    fn check(&self) -> Result<(), PageError> {
        let bad = |what| Err(PageError::BadCostModel { what });
        if !self.page_bytes.is_power_of_two()
            || !(SMALLEST_PAGE_BYTES..=LARGEST_PAGE_BYTES).contains(&self.page_bytes)
        {
            return bad("the size of a page, a power of two between 4096 and 65536");
        }
        if self.points.is_empty() {
            return bad("the costs for at least one number of writers");
        }
        if !self.points.is_sorted_by(|a, b| a.writers < b.writers) || self.points[0].writers == 0 {
            return bad("its numbers of writers to rise from 1 on");
        }
        let sound = |point: &CostPoint| {
            [point.copy_ns, point.log_ns, point.log_line_ns].iter().all(|ns| ns.is_finite())
                && point.copy_ns > 0.0
                && point.log_line_ns > 0.0
        };
        if !self.points.iter().all(sound) {
            return bad("costs that are positive numbers of nanoseconds");
        }
        Ok(())
    }

    /// The number of dirty lines of a page of `page_bytes` at which a µlog costs as much as a copy,
    /// with so many threads writing: between the numbers of writers that there are costs for, on
    /// the straight line between them; beyond them, as at the nearest.
    ///
    /// # Errors
    /// [`PageError::BadCostModel`].
    pub fn crossover_lines(&self, page_bytes: usize, writers: usize) -> Result<f64, PageError> {
        self.check()?;
        let scale = page_bytes as f64 / self.page_bytes as f64;
        let crossover = |point: &CostPoint| {
            ((point.copy_ns * scale - point.log_ns) / point.log_line_ns).max(0.0)
        };
        let above = self.points.partition_point(|point| point.writers < writers);
        let (Some(below), Some(next)) = (self.points[..above].last(), self.points.get(above))
        else {
            let nearest = self.points.get(above).or(self.points.last());
            return Ok(nearest.map_or(0.0, crossover));
        };
        let share = (writers - below.writers) as f64 / (next.writers - below.writers) as f64;
        Ok(crossover(below) + share * (crossover(next) - crossover(below)))
    }

    /// The smallest number of dirty lines with which copying is cheaper; more than the page has if
    /// it never is.
    ///
    /// # Errors
    /// [`PageError::BadCostModel`].
    pub fn copy_from_lines(&self, page_bytes: usize, writers: usize) -> Result<usize, PageError> {
        let crossover = self.crossover_lines(page_bytes, writers)?;
        Ok((crossover.floor() as usize).min(page_bytes / LINE_BYTES) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> CostModel {
        let point =
            |writers, copy_ns| CostPoint { writers, copy_ns, log_ns: 200.0, log_line_ns: 100.0 };
        CostModel { page_bytes: 16384, points: vec![point(1, 3000.0), point(7, 4200.0)] }
    }

    #[test]
    fn the_crossover_is_where_the_costs_are_equal() {
        assert_eq!(model().crossover_lines(16384, 1).unwrap(), 28.0);
        assert_eq!(model().crossover_lines(16384, 7).unwrap(), 40.0);
        assert_eq!(model().copy_from_lines(16384, 1).unwrap(), 29);
    }

    #[test]
    fn between_and_beyond_the_points_it_is_interpolated_and_kept() {
        assert_eq!(model().crossover_lines(16384, 4).unwrap(), 34.0);
        assert_eq!(model().crossover_lines(16384, 0).unwrap(), 28.0);
        assert_eq!(model().crossover_lines(16384, 50).unwrap(), 40.0);
    }

    #[test]
    fn larger_pages_are_logged_for_longer_and_smaller_ones_perhaps_never() {
        assert_eq!(model().crossover_lines(32768, 1).unwrap(), 58.0);
        let mut dear = model();
        dear.points[0].log_ns = 5000.0;
        assert_eq!(dear.copy_from_lines(4096, 1).unwrap(), 1);
    }

    #[test]
    fn a_copy_that_is_never_cheaper_is_never_made() {
        let mut model = model();
        model.points[0].copy_ns = 1e9;
        assert_eq!(model.copy_from_lines(4096, 1).unwrap(), 65);
    }

    #[test]
    fn a_line_is_found_again_from_its_points() {
        let (fixed, line) = CostModel::fit(&[(1, 130.0), (2, 160.0), (8, 340.0)]).unwrap();
        assert!((fixed - 100.0).abs() < 1e-9 && (line - 30.0).abs() < 1e-9);
        assert_eq!(CostModel::fit(&[(3, 1.0), (3, 2.0)]), None);
    }

    #[test]
    fn models_that_say_nothing_are_refused() {
        let with = |change: fn(&mut CostModel)| {
            let mut model = model();
            change(&mut model);
            model.crossover_lines(16384, 1)
        };
        for refused in [
            with(|model| model.points.clear()),
            with(|model| model.page_bytes = 5000),
            with(|model| model.points.swap(0, 1)),
            with(|model| model.points[0].writers = 0),
            with(|model| model.points[0].copy_ns = f64::NAN),
            with(|model| model.points[1].log_line_ns = 0.0),
        ] {
            assert!(matches!(refused, Err(PageError::BadCostModel { .. })));
        }
    }
}
