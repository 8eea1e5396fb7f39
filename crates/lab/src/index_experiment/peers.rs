//! Published implementations, and ours.
//!
//! Two tables that are not to be read across. The first is a comparison: published C and C++ and Lapis in
//! turn, on one machine ([`PEERS_NOTE`]), with the Lapis of that day; it is quoted here, not measured. The second is measured when
//! it is asked for: ours, on this machine. What sets a published implementation apart from ours is said with it.

use std::fmt::Write;

use lapis_index::IndexKind;
use serde::Serialize;

use super::{Operation, Options, run};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{ExperimentError, Findings, Sides};
use crate::keys::Distribution;
use crate::progress::{OnProgress, Progress};

/// How the published implementations were measured.
pub const PEERS_NOTE: &str = "Published code and Lapis in turn, measured elsewhere: two cores of a Sapphire Rapids at \
     2.0 GHz with 105 MB of last-level cache, clwb and sfence, huge pages on both sides, 4 M random 8-byte keys, \
     every answer checked, median of five runs with one thread and three with two, ±15 %. Lapis is of that day, and \
     faster since; a dash: it did not have that structure, or was not run.";

/// The sections of documents that the two tables belong in (module [`crate::document`]).
const PUBLISHED_SECTION: &str = "lapis lab index --peers";
const OURS_SECTION: &str = "lapis lab index --peers: ours";

/// A published implementation, what it was measured to do, and what ours did in turn with it. Million operations per
/// second, inserts and lookups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peer {
    /// Our structure of the same design, or of the one that is nearest.
    pub index: IndexKind,
    /// Whose implementation, and which variant of it.
    pub source: &'static str,
    /// Threads.
    pub threads: usize,
    /// What it did.
    pub published_mops: [f64; 2],
    /// What ours did.
    pub lapis_mops: Option<[f64; 2]>,
    /// The median of the ratios of runs in turn, ours to theirs.
    pub ratio: Option<[f64; 2]>,
    /// What sets the two apart beyond the language. Empty if nothing is known.
    pub difference: &'static str,
}

const FROM_MALLOC: &str = "nodes from malloc, freed as soon as they are replaced, so a crash loses or doubles them; ours: from \
     a pool that a crash leaves whole, given back once their unlinking is durable and no reader has them";
const WOART: &str = "as WORT, and a split writes the parent's reference and the node's path with no state in between that \
     a crash may leave; ours survives that crash, at the price of checking the depth on the way";
const FROM_NEW: &str = "nodes from the allocator of the process, which a crash forgets; ours: from a pool that a crash \
     leaves whole";
const FROM_PMDK: &str = "each leaf from PMDK's allocator, which logs; ours: from runs of leaves, for a flush and a fence \
     each run";
const LB_TREE: &str = "another design: entries beside the header, so that most inserts flush one line, FPTree's two. Its \
     transactions did nothing, which favours it";
const NB_TREE: &str = "another design, made for caches that survive a crash: it flushes the entry, and never the copies of a split";
const LEVEL: &str = "a movement that a crash may leave as two entries; ours: opening ends it";

