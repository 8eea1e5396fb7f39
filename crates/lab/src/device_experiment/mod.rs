//! `lab device`: what a modelled machine does, beside what was published about the real one.
//!
//! Every modelled figure comes out of running the access pattern of the published measurement
//! through the model; none is looked up. [`calibration`] makes the rows, and the tables of
//! `docs/calibration.md` from them; [`fitting`] shows what the profile was fitted to. [`this_machine`] measures this machine's own memory, with the
//! model beside it.

pub mod arena;
pub mod bandwidth;
pub mod calibration;
mod experiments;
pub mod fitting;
mod hot_spots;
mod independent;
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
mod raw_runs;
pub mod this_machine;

pub use calibration::{DeviceResults, Row, calibrate, sorted_errors};
pub use fitting::{Fitting, fit};
pub use published::Role;
