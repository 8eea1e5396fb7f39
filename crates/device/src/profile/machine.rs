//! The counted machine that a profile stands for.

use super::Profile;
use crate::counting::cache::CacheShape;
use crate::counting::counters::MachineShape;
use crate::counting::hierarchy::HierarchyShape;
use crate::counting::timing::{Picoseconds, TimingShape};
use crate::counting::xp_buffer::XpBufferShape;

impl Profile {
    /// The machine to give to [`Config::counting`](crate::Config).
    pub fn machine(&self) -> MachineShape {
        let cache = |capacity_bytes: u64, ways: u64| CacheShape {
            capacity_bytes: capacity_bytes as usize,
            ways: ways as usize,
        };
        let (caches, core, memory) = (&self.caches, &self.core, &self.memory);
        let caches_shape = HierarchyShape {
            l1: cache(caches.l1_capacity_bytes.value, caches.l1_ways.value),
            l2: cache(caches.l2_capacity_bytes.value, caches.l2_ways.value),
            l3: cache(caches.l3_capacity_bytes.value, caches.l3_ways.value),
            flush_keeps_line: caches.flush_keeps_line.value,
        };
        let xp_buffer = XpBufferShape {
            lines_per_unit: (memory.media_unit_bytes.value / 64) as u32,
            units: memory.buffer_units.value as usize,
            spare_units: memory.buffer_spare_units.value as usize,
            candidates: memory.eviction_candidates.value as usize,
            eager_permille: (memory.eager_write_back_chance.value * 1000.0).round() as u32,
            own_writes_permille: memory.own_writes_per_1000.value as u32,
            modules: memory.modules.value as usize,
            lines_per_stripe: (memory.interleave_bytes.value / 64) as u32,
            lines_in_flight: core.line_fill_buffers.value as usize,
            lines_in_read_queue: memory.read_queue_lines.value as usize,
            seed: 0,
        };
        let time = Picoseconds::from_ns;
        let timing = TimingShape {
            l1_load: time(caches.l1_latency_ns.value),
            l2_load: time(caches.l2_latency_ns.value),
            l3_load: time(caches.l3_latency_ns.value),
            other_core_load: time(caches.other_core_latency_ns.value),
            dram_read: time(self.dram.read_random_ns.value),
            line_fill_buffers: core.line_fill_buffers.value as usize,
            store: time(core.store_ns.value),
            store_miss_interval: time(core.store_miss_interval_ns.value),
            locked: time(core.locked_ns.value),
            flush_issue: time(core.flush_issue_ns.value),
            write_back_interval: time(core.write_back_interval_ns.value),
            nontemporal_interval: time(core.nontemporal_interval_ns.value),
            fence: time(core.fence_ns.value),
            fence_holds_loads: core.fence_holds_loads.value,
            read_buffer: time(memory.read_buffer_ns.value),
            read_buffer_other_unit: time(memory.read_buffer_other_unit_ns.value),
            read_media: time(memory.read_media_ns.value),
            read_service: time(memory.read_service_ns.value),
            read_beside_write: time(memory.read_beside_write_ns.value),
            write_service: time(memory.write_service_ns.value),
            translation_entries: memory.translation_entries.value as usize,
            translation_miss: time(memory.translation_miss_ns.value),
            wpq_lines: memory.wpq_lines.value,
            flush_accept: time(memory.flush_accept_ns.value),
            nontemporal_accept: time(memory.nontemporal_accept_ns.value),
            flush_line_interval: time(memory.flush_line_interval_ns.value),
            nontemporal_line_interval: time(memory.nontemporal_line_interval_ns.value),
            other_stripe: time(memory.other_stripe_ns.value),
            write_backlog_units: memory.write_backlog_units.value,
            same_line: time(memory.same_line_ns.value),
            read_after_persist: time(memory.read_after_persist_ns.value),
            wear_block_stripes: (memory.wear_block_bytes.value / memory.interleave_bytes.value)
                as u32,
            wear_stall_writes: memory.wear_stall_writes.value as u32,
            wear_stall: time(memory.wear_stall_ns.value),
        };
        MachineShape { caches: caches_shape, xp_buffer, timing }
    }

    /// The same with the media on one module, for measurements of a single one.
    pub fn machine_of_one_module(&self) -> MachineShape {
        let machine = self.machine();
        let xp_buffer = XpBufferShape { modules: 1, ..machine.xp_buffer };
        MachineShape { xp_buffer, ..machine }
    }
}
