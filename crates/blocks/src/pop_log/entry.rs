//! One entry: writing it and telling whether it is whole.

use lapis_pmem::{Domain, LINE_BYTES, Link, PCell, Pool};

use crate::log::{LARGEST_ENTRY_BYTES, Position};
use crate::pop_ring::Pop;
use crate::ring_log::{Sink, pad_behind};
use crate::set_bits::count_ones;
use crate::spacing::Spacing;

use super::layout::{
    ENTRY_HEADER_BYTES, EntryHeader, Identity, Seal, SegmentRef, address, body_bytes, entry_bytes,
};
use super::mutants;

/// Payloads are counted, summed and copied in pieces of this size, so that each byte is fetched
/// from memory once.
const PIECE_BYTES: usize = 4096;

/// Whether no bit is set.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // Whole pieces without a branch inside, so that the search vectorises.
    let or = |piece: &[u8]| piece.iter().fold(0, |bits, byte| bits | byte);
    bytes.chunks(PIECE_BYTES).all(|piece| or(piece) == 0)
}

#[inline(always)]
fn crc_seed(position: Position, length: usize) -> u32 {
    let mut seed = [0; 12];
    seed[..8].copy_from_slice(&position.number().to_le_bytes());
    seed[8..].copy_from_slice(&(length as u32).to_le_bytes());
    crc32c::crc32c(&seed)
}

/// What of `bytes`, which are at offset `at` of an entry, is counted: all.
#[inline(always)]
fn counted<'b, D: Domain>(domain: &D, at: usize, bytes: &'b [u8]) -> &'b [u8] {
    if domain.commits(mutants::COUNT_BEFORE_PAYLOAD) {
        &bytes[..bytes.len().min(LINE_BYTES.saturating_sub(at))]
    } else {
        bytes
    }
}

/// Writes the entry at `position`, whose payload is `parts` end to end, `length` bytes together,
/// and flushes its lines. The caller's fence makes it durable. This is the whole of an append but
/// for finding the place, taking the lock and the fence; it is public so that its instructions can
/// be counted.
///
/// # Safety
/// `destination` is a multiple of 8 in `domain`'s region; the bytes of the entry from there on are
/// zero, durably, and nobody else reads or writes them during the call.
#[inline]
#[track_caller]
pub unsafe fn write_entry<D: Domain>(
    domain: &D,
    destination: *mut u8,
    position: Position,
    length: usize,
    parts: &[&[u8]],
) {
    let (mut ones, mut crc) = ((length as u64).count_ones(), crc_seed(position, length));
    let mut at = ENTRY_HEADER_BYTES;
    for part in parts {
        for piece in part.chunks(PIECE_BYTES) {
            ones += count_ones(counted(domain, at, piece));
            crc = crc32c::crc32c_append(crc, piece);
            // SAFETY: within the entry, which the caller vouches for.
            unsafe { domain.copy(destination.add(at), piece) };
            at += piece.len();
        }
    }
    debug_assert_eq!(at, ENTRY_HEADER_BYTES + length);
    let identity = Identity::new(position, crc);
    ones += identity.0.count_ones();
    // SAFETY: the first 16 bytes of the entry, aligned to words; an EntryHeader is two cells.
    let header = unsafe { &*destination.cast::<EntryHeader>() };
    // Unordered on purpose: I4 holds whichever of the entry's stores persist.
    header.identity.store(domain, identity.0);
    header.seal.store(domain, Seal::new(length, ones).0);
    // SAFETY: the entry's own bytes. I1: its every line.
    unsafe { domain.flush_range(destination, at) };
}

/// As [`write_entry`], but past the caches through `sink`, line by line: the last line of what stands
/// before the entry is written again as it is, and the entry's own last one whole.
pub(super) fn stream_entry<D: Domain>(
    sink: &mut Sink<'_, D, Pop>,
    spacing: Spacing,
    position: Position,
    length: usize,
    parts: &[&[u8]],
) {
    let (mut ones, mut crc) = ((length as u64).count_ones(), crc_seed(position, length));
    let mut at = ENTRY_HEADER_BYTES;
    for part in parts {
        ones += count_ones(counted(sink.domain(), at, part));
        crc = crc32c::crc32c_append(crc, part);
        at += part.len();
    }
    let identity = Identity::new(position, crc);
    ones += identity.0.count_ones();
    // In one line or in two; I4 holds whichever of the entry's words persist.
    sink.word(Seal::new(length, ones).0);
    sink.word(identity.0);
    parts.iter().for_each(|part| sink.bytes(part));
    sink.skip(body_bytes(length) - at);
    pad_behind(sink, spacing, body_bytes(length) as u64);
    // I1: its last line.
    sink.write_back();
}

