//! Table 1 (d): each structure built, one at a time, and walked.
//!
//! At the published 128 Mi keys a structure takes gigabytes, so each is given back before the next is
//! begun, and one that does not fit into the memory that is free is left out. What its depth is then
//! follows from its keys, if it is a radix tree; a B+-tree has to be built.

use std::collections::BTreeMap;

use super::measured::{build_and_walk, once_for};
use super::{
    Contestant, DISTRIBUTIONS, DepthResults, DepthRow, Options, WalkedTree, free_memory,
    published_depth, radix_depth,
};
use crate::experiment::memory::available_bytes;
use crate::experiment::table::{Table, decimals, grouped};
use crate::experiment::{ExperimentError, Findings, Sides, section_of_tables};
use crate::keys::{Distribution, KeySet};
use crate::progress::OnProgress;

/// The section of a document that the table belongs in (module [`crate::document`]).
const DEPTHS_SECTION: &str = "lapis lab wort --depths";

/// What is about to be built, and the memory that it is thought to need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The structure.
    pub structure: Contestant,
    /// The keys.
    pub distribution: Distribution,
    /// How many.
    pub keys: usize,
    /// Memory for the index and its keys, an estimate.
    pub needed_bytes: u64,
    /// Memory that is free, if that is known.
    pub available_bytes: Option<u64>,
}

impl Plan {
    fn of(structure: Contestant, distribution: Distribution, keys: usize) -> Self {
        let needed_bytes = free_memory::built_bytes(structure, distribution, keys);
        Self { structure, distribution, keys, needed_bytes, available_bytes: available_bytes() }
    }

    /// Whether it is built.
    pub fn fits(&self) -> bool {
        self.available_bytes.is_none_or(|available| self.needed_bytes <= available)
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        write!(
            f,
            "{}, {} {} keys: about {:.1} GB",
            self.structure,
            grouped(self.keys),
            self.distribution,
            gigabytes(self.needed_bytes)
        )?;
        if let Some(available) = self.available_bytes {
            write!(f, " of {:.1} GB that are free", gigabytes(available))?;
        }
        if self.fits() { Ok(()) } else { f.write_str(": left out") }
    }
}

/// Builds and walks each structure with each distribution, at `options.keys` keys, one at a time as
/// memory allows. `announce` hears of each before it is begun.
///
/// # Errors
/// [`ExperimentError`]; [`ExperimentError::TooLittleMemory`] if not one of them fits and nothing is
/// known of their depths otherwise.
pub fn depths(
    options: &Options,
    announce: &dyn Fn(&Plan),
    progress: OnProgress<'_>,
) -> Result<DepthResults, ExperimentError> {
    let sides = Sides { measure: true, model: false, ..options.sides.clone() };
    let options = &Options { sides, ..options.clone() };
    options.check_values()?;
    let contestants: Vec<_> = options.contestants().filter(Contestant::is_measured).collect();
    let cases: Vec<(Distribution, Contestant)> = options
        .distributions
        .iter()
        .flat_map(|&distribution| contestants.iter().map(move |&one| (distribution, one)))
        .collect();
    let (mut keys, mut refused) = (None, None);
    let measure = |&(distribution, structure): &(Distribution, Contestant)| {
        let plan = Plan::of(structure, distribution, options.keys);
        announce(&plan);
        let walked = if plan.fits() {
            let make = || KeySet::generate(distribution, options.keys, 0, options.seed);
            let keys = once_for(&mut keys, distribution, || make().into_loaded());
            let statistics = build_and_walk(structure, keys)?;
            Some(WalkedTree {
                depth: statistics.mean_depth,
                max_depth: statistics.max_depth,
                bytes_per_key: statistics.bytes as f64 / options.keys as f64,
            })
        } else {
            refused = refused.or(Some(plan));
            None
        };
        Ok(DepthRow {
            structure,
            distribution,
            keys: options.keys,
            needed_bytes: plan.needed_bytes,
            walked,
            computed_depth: computed(structure, distribution, options),
            published_depth: published_depth(structure, distribution),
        })
    };
    let found = Sides::measured_only().run(&cases, progress, measure, |_| Ok(()))?;
    let depths: Vec<DepthRow> = found.into_iter().filter_map(|(row, _)| row).collect();
    match refused {
        Some(plan) if depths.iter().all(DepthRow::is_unknown) => {
            let available_bytes = plan.available_bytes.unwrap_or_default();
            Err(ExperimentError::TooLittleMemory {
                keys: plan.keys,
                needed_bytes: plan.needed_bytes,
                available_bytes,
                keys_that_fit: free_memory::keys_that_are_built_in(
                    plan.structure,
                    plan.distribution,
                    available_bytes,
                ),
            })
        }
        _ => Ok(DepthResults { depths }),
    }
}

/// The depth that the keys alone give a radix tree.
fn computed(structure: Contestant, distribution: Distribution, options: &Options) -> Option<f64> {
    let bits = structure.radix_bits()?;
    let [depth] = radix_depth::mean_depths(distribution, options.keys, options.seed, [bits])?;
    Some(depth)
}

