//! What a program costs: caches, buffers and media, counted, and the time that it all takes.
//!
//! ```text
//!  counters ──▶ hierarchy of caches ──▶ XPLine buffers ──▶ media
//!      └──────▶ clocks of the workers, by the delays of the machine's timing
//! ```
//!
//! The rest is what makes it quick: events that wait for the host's memory together, division by
//! multiplication, what is asked of the host's processor.

pub(crate) mod access;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod divider;
pub(crate) mod hierarchy;
pub(crate) mod host_processor;
pub(crate) mod in_flight;
mod last_flushed;
mod reads_under_way;
pub(crate) mod timing;
pub(crate) mod timings;
pub(crate) mod waiting_events;
pub(crate) mod xp_buffer;
