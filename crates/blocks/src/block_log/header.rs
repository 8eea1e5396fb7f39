//! The header of a log, of which the device has two copies.

use lapis_pmem::{BLOCK_BYTES, BlockBuffer, BlockDevice, BlockError, SECTOR_BYTES};

use super::error::BlockLogError;
use super::record::ALIGNMENT;
use super::ring::{FIELDS, HEADER_BLOCKS, Ring};

const MAGIC: [u8; 8] = *b"lapisWAL";
/// The version that this code writes, and the newest that it reads.
const VERSION: u32 = 1;
const CLOSED_AT: usize = 12;
const RING_AT: usize = 16;
const POSITIONS_AT: usize = RING_AT + 8 * FIELDS;
const CHECKSUM_AT: usize = POSITIONS_AT + 3 * 8;
const HEADER_BYTES: usize = CHECKSUM_AT + 4;

/// Positions end here: at 10 GB a second that takes a decade.
const MOST_POSITION: u64 = 1 << 62;

/// No log writes its header so often.
const MOST_SEQUENCE: u64 = 1 << 62;

// A power cut leaves a copy whole, old or new (rule D3).
const _: () = assert!(HEADER_BYTES == 100 && HEADER_BYTES <= SECTOR_BYTES);

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) ring: Ring,
    /// Of two headers that differ the greater one counts.
    pub(super) sequence: u64,
    /// Where the oldest retained record begins.
    pub(super) start: u64,
    /// A position before which all is durable.
    pub(super) durable: u64,
    /// The log ends there, and nothing was written behind.
    pub(super) closed: bool,
}

/// What one block in the place of a header is.
enum Copy {
    Header(Header),
    Newer(u32),
    Damaged,
    NoLog,
}

impl Header {
    fn encode(self, block: &mut [u8]) {
        block.fill(0);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[CLOSED_AT] = self.closed.into();
        let words = self.ring.fields().into_iter().chain([self.sequence, self.start, self.durable]);
        for (word, field) in words.zip(block[RING_AT..CHECKSUM_AT].chunks_exact_mut(8)) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    fn decode(block: &[u8], device_blocks: u64) -> Result<Copy, BlockLogError> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| block[at + byte]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if block[..8] != MAGIC {
            return Ok(Copy::NoLog);
        }
        if word(CHECKSUM_AT) != crc32c::crc32c(&block[..CHECKSUM_AT]) {
            // A newer one may keep its checksum elsewhere.
            let newer = word(8) > VERSION;
            return Ok(if newer { Copy::Newer(word(8)) } else { Copy::Damaged });
        }
        if word(8) != VERSION {
            return Ok(Copy::Newer(word(8)));
        }
        let fields = core::array::from_fn(|field| long(RING_AT + 8 * field));
        let ring = Ring::of_fields(fields, device_blocks)?;
        let [sequence, start, durable] = [0, 8, 16].map(|at| long(POSITIONS_AT + at));
        let positions = [ring.base(), start, durable];
        let makes_sense = |at: &u64| at.is_multiple_of(ALIGNMENT) && *at < MOST_POSITION;
        let closed = word(CLOSED_AT);
        if !positions.iter().all(makes_sense)
            || !positions.is_sorted()
            || sequence >= MOST_SEQUENCE
            || closed > 1
        {
            return Ok(Copy::Damaged);
        }
        Ok(Copy::Header(Self { ring, sequence, start, durable, closed: closed == 1 }))
    }
}

/// The header that is on the device, and memory to write it with.
pub(super) struct HeaderCopies {
    header: Header,
    /// The copy that the header was read from.
    whole: usize,
    blocks: BlockBuffer,
}

impl HeaderCopies {
    pub(super) fn of(header: Header) -> Self {
        Self { header, whole: 1, blocks: BlockBuffer::zeroed(HEADER_BLOCKS as usize) }
    }

    pub(super) fn header(&self) -> Header {
        self.header
    }

    /// Takes note of the unit that the device writes in.
    fn on(mut self, device: &dyn BlockDevice) -> Self {
        self.header.ring = self.header.ring.in_units_of(device.unit_bytes());
        self
    }

