//! Published implementations beside ours.
//!
//! Their figures were taken once, with the authors' own programs, at four million uniformly random
//! keys; ours are taken when asked for. Different programs on different machines: see
//! [`PEERS_NOTE`].

use lapis_index::IndexKind;
use serde::Serialize;

use super::{ExperimentError, Measured, Operation, Options, run};
use crate::keys::Distribution;
use crate::report::{OnProgress, Progress};

/// How much the published figures say.
pub const PEERS_NOTE: &str =
    "one run each on a shared two-core 2.5 GHz machine, a scale and not a law";

/// Keys at which the published figures were taken.
pub const PEERS_KEYS: usize = 4_000_000;

/// What a published implementation was measured to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peer {
    /// Our structure of the same design.
    pub index: IndexKind,
    /// Whose implementation, and which variant of it.
    pub source: &'static str,
    /// Whether the hash table was given room for all keys.
    pub presized: bool,
    /// Threads.
    pub threads: usize,
    /// Million inserts per second.
    pub insert_mops: f64,
    /// Million lookups per second.
    pub get_mops: f64,
}

/// The published figures.
pub const PEERS: [Peer; 11] = [
    peer(IndexKind::Wort, "WORT (authors)", false, 1, 1.01, 1.99),
    peer(IndexKind::FastFair, "FAST & FAIR (authors, single-threaded)", false, 1, 0.76, 1.97),
    peer(IndexKind::FastFair, "FAST & FAIR (authors, concurrent)", false, 1, 0.64, 1.48),
    peer(IndexKind::FastFair, "FAST & FAIR (authors, concurrent)", false, 2, 1.32, 3.48),
    peer(IndexKind::PClht, "P-CLHT (RECIPE), growing", false, 1, 1.53, 10.7),
    peer(IndexKind::PClht, "P-CLHT (RECIPE), pre-sized", true, 1, 1.99, 7.5),
    peer(IndexKind::PClht, "P-CLHT (RECIPE), growing", false, 2, 2.42, 14.0),
    peer(IndexKind::PClht, "P-CLHT (RECIPE), pre-sized", true, 2, 3.75, 13.7),
    peer(IndexKind::Woart, "WOART (authors)", false, 1, 1.07, 2.58),
    peer(IndexKind::ArtCow, "P-ART (RECIPE)", false, 1, 1.06, 1.40),
    peer(IndexKind::ArtCow, "P-ART (RECIPE)", false, 2, 1.92, 2.75),
];

const fn peer(
    index: IndexKind,
    source: &'static str,
    presized: bool,
    threads: usize,
    insert_mops: f64,
    get_mops: f64,
) -> Peer {
    Peer { index, source, presized, threads, insert_mops, get_mops }
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
        threads: peer.threads,
        presized: peer.presized,
        model: false,
        seed,
        ..Options::default()
    };
    let results = run(&options, &|_| ())?;
    let mops = |operation| {
        let row = results.rows.iter().find(|row| row.operation == operation);
        let measured: Option<Measured> = row.and_then(|row| row.measured);
        measured.map_or(0.0, |measured| measured.mops)
    };
    Ok((mops(Operation::Load), mops(Operation::Get)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_gets_one_of_ours_beside_it() {
        let comparison = compare_with_peers(2000, 1, &|_| ()).unwrap();
        assert_eq!(comparison.rows.len(), PEERS.len());
        for row in &comparison.rows {
            assert!(row.insert_mops > 0.0 && row.get_mops > 0.0, "{row:?}");
        }
        // The two variants of FAST & FAIR on one thread have the same one of ours.
        assert_eq!(comparison.rows[1].insert_mops, comparison.rows[2].insert_mops);
    }
}
