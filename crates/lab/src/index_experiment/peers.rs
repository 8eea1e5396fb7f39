//! Published implementations beside ours.
//!
//! Their figures were taken once, with the authors' own programs, at four million uniformly random
//! keys; ours are taken when asked for. Different programs on different machines: see
//! [`PEERS_NOTE`]. What ours does for a crash that a published one does not is said with each; so is
//! where the two differ in design.

use std::fmt::Write;

use lapis_index::IndexKind;
use serde::Serialize;

use super::{Operation, Options, run};
use crate::experiment::table::{Table, decimals};
use crate::experiment::{ExperimentError, Findings, Sides};
use crate::keys::Distribution;
use crate::progress::{OnProgress, Progress};

/// How much the published figures say.
pub const PEERS_NOTE: &str =
    "one run each on a shared two-core 2.5 GHz machine, a scale and not a law";

/// Keys at which the published figures were taken.
pub const PEERS_KEYS: usize = 4_000_000;

/// The section of a document that [`peers_table`] belongs in (module [`crate::document`]).
const PEERS_SECTION: &str = "lapis lab index --peers";

/// The section that [`peers_in_short`] belongs in.
const PEERS_IN_SHORT_SECTION: &str = "lapis lab index --peers: in short";

/// What a published implementation was measured to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peer {
    /// Our structure of the same design, or of the one that is nearest.
    pub index: IndexKind,
    /// Whose implementation, and which variant of it.
    pub source: &'static str,
    /// Whether the hash table was given room for all keys.
    pub presized: bool,
    /// Threads.
    pub threads: usize,
    /// Million inserts per second; none if it was not run with so many threads.
    pub insert_mops: Option<f64>,
    /// Million lookups per second.
    pub get_mops: Option<f64>,
    /// What sets the two apart beyond the language: what ours does to survive a crash, or another
    /// design. Empty if nothing is known.
    pub difference: &'static str,
}

const FROM_MALLOC: &str = "published: nodes from malloc, freed as soon as they are replaced, so a \
     crash loses or doubles them; ours: from a pool that a crash leaves whole, given back once their \
     unlinking is durable and no reader has them";
const WOART: &str = "published: as WORT, and a split writes the parent's reference and the node's path \
     with no state in between that a crash may leave; ours survives that crash, at the price of \
     checking the depth on the way";
const FROM_NEW: &str = "published: nodes from the allocator of the process, which a crash forgets; \
     ours: from a pool that a crash leaves whole";
const FROM_PMDK: &str = "published: each leaf from PMDK's allocator, which logs; ours: from runs of 63 \
     leaves, for a flush and a fence each run";
const LB_TREE: &str = "another design, FPTree is ours that is nearest: it puts entries beside the header \
     and so mostly flushes one line, FPTree two; published: leaves from a pointer that moves on, durable \
     nowhere";
const NB_TREE: &str = "another design, FPTree is ours that is nearest: made for caches that survive a \
     crash; published: leaves from a pointer that moves on, durable nowhere";
const DASH: &str = "another design, CCEH is ours that is nearest: fingerprints and stashes, so that segments \
     are fuller when they are split";
const LEVEL: &str = "taken on another machine, where CCEH (authors) gave 2.56 / 5.31; published: a movement that \
     a crash may leave as two entries; ours: opening ends it";

const HOT: &str = "taken on another machine, where our ART+CoW gave 1.11 / 3.83; published: nodes from the allocator \
     of the process, which a crash forgets; ours: from a pool that a crash leaves whole";