/// The comparison.
pub const PEERS: [Peer; 22] = {
    use IndexKind::*;
    [
        peer(Wort, "WORT (authors)", 1, [1.08, 2.77], [0.90, 1.71], [0.98, 0.62], FROM_MALLOC),
        peer(Woart, "WOART (authors)", 1, [0.79, 3.08], [1.02, 2.65], [1.36, 0.95], WOART),
        peer(
            FastFair,
            "FAST & FAIR (authors, single-threaded)",
            1,
            [1.07, 1.34],
            [0.67, 1.46],
            [0.65, 1.02],
            "",
        ),
        peer(
            FastFair,
            "FAST & FAIR (authors, concurrent)",
            1,
            [0.71, 1.37],
            [0.67, 1.47],
            [0.95, 1.10],
            "",
        ),
        peer(
            FastFair,
            "FAST & FAIR (authors, concurrent)",
            2,
            [1.39, 3.17],
            [1.39, 3.18],
            [0.96, 0.95],
            "",
        ),
        peer(PClht, "P-CLHT (RECIPE), growing", 1, [1.30, 16.8], [2.25, 9.1], [1.79, 0.55], ""),
        peer(PClht, "P-CLHT (RECIPE), pre-sized", 1, [1.55, 25.1], [3.22, 11.9], [2.08, 0.38], ""),
        peer(PClht, "P-CLHT (RECIPE), growing", 2, [2.38, 34.4], [3.58, 19.7], [1.49, 0.56], ""),
        peer(PClht, "P-CLHT (RECIPE), pre-sized", 2, [3.01, 47.4], [6.51, 19.9], [2.16, 0.42], ""),
        peer(ArtCow, "P-ART (RECIPE)", 1, [0.80, 3.43], [1.11, 3.83], [1.39, 1.15], FROM_NEW),
        peer(ArtCow, "P-ART (RECIPE)", 2, [1.31, 4.93], [1.47, 5.46], [1.12, 1.11], FROM_NEW),
        peer(
            FpTree,
            "FPTree (public reimplementation)",
            1,
            [0.76, 1.10],
            [1.37, 1.59],
            [1.68, 1.43],
            FROM_PMDK,
        ),
        peer(
            FpTree,
            "FPTree (public reimplementation)",
            2,
            [1.11, 2.13],
            [2.57, 3.78],
            [2.04, 1.50],
            FROM_PMDK,
        ),
        peer(FpTree, "LB+-Tree (authors)", 1, [1.66, 2.16], [1.40, 1.66], [0.74, 0.73], LB_TREE),
        peer(
            NvTree,
            "NBTree (authors), flushing",
            1,
            [1.47, 2.35],
            [0.79, 1.49],
            [0.54, 0.62],
            NB_TREE,
        ),
        peer(
            NvTree,
            "NBTree (authors), flushing",
            2,
            [2.89, 4.21],
            [1.39, 3.07],
            [0.48, 0.72],
            NB_TREE,
        ),
        alone(PArt, "P-ART (RECIPE)", [0.80, 3.43], FROM_NEW),
        alone(PHot, "P-HOT (RECIPE)", [0.51, 1.30], FROM_NEW),
        alone(PMasstree, "P-Masstree (RECIPE)", [0.65, 1.04], FROM_NEW),
        alone(PBwTree, "P-BwTree (RECIPE)", [0.47, 0.68], FROM_NEW),
        alone(LevelHash, "Level hashing (authors)", [0.99, 3.04], LEVEL),
        alone(Cceh, "CCEH (authors)", [2.56, 5.31], ""),
    ]
};

const fn peer(
    index: IndexKind,
    source: &'static str,
    threads: usize,
    published_mops: [f64; 2],
    lapis_mops: [f64; 2],
    ratio: [f64; 2],
    difference: &'static str,
) -> Peer {
    let (lapis_mops, ratio) = (Some(lapis_mops), Some(ratio));
    Peer { index, source, threads, published_mops, lapis_mops, ratio, difference }
}

/// One that was measured with one thread, when Lapis did not have that structure.
const fn alone(
    index: IndexKind,
    source: &'static str,
    published_mops: [f64; 2],
    difference: &'static str,
) -> Peer {
    Peer { index, source, threads: 1, published_mops, lapis_mops: None, ratio: None, difference }
}

/// One of our indexes, measured here.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ours {
    /// Which.
    pub index: IndexKind,
    /// Threads.
    pub threads: usize,
    /// Whether it was given room for all keys.
    pub presized: bool,
    /// Million inserts and lookups per second: of several runs the median of each.
    pub mops: [f64; 2],
    /// How much more the fastest run did than the slowest, in percent of the median.
    pub spread_percent: [f64; 2],
}

