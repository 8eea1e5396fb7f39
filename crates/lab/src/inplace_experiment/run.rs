//! Cells of one scheme and size on one machine.

use std::sync::Arc;
use std::time::Instant;

use lapis_blocks::in_place::{CellArray, CellKind, CowCell, FamCell, InPlace, LogCell};
use lapis_blocks::log::Placement;
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_device::{Config, Counts, Modelled, Profile};
use lapis_pmem::{Domain, Hardware, Pool, Region};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{ExperimentError, Operation, Options, Pattern};

/// One row of one machine.
pub(super) struct Outcome {
    pub(super) operation: Operation,
    pub(super) pattern: Pattern,
    pub(super) operations: usize,
    elapsed_ns: u64,
    pub(super) counts: Counts,
    pub(super) cell_bytes: usize,
}

impl Outcome {
    pub(super) fn mops(&self) -> f64 {
        self.operations as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }
}

const LOG: PopLogOptions =
    PopLogOptions { segment_bytes: 1 << 20, spare_segments: 2, placement: Placement::Padded };

fn pool_bytes(options: &Options) -> usize {
    options.array_bytes + (32 << 20)
}

pub(super) fn measure(
    variant: CellKind,
    size_bytes: usize,
    options: &Options,
) -> Result<Vec<Outcome>, ExperimentError> {
    let bytes = pool_bytes(options);
    let pool = Pool::create(Region::anonymous(bytes, bytes)?, Hardware::detect())?;
    let started = Instant::now();
    let now_ns = move || started.elapsed().as_nanos() as u64;
    let machine = Machine { pool: Arc::new(pool), now_ns, counts: Counts::default };
    run_variant(&machine, variant, size_bytes, options.operations, options)
}

pub(super) fn model(
    variant: CellKind,
    size_bytes: usize,
    options: &Options,
    profile: &Profile,
) -> Result<Vec<Outcome>, ExperimentError> {
    let bytes = pool_bytes(options);
    let region = Region::anonymous(bytes, bytes)?;
    let machine =
        Modelled::over(&region, Config { counting: Some(profile.machine()), ..Config::default() });
    let pool = Pool::create(region, machine.clone())?;
    let counting = machine.clone();
    let now_ns = move || machine.now_ns(0);
    let machine = Machine { pool: Arc::new(pool), now_ns, counts: move || counting.counts() };
    run_variant(&machine, variant, size_bytes, options.modelled_operations, options)
}

/// A pool, and what its machine can tell.
struct Machine<D: Domain, N, C> {
    pool: Arc<Pool<D>>,
    now_ns: N,
    counts: C,
}

fn run_variant<D: Domain, N: Fn() -> u64, C: Fn() -> Counts>(
    machine: &Machine<D, N, C>,
    variant: CellKind,
    size_bytes: usize,
    operations: usize,
    options: &Options,
) -> Result<Vec<Outcome>, ExperimentError> {
    let pool = &machine.pool;
    let outcomes = match variant {
        CellKind::Cow => run_scheme(machine, CowCell, size_bytes, operations, options)?,
        CellKind::Fam => run_scheme(machine, FamCell::default(), size_bytes, operations, options)?,
        CellKind::Log => {
            let root = pool.fence(PopLog::create(pool, LOG)?);
            let link = root.link();
            let _ = pool.publish_root("log", 0, root)?.persist();
            let log = PopLog::open(Arc::clone(pool), link)?;
            let scheme = LogCell::open(pool, log)?;
            run_scheme(machine, scheme, size_bytes, operations, options)?
        }
    };
    outcomes.ok_or(ExperimentError::WrongValue { variant, size_bytes })
}

/// Runs everything on cells of one scheme; none if a value was wrong.
fn run_scheme<D: Domain, S: InPlace<D>, N: Fn() -> u64, C: Fn() -> Counts>(
    machine: &Machine<D, N, C>,
    scheme: S,
    size_bytes: usize,
    operations: usize,
    options: &Options,
) -> Result<Option<Vec<Outcome>>, ExperimentError> {
    let pool = &machine.pool;
    let lines = (scheme.cell_words(size_bytes) * 8).next_multiple_of(64);
    let count = (options.array_bytes - (1 << 12)) / lines;
    let made = pool.fence(CellArray::create(pool, &scheme, size_bytes, count)?);
    let root = made.link();
    let _ = pool.publish_root("cells", 0, made)?.persist();
    let cells = CellArray::open(pool, scheme, root)?;
    let mut outcomes = Vec::new();
    let mut value = vec![0; size_bytes];
    for pattern in Pattern::ALL {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            // Where to go is known before the clock runs. Each operation goes elsewhere: it is not to
            // find in the caches what the one before has left there.
            let mut random = SmallRng::seed_from_u64(options.seed ^ (number as u64) << 32);
            let places: Vec<usize> = (0..operations)
                .map(|at| match pattern {
                    Pattern::Sequential => (number * operations + at) % count,
                    Pattern::Random => random.random_range(0..count),
                })
                .collect();
            let counts = (machine.counts)();
            let began = (machine.now_ns)();
            let mut sum = 0u64;
            match operation {
                Operation::Update => {
                    for (at, &place) in places.iter().enumerate() {
                        value[..8].copy_from_slice(&(at as u64).to_le_bytes());
                        cells.update(place, &value)?;
                    }
                }
                Operation::Read => {
                    for &place in &places {
                        cells.read(place, &mut value)?;
                        sum = sum.wrapping_add(first_word(&value));
                    }
                }
                Operation::DependentRead => {
                    for &place in &places {
                        // Zero, which the processor cannot know before it has the value.
                        let nothing = (first_word(&value) >> 63) as usize;
                        cells.read(place + nothing, &mut value)?;
                        sum = sum.wrapping_add(first_word(&value));
                    }
                }
            }
            std::hint::black_box(sum);
            let elapsed_ns = (machine.now_ns)() - began;
            let counts = (machine.counts)() - counts;
            let cell_bytes = cells.cell_bytes();
            outcomes.push(Outcome {
                operation,
                pattern,
                operations,
                elapsed_ns,
                counts,
                cell_bytes,
            });
            let last = places.len() - 1;
            if operation == Operation::Update {
                cells.read(places[last], &mut value)?;
                if first_word(&value) != last as u64 {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(outcomes))
}

fn first_word(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
