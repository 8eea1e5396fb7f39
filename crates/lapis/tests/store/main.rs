//! The store from outside. What transactions, recovery and scans promise is tested where they are made, in
//! `lapis-engine`; here is what a store adds: files, defaults, the thread in the background, refusals.

mod backup;
mod concurrency;
mod damage;
mod durability;
mod fixture;
mod full_disk;
mod harness;
mod information;
mod killed;
mod lifetimes;
mod opening;
mod operations;
mod persistent_memory;
mod read_only;
mod transactions;
