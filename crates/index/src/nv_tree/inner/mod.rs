//! The inner nodes: volatile, contiguous, without pointers, rebuilt piece by piece.
//!
//! ```text
//!  directory: separators of segments ──▶ segment: inner node │ PLN │ PLN │ … ──▶ leaves
//! ```
//!
//! The paper keeps all inner nodes in one array and builds it anew whenever a PLN overflows, so that
//! filling a tree from one end costs the square of its size. Here the array is cut into segments of
//! one inner node and its PLNs, and what is built anew is the one segment in which a PLN overflows
//! or runs empty: never more than [`Shape::fanout`] PLNs, after at least half a PLN's entries have
//! come or gone. The directory, some hundred words, is copied each time and swapped as a whole.

mod arena;
mod directory;
mod segment;

pub(super) use directory::{Directory, Found, Probe, Rebuilt};
pub(super) use segment::{Edit, Entry, MOST_PLN_ENTRIES, Separator, Shape};