/// What stands where an entry may begin.
#[derive(Debug)]
pub(super) enum Found<'p> {
    /// The entry, whole.
    Whole {
        /// Its payload.
        payload: &'p [u8],
        /// Bytes it takes with header and padding.
        bytes: usize,
    },
    /// No seal: nothing, or an entry torn in such a way that its seal did not persist.
    Unsealed,
    /// A seal, and bits are missing: torn by a crash.
    Torn {
        /// Bytes it would take.
        bytes: usize,
    },
    /// What no crash leaves behind.
    Damaged(&'static str),
}

/// Examines what stands at `data_offset` of `segment`, where the entry at `position` would be.
/// Nobody may write there meanwhile; beyond `data_end` nothing is looked at.
pub(super) fn examine<'p, D: Domain>(
    pool: &'p Pool<D>,
    segment: SegmentRef,
    spacing: Spacing,
    data_offset: usize,
    data_end: usize,
    position: Position,
) -> Found<'p> {
    let room = data_end - data_offset;
    if room < ENTRY_HEADER_BYTES {
        return Found::Unsealed;
    }
    let domain = pool.domain();
    let link = Link::<EntryHeader>::from_bits(segment.pool_offset(data_offset));
    let header = pool.at(link);
    let seal = Seal(header.seal.load(domain));
    let identity = Identity(header.identity.load(domain));
    // The identity is one word: a crash leaves it whole or zero.
    if identity.0 != 0 && !identity.is_of(position) {
        return Found::Damaged("an entry of another position");
    }
    if seal.0 == 0 {
        return Found::Unsealed;
    }
    let length = seal.length();
    let bytes = entry_bytes(spacing, data_offset, length);
    if length == 0 || length > LARGEST_ENTRY_BYTES || bytes > room {
        return Found::Damaged("an entry with an impossible length");
    }
    let Some(body) = pool.try_tail(link, bytes - ENTRY_HEADER_BYTES) else {
        return Found::Damaged("an entry that leaves the pool");
    };
    let (payload, padding) = body.split_at(length);
    let ones_of_payload = count_ones(counted(domain, ENTRY_HEADER_BYTES, payload));
    let ones = (length as u64).count_ones() + identity.0.count_ones() + ones_of_payload;
    if ones < seal.ones() {
        return Found::Torn { bytes };
    }
    if ones > seal.ones() {
        return Found::Damaged("an entry with more bits than were written");
    }
    if crc32c::crc32c_append(crc_seed(position, length), payload) != identity.crc() {
        return Found::Damaged("an entry with a wrong checksum");
    }
    if !is_zero(padding) {
        return Found::Damaged("bits after the end of an entry");
    }
    Found::Whole { payload, bytes }
}

/// The length in the seal of an entry that is known to be whole, without looking at the rest.
pub(super) fn whole_entry_bytes<D: Domain>(
    pool: &Pool<D>,
    segment: SegmentRef,
    spacing: Spacing,
    data_offset: usize,
) -> usize {
    let seal = Link::<PCell<u64>>::from_bits(segment.pool_offset(data_offset));
    entry_bytes(spacing, data_offset, Seal(pool.at(seal).load(pool.domain())).length())
}

/// Whether the entry of a position begins there, in what is used of a segment, without looking at the rest.
pub(super) fn is_entry_at<D: Domain>(
    pool: &Pool<D>,
    segment: SegmentRef,
    data_offset: usize,
    position: Position,
) -> bool {
    let header = Link::<EntryHeader>::from_bits(segment.pool_offset(data_offset));
    Identity(pool.at(header).identity.load(pool.domain())).is_of(position)
}

/// Zeroes `[from, to)` of the data of a segment past the caches; the caller's fence makes it
/// durable.
///
/// # Safety
/// The range lies in the segment, and nobody else reads or writes it.
#[track_caller]
pub(super) unsafe fn zero_data<D: Domain>(
    pool: &Pool<D>,
    segment: SegmentRef,
    from: usize,
    to: usize,
) {
    let start = address(pool, segment.pool_offset(from));
    // SAFETY: as the caller vouches.
    unsafe { pool.domain().zero_nontemporal(start, to - from) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_bit_anywhere_is_not_zero() {
        let mut bytes = vec![0; 10_000];
        assert!(is_zero(&bytes) && is_zero(&[]));
        for at in [0, 1, 63, 4095, 4096, 9_999] {
            bytes[at] = 0x10;
            assert!(!is_zero(&bytes), "byte {at}");
            bytes[at] = 0;
        }
    }
}
