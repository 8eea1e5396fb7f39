//! Opening an index after a crash, measured here: by size, and by threads.
//!
//! One index grows from size to size. At each it is let go as a crash would, and opened again and
//! again; each time counts from the pool's header to the first answer, so that work put off until
//! then counts too.

use std::sync::Arc;
use std::time::Instant;

use lapis_index::{AnyIndex, IndexKind, IndexRoot};
use lapis_pmem::{Hardware, Link, Pool, Region};

use super::key_list::INTEGERS_HERE;
use super::measured::{checked, insert_all, region, search_all};
use super::{Contestant, Options, RecoveryRow};
use crate::experiment::{ExperimentError, Sides};
use crate::index_experiment::Operation;
use crate::index_experiment::ROOT_NAME;
use crate::keys::{Distribution, KeySet};
use crate::progress::OnProgress;

/// Of this many openings the one in the middle is reported.
const OPENINGS: usize = 5;
/// Keys looked up afterwards, to see that all is there.
const LOOKED_UP: usize = 10_000;

/// The sizes for so many keys: a sixteenth, a quarter and all of them.
fn sizes(keys: usize) -> [usize; 3] {
    [keys / 16, keys / 4, keys]
}

/// Measures every contestant.
pub(super) fn run(
    options: &Options,
    progress: OnProgress<'_>,
) -> Result<Vec<RecoveryRow>, ExperimentError> {
    let keys = KeySet::generate(Distribution::Sparse, options.keys, 0, options.seed).into_loaded();
    let contestants: Vec<_> = options.contestants().filter(Contestant::is_measured).collect();
    let measure = |&contestant: &Contestant| session(contestant, &keys, &options.recovery_threads);
    let found = Sides::measured_only().run(&contestants, progress, measure, |_| Ok(()))?;
    Ok(found.into_iter().filter_map(|(rows, _)| rows).flatten().collect())
}

/// An index on memory that outlives it.
struct Crashing {
    // Before `region`: fields are dropped in the order of their declaration.
    index: Option<AnyIndex<Hardware, u64>>,
    kind: IndexKind,
    mapped_bytes: usize,
    region: Region,
}

impl Crashing {
    fn create(contestant: Contestant, keys: usize) -> Result<Self, ExperimentError> {
        let region = region(keys)?;
        // SAFETY: the alias goes with the index, which is dropped before the region.
        let pool = Pool::create(unsafe { region.alias() }, Hardware::detect())?;
        let index = contestant.create(&INTEGERS_HERE, pool)?;
        let kind = index.kind().0;
        Ok(Self { index: Some(index), kind, mapped_bytes: region.mapped_bytes(), region })
    }

    fn index(&self) -> &AnyIndex<Hardware, u64> {
        self.index.as_ref().expect("open but for the moment of a crash")
    }

    /// Lets go of the index as a crash would.
    fn crash(&mut self) {
        if let Some(index) = self.index.take() {
            self.mapped_bytes = index.pool().region().mapped_bytes();
            index.pool().abandon();
        }
    }

    /// Opens pool and index and finds `key`: the microseconds that each took.
    fn open(&mut self, threads: usize, key: u64) -> Result<(f64, f64, u64), ExperimentError> {
        self.crash();
        let begin = Instant::now();
        // SAFETY: the alias before this one is gone and had mapped so much; this one goes with the
        // index, which is dropped before the region.
        let alias = unsafe { self.region.alias_of(self.mapped_bytes) };
        let pool = Arc::new(Pool::open(alias, Hardware::detect())?);
        let pool_us = begin.elapsed().as_nanos() as f64 / 1000.0;
        let begin = Instant::now();
        let root: Link<IndexRoot> = pool.root(ROOT_NAME).expect("created with this root");
        let index = INTEGERS_HERE.open_with_threads(self.kind, pool, root, threads)?;
        let wrong = search_all(&index, &[key][..], 0..1);
        let index_us = begin.elapsed().as_nanos() as f64 / 1000.0;
        self.index = Some(index);
        Ok((pool_us, index_us, wrong))
    }
}

fn session(
    contestant: Contestant,
    keys: &[u64],
    threads: &[usize],
) -> Result<Vec<RecoveryRow>, ExperimentError> {
    let mut crashing = Crashing::create(contestant, keys.len())?;
    let mut rows = Vec::new();
    let mut inserted = 0;
    for size in sizes(keys.len()) {
        let wrong = insert_all(crashing.index(), keys, inserted..size)?;
        checked(contestant, Operation::Load, wrong)?;
        inserted = size;
        for &threads in threads {
            let mut openings = Vec::with_capacity(OPENINGS);
            for opening in 0..OPENINGS {
                let (pool_us, index_us, wrong) =
                    crashing.open(threads, keys[opening * size / OPENINGS])?;
                checked(contestant, Operation::Get, wrong)?;
                openings.push((pool_us, index_us));
            }
            openings.sort_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1)));
            let (pool_open_us, index_open_us) = openings[OPENINGS / 2];
            rows.push(RecoveryRow {
                structure: contestant,
                keys: size,
                threads,
                rebuilds: contestant.rebuilds(),
                pool_open_us,
                index_open_us,
            });
        }
        let wrong = search_all(crashing.index(), keys, 0..size.min(LOOKED_UP));
        checked(contestant, Operation::Get, wrong)?;
    }
    Ok(rows)
}
