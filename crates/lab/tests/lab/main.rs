//! The laboratory as its users see it: one binary, a module for each part of it.

mod block_traces;
mod device_calibration;
mod index_experiment;
mod modelled_store;
mod page_experiment;
mod placements;
mod store_workloads;
mod wort_study;
