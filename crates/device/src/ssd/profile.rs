//! What an SSD costs, and when requests to it are done.

use lapis_pmem::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use crate::profile::Ssd;

/// The latencies and bandwidths of an SSD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdProfile {
    /// From the submission of a read to its first byte, on an idle device.
    pub read_latency_ns: u64,
    /// From the submission of a write until the volatile cache has it, without the transfer.
    pub write_latency_ns: u64,
    /// What a flush takes once the writes before it are done.
    pub flush_latency_ns: u64,
    /// Bandwidth of reads, in 10^9 bytes per second.
    pub read_gb_s: f64,
    /// Bandwidth of writes, in 10^9 bytes per second.
    pub write_gb_s: f64,
    /// Requests that the device works on at a time; further ones wait.
    pub queue_depth: u32,
}

/// A profile that describes no device.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SsdProfileError {
    /// A bandwidth that is zero, negative or not a number.
    #[error("{field} is {value}; a bandwidth must be more than zero")]
    Bandwidth {
        /// Which of them.
        field: &'static str,
        /// What it is.
        value: f64,
    },
    /// A device that works on nothing.
    #[error("queue_depth is 0; a device must work on at least one request at a time")]
    QueueDepth,
}

impl SsdProfile {
    /// A device that takes no time: for exploring crashes, where only the order counts.
    pub const UNTIMED: Self = Self {
        read_latency_ns: 0,
        write_latency_ns: 0,
        flush_latency_ns: 0,
        read_gb_s: f64::INFINITY,
        write_gb_s: f64::INFINITY,
        queue_depth: 32,
    };

    /// Whether such a device could exist.
    ///
    /// # Errors
    /// [`SsdProfileError`].
    pub fn check(&self) -> Result<(), SsdProfileError> {
        for (field, value) in [("read_gb_s", self.read_gb_s), ("write_gb_s", self.write_gb_s)] {
            if value.is_nan() || value <= 0.0 {
                return Err(SsdProfileError::Bandwidth { field, value });
            }
        }
        if self.queue_depth == 0 {
            return Err(SsdProfileError::QueueDepth);
        }
        Ok(())
    }
}

impl From<&Ssd> for SsdProfile {
    /// The SSD of a device profile. Its latencies are those of a whole block; here the transfer
    /// comes on top of the latency, so that a single block takes what the profile says.
    fn from(profile: &Ssd) -> Self {
        let without_transfer = |latency_ns: f64, gb_s: f64| {
            (latency_ns - BLOCK_BYTES as f64 / gb_s).max(0.0).round() as u64
        };
        Self {
            read_latency_ns: without_transfer(
                profile.read_latency_ns.value,
                profile.read_gb_s.value,
            ),
            write_latency_ns: without_transfer(
                profile.write_latency_ns.value,
                profile.write_gb_s.value,
            ),
            flush_latency_ns: profile.flush_latency_ns.value.round() as u64,
            read_gb_s: profile.read_gb_s.value,
            write_gb_s: profile.write_gb_s.value,
            queue_depth: u32::try_from(profile.queue_depth.value).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::ssd::{ModelledSsd, SsdConfig};
    use lapis_pmem::BlockDevice;

    #[test]
    fn a_block_takes_what_the_device_profile_says() {
        for name in Profile::NAMES {
            let described = Profile::named(name).unwrap().ssd;
            let profile = SsdProfile::from(&described);
            let ssd = ModelledSsd::new(4, SsdConfig { profile, ..SsdConfig::default() }).unwrap();
            let mut block = vec![0; BLOCK_BYTES];
            ssd.read_blocks(0, &mut block).unwrap();
            let read_ns = ssd.now_ns();
            ssd.write_blocks(0, &block).unwrap();
            let written_ns = ssd.now_ns() - read_ns;
            assert!((read_ns as f64 - described.read_latency_ns.value).abs() <= 2.0, "{name}");
            assert!((written_ns as f64 - described.write_latency_ns.value).abs() <= 2.0, "{name}");
        }
    }
}
