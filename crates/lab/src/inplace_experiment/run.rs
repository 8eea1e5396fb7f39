//! Cells of one scheme and size on one machine.

use std::sync::Arc;

use lapis_blocks::in_place::{CellArray, CellKind, CowCell, FamCell, InPlace, LogCell};
use lapis_blocks::log::Placement;
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_pmem::{Domain, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{ExperimentError, Operation, Options, Pattern};
use crate::experiment::meter::{Meter, Section};

/// One row of one machine.
pub(super) struct Outcome {
    pub(super) operation: Operation,
    pub(super) pattern: Pattern,
    pub(super) operations: usize,
    pub(super) section: Section,
    pub(super) cell_bytes: usize,
}

const LOG: PopLogOptions =
    PopLogOptions { segment_bytes: 1 << 20, spare_segments: 2, placement: Placement::Padded };

/// Runs everything on cells of one scheme and size in a new pool.
pub(super) fn run_variant<D: Domain>(
    pool: Pool<D>,
    meter: &impl Meter,
    (variant, size_bytes): (CellKind, usize),
    operations: usize,
    options: &Options,
) -> Result<Vec<Outcome>, ExperimentError> {
    let pool = &Arc::new(pool);
    let outcomes = match variant {
        CellKind::Cow => run_scheme(pool, meter, CowCell, size_bytes, operations, options)?,
        CellKind::Fam => {
            run_scheme(pool, meter, FamCell::default(), size_bytes, operations, options)?
        }
        CellKind::Log => {
            let root = pool.fence(PopLog::create(pool, LOG)?);
            let link = root.link();
            let _ = pool.publish_root("log", 0, root)?.persist();
            let log = PopLog::open(Arc::clone(pool), link)?;
            let scheme = LogCell::open(pool, log)?;
            run_scheme(pool, meter, scheme, size_bytes, operations, options)?
        }
    };
    let wrong = || format!("{variant} cells of {size_bytes} bytes gave a wrong value");
    outcomes.ok_or_else(|| ExperimentError::wrong(wrong()))
}

/// Runs everything on cells of one scheme; none if a value was wrong.
fn run_scheme<D: Domain, S: InPlace<D>>(
    pool: &Arc<Pool<D>>,
    meter: &impl Meter,
    scheme: S,
    size_bytes: usize,
    operations: usize,
    options: &Options,
) -> Result<Option<Vec<Outcome>>, ExperimentError> {
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
            meter.settle();
            let (sum, section) = meter.section(1, || {
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
                Ok::<_, ExperimentError>(sum)
            })?;
            std::hint::black_box(sum);
            let cell_bytes = cells.cell_bytes();
            outcomes.push(Outcome { operation, pattern, operations, section, cell_bytes });
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
