//! Workloads and experiments over the indexes and the store.

pub mod amplification;
pub mod block_trace;
pub mod capability_table;
pub mod compare;
pub mod coroutine_experiment;
pub mod device_experiment;
pub mod document;
pub mod experiment;
pub mod index_experiment;
pub mod inplace_experiment;
pub mod key_value;
pub mod keys;
pub mod log_experiment;
pub mod modelled_store;
mod named;
pub mod page_experiment;
pub mod plot;
pub mod progress;
pub mod replay;
pub mod report;
pub mod wort_study;
pub mod ycsb;
pub mod zipfian;
