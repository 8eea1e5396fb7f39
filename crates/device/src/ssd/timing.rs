//! Virtual time of an SSD.
//!
//! A request waits for one of the device's `queue_depth` slots, then for its latency, then for the
//! bus in its direction, which carries one transfer at a time. So a single stream of small requests
//! is bound by latency, many streams by `queue_depth / latency`, large ones by bandwidth. Reads and
//! writes do not share a bus (PCIe is full duplex) but do share the slots. A flush takes its slot
//! when every write before it is done.

use lapis_pmem::BlockOperation;

use super::profile::SsdProfile;

#[derive(Debug)]
pub(super) struct Timing {
    profile: SsdProfile,
    /// When each slot is free.
    slots: Vec<u64>,
    read_bus_free_ns: u64,
    write_bus_free_ns: u64,
    last_write_ns: u64,
}

impl Timing {
    pub(super) fn new(profile: SsdProfile) -> Self {
        Self {
            profile,
            slots: vec![0; profile.queue_depth as usize],
            read_bus_free_ns: 0,
            write_bus_free_ns: 0,
            last_write_ns: 0,
        }
    }

    pub(super) fn profile(&self) -> &SsdProfile {
        &self.profile
    }

    /// When a request that is submitted at `submit_ns` will be done.
    pub(super) fn schedule(
        &mut self,
        operation: BlockOperation,
        bytes: usize,
        submit_ns: u64,
    ) -> u64 {
        let earliest = (0..self.slots.len()).min_by_key(|&slot| self.slots[slot]);
        let slot = &mut self.slots[earliest.expect("a device has at least one slot")];
        let start = submit_ns.max(*slot);
        let done = match operation {
            BlockOperation::Read => {
                let begin = (start + self.profile.read_latency_ns).max(self.read_bus_free_ns);
                self.read_bus_free_ns = begin + transfer_ns(bytes, self.profile.read_gb_s);
                self.read_bus_free_ns
            }
            // A discard transfers nothing.
            BlockOperation::Write | BlockOperation::Discard => {
                let moved = if operation == BlockOperation::Write { bytes } else { 0 };
                let begin = (start + self.profile.write_latency_ns).max(self.write_bus_free_ns);
                self.write_bus_free_ns = begin + transfer_ns(moved, self.profile.write_gb_s);
                self.last_write_ns = self.last_write_ns.max(self.write_bus_free_ns);
                self.write_bus_free_ns
            }
            BlockOperation::Flush => start.max(self.last_write_ns) + self.profile.flush_latency_ns,
        };
        *slot = done;
        done
    }
}

/// Nanoseconds for `bytes` bytes at `gb_s` bytes per nanosecond.
fn transfer_ns(bytes: usize, gb_s: f64) -> u64 {
    (bytes as f64 / gb_s).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: SsdProfile = SsdProfile {
        read_latency_ns: 80_000,
        write_latency_ns: 20_000,
        flush_latency_ns: 500_000,
        read_gb_s: 4.096,
        write_gb_s: 2.048,
        queue_depth: 4,
    };

    #[test]
    fn a_single_stream_is_bound_by_latency() {
        let mut timing = Timing::new(PROFILE);
        let mut now = 0;
        for _ in 0..10 {
            now = timing.schedule(BlockOperation::Read, 4096, now);
        }
        assert_eq!(now, 10 * (80_000 + 1_000));
    }

    #[test]
    fn parallel_streams_are_bound_by_the_slots() {
        let mut timing = Timing::new(PROFILE);
        let done: Vec<u64> =
            (0..8).map(|_| timing.schedule(BlockOperation::Read, 4096, 0)).collect();
        assert_eq!(
            done,
            [81_000, 82_000, 83_000, 84_000, 162_000, 163_000, 164_000, 165_000],
            "four at a time, one transfer at a time"
        );
    }

    #[test]
    fn large_transfers_are_bound_by_bandwidth() {
        let mut timing = Timing::new(PROFILE);
        let bytes = 1 << 20;
        let last = (0..64).map(|_| timing.schedule(BlockOperation::Write, bytes, 0)).max();
        assert_eq!(last, Some(20_000 + 64 * 512_000));
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it() {
        let mut timing = Timing::new(PROFILE);
        let written = timing.schedule(BlockOperation::Write, 4096, 0);
        assert_eq!(timing.schedule(BlockOperation::Flush, 0, 0), written + 500_000);
    }
}
