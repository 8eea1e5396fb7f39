//! The fields of a profile: names, kinds, bounds.
//!
//! A bound is part of the format. What follows from a value in bytes of the model (tags of a cache,
//! entries of a buffer) is a few hundred megabytes at the very most.

use serde::Serialize;

use super::section::{Kind, Section};
use super::{FieldListing, ProfileError, Sourced};

macro_rules! section {
    (
        $(#[$about:meta])*
        $section:ident $title:literal {
            $($(#[$meta:meta])* $field:ident: $kind:ty = $least:literal ..= $most:literal),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct $section {
            $($(#[$meta])* pub $field: Sourced<$kind>),*
        }

        impl $section {
            pub(super) const TITLE: &'static str = $title;

            pub(super) fn read(section: &mut Section<'_>) -> Result<Self, ProfileError> {
                Ok(Self { $($field: section.take(stringify!($field), $least, $most)?),* })
            }

            pub(super) fn listing(&self) -> Vec<FieldListing> {
                vec![$(FieldListing {
                    field: format!("{}.{}", $title, stringify!($field)),
                    value: self.$field.value.in_words(),
                    trust: self.$field.trust,
                    source: self.$field.source.clone(),
                }),*]
            }
        }
    };
}

section! {
    /// The caches. L1 and L2 are each worker's own, L3 is everybody's and takes what L2 casts out.
    Caches "caches" {
        /// Bytes of L1.
        l1_capacity_bytes: u64 = 64 ..= 1_048_576,
        /// Lines in a set of L1.
        l1_ways: u64 = 1 ..= 64,
        /// A load that hits L1.
        l1_latency_ns: f64 = 0.0 ..= 1e4,
        /// Bytes of L2, which holds all that L1 holds.
        l2_capacity_bytes: u64 = 64 ..= 16_777_216,
        /// Lines in a set of L2.
        l2_ways: u64 = 1 ..= 64,
        /// A load that hits L2.
        l2_latency_ns: f64 = 0.0 ..= 1e4,
        /// Bytes of L3, of all cores together.
        l3_capacity_bytes: u64 = 64 ..= 1_073_741_824,
        /// Lines in a set of L3.
        l3_ways: u64 = 1 ..= 64,
        /// A load that hits L3.
        l3_latency_ns: f64 = 0.0 ..= 1e4,
        /// An access to a line that another core's private caches hold.
        other_core_latency_ns: f64 = 0.0 ..= 1e4,
        /// Whether a flushed line stays in the cache.
        flush_keeps_line: bool = 0 ..= 1,
    }
}

section! {
    /// What a core does by itself.
    Core "core" {
        /// Lines that one core can have on the way from memory at a time, and as many written ones on
        /// the way to it.
        line_fill_buffers: u64 = 1 ..= 256,
        /// A store, which waits for nothing but room.
        store_ns: f64 = 0.0 ..= 1e4,
        /// Time between two stores of one core to lines that no cache held.
        store_miss_interval_ns: f64 = 0.0 ..= 1e4,
        /// A locked instruction once it has the line.
        locked_ns: f64 = 0.0 ..= 1e4,
        /// Issuing a flush.
        flush_issue_ns: f64 = 0.0 ..= 1e4,
        /// Time between two dirty lines that one core writes back.
        write_back_interval_ns: f64 = 0.0 ..= 1e4,
        /// Time between two lines that one core stores non-temporally.
        nontemporal_interval_ns: f64 = 0.0 ..= 1e4,
        /// A fence with nothing to wait for.
        fence_ns: f64 = 0.0 ..= 1e4,
        /// Whether loads behind a fence wait for it (`mfence`), or stores alone (`sfence`).
        fence_holds_loads: bool = 0 ..= 1,
        /// What an operation of an index costs the core beyond its memory accesses.
        operation_ns: f64 = 0.0 ..= 1e6,
    }
}

section! {
    /// Ordinary memory beside the persistent one.
    Dram "dram" {
        /// Latency of a read that follows its neighbour.
        read_sequential_ns: f64 = 0.1 ..= 1e6,
        /// Latency of a read anywhere.
        read_random_ns: f64 = 0.1 ..= 1e6,
    }
}

section! {
    /// Persistent memory.
    Memory "memory" {
        /// Modules, interleaved.
        modules: u64 = 1 ..= 64,
        /// Bytes that lie on one module before the next one's turn comes.
        interleave_bytes: u64 = 256 ..= 16_777_216,
        /// Bytes that the media read and write at a time: 64, 128, 256 or 512.
        media_unit_bytes: u64 = 64 ..= 512,
        /// Units that a module's buffer holds.
        buffer_units: u64 = 1 ..= 4096,
        /// Further units that are on their way into or out of the buffer.
        buffer_spare_units: u64 = 0 ..= 256,
        /// Entries drawn at random when room is needed; the one least recently used leaves.
        eviction_candidates: u64 = 1 ..= 16,
        /// Chance, at each line that arrives, that a completely written unit is written back.
        eager_write_back_chance: f64 = 0.0 ..= 1.0,
        /// Media writes that the module adds on its own behalf to a thousand others.
        own_writes_per_1000: u64 = 0 ..= 1000,
        /// Latency of reading a line that the buffer holds, of the unit that the media gave last.
        read_buffer_ns: f64 = 0.1 ..= 1e6,
        /// Latency of reading a line that the buffer holds, of any other unit.
        read_buffer_other_unit_ns: f64 = 0.1 ..= 1e6,
        /// Latency of reading a line from the media.
        read_media_ns: f64 = 0.1 ..= 1e6,
        /// Time between two reads of one module's media.
        read_service_ns: f64 = 0.0 ..= 1e6,
        /// The same for a read that overlaps a write.
        read_beside_write_ns: f64 = 0.0 ..= 1e6,
        /// Time between two writes of one module's media, in whole or in part.
        write_service_ns: f64 = 0.0 ..= 1e6,
        /// Lines that a module reads for cores in the order in which they ask; of further ones any
        /// comes next.
        read_queue_lines: u64 = 1 ..= 65_536,
        /// Pages whose addresses a module can translate at once.
        translation_entries: u64 = 1 ..= 65_536,
        /// What a read of another page's media costs on top.
        translation_miss_ns: f64 = 0.0 ..= 1e6,
        /// Lines that wait in the write pending queue of a module before cores do.
        wpq_lines: u64 = 1 ..= 1024,
        /// Time from the core to the module's acceptance and back, for a line written back.
        flush_accept_ns: f64 = 0.0 ..= 1e6,
        /// The same for a line stored non-temporally.
        nontemporal_accept_ns: f64 = 0.0 ..= 1e6,
        /// Time for which a module is busy taking a line that was written back.
        flush_line_interval_ns: f64 = 0.0 ..= 1e6,
        /// The same for a line stored non-temporally.
        nontemporal_line_interval_ns: f64 = 0.0 ..= 1e6,
        /// How much later a line comes that belongs to another stripe than the module's last.
        other_stripe_ns: f64 = 0.0 ..= 1e6,
        /// Media writes that a module may be behind before it takes no more lines.
        write_backlog_units: u64 = 1 ..= 4096,
        /// Time after which a line that a module has taken can be taken once more.
        same_line_ns: f64 = 0.0 ..= 1e6,
        /// Time after which a line written to the module can be read from it.
        read_after_persist_ns: f64 = 0.0 ..= 1e6,
        /// Bytes of a module within which it counts writes, to move what is written much elsewhere.
        wear_block_bytes: u64 = 256 ..= 1_073_741_824,
        /// Media writes to one such block, more than to all others, after which the module moves it.
        wear_stall_writes: u64 = 1 ..= 1_000_000_000,
        /// Time for which it takes nothing meanwhile.
        wear_stall_ns: f64 = 0.0 ..= 1e9,
    }
}

section! {
    /// The block device below.
    Ssd "ssd" {
        /// A read of four kilobytes.
        read_latency_ns: f64 = 1.0 ..= 1e10,
        /// A write of four kilobytes.
        write_latency_ns: f64 = 1.0 ..= 1e10,
        /// Emptying the volatile cache.
        flush_latency_ns: f64 = 0.0 ..= 1e10,
        /// Sequential reading.
        read_gb_s: f64 = 0.000001 ..= 1000.0,
        /// Sequential writing.
        write_gb_s: f64 = 0.000001 ..= 1000.0,
        /// Requests that are served at a time.
        queue_depth: u64 = 1 ..= 65_536,
    }
}

section! {
    /// What the core does for operations that are interleaved on one thread, beyond what the model
    /// charges for their accesses (`lapis lab coroutine --calibrate`): found with all their lines in
    /// L1, but for what concerns page walks.
    Interleaving "interleaving" {
        /// A lookup in a leaf.
        lookup_ns: f64 = 0.0 ..= 1e6,
        /// Each time that a lookup gives way to another task, and is resumed.
        lookup_switch_ns: f64 = 0.0 ..= 1e6,
        /// An insert into a leaf.
        insert_ns: f64 = 0.0 ..= 1e6,
        /// Each time that an insert gives way to another task, and is resumed.
        insert_switch_ns: f64 = 0.0 ..= 1e6,
        /// The walk through the page tables when an operation comes to a page that it has not been on
        /// lately, where it waits for the line.
        page_walk_ns: f64 = 0.0 ..= 1e6,
        /// The share of it that is left in a group, whose tasks prefetch the line.
        page_walk_shown: f64 = 0.0 ..= 1.0,
    }
}