/// The published figures, and a row without where ours can be run and theirs was not.
pub const PEERS: [Peer; 25] = [
    peer(IndexKind::Wort, "WORT (authors)", 1, 1.01, 1.99, FROM_MALLOC),
    nobody(IndexKind::Wort, "WORT (authors)", 2),
    peer(IndexKind::FastFair, "FAST & FAIR (authors, single-threaded)", 1, 0.76, 1.97, ""),
    peer(IndexKind::FastFair, "FAST & FAIR (authors, concurrent)", 1, 0.64, 1.48, ""),
    peer(IndexKind::FastFair, "FAST & FAIR (authors, concurrent)", 2, 1.32, 3.48, ""),
    peer(IndexKind::PClht, "P-CLHT (RECIPE), growing", 1, 1.53, 10.7, ""),
    presized(peer(IndexKind::PClht, "P-CLHT (RECIPE), pre-sized", 1, 1.99, 7.5, "")),
    peer(IndexKind::PClht, "P-CLHT (RECIPE), growing", 2, 2.42, 14.0, ""),
    presized(peer(IndexKind::PClht, "P-CLHT (RECIPE), pre-sized", 2, 3.75, 13.7, "")),
    peer(IndexKind::Cceh, "CCEH (authors)", 1, 1.70, 4.90, ""),
    peer(IndexKind::Cceh, "Dash-EH (authors)", 1, 1.54, 3.45, DASH),
    peer(IndexKind::LevelHash, "Level hashing (authors)", 1, 0.99, 3.04, LEVEL),
    peer(IndexKind::Woart, "WOART (authors)", 1, 1.07, 2.58, WOART),
    nobody(IndexKind::Woart, "WOART (authors)", 2),
    peer(IndexKind::PArt, "P-ART (RECIPE)", 1, 1.06, 1.40, FROM_NEW),
    peer(IndexKind::PArt, "P-ART (RECIPE)", 2, 1.92, 2.75, FROM_NEW),
    peer(IndexKind::PHot, "P-HOT (RECIPE)", 1, 0.51, 1.30, HOT),
    peer(IndexKind::PMasstree, "P-Masstree (RECIPE)", 1, 0.65, 1.04, HOT),
    peer(IndexKind::PBwTree, "P-BwTree (RECIPE)", 1, 0.47, 0.68, ""),
    peer(IndexKind::FpTree, "FPTree (public reimplementation)", 1, 0.54, 1.09, FROM_PMDK),
    peer(IndexKind::FpTree, "FPTree (public reimplementation)", 2, 1.11, 2.22, FROM_PMDK),
    peer(IndexKind::FpTree, "LB+-Tree (authors)", 1, 1.27, 1.57, LB_TREE),
    peer(IndexKind::FpTree, "LB+-Tree (authors)", 2, 2.50, 3.38, LB_TREE),
    peer(IndexKind::FpTree, "NBTree (authors), flushing", 1, 1.08, 1.59, NB_TREE),
    peer(IndexKind::FpTree, "NBTree (authors), flushing", 2, 2.34, 3.12, NB_TREE),
];

const fn peer(
    index: IndexKind,
    source: &'static str,
    threads: usize,
    insert_mops: f64,
    get_mops: f64,
    difference: &'static str,
) -> Peer {
    let (insert_mops, get_mops) = (Some(insert_mops), Some(get_mops));
    Peer { index, source, presized: false, threads, insert_mops, get_mops, difference }
}

/// A number of threads with which the published one was not run.
const fn nobody(index: IndexKind, source: &'static str, threads: usize) -> Peer {
    let (insert_mops, get_mops) = (None, None);
    Peer { index, source, presized: false, threads, insert_mops, get_mops, difference: "" }
}

const fn presized(peer: Peer) -> Peer {
    Peer { presized: true, ..peer }
}

/// A published implementation and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerRow {
    /// The published one.
    pub peer: Peer,
    /// Million inserts per second of ours, measured here.
    pub insert_mops: f64,
    /// Million lookups per second of ours, measured here.
    pub get_mops: f64,
}

/// What `lab index --peers` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerComparison {
    /// How much the published figures say: [`PEERS_NOTE`].
    pub note: &'static str,
    /// Keys loaded.
    pub keys: usize,
    /// One row for each published figure.
    pub rows: Vec<PeerRow>,
}

/// Loads our indexes with `keys` uniformly random keys ([`PEERS_KEYS`] compares like with like),
/// looks as many up, and puts the speed beside the published one.
///
/// # Errors
/// [`ExperimentError`].
pub fn compare_with_peers(
    keys: usize,
    seed: u64,
    progress: OnProgress<'_>,
) -> Result<PeerComparison, ExperimentError> {
    let mut rows: Vec<PeerRow> = Vec::new();
    let total = PEERS.len() as u64;
    for (done, peer) in (1..).zip(PEERS) {
        let same = |row: &&PeerRow| {
            (row.peer.index, row.peer.presized, row.peer.threads)
                == (peer.index, peer.presized, peer.threads)
        };
        let (insert_mops, get_mops) = match rows.iter().find(same) {
            Some(row) => (row.insert_mops, row.get_mops),
            None => ours(peer, keys, seed)?,
        };
        rows.push(PeerRow { peer, insert_mops, get_mops });
        progress(Progress { done, total });
    }
    Ok(PeerComparison { note: PEERS_NOTE, keys, rows })
}

