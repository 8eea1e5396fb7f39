//! Trace files: what a program did to persistent memory, saved for later or written by another
//! language.
//!
//! The format is made for a writer that knows nothing in advance and may be killed at any moment: a
//! header, then blocks, each with a checksum of its own. A file that ends between or within blocks
//! is *cut*: what comes before is whole. A trailer says that nothing is missing.
//! `include/lapis_trace.h` writes the same format from C.
//!
//! All integers are little-endian. `varint` is LEB128 of at most 64 bits in its shortest form;
//! `delta` is a varint holding the zigzag-coded difference from the previous `delta` in the block
//! (from 0 for the first).
//!
//! ```text
//!  header, 64 bytes
//!  byte 0           8         10        12      16             24             32       48       60
//!       +-----------+---------+---------+-------+--------------+--------------+--------+--------+-----+
//!       | LAPISTRC  | version | 64      | 0     | region bytes | base address | writer | 0      | crc |
//!       +-----------+---------+---------+-------+--------------+--------------+--------+--------+-----+
//!
//!  block
//!  byte 0        4               8        12     16
//!       +--------+---------------+--------+------+---------------------------+
//!       | LTBK   | payload bytes | number | crc  | payload: whole records    |
//!       +--------+---------------+--------+------+---------------------------+
//!
//!  record                                           before the first event only
//!  01 base       varint offset, varint n, n bytes
//!  02 fill       varint offset, varint n, byte      what memory held; zero where nothing is said
//!
//!                                                   anywhere
//!  03 file       varint n, n bytes                  a source file; numbered from 0
//!  04 location   varint file, line, column          a place in it; numbered from 1, 0 is unknown
//!
//!                                                   events: each begins with
//!                                                   worker (byte, 0 to 254), varint location
//!  10 store      delta offset, varint n, n bytes    n up to 4096
//!  11 ordered    delta offset, varint n, n bytes    n is 1, 2, 4 or 8, naturally aligned
//!  12 locked     delta offset, varint n, n bytes    the same
//!  13 past cache delta offset, varint n, n bytes    n up to 4096
//!  20 clwb       delta offset, varint lines         offset of the first line; up to 16 lines
//!  21 clflushopt delta offset, varint lines
//!  22 clflush    delta offset, varint lines
//!  23 fence
//!  30 begin      varint number                      of an operation
//!  31 end        varint number
//!  32 note       varint number
//!  40 durable    varint offset, varint n            asserted: durable here
//!  41 in order   varint offset, n, offset, n        asserted: the first persisted before the second
//!  42 volatile   varint offset, varint n            declared: nothing rests on these bytes
//!
//!                                                   last
//!  7F trailer    varint records before it
//! ```
//!
//! Invariants of a file that a writer may be killed at:
//!
//! * T1. A block is written after all blocks of lower numbers, in one piece, its checksum covering
//!   its first 12 bytes and its payload. So every prefix of a file is whole blocks and at most one
//!   torn one.
//! * T2. A record lies within one block, and refers only to files and locations of earlier records.
//!   So the records of whole blocks can be understood without the torn one.
//! * T3. Nothing follows the trailer.
//!
//! A reader refuses what it does not know: another version, another tag, bits that are to be zero.
//! What it allocates is in proportion to the bytes it has read, with bounds stated at the
//! constants below.

mod encoding;
mod reader;
mod record;
mod recorded;
mod writer;

pub use reader::{Ending, TraceReader};
pub use record::{FlushInstruction, Record, StoreKind};
pub use recorded::{Assertion, BasePiece, Claim, RecordedTrace, SourceLocation};
pub use writer::TraceWriter;

/// The version of the format that this crate writes, and the only one it reads.
pub const TRACE_FORMAT_VERSION: u16 = 1;
/// A payload has at most so many bytes.
pub const BLOCK_PAYLOAD_BYTES_LIMIT: usize = 1 << 16;
/// One record stores at most so many bytes; longer stores take several.
pub const RECORD_BYTES_LIMIT: usize = 4096;
/// One record flushes at most so many lines; longer flushes take several. This bounds how many
/// events a few bytes of a file can become.
pub const RECORD_LINES_LIMIT: u64 = 16;
/// All fill records together cover at most so many bytes.
pub const FILL_BYTES_LIMIT: u64 = 1 << 30;
/// The longest range of memory that a trace may be of. It need not fit into the caches of a machine, as what is
/// [modelled](crate::MODELLED_BYTES_LIMIT) must.
const REGION_BYTES_LIMIT: u64 = 128 << 30;
/// The name of a source file has at most so many bytes.
pub const FILE_NAME_BYTES_LIMIT: usize = 1024;
/// A trace refers to at most so many source files, and to so many places in them.
pub const LOCATION_LIMIT: usize = 65_535;
/// The highest worker number.
pub const WORKER_LIMIT: u8 = 254;

