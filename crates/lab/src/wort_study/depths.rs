//! Table 1 (d): each structure built, one at a time, and walked.
//!
//! At the published 128 Mi keys a structure takes gigabytes, so each is given back before the next is
//! begun, and one that does not fit into the memory that is free is left out. What its depth is then
//! follows from its keys, if it is a radix tree; a B+-tree has to be built.

use std::sync::atomic::AtomicUsize;

use super::tables::{grouped, head, line, names, published};
use super::{
    Contestant, DISTRIBUTIONS, DepthResults, DepthRow, Options, Steps, WalkedTree, free_memory,
    measured, published_depth, radix_depth,
};
use crate::document;
use crate::experiment::{ExperimentError, Sides};
use crate::keys::{Distribution, KeySet};
use crate::report::OnProgress;

/// The section of a document that the table belongs in (module [`crate::document`]).
pub const DEPTHS_SECTION: &str = "lapis lab wort --depths";

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
        Self {
            structure,
            distribution,
            keys,
            needed_bytes,
            available_bytes: free_memory::available_bytes(),
        }
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
    let total = options.distributions.len() * contestants.len();
    let steps = Steps { done: AtomicUsize::new(0), total, progress };
    let mut depths = Vec::new();
    let mut refused = None;
    for &distribution in &options.distributions {
        let mut keys = None;
        for &structure in &contestants {
            let plan = Plan::of(structure, distribution, options.keys);
            announce(&plan);
            let walked = if plan.fits() {
                let generate = || KeySet::generate(distribution, options.keys, 0, options.seed);
                let keys: &Vec<u64> = keys.get_or_insert_with(|| generate().into_loaded());
                let statistics = measured::build_and_walk(structure, keys)?;
                Some(WalkedTree {
                    depth: statistics.mean_depth,
                    max_depth: statistics.max_depth,
                    bytes_per_key: statistics.bytes as f64 / options.keys as f64,
                })
            } else {
                refused = refused.or(Some(plan));
                None
            };
            steps.step();
            depths.push(DepthRow {
                structure,
                distribution,
                keys: options.keys,
                needed_bytes: plan.needed_bytes,
                walked,
                computed_depth: computed(structure, distribution, options),
                published_depth: published_depth(structure, distribution),
            });
        }
    }
    match refused {
        Some(plan) if depths.iter().all(DepthRow::is_unknown) => {
            Err(ExperimentError::TooLittleMemory {
                keys: plan.keys,
                needed_bytes: plan.needed_bytes,
                available_bytes: plan.available_bytes.unwrap_or_default(),
                keys_that_fit: free_memory::keys_that_are_built_in(
                    plan.structure,
                    plan.distribution,
                    plan.available_bytes.unwrap_or_default(),
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

/// The table of depths.
pub fn depths_table(results: &DepthResults) -> String {
    heading() + &results.depths.iter().map(row).collect::<String>()
}

/// The table of depths with the rows that `document` has already in its section, but for those that
/// `results` has anew: so that structures can be built one by one, as memory and time allow.
pub fn depths_table_into(document: &str, results: &DepthResults) -> String {
    let mut rows: Vec<(Place, String)> = document::section(document, DEPTHS_SECTION)
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| Some((Place::of(line)?, format!("{line}\n"))))
        .collect();
    for new in results.depths.iter().map(row) {
        let Some(place) = Place::of(&new) else { continue };
        match rows.iter_mut().find(|(at, _)| *at == place) {
            Some((_, old)) => *old = new,
            None => rows.push((place, new)),
        }
    }
    rows.sort_by_key(|(place, _)| *place);
    heading() + &rows.into_iter().map(|(_, row)| row).collect::<String>()
}

/// Where a row belongs: by distribution, structure and number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(usize, usize, usize);

impl Place {
    /// Of a row of the table; none of other lines.
    fn of(row: &str) -> Option<Self> {
        let mut cells = row.strip_prefix('|')?.split('|').map(|cell| cell.trim().trim_matches('`'));
        let (distribution, structure) = (cells.next()?, cells.next()?);
        let distribution = DISTRIBUTIONS.iter().position(|one| one.name() == distribution)?;
        let structure = Contestant::ALL.iter().position(|one| one.name() == structure)?;
        let keys = cells.next()?.replace(',', "").parse().ok()?;
        Some(Self(distribution, structure, keys))
    }
}

fn heading() -> String {
    let columns = names([
        "how many",
        "depth, built",
        "deepest",
        "bytes per key",
        "depth, computed from the keys",
        "published, 128 M keys",
    ]);
    head(&columns)
}

fn row(row: &DepthRow) -> String {
    let none = || "–".to_owned();
    let walked = |cell: &dyn Fn(&WalkedTree) -> String| row.walked.as_ref().map(cell);
    let left_out = || format!("not built: needs {:.0} GB", (row.needed_bytes as f64 / 1e9).ceil());
    let cells = [
        grouped(row.keys),
        walked(&|tree| format!("{:.2}", tree.depth)).unwrap_or_else(left_out),
        walked(&|tree| tree.max_depth.to_string()).unwrap_or_else(none),
        walked(&|tree| format!("{:.1}", tree.bytes_per_key)).unwrap_or_else(none),
        row.computed_depth.map_or_else(none, |depth| format!("{depth:.2}")),
        published(row.published_depth),
    ];
    line(row.distribution, row.structure, &cells)
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

    fn document(table: &str) -> String {
        format!("Before.\n<!-- generated: {DEPTHS_SECTION} -->\n{table}<!-- end of generated -->\n")
    }

    #[test]
    fn rows_of_an_earlier_run_stay_and_those_found_anew_take_their_place() {
        let fptree = found(IndexKind::FpTree, Distribution::Sparse, 3.0);
        let wort = found(IndexKind::Wort, Distribution::Sparse, 7.0);
        let first = DepthResults { depths: vec![fptree.clone()] };
        let table = depths_table_into(&document(""), &first);
        assert_eq!(table, depths_table(&first));

        let table =
            depths_table_into(&document(&table), &DepthResults { depths: vec![wort.clone()] });
        // WORT comes before FPTree in Table 1 of the paper.
        assert_eq!(table, depths_table(&DepthResults { depths: vec![wort, fptree] }));

        let again = found(IndexKind::FpTree, Distribution::Sparse, 5.0);
        let table = depths_table_into(&document(&table), &DepthResults { depths: vec![again] });
        assert_eq!(table.matches("`fptree`").count(), 1);
        assert!(table.contains("| 5.00 |") && table.contains("| 7.00 |"), "{table}");
    }

    #[test]
    fn what_was_left_out_says_what_it_needs() {
        let mut left_out = found(IndexKind::FpTree, Distribution::Sparse, 3.0);
        left_out.walked = None;
        let table = depths_table(&DepthResults { depths: vec![left_out] });
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