fn ours(peer: Peer, keys: usize, seed: u64) -> Result<(f64, f64), ExperimentError> {
    let options = Options {
        indexes: vec![peer.index],
        operations: vec![Operation::Load, Operation::Get],
        distributions: vec![Distribution::Uniform],
        keys,
        repetitions: keys,
        each_key_once: true,
        threads: peer.threads,
        presized: peer.presized,
        sides: Sides::measured_only(),
        seed,
        ..Options::default()
    };
    let results = run(&options, &|_| ())?;
    let mops = |operation| {
        let row = results.rows.iter().find(|row| row.case.operation == operation);
        row.and_then(|row| row.measured).map_or(0.0, |measured| measured.mops)
    };
    Ok((mops(Operation::Load), mops(Operation::Get)))
}

impl Findings for PeerComparison {
    fn tables(&self) -> Vec<Table> {
        let headings = "published | ours | threads | insert / search | ours | ours to published";
        let mut table = Table::new(2, headings);
        for PeerRow { peer, insert_mops, get_mops } in &self.rows {
            let published = peer.insert_mops.zip(peer.get_mops);
            let pair = |pair: Option<(f64, f64)>, places| match pair {
                Some((insert, get)) => format!("{insert:.places$} / {get:.places$}"),
                None => decimals(None, places),
            };
            table.push([
                peer.source.to_owned(),
                format!("`{}`", peer.index),
                peer.threads.to_string(),
                pair(published, 2),
                pair(Some((*insert_mops, *get_mops)), 2),
                pair(published.map(|(insert, get)| (insert_mops / insert, get_mops / get)), 1),
            ]);
        }
        vec![table]
    }

    fn notes(&self) -> Vec<String> {
        let note = format!(
            "Published: {}, at {PEERS_KEYS} keys. Ours: measured here at {} keys, real flushes. Millions \
             of uniformly random 8-byte keys per second, insert / search.",
            self.note, self.keys
        );
        vec![note, peer_differences()]
    }

    /// The table and what sets the published ones apart; and the table in short.
    fn sections(&self) -> Vec<(String, String)> {
        let [table] = &self.tables()[..] else { return Vec::new() };
        let [note, differences] = &self.notes()[..] else { return Vec::new() };
        let text = format!("{note}\n\n{}\n{differences}", table.markdown());
        vec![
            (PEERS_SECTION.to_owned(), text),
            (PEERS_IN_SHORT_SECTION.to_owned(), self.in_short().markdown()),
        ]
    }
}

impl PeerComparison {
    /// The table for a reader in a hurry: those of the same design that were run, and ours.
    fn in_short(&self) -> Table {
        let mut table = Table::new(1, "published | threads | published | Lapis");
        for PeerRow { peer, insert_mops, get_mops } in &self.rows {
            let (Some(insert), Some(get)) = (peer.insert_mops, peer.get_mops) else { continue };
            if ![LB_TREE, NB_TREE, DASH].contains(&peer.difference) {
                table.push([
                    peer.source.to_owned(),
                    peer.threads.to_string(),
                    format!("{insert:.2} / {get:.2}"),
                    format!("`{}` {insert_mops:.2} / {get_mops:.2}", peer.index),
                ]);
            }
        }
        table
    }
}

/// What sets the published implementations apart from ours, as a list: each once.
fn peer_differences() -> String {
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

    /// With figures of ours that nobody measured.
    fn sections() -> [String; 2] {
        let rows = PEERS.map(|peer| PeerRow { peer, insert_mops: 2.54, get_mops: 3.18 }).to_vec();
        let comparison = PeerComparison { note: PEERS_NOTE, keys: 4000, rows };
        let sections = comparison.sections();
        [0, 1].map(|at| sections[at].1.clone())
    }

    #[test]
    fn the_table_has_a_row_for_each_and_says_what_sets_them_apart() {
        let [text, _] = sections();
        assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 1 + PEERS.len());
        assert!(text.contains(
            "| LB+-Tree (authors) | `fptree` | 1 | 1.27 / 1.57 | 2.54 / 3.18 | 2.0 / 2.0 |"
        ));
        assert!(text.contains("| WORT (authors) | `wort` | 2 | – | 2.54 / 3.18 | – |"));
        assert_eq!(text.matches("\n* ").count(), 10);
    }

    #[test]
    fn in_short_are_those_of_the_same_design_that_were_run() {
        let [_, table] = sections();
        assert!(table.contains("| P-ART (RECIPE) | 2 | 1.92 / 2.75 | `p-art` 2.54 / 3.18 |"));
        assert_eq!(table.lines().count(), 2 + PEERS.len() - 2 - 5);
        assert!(!table.contains("LB+-Tree") && !table.contains("–"));
    }
}
