//! What a trace says of the block devices that are attached to a machine.
//!
//! Requests are noted when they are submitted and when they complete, in the one order of everything
//! else. Reads are not: they change nothing that a power cut leaves.

use lapis_pmem::BLOCK_BYTES;

use crate::trace::{Event, Source, Trace};

/// What happens to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockEvent {
    /// A write or discard is submitted: from here on a power cut may leave any of its sectors.
    Write {
        /// Index into [`Trace::block_writes`].
        write: u32,
    },
    /// A write or discard is answered.
    Written {
        /// [`BlockWrite::number`].
        number: u32,
        /// For each of its sectors whether it is the new one, a byte each, among the bytes of the
        /// trace; or [`BlockEvent::ALL`].
        landed: u32,
    },
    /// A flush is submitted: it covers what was answered before.
    Flush {
        /// In the order of submission.
        number: u32,
    },
    /// A flush has succeeded.
    Flushed {
        /// Which.
        number: u32,
    },
    /// A bit of a block flips: the number of the block and of the bit, eight bytes each, are among
    /// the bytes of the trace.
    Rot {
        /// Where.
        payload: u32,
    },
    /// The device has so many blocks, eight bytes among the bytes of the trace.
    Capacity {
        /// Where.
        payload: u32,
    },
}

impl BlockEvent {
    /// Every sector of the write is the new one.
    pub const ALL: u32 = u32::MAX;
}

/// A write or discard that was submitted to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWrite {
    /// Of all writes to this device, in the order of submission.
    pub number: u32,
    /// Where the run begins.
    pub first_block: u64,
    /// Its length.
    pub blocks: u64,
    /// The contents among the bytes of the trace, or [`Trace::ZEROES`].
    pub(crate) payload: u32,
}

impl Trace {
    /// The contents of a write to a block device; `None` if they are zero.
    pub fn block_contents(&self, write: &BlockWrite) -> Option<&[u8]> {
        let bytes = write.blocks as usize * BLOCK_BYTES;
        (write.payload != Self::ZEROES).then(|| self.bytes_at(write.payload, bytes))
    }

    pub(crate) fn block_event(&mut self, worker: u8, device: u8, what: BlockEvent) {
        self.events.push(Event::Block { worker, device, what });
    }

    /// Keeps a write of so many blocks that is submitted; `from` is what is written, if it is not zeroes.
    pub(crate) fn block_write(
        &mut self,
        number: u32,
        first_block: u64,
        blocks: u64,
        from: Option<&[u8]>,
    ) -> BlockEvent {
        let from = from.filter(|from| from.iter().any(|&byte| byte != 0));
        let payload = from.map_or(Self::ZEROES, |from| self.keep(Source::Bytes(from)));
        let write = self.block_writes.len() as u32;
        self.block_writes.push(BlockWrite { number, first_block, blocks, payload });
        BlockEvent::Write { write }
    }

    /// Numbers among the bytes of the trace.
    pub(crate) fn keep_numbers(&mut self, numbers: &[u64]) -> u32 {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.keep(Source::Bytes(&bytes))
    }

    pub(crate) fn number_at(&self, payload: u32, at: usize) -> u64 {
        let bytes = self.bytes_at(payload, 8 * at + 8)[8 * at..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}
