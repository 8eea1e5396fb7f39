//! The store as its users see it.

mod concurrency;
mod costs;
mod damage;
mod fixture;
mod full;
mod harness;
mod model;
mod opening;
mod operations;
mod overlay;
mod ranges;
mod recovery;
mod snapshots;
mod tables;
mod transactions;