impl Findings for DepthResults {
    fn tables(&self) -> Vec<Table> {
        vec![table(self.depths.iter().map(cells))]
    }

    fn sections(&self) -> Vec<(String, String)> {
        section_of_tables(DEPTHS_SECTION, &self.tables())
    }

    /// The rows that are there stay, but for those that are found anew: so that structures can be built
    /// one by one, as memory and time allow.
    fn renewed(&self, before: &str, _found: &str) -> String {
        let mut rows: BTreeMap<Place, Vec<String>> = before.lines().filter_map(row_of).collect();
        rows.extend(
            self.depths.iter().map(cells).filter_map(|cells| Some((Place::of(&cells)?, cells))),
        );
        table(rows.into_values()).markdown()
    }
}

/// Where a row belongs: by distribution, structure and number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(usize, usize, usize);

impl Place {
    /// Of the cells of a row; none of other lines.
    fn of(cells: &[String]) -> Option<Self> {
        let [distribution, structure, keys, ..] = cells else { return None };
        let distribution = DISTRIBUTIONS.iter().position(|one| one.name() == distribution)?;
        let structure = Contestant::ALL.iter().position(|one| format!("`{one}`") == *structure)?;
        Some(Self(distribution, structure, keys.replace(',', "").parse().ok()?))
    }
}

/// A line of the table in Markdown; none of other lines.
fn row_of(line: &str) -> Option<(Place, Vec<String>)> {
    let cells = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().to_owned()).collect();
    Some((Place::of(&cells)?, cells))
}

fn table(rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new(
        2,
        "keys | structure | how many | depth, built | deepest | bytes per key | \
         depth, computed from the keys | published, 128 M keys",
    );
    rows.for_each(|cells| table.push(cells));
    table
}

fn cells(row: &DepthRow) -> Vec<String> {
    let left_out = || format!("not built: needs {:.0} GB", (row.needed_bytes as f64 / 1e9).ceil());
    let walked = |of: fn(&WalkedTree) -> f64| row.walked.as_ref().map(of);
    vec![
        row.distribution.to_string(),
        format!("`{}`", row.structure),
        grouped(row.keys),
        row.walked.map_or_else(left_out, |tree| format!("{:.2}", tree.depth)),
        decimals(walked(|tree| tree.max_depth as f64), 0),
        decimals(walked(|tree| tree.bytes_per_key), 1),
        decimals(row.computed_depth, 2),
        decimals(row.published_depth, 1),
    ]
}

#[cfg(test)]
mod tests {
    use lapis_index::IndexKind;

    use super::*;

    fn found(structure: IndexKind, distribution: Distribution, depth: f64) -> DepthRow {
        DepthRow {
            structure: Contestant::Index(structure),
            distribution,
            keys: 134_217_728,
            needed_bytes: 5_900_000_000,
            walked: Some(WalkedTree { depth, max_depth: 4, bytes_per_key: 26.7 }),
            computed_depth: None,
            published_depth: Some(3.0),
        }
    }

    fn markdown(depths: &[DepthRow]) -> String {
        DepthResults { depths: depths.to_vec() }.tables()[0].markdown()
    }

    #[test]
    fn rows_of_an_earlier_run_stay_and_those_found_anew_take_their_place() {
        let fptree = found(IndexKind::FpTree, Distribution::Sparse, 3.0);
        let wort = found(IndexKind::Wort, Distribution::Sparse, 7.0);
        let renewed = |before: &str, row: &DepthRow| {
            DepthResults { depths: vec![row.clone()] }.renewed(before, "")
        };
        let table = renewed("", &fptree);
        assert_eq!(table, markdown(std::slice::from_ref(&fptree)));

        let table = renewed(&table, &wort);
        // WORT comes before FPTree in Table 1 of the paper.
        assert_eq!(table, markdown(&[wort, fptree]));

        let again = found(IndexKind::FpTree, Distribution::Sparse, 5.0);
        let table = renewed(&table, &again);
        assert_eq!(table.matches("`fptree`").count(), 1);
        assert!(table.contains("| 5.00 |") && table.contains("| 7.00 |"), "{table}");
    }

    #[test]
    fn what_was_left_out_says_what_it_needs() {
        let mut left_out = found(IndexKind::FpTree, Distribution::Sparse, 3.0);
        left_out.walked = None;
        let table = markdown(&[left_out]);
        assert!(table.contains("| not built: needs 6 GB | – | – | – | 3.0 |"), "{table}");
    }

    #[test]
    fn a_plan_says_what_it_needs_of_what_is_free() {
        let plan = Plan {
            structure: Contestant::Index(IndexKind::FpTree),
            distribution: Distribution::Sparse,
            keys: 1 << 20,
            needed_bytes: 5_900_000_000,
            available_bytes: Some(4_000_000_000),
        };
        let said = "fptree, 1,048,576 sparse keys: about 5.9 GB of 4.0 GB that are free: left out";
        assert_eq!(plan.to_string(), said);
        assert!(Plan { available_bytes: None, ..plan }.fits());
    }
}
