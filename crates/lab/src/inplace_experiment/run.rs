//! Cells of one scheme and size on one machine.

use std::sync::Arc;

use lapis_blocks::in_place::{CellArray, InPlace};
use lapis_blocks::log::{Layout, Placement};
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
    pub(super) barriers: u64,
}

/// Of the log of cells that take one.
const LOG: Layout = Layout { bytes: 1 << 20, placement: Placement::Padded, size_fields: 1 };

/// Runs everything on cells of one scheme and size in a new pool.
pub(super) fn run_cells<D: Domain, S: InPlace<D>>(
    pool: Pool<D>,
    meter: &impl Meter,
    size_bytes: usize,
    operations: usize,
    options: &Options,
) -> Result<Vec<Outcome>, ExperimentError> {
    let pool = &Arc::new(pool);
    let scheme = S::make_in(pool, LOG)?;
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
            let (cell_bytes, barriers) =
                (cells.cell_bytes(), if operation == Operation::Update { S::BARRIERS } else { 0 });
            outcomes.push(Outcome {
                operation,
                pattern,
                operations,
                section,
                cell_bytes,
                barriers,
            });
            let last = places.len() - 1;
            if operation == Operation::Update {
                cells.read(places[last], &mut value)?;
                if first_word(&value) != last as u64 {
                    let what = format!("{} of {size_bytes} bytes gave a wrong value", S::KIND);
                    return Err(ExperimentError::wrong(what));
                }
            }
        }
    }
    Ok(outcomes)
}

fn first_word(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
