//! Copies between bytes and words that others may load or store meanwhile.
//!
//! Who copies finds out by himself whether he was overtaken, so what he has then may be anything. A plain copy would be a data
//! race to the compiler, whatever becomes of what was copied. So it goes word by word, each of them atomic and an event of the
//! domain; or, on hardware, by instructions that the compiler does not look into.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::domain::Domain;
use crate::instructions;

const WORD_BYTES: usize = size_of::<u64>();
/// What is copied at once; fewer bytes are copied word by word.
const CHUNK_BYTES: usize = 16;
/// From so many bytes on the processor copies faster by itself.
#[cfg(target_arch = "x86_64")]
const STRING_BYTES: usize = 512;

/// [`Domain::read_words`], word by word.
///
/// # Panics
/// If there are not as many.
pub fn read<D: Domain>(domain: &D, words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let load = |word: usize| domain.load::<u64>(&words[word], Relaxed);
    let (first, bits) = (offset / WORD_BYTES, offset % WORD_BYTES * 8);
    if bits == 0 {
        for (word, chunk) in (first..).zip(into.chunks_mut(WORD_BYTES)) {
            chunk.copy_from_slice(&load(word).to_le_bytes()[..chunk.len()]);
        }
        return;
    }
    let mut low = if into.is_empty() { 0 } else { load(first) };
    for (word, chunk) in (first + 1..).zip(into.chunks_mut(WORD_BYTES)) {
        let high = if bits + chunk.len() * 8 > 64 { load(word) } else { 0 };
        let value = low >> bits | high << (64 - bits);
        chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        low = high;
    }
}

/// [`Domain::write_words`], word by word.
///
/// # Panics
/// If there is no room for it.
pub fn write<D: Domain>(domain: &D, words: &[AtomicU64], offset: usize, from: &[u8]) {
    let part = |word: usize, at: usize, part: &[u8]| {
        if !part.is_empty() {
            let mut bytes = domain.load::<u64>(&words[word], Relaxed).to_le_bytes();
            bytes[at..][..part.len()].copy_from_slice(part);
            domain.store::<u64>(&words[word], u64::from_le_bytes(bytes), Relaxed);
        }
    };
    let head = (offset.next_multiple_of(WORD_BYTES) - offset).min(from.len());
    let (ragged_head, rest) = from.split_at(head);
    let (chunks, ragged_tail) = rest.as_chunks::<WORD_BYTES>();
    let first = (offset + head) / WORD_BYTES;
    part(offset / WORD_BYTES, offset % WORD_BYTES, ragged_head);
    for (word, chunk) in (first..).zip(chunks) {
        domain.store::<u64>(&words[word], u64::from_le_bytes(*chunk), Relaxed);
    }
    part(first + chunks.len(), 0, ragged_tail);
}

/// [`Domain::read_words`] with instructions that the compiler does not look into: no events of the domain.
///
/// # Panics
/// If there are not as many.
#[inline]
pub fn read_at_once<D: Domain>(domain: &D, words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let bytes = into.len();
    if bytes < CHUNK_BYTES || cfg!(miri) {
        return read(domain, words, offset, into);
    }
    check_room(words, offset, bytes);
    // SAFETY: the words have these bytes, which a slice that is borrowed alone does not overlap.
    unsafe {
        let source = words.as_ptr().cast::<u8>().add(offset);
        copy_at_once(into.as_mut_ptr(), source, bytes);
    }
}

/// [`Domain::write_words`] with instructions that the compiler does not look into: no events of the domain.
///
/// # Panics
/// If there is no room for it.
#[inline]
pub fn write_at_once<D: Domain>(domain: &D, words: &[AtomicU64], offset: usize, from: &[u8]) {
    let bytes = from.len();
    if bytes < CHUNK_BYTES || cfg!(miri) {
        return write(domain, words, offset, from);
    }
    check_room(words, offset, bytes);
    // SAFETY: the words have these bytes and may be written though they are shared; a slice, in which nobody writes, does
    // not overlap them.
    unsafe {
        let destination = words.as_ptr().cast::<u8>().cast_mut().add(offset);
        copy_at_once(destination, from.as_ptr(), bytes);
    }
}

#[inline(always)]
fn check_room(words: &[AtomicU64], offset: usize, bytes: usize) {
    let has_room = offset.checked_add(bytes).is_some_and(|end| end <= size_of_val(words));
    assert!(has_room, "{bytes} bytes at {offset} do not lie in the words");
}

/// # Safety
/// `source` is valid for reads and `destination` for writes of so many bytes, at least a chunk, which do not overlap.
#[inline(always)]
unsafe fn copy_at_once(destination: *mut u8, source: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= STRING_BYTES {
        // SAFETY: as the caller vouches.
        return unsafe { instructions::copy_string(destination, source, bytes) };
    }
    // The last chunk may have bytes of the one before again.
    let last = bytes - CHUNK_BYTES;
    for at in (0..last).step_by(CHUNK_BYTES).chain([last]) {
        // SAFETY: a chunk from there on lies in the ranges that the caller vouches for.
        unsafe { instructions::copy_chunk(destination.add(at), source.add(at)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hardware;

    const WORDS: usize = 160;

    fn page() -> (Vec<AtomicU64>, Vec<u8>) {
        let words = (0..WORDS as u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let words: Vec<_> = words.map(AtomicU64::new).collect();
        let bytes = bytes_of(&words);
        (words, bytes)
    }

    fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
    }

    /// Offsets and lengths about the limits of every way to copy.
    fn ranges() -> impl Iterator<Item = (usize, usize)> {
        let lengths = [0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 511, 512, 513, 1200];
        lengths.into_iter().flat_map(|length| [0, 1, 7, 8, 13, 64].map(|offset| (offset, length)))
    }

    #[test]
    fn what_is_read_is_what_the_words_have_at_every_offset_and_length() {
        let (domain, (words, bytes)) = (Hardware::detect(), page());
        for (offset, length) in ranges() {
            let (mut one, mut other) = (vec![0xee; length], vec![0xee; length]);
            domain.read_words(&words, offset, &mut one);
            read(&domain, &words, offset, &mut other);
            assert_eq!(one, bytes[offset..offset + length], "{offset}, {length}");
            assert_eq!(one, other, "{offset}, {length}");
        }
    }

    #[test]
    fn what_is_written_is_there_and_nothing_else_has_changed() {
        let domain = Hardware::detect();
        for (offset, length) in ranges() {
            let from: Vec<u8> = (0..length).map(|at| (at * 7 + 3) as u8).collect();
            let ((one, mut expected), (other, _)) = (page(), page());
            expected[offset..offset + length].copy_from_slice(&from);
            domain.write_words(&one, offset, &from);
            write(&domain, &other, offset, &from);
            assert_eq!(bytes_of(&one), expected, "{offset}, {length}");
            assert_eq!(bytes_of(&other), expected, "{offset}, {length}");
        }
    }

    #[test]
    fn who_goes_beyond_the_words_is_stopped() {
        let (domain, (words, _)) = (Hardware::detect(), page());
        let beyond = WORDS * WORD_BYTES - 50;
        let reads = || domain.read_words(&words, beyond, &mut [0; 51]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(reads)).is_err());
        let writes = || domain.write_words(&words, beyond, &[0; 51]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(writes)).is_err());
        domain.read_words(&words, beyond, &mut [0; 50]);
    }
}
