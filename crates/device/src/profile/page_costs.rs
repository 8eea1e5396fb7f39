//! The section `page`: what writing pages costs on the machine, found by running it and not a fact
//! about it. A profile need not have one.

use serde::{Deserialize, Serialize};
use toml::Value;

use super::ProfileError;
use super::section::wrong;

/// Most points of a profile.
const MOST_POINTS: usize = 64;

/// Costs of writing a page with so many threads writing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCostPoint {
    /// Threads that write at the same time.
    pub writers: u64,
    /// Copying the page.
    pub copy_ns: f64,
    /// Writing it through a log of its dirty lines, apart from those.
    pub log_ns: f64,
    /// Each dirty line of the log, more.
    pub log_line_ns: f64,
}

/// Costs of writing pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCosts {
    /// Bytes of the pages.
    pub page_bytes: u64,
    /// By rising number of writers.
    pub points: Vec<PageCostPoint>,
}

impl PageCosts {
    pub(super) const TITLE: &'static str = "page";

    pub(super) fn read(file: &str, section: Value) -> Result<Self, ProfileError> {
        let wrong = |what: String| wrong(file, Self::TITLE, what);
        let costs: Self = section.try_into().map_err(|error: toml::de::Error| {
            // Parts of the message are the file's.
            let why: String =
                error.message().chars().filter(|c| !c.is_control()).take(100).collect();
            wrong(format!("takes page_bytes and points: {why}"))
        })?;
        if !costs.page_bytes.is_power_of_two() || !(4096..=65536).contains(&costs.page_bytes) {
            let what = format!(
                "has pages of {} bytes, no power of two from 4096 to 65536",
                costs.page_bytes
            );
            return Err(wrong(what));
        }
        if costs.points.is_empty() || costs.points.len() > MOST_POINTS {
            return Err(wrong(format!("takes 1 to {MOST_POINTS} points")));
        }
        let rising = costs.points.is_sorted_by(|a, b| a.writers < b.writers);
        if !rising || !costs.points.iter().all(|point| (1..=1024).contains(&point.writers)) {
            return Err(wrong("takes numbers of writers that rise from 1 to 1024 at most".into()));
        }
        let sound = |point: &PageCostPoint| {
            (0.1..=1e9).contains(&point.copy_ns)
                && (-1e9..=1e9).contains(&point.log_ns)
                && (0.1..=1e9).contains(&point.log_line_ns)
        };
        if !costs.points.iter().all(sound) {
            return Err(wrong("takes costs in nanoseconds, up to 1e9".into()));
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Profile;

    fn with(section: &str) -> Result<Profile, String> {
        let base = Profile::text_of("dram").unwrap();
        Profile::parse("p", format!("{base}\n{section}").as_bytes()).map_err(|e| e.to_string())
    }

    const POINT: &str = "{ writers = 1, copy_ns = 3000, log_ns = 900.5, log_line_ns = 70.0 }";

    #[test]
    fn a_profile_may_have_page_costs() {
        let profile = with(&format!("[page]\npage_bytes = 16384\npoints = [{POINT}]")).unwrap();
        let page = profile.page.unwrap();
        assert_eq!((page.page_bytes, page.points[0].copy_ns), (16384, 3000.0));
        assert_eq!(with("").unwrap().page, None);
    }

    #[test]
    fn page_costs_that_make_no_sense_are_refused_in_one_line() {
        for wrong in [
            "page = 3".to_owned(),
            "[page]\npage_bytes = 16384".into(),
            "[page]\npage_bytes = 16384\npoints = []".into(),
            format!("[page]\npage_bytes = 5000\npoints = [{POINT}]"),
            format!("[page]\npage_bytes = 16384\npoints = [{POINT}, {POINT}]"),
            format!("[page]\npage_bytes = 16384\nmore = 1\npoints = [{POINT}]"),
            format!("[page]\npage_bytes = 16384\npoints = [{}]", POINT.replace("3000", "nan")),
        ] {
            let error = with(&wrong).unwrap_err();
            assert!(!error.contains('\n') && error.contains("page"), "{error}");
        }
    }
}
