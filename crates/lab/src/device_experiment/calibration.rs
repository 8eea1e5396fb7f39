//! The modelled machine beside the real one, row by row.

use lapis_device::Profile;
use lapis_device::profile::Trust;
use serde::Serialize;

use super::published::{Published, Role, figures_of, published};
use super::{experiments, hot_spots, independent, index_writes, mixed, raw_runs};
use crate::experiment::table::Table;
use crate::experiment::{ExperimentError, Findings, OPTANE_100, section_of_tables};
use crate::progress::{OnProgress, Progress};

/// The command whose section of `docs/calibration.md` the table is (module [`crate::document`]).
const COMMAND: &str = "lapis lab device --profile optane-100";

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub quantity: String,
    /// Its unit.
    pub unit: &'static str,
    /// What was published of the real machine, of a range the middle; null if nobody measured it.
    pub published: Option<f64>,
    /// The least and the most, where a range was published.
    pub published_range: Option<[f64; 2]>,
    /// What the model does.
    pub modelled: f64,
    /// How far the model is off; from the nearer end of a range, and 0 within it.
    pub error_percent: Option<f64>,
    /// How far the published figure is to be trusted; null if there is none.
    pub trust: Option<Trust>,
    /// What the published figure is to the model; null if there is none.
    pub role: Option<Role>,
    /// Who published it.
    pub source: Option<&'static str>,
    /// What was done on the model.
    pub pattern: &'static str,
    /// The figure's short name, for programs.
    pub id: String,
}

/// What `lab device` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceResults {
    /// The profile.
    pub profile: String,
    /// What it stands for.
    pub description: String,
    /// The figures.
    pub rows: Vec<Row>,
}

/// Does every experiment on the machine of a profile. The same on every run and every machine.
///
/// # Errors
/// [`ExperimentError`].
pub fn calibrate(
    profile: &Profile,
    progress: OnProgress<'_>,
) -> Result<DeviceResults, ExperimentError> {
    let all = [
        experiments::read_latency,
        experiments::persist_latency,
        hot_spots::slowest_persists,
        experiments::peak_bandwidth,
        experiments::fenced_bandwidth,
        mixed::mixed_bandwidth,
        experiments::amplification,
        index_writes::index_writes,
        runs,
    ];
    let independent: Vec<_> = independent_figures(profile).collect();
    let real = |name: &str| {
        let kept_aside = || independent.iter().find(|(figure, _)| *figure == name);
        published(&profile.name, name).or_else(|| kept_aside().map(|(_, figure)| *figure))
    };
    let mut rows = Vec::new();
    for (done, experiment) in all.iter().enumerate() {
        progress(Progress { done: done as u64, total: all.len() as u64 });
        for figure in experiment(profile)? {
            let real = real(&figure.id);
            let error = |real: Published| {
                let [least, most] = real.range.unwrap_or([real.value; 2]);
                let nearest = figure.value.clamp(least, most);
                // Nothing of nothing is within a range.
                let off = if nearest == figure.value { 0.0 } else { figure.value / nearest - 1.0 };
                off * 100.0
            };
            rows.push(Row {
                quantity: figure.quantity,
                unit: figure.unit,
                published: real.map(|real| real.value),
                modelled: figure.value,
                published_range: real.and_then(|real| real.range),
                error_percent: real.map(error),
                trust: real.map(|real| real.trust),
                role: real.map(|real| real.role),
                source: real.map(|real| real.source),
                pattern: figure.how,
                id: figure.id,
            });
        }
    }
    let (profile, description) = (profile.name.clone(), profile.description.clone());
    Ok(DeviceResults { profile, description, rows })
}

/// Figures that were kept out of the profile.
fn independent_figures(profile: &Profile) -> impl Iterator<Item = (&'static str, Published)> {
    let known = profile.name == OPTANE_100;
    independent::figures().filter(move |_| known)
}

/// The runs of which something was published.
fn runs(profile: &Profile) -> experiments::Figures {
    let kept_aside = independent_figures(profile).map(|(name, _)| name);
    let names: Vec<_> = kept_aside.chain(figures_of(&profile.name)).collect();
    raw_runs::figures(profile, &names)
}

