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

pub use calibration::{DeviceResults, Row, calibrate};