/// What `lab index --peers` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerComparison {
    /// How the published ones were measured: [`PEERS_NOTE`].
    pub note: &'static str,
    /// [`PEERS`].
    pub rows: Vec<Peer>,
    /// Keys with which ours were loaded here.
    pub keys: usize,
    /// How often each of ours was measured.
    pub runs: usize,
    /// Ours, measured here.
    pub ours: Vec<Ours>,
}

/// Loads our indexes with `keys` uniformly random keys and looks as many up, by one thread and by two, beside what
/// is known of the published ones. All of them `runs` times in turn, so that a slow minute of the machine is not all
/// that is known of one.
///
/// # Errors
/// [`ExperimentError`].
pub fn compare_with_peers(
    keys: usize,
    runs: usize,
    seed: u64,
    progress: OnProgress<'_>,
) -> Result<PeerComparison, ExperimentError> {
    if runs == 0 {
        return Err(ExperimentError::bad_option("every structure is measured at least once"));
    }
    let each_way = IndexKind::ALL.iter().flat_map(|&index| {
        let ways = [(1, false), (2, false), (1, true), (2, true)];
        ways.into_iter().filter(move |&(_, presized)| !(presized && index.is_ordered())).map(
            move |(threads, presized)| Ours {
                index,
                threads,
                presized,
                mops: [0.0; 2],
                spread_percent: [0.0; 2],
            },
        )
    });
    let mut ours: Vec<Ours> = each_way.collect();
    let mut measured = vec![[const { Vec::new() }; 2]; ours.len()];
    let (total, mut done) = ((runs as u64).saturating_mul(ours.len() as u64), 0);
    for _ in 0..runs {
        for (row, figures) in ours.iter().zip(&mut measured) {
            let mops = measure(row, keys, seed)?;
            figures.iter_mut().zip(mops).for_each(|(figures, mops)| figures.push(mops));
            done += 1;
            progress(Progress { done, total });
        }
    }
    for (row, figures) in ours.iter_mut().zip(measured) {
        for (at, mut figures) in figures.into_iter().enumerate() {
            figures.sort_by(f64::total_cmp);
            let median = figures[(figures.len() - 1) / 2];
            row.mops[at] = median;
            row.spread_percent[at] = 100.0 * (figures[figures.len() - 1] - figures[0]) / median;
        }
    }
    Ok(PeerComparison { note: PEERS_NOTE, rows: PEERS.to_vec(), keys, runs, ours })
}

fn measure(case: &Ours, keys: usize, seed: u64) -> Result<[f64; 2], ExperimentError> {
    let operations = [Operation::Load, Operation::Get];
    let options = Options {
        indexes: vec![case.index],
        operations: operations.to_vec(),
        distributions: vec![Distribution::Uniform],
        keys,
        repetitions: keys,
        each_key_once: true,
        threads: case.threads,
        presized: case.presized,
        sides: Sides::measured_only(),
        seed,
        ..Options::default()
    };
    let results = run(&options, &|_| ())?;
    Ok(operations.map(|operation| {
        let row = results.rows.iter().find(|row| row.case.operation == operation);
        row.and_then(|row| row.measured).map_or(0.0, |measured| measured.mops)
    }))
}

/// Inserts and lookups, or a dash.
fn pair(pair: Option<[f64; 2]>) -> String {
    pair.map_or_else(|| decimals(None, 2), |[insert, get]| format!("{insert:.2} / {get:.2}"))
}