impl Row {
    /// What was published, in words.
    fn published_in_words(&self) -> String {
        match (self.published, self.published_range) {
            (_, Some([least, most])) => format!("{} to {}", shown(least), shown(most)),
            (Some(value), None) => shown(value),
            (None, None) => "not measured".to_owned(),
        }
    }

    /// How far the model is off, in words; empty if nobody measured it.
    pub fn error_in_words(&self) -> String {
        match (self.error_percent, self.published_range) {
            (Some(0.0), Some(_)) => "within".to_owned(),
            (Some(error), _) => format!("{error:+.1} %"),
            (None, _) => String::new(),
        }
    }
}

/// A figure with as many decimals as its size deserves.
fn shown(value: f64) -> String {
    if value.abs() < 20.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

impl DeviceResults {
    /// Rows as a table; with who published a figure and what was done on the model, if asked for.
    fn table<'a>(&self, rows: impl Iterator<Item = &'a Row>, with_sources: bool) -> Table {
        let (words, sources) =
            if with_sources { (6, " | source | pattern on the model") } else { (4, "") };
        let headings =
            format!("quantity | unit | trust | role{sources} | published | modelled | error");
        let mut table = Table::new(words, &headings);
        for row in rows {
            let trust = row.trust.map(|trust| trust.to_string()).unwrap_or_default();
            let role = row.role.map(|role| role.to_string()).unwrap_or_default();
            let mut cells = vec![row.quantity.clone(), row.unit.to_owned(), trust, role];
            if with_sources {
                cells.push(row.source.unwrap_or_default().to_owned());
                cells.push(row.pattern.to_owned());
            }
            cells.extend([row.published_in_words(), shown(row.modelled), row.error_in_words()]);
            table.push(cells);
        }
        table
    }

    /// The rows whose figures are of a role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.role == Some(role))
    }

    /// How far the model is off, by role.
    fn errors(&self) -> Table {
        let headings = "figures | how many | median error | nine in ten within | within 15 % | \
                        within 30 % | worst";
        let mut table = Table::new(1, headings);
        for role in [Role::Independent, Role::Derived, Role::Fitted] {
            let errors = sorted_errors(self.of_role(role));
            let Some(worst) = errors.last() else { continue };
            let within = |percent: f64| errors.partition_point(|error| *error <= percent);
            table.push([
                role.to_string(),
                errors.len().to_string(),
                format!("{:.1} %", errors[errors.len() / 2]),
                format!("{:.1} %", errors[errors.len() * 9 / 10]),
                within(15.0).to_string(),
                within(30.0).to_string(),
                format!("{worst:.1} %"),
            ]);
        }
        table
    }
}

/// How far rows are off, the least first.
pub fn sorted_errors<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<f64> {
    let mut errors: Vec<f64> = rows.filter_map(|row| row.error_percent).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

impl Findings for DeviceResults {
    fn tables(&self) -> Vec<Table> {
        vec![self.table(self.rows.iter(), false), self.errors()]
    }

    fn notes(&self) -> Vec<String> {
        let modelled = format!("modelled: {} ({}).", self.profile, self.description);
        vec![modelled, "Nothing here was measured on this machine.".to_owned()]
    }

    fn sections(&self) -> Vec<(String, String)> {
        let independent = || self.of_role(Role::Independent);
        let far = independent().filter(|row| row.error_percent.is_some_and(|e| e.abs() > 30.0));
        let far =
            self.table(far, false).after("Independent figures that are off by more than 30 %:");
        let others = self.rows.iter().filter(|row| row.role != Some(Role::Independent));
        let tables = [
            self.table(independent(), true).titled("Independent figures"),
            self.table(others, true).titled("Derived and fitted figures"),
        ];
        let mut sections = section_of_tables(&format!("{COMMAND} (errors)"), &[self.errors(), far]);
        sections.extend(section_of_tables(COMMAND, &tables));
        sections
    }
}
