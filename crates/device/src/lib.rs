//! The modelled machine: caches, write pending queue, XPLine buffer, counters and crash images.
//!
//! [`Modelled`] is a [`lapis_pmem::Domain`] over ordinary memory: every load, store, flush and
//! fence of a structure is an event of a model that can
//!
//! * record a [`Trace`], from which [`CrashPoints`] enumerates every state that a power cut may
//!   leave (the rules are in [`persistence`]);
//! * track which lines were dirtied and put them back ([`Modelled::revert`]), so that a recovery
//!   can be tried on one image after another;
//! * count what reaches the memory controller and the media ([`Counts`]), on the machine of a
//!   [`Profile`], and keep the virtual time of each worker ([`interleave`]);
//! * switch a single flush or fence off ([`Config::suppress`]), to show that it is necessary.
//!
//! [`ModelledSsd`] does the same for block storage: it is a [`lapis_pmem::BlockDevice`], on its own or
//! attached to a machine, whose trace, clocks, scheduler and crash points then hold for both.
//!
//! Nothing here depends on the host's time, addresses or its scheduler: the same program gives
//! the same trace and the same counts on every run and every machine.

mod block_trace;
mod bounded_search;
mod cache;
mod clock;
mod counters;
pub mod crash_points;
mod divider;
mod hierarchy;
mod host;
pub mod images;
mod line_bytes;
mod line_table;
pub mod litmus;
mod lookahead;
mod modelled;
mod owner_lock;
mod pending;
mod persist_points;
pub mod persistence;
pub mod profile;
pub mod pruned_images;
mod random;
mod read_watch;
mod schedule;
mod scheduler;
pub mod ssd;
mod store_buffer;
mod surviving_caches;
mod timing;
mod timings;
mod trace;
pub mod trace_file;
mod tracking;
mod worker;
mod xp_buffer;

pub use block_trace::{BlockEvent, BlockWrite};
pub use bounded_search::BoundedSearch;
pub use cache::CacheShape;
pub use clock::interleave;
pub use counters::{Counts, MachineShape};
pub use crash_points::{CrashCause, CrashPoint, CrashPoints};
pub use hierarchy::HierarchyShape;
pub use images::{CrashStates, Image, ImageBudget, Images, write_line};
pub use line_bytes::{BytesOfLine, differing_bytes};
pub use modelled::{Config, MODELLED_BYTES_LIMIT, Modelled, ModelledWord};
pub use pending::LineBytes;
pub use persist_points::{PersistKind, PersistPoint, PersistPointCount};
pub use persistence::PowerFailDomain;
pub use profile::{Profile, ProfileError};
pub use pruned_images::PrunedImages;
pub use read_watch::LineRead;
pub use schedule::{BadSchedule, Deviation, Schedule, SchedulePolicy};
pub use scheduler::{InterleavedRun, RunEnd, WorkerProgram};
pub use ssd::{
    BlockDamage, ModelledSsd, SsdConfig, SsdContents, SsdFaults, SsdProfile, SsdProfileError,
};
pub use timing::{Picoseconds, TimingShape};
pub use trace::{Event, Marker, Trace};
pub use worker::{current_worker, set_current_worker};
pub use xp_buffer::XpBufferShape;