impl Findings for PeerComparison {
    fn tables(&self) -> Vec<Table> {
        let headings = "published | Lapis | threads | published, insert / search | Lapis | ratio";
        let mut published = Table::new(2, headings);
        for peer in &self.rows {
            published.push([
                peer.source.to_owned(),
                format!("`{}`", peer.index),
                peer.threads.to_string(),
                pair(Some(peer.published_mops)),
                pair(peer.lapis_mops),
                pair(peer.ratio),
            ]);
        }
        let mut ours = Table::new(1, "Lapis | threads | insert / search | pre-sized");
        for row in self.ours.iter().filter(|row| !row.presized) {
            let same = |other: &&Ours| {
                other.presized && (other.index, other.threads) == (row.index, row.threads)
            };
            ours.push([
                format!("`{}`", row.index),
                row.threads.to_string(),
                pair(Some(row.mops)),
                pair(self.ours.iter().find(same).map(|row| row.mops)),
            ]);
        }
        vec![published, ours]
    }

    fn notes(&self) -> Vec<String> {
        let here = format!(
            "Lapis, measured here with {} uniformly random 8-byte keys, real flushes. Million operations per second{}.",
            self.keys,
            self.spread_in_words()
        );
        vec![format!("{} Million operations per second.", self.note), differences(), here]
    }

    fn sections(&self) -> Vec<(String, String)> {
        let ([published, ours], [note, differences, here]) =
            (&self.tables()[..], &self.notes()[..])
        else {
            return Vec::new();
        };
        vec![
            (
                PUBLISHED_SECTION.to_owned(),
                format!("{note}\n\n{}\n{differences}", published.markdown()),
            ),
            (OURS_SECTION.to_owned(), format!("{here}\n\n{}", ours.markdown())),
        ]
    }
}

impl PeerComparison {
    fn spread_in_words(&self) -> String {
        let mut spreads: Vec<f64> =
            self.ours.iter().flat_map(|row| row.spread_percent.into_iter()).collect();
        spreads.sort_by(f64::total_cmp);
        match spreads[..] {
            [.., most] if self.runs > 1 => format!(
                ", the median of {} runs, all structures in turn; the fastest run of a figure and its slowest are \
                 {:.0} % of it apart in the median, {most:.0} % at most",
                self.runs,
                spreads[spreads.len() / 2]
            ),
            _ => String::new(),
        }
    }
}

/// What sets the published implementations apart from ours, as a list: each once.
fn differences() -> String {
    let mut text = String::new();
    let mut said: Vec<&str> = Vec::new();
    for peer in PEERS.iter().filter(|peer| !peer.difference.is_empty()) {
        if !said.contains(&peer.source) {
            said.push(peer.source);
            let _ = writeln!(text, "* {}: {}.", peer.source, peer.difference);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> [String; 2] {
        let ours = [false, true].map(|presized| Ours {
            index: IndexKind::Cceh,
            threads: 2,
            presized,
            mops: if presized { [3.0, 4.0] } else { [1.0, 2.0] },
            spread_percent: if presized { [5.0, 40.0] } else { [10.0, 12.0] },
        });
        let comparison = PeerComparison {
            note: PEERS_NOTE,
            rows: PEERS.to_vec(),
            keys: 4000,
            runs: 3,
            ours: ours.to_vec(),
        };
        let sections = comparison.sections();
        [0, 1].map(|at| sections[at].1.clone())
    }

    #[test]
    fn published_code_stands_beside_what_was_measured_in_turn_with_it() {
        let [text, _] = sections();
        assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 1 + PEERS.len());
        let line =
            "| LB+-Tree (authors) | `fptree` | 1 | 1.66 / 2.16 | 1.40 / 1.66 | 0.74 / 0.73 |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| CCEH (authors) | `cceh` | 1 | 2.56 / 5.31 | – | – |"));
    }

    #[test]
    fn what_is_measured_here_stands_alone() {
        let [_, table] = sections();
        assert!(table.contains("| `cceh` | 2 | 1.00 / 2.00 | 3.00 / 4.00 |"), "{table}");
        assert_eq!(table.lines().filter(|line| line.starts_with("| `")).count(), 1);
        assert!(table.contains("the median of 3 runs"), "{table}");
        assert!(table.contains("12 % of it apart in the median, 40 % at most"), "{table}");
    }
}
