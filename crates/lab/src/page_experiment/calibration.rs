//! Making a cost model from results, and keeping it in a device profile.

use lapis_blocks::page::{CostModel, CostPoint, PageScheme};
use lapis_device::{Profile, ProfileError};

use super::PageResults;
use super::crossover::costs;
use crate::experiment::Side;

/// µlogs with more dirty lines than this share of the page are no guide to where the curves cross.
const FITTED_SHARE: usize = 2;
/// The line is fitted to µlogs that take up to so many times as long as a copy.
const DEAREST_FITTED: f64 = 2.0;

/// Why there is no cost model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// Too few rows.
    #[error(
        "a cost model needs page-cow and page-mulog with at least two different numbers of dirty \
         lines up to half the page"
    )]
    TooFewRows,
    /// What would be written is no profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// The cost model of what was modelled, or of what was measured here.
///
/// # Errors
/// [`CalibrationError::TooFewRows`].
pub fn calibrate(
    results: &PageResults,
    of_this_machine: bool,
) -> Result<CostModel, CalibrationError> {
    let side = if of_this_machine { Side::Measured } else { Side::Modelled };
    let page_bytes = results.rows.first().ok_or(CalibrationError::TooFewRows)?.case.page_bytes;
    let mut points = Vec::new();
    for threads in results.crossovers.iter().map(|crossover| crossover.threads) {
        let copies = costs(&results.rows, PageScheme::COPY_ON_WRITE, threads, side);
        let mut logs = costs(&results.rows, PageScheme::MICRO_LOG, threads, side);
        logs.retain(|cost| cost.0 <= page_bytes / 64 / FITTED_SHARE);
        if copies.is_empty() && logs.is_empty() {
            // More threads than this machine has processors.
            continue;
        }
        let copy_ns = copies.iter().map(|cost| cost.1).sum::<f64>() / copies.len() as f64;
        // Where the choice is made the line has to be right.
        logs.sort_unstable_by_key(|cost| cost.0);
        let near = logs.partition_point(|cost| cost.1 <= DEAREST_FITTED * copy_ns);
        logs.truncate(near.max(2));
        let (log_ns, log_line_ns) = CostModel::fit(&logs).ok_or(CalibrationError::TooFewRows)?;
        if copies.is_empty() || log_line_ns <= 0.0 {
            return Err(CalibrationError::TooFewRows);
        }
        let tenths = |ns: f64| (ns * 10.0).round() / 10.0;
        points.push(CostPoint {
            writers: threads,
            copy_ns: tenths(copy_ns),
            log_ns: tenths(log_ns),
            log_line_ns: tenths(log_line_ns),
        });
    }
    if points.is_empty() {
        return Err(CalibrationError::TooFewRows);
    }
    Ok(CostModel { page_bytes, points })
}

/// The cost model that a profile holds.
pub fn cost_model_of(profile: &Profile) -> Option<CostModel> {
    let page = profile.page.as_ref()?;
    let points = page.points.iter().map(|point| CostPoint {
        writers: point.writers as usize,
        copy_ns: point.copy_ns,
        log_ns: point.log_ns,
        log_line_ns: point.log_line_ns,
    });
    Some(CostModel { page_bytes: page.page_bytes as usize, points: points.collect() })
}

const HEADING: &str = "[page]";

/// `profile`, the text of one, with the cost model in place of the one there. The section stands
/// last.
///
/// # Errors
/// [`CalibrationError::Profile`] if `profile` is none, or would be none then.
pub fn put_into_profile(
    file: &str,
    profile: &str,
    model: &CostModel,
) -> Result<String, CalibrationError> {
    let before = Profile::parse(file, profile.as_bytes())?;
    let mut text = match profile.find(&format!("\n{HEADING}")) {
        Some(at) if before.page.is_some() => profile[..at].trim_end().to_owned(),
        _ => profile.trim_end().to_owned(),
    };
    text.push_str(&format!("\n\n{}", section(model)));
    let after = Profile::parse(file, text.as_bytes())?;
    // Whatever stood behind the old section must not be lost.
    if (Profile { page: None, ..after.clone() }) != (Profile { page: None, ..before }) {
        return Err(CalibrationError::Profile(ProfileError::Field {
            file: file.to_owned(),
            field: "page".into(),
            what: "is not the last section; move it to the end".into(),
        }));
    }
    Ok(text)
}

/// The section of a profile.
pub(super) fn section(model: &CostModel) -> String {
    let mut text = format!(
        "{HEADING} # written by `lapis lab page --calibrate`: what hybrid page writes go by\n\
         page_bytes = {}\npoints = [\n",
        model.page_bytes
    );
    for CostPoint { writers, copy_ns, log_ns, log_line_ns } in &model.points {
        text.push_str(&format!(
            "  {{ writers = {writers}, copy_ns = {copy_ns:.1}, log_ns = {log_ns:.1}, \
             log_line_ns = {log_line_ns:.1} }},\n"
        ));
    }
    text.push_str("]\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::crossover::tests::rows;
    use super::super::{PageResults, crossovers};
    use super::*;

    fn results() -> PageResults {
        let rows = rows();
        PageResults { crossovers: crossovers(&rows), rows }
    }

    #[test]
    fn a_model_is_found_from_its_rows() {
        let model = calibrate(&results(), false).unwrap();
        let point =
            |writers, copy_ns| CostPoint { writers, copy_ns, log_ns: 1000.0, log_line_ns: 50.0 };
        assert_eq!(model.points, [point(1, 3000.0), point(7, 4500.0)]);
        assert_eq!(model.crossover_lines(16384, 7).unwrap(), 70.0);
    }

    #[test]
    fn this_machine_has_only_the_points_it_was_measured_for() {
        let model = calibrate(&results(), true).unwrap();
        assert_eq!(model.points.iter().map(|point| point.writers).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn too_few_rows_are_refused() {
        let mut few = results();
        few.rows.retain(|row| row.case.dirty_lines == 16);
        assert!(matches!(calibrate(&few, false), Err(CalibrationError::TooFewRows)));
        few.rows.clear();
        assert!(matches!(calibrate(&few, false), Err(CalibrationError::TooFewRows)));
    }

    #[test]
    fn a_profile_keeps_the_model_and_all_else() {
        let text = Profile::text_of("optane-200").unwrap();
        let model = calibrate(&results(), false).unwrap();
        let with = put_into_profile("p", text, &model).unwrap();
        let profile = Profile::parse("p", with.as_bytes()).unwrap();
        assert_eq!(cost_model_of(&profile), Some(model.clone()));
        // Once more replaces it.
        let mut other = model;
        other.points.truncate(1);
        let again = put_into_profile("p", &with, &other).unwrap();
        assert_eq!(cost_model_of(&Profile::parse("p", again.as_bytes()).unwrap()), Some(other));
        assert_eq!(again.matches(HEADING).count(), 1);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let model = CostModel::default();
        assert!(put_into_profile("p", "name = 1", &model).is_err());
    }
}
