//! Devices: what a memory does, measured here and modelled.

pub mod arena;
pub mod bandwidth;
pub mod interference;
pub mod latency;
pub mod machine;
pub mod modelled_machine;
pub mod point;
pub mod program;
pub mod this_machine;
