//! Figures of the real machine that nothing in the model was made from.
//!
//! They are in `independent.csv` and nowhere else. What fits a profile (module [`super::fitting`])
//! takes its figures from [`super::published`] and does not know of these; a test shows that.

use std::str::FromStr;
use std::sync::LazyLock;

use lapis_device::profile::Trust;

use super::published::{Published, Role};

/// The names of figures, what was published, how far it is to be trusted, and where it stands.
static FIGURES: LazyLock<Vec<(&str, Published)>> = LazyLock::new(|| {
    let lines = include_str!("independent.csv").lines().skip(1);
    lines.map(|line| parsed(line).expect("a line of independent.csv is valid")).collect()
});

fn parsed(line: &'static str) -> Option<(&'static str, Published)> {
    let mut cells = line.splitn(4, ',');
    let figure = cells.next()?;
    let value = f64::from_str(cells.next()?).ok()?;
    let trust = match cells.next()? {
        "M" => Trust::M,
        "D" => Trust::D,
        _ => return None,
    };
    let source = cells.next()?;
    Some((figure, Published { value, range: None, trust, source, role: Role::Independent }))
}

/// All of them, of the machine that `optane-100` stands for.
pub(super) fn figures() -> impl Iterator<Item = (&'static str, Published)> {
    FIGURES.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_experiment::fitting;
    use crate::device_experiment::published;

    #[test]
    fn what_fits_a_profile_does_not_read_the_independent_figures() {
        for source in [include_str!("fitting.rs"), include_str!("published.rs")] {
            assert!(!source.contains("independent::") && !source.contains("independent.csv"));
        }
        for (figure, _) in figures() {
            assert_eq!(published::published("optane-100", figure), None, "{figure}");
            assert!(!fitting::is_fitted_to(figure), "{figure}");
        }
    }

    #[test]
    fn no_independent_figure_is_listed_twice() {
        let mut names: Vec<_> = figures().map(|(figure, _)| figure).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(all > 400);
    }
}
