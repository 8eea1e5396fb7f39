//! The crash checker from outside: on the structures of Lapis, on errors planted in them, and on
//! recorded traces.

mod concurrent;
mod crash_points;
mod fptree;
mod inner_nodes_in_pool;
mod mutants;
mod performance;
mod persist_points;
mod recorded;
mod shrinking;
mod shrinking_workers;
mod storage;
mod strategies;
mod survives;