    /// The newest header on a device.
    pub(super) fn read(device: &dyn BlockDevice) -> Result<Self, BlockLogError> {
        if device.capacity_blocks() < HEADER_BLOCKS {
            return Err(BlockLogError::NotALog);
        }
        let mut blocks = BlockBuffer::zeroed(HEADER_BLOCKS as usize);
        let mut unreadable = None;
        if device.read_blocks(0, &mut blocks).is_err() {
            // Of a copy that cannot be read the other one may do.
            for (number, block) in (0..).zip(blocks.chunks_exact_mut(BLOCK_BYTES)) {
                if let Err(error) = device.read_blocks(number, block) {
                    block.fill(0);
                    unreadable = Some(error);
                }
            }
        }
        let (mut found, mut newer, mut damaged) = (None::<(Header, usize)>, None, false);
        for (copy, block) in blocks.chunks_exact(BLOCK_BYTES).enumerate() {
            match Header::decode(block, device.capacity_blocks())? {
                Copy::Header(header) => {
                    let newest = found.filter(|(other, _)| other.sequence >= header.sequence);
                    found = newest.or(Some((header, copy)));
                }
                Copy::Newer(version) => newer = Some(version),
                Copy::Damaged => damaged = true,
                Copy::NoLog => {}
            }
        }
        // Where sectors are torn, the first copy ever is alone.
        let first_may_be_torn = device.unit_bytes() < SECTOR_BYTES;
        let was_interrupted =
            first_may_be_torn && blocks[BLOCK_BYTES..].iter().all(|&byte| byte == 0);
        match (found, newer, unreadable) {
            (Some((header, whole)), ..) => Ok(Self { header, whole, blocks }.on(device)),
            (None, Some(found), _) => {
                Err(BlockLogError::NewerVersion { found, supported: VERSION })
            }
            (None, None, Some(error)) => Err(error.into()),
            (None, None, None) if damaged && !was_interrupted => Err(BlockLogError::DamagedHeader),
            (None, None, None) => Err(BlockLogError::NotALog),
        }
    }

    /// Whether both copies were read, and are alike.
    pub(super) fn are_alike(&self) -> bool {
        let (one, other) = self.blocks.split_at(BLOCK_BYTES);
        one[..HEADER_BYTES] == other[..HEADER_BYTES]
    }

    /// Writes both copies. Not durable before a flush.
    pub(super) fn write_unflushed(
        &mut self,
        device: &dyn BlockDevice,
        header: Header,
    ) -> Result<(), BlockError> {
        self.blocks.chunks_exact_mut(BLOCK_BYTES).for_each(|block| header.encode(block));
        if device.unit_bytes() >= SECTOR_BYTES {
            device.write_blocks(0, &self.blocks)?;
        } else {
            // The copy that is written may be torn, so the other one is whole: last comes the one that
            // may be the only one.
            let bytes = HEADER_BYTES.next_multiple_of(device.unit_bytes());
            for copy in [1 - self.whole, self.whole] {
                let at = copy * BLOCK_BYTES;
                device.write_units(at as u64, &self.blocks[at..][..bytes])?;
                device.flush()?;
            }
        }
        self.header = header;
        Ok(())
    }

    /// Writes both copies, durably.
    pub(super) fn write(
        &mut self,
        device: &dyn BlockDevice,
        header: Header,
    ) -> Result<(), BlockError> {
        let before = self.header;
        self.write_unflushed(device, header)?;
        // Who asks for the same again must not find it done.
        device.flush().inspect_err(|_| self.header = before)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::BlockLogOptions;
    use super::*;

    fn header() -> Header {
        let (segment_bytes, batch_bytes, most_bytes) = (8192, 16384, 65536);
        let options = BlockLogOptions { identity: 5, segment_bytes, batch_bytes, most_bytes };
        let ring = Ring::new(options, 10).unwrap();
        Header { ring, sequence: 3, start: 64, durable: 4096, closed: true }
    }

    fn encoded() -> Vec<u8> {
        let mut block = vec![0xEE; BLOCK_BYTES];
        header().encode(&mut block);
        block
    }

    fn decode(block: &[u8]) -> Copy {
        Header::decode(block, 10).unwrap()
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert!(matches!(decode(&encoded()), Copy::Header(read) if read == header()));
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut block = encoded();
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(&block), Copy::Header(_)), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut block = encoded();
        block[8] = 2;
        assert!(matches!(decode(&block), Copy::Newer(2)));
    }

    #[test]
    fn positions_that_make_no_sense_are_damage() {
        for (start, durable) in [(64, 8), (4, 8), (0, u64::MAX - 7)] {
            let mut block = encoded();
            Header { start, durable, ..header() }.encode(&mut block);
            assert!(matches!(decode(&block), Copy::Damaged), "{start} {durable}");
        }
    }
}
