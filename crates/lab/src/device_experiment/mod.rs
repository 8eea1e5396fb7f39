//! `lab device`: what a modelled machine does, beside what was published about the real one.
//!
//! Every modelled figure comes out of running the access pattern of the published measurement
//! through the model; none is looked up. [`calibration`] makes the rows, and the table of
//! `docs/calibration.md` from them. [`this_machine`] measures this machine's own memory, with the
//! model beside it.

pub mod arena;
pub mod bandwidth;
pub mod calibration;
mod experiments;
mod hot_spots;
mod index_writes;
pub mod interference;
pub mod latency;
pub mod machine;
mod mixed;
pub mod modelled_machine;
mod patterns;
pub mod point;
pub mod program;
mod published;
pub mod this_machine;

use lapis_device::ProfileError;
use lapis_pmem::RegionError;

pub use calibration::{COMMAND, DeviceResults, Row, calibrate, calibration_table, shown};

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// There is no memory for the experiment.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// An index could not be made or did not take its keys.
    #[error(transparent)]
    Index(Box<crate::index_experiment::ExperimentError>),
}
