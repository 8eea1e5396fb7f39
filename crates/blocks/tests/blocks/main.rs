//! The building blocks from outside.

mod formats;
mod in_place;
mod interleave;
mod page;
mod pop_log;
mod ring_logs;