const MAGIC: [u8; 8] = *b"LAPISTRC";
const HEADER_BYTES: usize = 64;
const WRITER_BYTES: usize = 16;
const BLOCK_MAGIC: [u8; 4] = *b"LTBK";
const BLOCK_HEADER_BYTES: usize = 16;

const _: () = assert!(RECORD_BYTES_LIMIT + 64 <= BLOCK_PAYLOAD_BYTES_LIMIT);

/// Why a trace file cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFileError {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It does not begin as trace files do.
    #[error("this is not a Lapis trace")]
    NotATrace,
    /// It was written by something newer.
    #[error("the trace has format version {version}, and this program reads version 1")]
    Version {
        /// Its version.
        version: u16,
    },
    /// The header is damaged or says something that cannot be.
    #[error("the header of the trace is damaged: {what}")]
    Header {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A block is damaged.
    #[error("block {block} of the trace, at byte {at}, is damaged: {what}")]
    Block {
        /// Its number, from 0.
        block: u32,
        /// Where it begins in the file.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record of a whole block says something that cannot be.
    #[error("record {record} of the trace, at byte {at}, cannot be: {what}")]
    Record {
        /// Its number, from 0.
        record: u64,
        /// Where it begins in the file.
        at: u64,
        /// What is wrong with it.
        what: RecordProblem,
    },
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// A tag of no record of this version.
    #[error("its kind {0:#04x} is unknown")]
    UnknownTag(u8),
    /// The payload ends within it.
    #[error("the block ends within it")]
    Short,
    /// A number that is too long or not in its shortest form.
    #[error("a number in it is not well-formed")]
    Number,
    /// Bytes beyond the end of the region.
    #[error("it lies outside of the region")]
    Outside,
    /// A length of zero or above the limit, or one that an ordered store cannot have.
    #[error("its length is not allowed")]
    Length,
    /// An ordered store that is not naturally aligned.
    #[error("it is not aligned")]
    Alignment,
    /// A worker number above [`WORKER_LIMIT`].
    #[error("its worker number is reserved")]
    Worker,
    /// A file or location that was not introduced.
    #[error("it refers to a source location that was not introduced")]
    UnknownLocation,
    /// More source files or locations than allowed.
    #[error("there are too many source locations")]
    TooManyLocations,
    /// A base or fill record after the first event.
    #[error("contents of memory are given after the first event")]
    LateBase,
    /// More filled bytes than allowed.
    #[error("more memory is filled than a trace may")]
    TooMuchFill,
    /// The trailer counts other records than there are.
    #[error("the trailer counts another number of records")]
    WrongCount,
    /// Something follows the trailer.
    #[error("something follows the trailer")]
    AfterTrailer,
}

/// The header of a trace file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceHeader {
    /// Length of the memory that is traced.
    pub region_bytes: u64,
    /// Where it lay in the process that wrote the trace: for people who look at pointers in it.
    pub base_address: u64,
    /// What wrote the trace; up to 16 bytes of it are kept.
    pub writer: String,
}

impl TraceHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&TRACE_FORMAT_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.region_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base_address.to_le_bytes());
        let kept = self.writer.floor_char_boundary(WRITER_BYTES);
        bytes[32..32 + kept].copy_from_slice(&self.writer.as_bytes()[..kept]);
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, TraceFileError> {
        let damaged = |what| TraceFileError::Header { what };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[..8] != MAGIC {
            return Err(TraceFileError::NotATrace);
        }
        // Before the checksum, whose place another version may have moved.
        let version = half(8);
        if version != TRACE_FORMAT_VERSION {
            return Err(TraceFileError::Version { version });
        }
        let crc = u32::from_le_bytes(std::array::from_fn(|index| bytes[60 + index]));
        if crc != crc32c::crc32c(&bytes[..60]) {
            return Err(damaged("its checksum is wrong"));
        }
        if usize::from(half(10)) != HEADER_BYTES {
            return Err(damaged("its length is wrong"));
        }
        if bytes[12..16] != [0; 4] || bytes[48..60] != [0; 12] {
            return Err(damaged("bits that are to be zero are not"));
        }
        let region_bytes = word(16);
        if region_bytes == 0 || region_bytes > REGION_BYTES_LIMIT {
            return Err(damaged("the model cannot cover so many bytes"));
        }
        let name = &bytes[32..32 + WRITER_BYTES];
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(WRITER_BYTES);
        let writer = String::from_utf8_lossy(&name[..length]).into_owned();
        Ok(Self { region_bytes, base_address: word(24), writer })
    }
}

/// The checksum of a block: of what precedes it in the block's header and of the payload.
fn block_crc(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}
