//! What the paper says of measured times, beside what was measured here.
//!
//! Every run of `lab wort` measures anew, so what its times say of the paper's claims is worked out from
//! them and not written down once: for each claim and kind of keys, how many times as long the one takes
//! as the other, of which the claim is that it is faster.

use lapis_index::IndexKind;

use super::{Contestant, MeasuredOperations, OperationsRow, StudyResults};
use crate::experiment::in_order as distinct;
use crate::experiment::table::Table;
use crate::keys::Distribution;

/// Times that differ by less are level: two runs on one machine do.
const LEVEL: f64 = 1.1;

/// What the paper calls radix trees.
const RADIX_TREES: [IndexKind; 3] = [IndexKind::Wort, IndexKind::Woart, IndexKind::ArtCow];
/// Its B+-trees, with both kinds of wB+-Tree.
const B_TREES: [IndexKind; 4] =
    [IndexKind::FpTree, IndexKind::NvTree, IndexKind::WbTree, IndexKind::WbTreeSlot];

/// A structure is said to be faster than others.
struct Claim {
    published: &'static str,
    ns: fn(&MeasuredOperations) -> f64,
    faster: &'static [IndexKind],
    /// The fastest of these is what it is set against.
    than: &'static [IndexKind],
}

const fn insert_ns(found: &MeasuredOperations) -> f64 {
    found.insert_ns
}

const fn search_ns(found: &MeasuredOperations) -> f64 {
    found.search_ns
}

const CLAIMS: [Claim; 5] = [
    Claim {
        published: "Fig. 7: radix trees insert considerably faster than wB+-Tree",
        ns: insert_ns,
        faster: &RADIX_TREES,
        than: &[IndexKind::WbTree, IndexKind::WbTreeSlot],
    },
    Claim {
        published: "Fig. 7: and than NV-Tree",
        ns: insert_ns,
        faster: &RADIX_TREES,
        than: &[IndexKind::NvTree],
    },
    Claim {
        published: "Fig. 7: FPTree inserts fastest of the B+-trees",
        ns: insert_ns,
        faster: &[IndexKind::FpTree],
        than: &[IndexKind::NvTree, IndexKind::WbTree, IndexKind::WbTreeSlot],
    },
    Claim {
        published: "Fig. 9, left: radix trees search faster than all B+-trees",
        ns: search_ns,
        faster: &RADIX_TREES,
        than: &B_TREES,
    },
    Claim {
        published: "Fig. 9, left: ART+CoW is the fastest",
        ns: search_ns,
        faster: &[IndexKind::ArtCow],
        than: &[
            IndexKind::Wort,
            IndexKind::Woart,
            IndexKind::FpTree,
            IndexKind::NvTree,
            IndexKind::WbTree,
            IndexKind::WbTreeSlot,
        ],
    },
];

/// The measured time of an operation; none if it was not measured.
fn time(
    results: &StudyResults,
    structure: IndexKind,
    distribution: Distribution,
    ns: fn(&MeasuredOperations) -> f64,
) -> Option<f64> {
    let is = |row: &&OperationsRow| {
        (row.case.structure, row.case.distribution) == (Contestant::Index(structure), distribution)
    };
    results.operations.iter().find(is)?.measured.as_ref().map(ns)
}

/// How many times as long as each of `claim.faster` the fastest of `claim.than` takes.
fn factors(results: &StudyResults, claim: &Claim, distribution: Distribution) -> Option<Vec<f64>> {
    let of = |structure: &IndexKind| time(results, *structure, distribution, claim.ns);
    let against = claim.than.iter().map(of).collect::<Option<Vec<_>>>()?;
    let best = against.into_iter().fold(f64::INFINITY, f64::min);
    claim.faster.iter().map(|one| Some(best / of(one)?)).collect()
}

/// What so many factors say of a claim.
fn verdict(factors: &[f64]) -> &'static str {
    let ahead = factors.iter().filter(|factor| **factor >= LEVEL).count();
    let behind = factors.iter().filter(|factor| **factor <= 1.0 / LEVEL).count();
    match (ahead, behind) {
        (ahead, _) if ahead == factors.len() => "agrees",
        (0, 0) => "level",
        (_, 0) => "agrees, or level",
        (0, behind) if behind == factors.len() => "disagrees",
        (0, _) => "disagrees, or level",
        _ => "partly",
    }
}

fn cell(factors: &[f64]) -> String {
    let factors: Vec<String> = factors.iter().map(|factor| format!("{factor:.2}")).collect();
    factors.join(", ")
}

/// The claims about measured inserts and searches; none if not all of what they compare was measured.
pub(super) fn table(results: &StudyResults) -> Option<Table> {
    let distributions = distinct(results.operations.iter().map(|row| row.case.distribution));
    if distributions.is_empty() {
        return None;
    }
    let names: Vec<&str> = distributions.iter().map(|one| one.name()).collect();
    let mut table = Table::new(1, &format!("published | {} | here", names.join(" | ")));
    for claim in &CLAIMS {
        let found = distributions.iter().map(|&one| factors(results, claim, one));
        let found = found.collect::<Option<Vec<_>>>()?;
        let verdict = verdict(&found.concat()).to_owned();
        let cells = found.iter().map(|factors| cell(factors)).chain([verdict]);
        table.push(std::iter::once(claim.published.to_owned()).chain(cells));
    }
    if let Some(cells) = clustered(results, &distributions) {
        table.push(cells);
    }
    Some(table.after(format!(
        "Measured here: how many times as long as the one that is said to be faster the other takes, its \
         fastest if they are several; of the radix trees WORT, WOART and ART+CoW, one by one. What is \
         within {:.0} % is level.",
        (LEVEL - 1.0) * 100.0
    )))
}

/// How many times as long as with other keys an insert takes with clustered ones.
fn clustered(results: &StudyResults, distributions: &[Distribution]) -> Option<Vec<String>> {
    let insert = |structure, distribution| time(results, structure, distribution, insert_ns);
    let cells = distributions.iter().map(|&distribution| {
        if distribution == Distribution::Clustered {
            return Some("–".to_owned());
        }
        let factor = |&tree: &IndexKind| {
            Some(insert(tree, Distribution::Clustered)? / insert(tree, distribution)?)
        };
        Some(cell(&RADIX_TREES.iter().map(factor).collect::<Option<Vec<_>>>()?))
    });
    let claim = "Fig. 7: an insert of a clustered key takes the radix trees about 1.5 times as long as one of the keys above";
    let cells = std::iter::once(Some(claim.to_owned())).chain(cells);
    cells.chain([Some("1.5 published".to_owned())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_when_all_are_ahead_and_not_when_one_is_behind() {
        assert_eq!(verdict(&[1.2, 3.0]), "agrees");
        assert_eq!(verdict(&[1.2, 1.0]), "agrees, or level");
        assert_eq!(verdict(&[1.0, 0.95]), "level");
        assert_eq!(verdict(&[1.2, 0.8]), "partly");
        assert_eq!(verdict(&[1.0, 0.8]), "disagrees, or level");
        assert_eq!(verdict(&[0.5, 0.8]), "disagrees");
    }
}
