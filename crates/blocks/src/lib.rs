//! Failure-atomic building blocks on persistent memory: logs, page propagation, in-place updates,
//! interleaving; and a write-ahead log on block devices.

#[macro_use]
mod declaration;
pub mod block_log;
pub mod fp_leaf;
pub mod fp_leaves;
pub mod in_place;
pub mod interleave;
pub mod log;
#[doc(hidden)]
pub mod mutants;
pub mod page;
pub mod ring_log;
mod root_checksum;
mod set_bits;
pub mod shared_log;
mod spacing;
pub mod thread_logs;

pub use declaration::{CellRun, Declaration, LogRun};
pub use in_place::CellKind;
pub use page::{PageKind, PageRun};

// The log, its module, and what it is as a log in a ring, if it is one.
logs! { ($)
    ClassicLog classic_log [Classic];
    HeaderLog header_log [Header];
    Rawl rawl [Raw];
    PopLog pop_log [];
    PopRing pop_ring [Pop];
}
