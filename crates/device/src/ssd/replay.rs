//! Block devices as a trace describes them, event by event.

use std::ops::Range;

use super::ModelledSsd;
use super::contents::{Contents, WriteId};
use crate::crash_states::images::CrashStates;
use crate::trace::block_devices::BlockEvent;
use crate::trace::{Event, Trace};

/// What a block device holds durably. Cheap to clone: blocks are shared.
#[derive(Clone, Debug, Default)]
pub struct SsdContents {
    pub(super) contents: Contents,
    pub(super) capacity_blocks: u64,
}

/// A device and the flushes that it works on.
#[derive(Clone, Debug, Default)]
struct Replayed {
    held: SsdContents,
    /// Number, and what it covers.
    flushes: Vec<(u32, u64)>,
    /// What it holds durably has changed since the last crash point.
    fresh: bool,
}

/// The devices of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayedDevices {
    devices: Vec<Replayed>,
}

impl ReplayedDevices {
    pub(crate) fn holding(contents: Vec<SsdContents>) -> Self {
        let device = |held| Replayed { held, flushes: Vec::new(), fresh: true };
        Self { devices: contents.into_iter().map(device).collect() }
    }

    /// Whether the event, if it is next, would make something durable, or take back what a power cut
    /// might have left.
    pub(crate) fn completes(&self, event: &Event) -> bool {
        let Event::Block { device, what, .. } = *event else { return false };
        let Some(device) = self.devices.get(usize::from(device)) else { return false };
        match what {
            BlockEvent::Flushed { number } => device
                .watermark(number)
                .is_some_and(|watermark| device.held.contents.is_pending_before(watermark)),
            BlockEvent::Written { landed, .. } => landed != BlockEvent::ALL,
            BlockEvent::Rot { .. } | BlockEvent::Capacity { .. } => true,
            BlockEvent::Write { .. } | BlockEvent::Flush { .. } => false,
        }
    }

    pub(crate) fn apply(&mut self, trace: &Trace, event: &Event) {
        let Event::Block { device, what, .. } = *event else { return };
        let at = usize::from(device);
        if at >= self.devices.len() {
            self.devices.resize_with(at + 1, Replayed::default);
        }
        let device = &mut self.devices[at];
        let contents = &mut device.held.contents;
        match what {
            BlockEvent::Write { write } => {
                let write = &trace.block_writes[write as usize];
                let (first, from) = (write.first_block, trace.block_contents(write));
                contents.begin_write(WriteId(write.number), first, write.blocks, from);
            }
            BlockEvent::Written { number, landed } => {
                let Range { start, end } = contents.in_flight(WriteId(number));
                let sectors = (end - start) as usize;
                let landed = (landed != BlockEvent::ALL).then(|| trace.bytes_at(landed, sectors));
                contents.end_write(WriteId(number), |sector| {
                    landed.is_none_or(|landed| landed[(sector - start) as usize] == 1)
                });
            }
            BlockEvent::Flush { number } => {
                device.flushes.push((number, contents.begin_flush()));
            }
            BlockEvent::Flushed { number } => {
                if let Some(watermark) = device.watermark(number) {
                    device.held.contents.end_flush(watermark);
                    device.flushes.retain(|(flush, _)| *flush != number);
                    device.fresh = true;
                }
            }
            BlockEvent::Rot { payload } => {
                let (block, bit) = (trace.number_at(payload, 0), trace.number_at(payload, 1));
                contents.flip_bit(block, bit as usize);
                device.fresh = true;
            }
            BlockEvent::Capacity { payload } => {
                device.held.capacity_blocks = trace.number_at(payload, 0);
                device.fresh = true;
            }
        }
    }

    /// Forgets what has changed so far.
    pub(crate) fn clear_newly_durable(&mut self) {
        self.devices.iter_mut().for_each(|device| device.fresh = false);
    }

    pub(crate) fn give_to(&self, scratch: &[ModelledSsd]) {
        assert!(self.devices.len() <= scratch.len(), "a block device of the trace is missing");
        for (device, scratch) in self.devices.iter().zip(scratch) {
            if device.fresh {
                scratch.hold(&device.held);
            }
        }
    }

    pub(crate) fn add_sites(&self, states: &mut CrashStates<'_>) {
        for (device, number) in self.devices.iter().zip(0..) {
            states.add_device(number, &device.held.contents);
        }
    }
}

impl Replayed {
    fn watermark(&self, flush: u32) -> Option<u64> {
        self.flushes.iter().find(|(number, _)| *number == flush).map(|(_, watermark)| *watermark)
    }
}
