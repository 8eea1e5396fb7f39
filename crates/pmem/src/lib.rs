//! The persistence domain of Lapis: everything that touches persistent memory.
//!
//! A structure written on this crate is generic over the machine it runs on ([`Domain`]): real
//! hardware ([`Hardware`]) or the modelled machine of `lapis-device`, which counts what reaches the
//! media and enumerates what a power cut may leave. It is made of
//!
//! * persistent structs ([`persistent!`]) whose fields are cells ([`PCell`], [`Slot`]),
//! * in a [`Pool`] (header, named roots, allocator, epochs) over a [`Region`] (DAX file, device-DAX,
//!   ordinary file, anonymous memory),
//! * linked by pool-relative [`Link`]s,
//! * brought into reach through ordering typestates ([`Owned`]) that make a wrong order of stores,
//!   flushes and fences fail to compile, and ended by a [`Committed`], the proof of durability.
//!
//! Beside it lies the floor of block storage: [`BlockDevice`], over a file or `io_uring`; its rules
//! D1–D6 are in [`block_device`].
//!
//! What may be relied on across a power cut is written down as rules R1–R6 in [`domain`].

pub mod allocator;
mod answer;
mod block_buffer;
pub mod block_device;
mod block_file;
mod blocks;
mod cell;
mod commit;
pub mod domain;
mod dram_cell;
mod dram_words;
pub mod epoch;
mod file_backed;
mod file_device;
mod file_lock;
mod hardware;
mod hold_ups;
pub mod host_lock;
mod instructions;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
mod io_uring_device;
mod lock;
mod lock_word;
#[cfg(loom)]
mod loom_machine;
mod mutant;
mod nontemporal;
mod observed;
mod omission;
mod optimisation;
mod overlay_device;
mod owned;
mod owner_lock;
mod page_frame;
pub mod parts;
mod pool;
mod pool_device;
mod reachable;
mod reclaim;
mod region;
mod serial_queue;
mod shards;
mod sync_file;
mod watched;
mod word;
pub mod word_copy;

pub use allocator::{AllocError, LARGEST_BLOCK_BYTES};
pub use answer::persist_before_answer;
pub use block_buffer::BlockBuffer;
pub use block_device::{
    BLOCK_BYTES, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue, Completion,
    Request, SECTOR_BYTES,
};
pub use block_file::{BlockOpenError, DirectTransfers};
pub use blocks::{Batch, Blocks, InOrder};
pub use cell::{LINK_MASK, Link, PCell, Persistent, Publication, Rejected, Slot};
pub use commit::{Committed, Flushed, Visible};
pub use domain::{Domain, DomainFault, LINE_BYTES, XPLINE_BYTES};
pub use dram_cell::{DramCell, DramWord, PlainWord};
pub use dram_words::DramWords;
pub use file_device::FileDevice;
pub use file_lock::{Access, LockHolder};
pub use hardware::{FlushMethod, Hardware, UnavailableFlush};
pub use hold_ups::HoldUps;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub use io_uring_device::IoUringDevice;
pub use lock::{GenerationLock, LockWait};
pub use lock_word::{LockGeneration, LockWord};
#[cfg(loom)]
pub use loom_machine::{LoomAtomic, LoomMachine, loom_fence};
pub use mutant::{MutantEntry, MutantList};
pub use observed::{Mutant, Observed};
pub use omission::Omission;
pub use optimisation::{Optimisation, Optimisations, UnknownOptimisation};
pub use overlay_device::OverlayDevice;
pub use owned::{Dirty, Durable, InFlight, Owned};
pub use owner_lock::{OwnerGuard, OwnerLock};
pub use page_frame::{PAGE_FRAME_BYTES, PageFrame};
pub use pool::{
    FORMAT_VERSION, MIN_POOL_BYTES, Pool, PoolError, ROOT_CAPACITY, ROOT_NAME_BYTES, Reach,
    Resident, RootError, SoleUse, Usage,
};
pub use pool_device::{PoolDevice, PoolDeviceError, PoolDeviceRoot};
pub use reachable::{
    AuditReport, BlockVisitor, ReachabilityProblem, ReachableBlocks, ReachablePart, ReclaimReport,
};
pub use reclaim::Guard;
pub use region::{
    Caches, DEFAULT_RESERVE_BYTES, Durability, EXTENT_BYTES, Guarantee, Medium, MemoryModule,
    PersistenceDomain, Region, RegionError, RegionOptions,
};
pub use watched::{PersistCounts, Watched, Watcher};
pub use word::Word;
