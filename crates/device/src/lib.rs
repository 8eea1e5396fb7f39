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

mod counting;
mod crash_states;
mod modelled;
pub mod profile;
mod random;
mod scheduler;
pub mod ssd;
mod trace;

pub use crash_states::{crash_points, images, persistence, pruned_images};
pub use scheduler::litmus;
pub use trace::trace_file;

pub use counting::cache::CacheShape;
pub use counting::clock::interleave;
pub use counting::counters::{Counts, MachineShape};
pub use counting::hierarchy::HierarchyShape;
pub use counting::timing::{Picoseconds, TimingShape};
pub use counting::xp_buffer::XpBufferShape;
pub use crash_states::bytes_of_line::{BytesOfLine, differing_bytes, word_of};
pub use crash_states::crash_points::{CrashCause, CrashPoint, CrashPoints};
pub use crash_states::images::{CrashStates, Image, ImageBudget, Images, write_line};
pub use crash_states::pending::LineBytes;
pub use crash_states::persistence::PowerFailDomain;
pub use crash_states::pruned_images::PrunedImages;
pub use modelled::persist_points::{PersistKind, PersistPoint, PersistPointCount};
pub use modelled::read_watch::LineRead;
pub use modelled::{Config, MODELLED_BYTES_LIMIT, Modelled, ModelledWord, StructuralEvent};
pub use profile::{Profile, ProfileError};
pub use scheduler::bounded_search::BoundedSearch;
pub use scheduler::schedule::{BadSchedule, Deviation, Schedule, SchedulePolicy};
pub use scheduler::worker::{current_worker, set_current_worker};
pub use scheduler::{InterleavedRun, RunEnd, WorkerProgram};
pub use ssd::{
    BlockDamage, ModelledSsd, SsdConfig, SsdContents, SsdFaults, SsdProfile, SsdProfileError,
};
pub use trace::block_devices::{BlockEvent, BlockWrite};
pub use trace::{Event, Marker, StorageGrowth, Stored, Trace};
