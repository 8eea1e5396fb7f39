//! Copies past the caches, with the widest stores the processor has: AVX-512, AVX2 or SSE2.
//!
//! Whole 64-byte lines are streamed; the ragged ends of a copy are stored and flushed, so that one
//! fence makes the whole range durable (rule R6 of [`crate::domain`]).

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::domain::{Domain, LINE_BYTES};

/// The width of the streaming stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMethod {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Sse2,
    #[cfg(not(target_arch = "x86_64"))]
    Plain,
}

impl CopyMethod {
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Self {
        if is_x86_feature_detected!("avx512f") {
            Self::Avx512
        } else if is_x86_feature_detected!("avx2") {
            Self::Avx2
        } else {
            Self::Sse2
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Self {
        Self::Plain
    }
}

/// Copies `source` to `destination`; durable at the next fence.
///
/// # Safety
/// `destination` is valid for writes of `source.len()` bytes and nobody else touches them; the
/// processor has what `method` names.
pub(crate) unsafe fn copy<D: Domain>(
    domain: &D,
    method: CopyMethod,
    destination: *mut u8,
    source: &[u8],
) {
    let head = destination.align_offset(LINE_BYTES).min(source.len());
    let (ragged_head, rest) = source.split_at(head);
    let (lines, ragged_tail) = rest.split_at(rest.len() / LINE_BYTES * LINE_BYTES);
    // SAFETY: the three parts cover disjoint ranges of `destination`; `lines` starts on a line.
    unsafe {
        if !ragged_head.is_empty() {
            domain.copy(destination, ragged_head);
            domain.flush_range(destination, ragged_head.len());
        }
        stream_lines(method, destination.add(head), lines);
        if !ragged_tail.is_empty() {
            let tail = destination.add(head + lines.len());
            domain.copy(tail, ragged_tail);
            domain.flush_range(tail, ragged_tail.len());
        }
    }
}

/// Copies word by word, each at once: who reads beside that, and finds out by himself that he was overtaken, sees no words that
/// nobody wrote.
///
/// # Safety
/// `destination` is valid for writes of `source.len()` bytes, and nobody else writes them.
pub(crate) unsafe fn copy_words(destination: *mut u8, source: &[u8]) {
    let head = destination.align_offset(size_of::<AtomicU64>()).min(source.len());
    let (ragged_head, rest) = source.split_at(head);
    let (words, ragged_tail) = rest.as_chunks::<{ size_of::<AtomicU64>() }>();
    let tail = destination.wrapping_add(source.len() - ragged_tail.len());
    let first = destination.wrapping_add(head).cast::<u64>();
    // SAFETY: the parts are disjoint ranges of `destination`, and the words are aligned.
    unsafe {
        for (at, word) in words.iter().enumerate() {
            AtomicU64::from_ptr(first.add(at)).store(u64::from_ne_bytes(*word), Relaxed);
        }
        for (start, bytes) in [(destination, ragged_head), (tail, ragged_tail)] {
            for (at, byte) in bytes.iter().enumerate() {
                AtomicU8::from_ptr(start.add(at)).store(*byte, Relaxed);
            }
        }
    }
}

/// # Safety
/// `destination` is line-aligned, `source` is a multiple of a line, and the processor has what
/// `method` names.
unsafe fn stream_lines(method: CopyMethod, destination: *mut u8, source: &[u8]) {
    if cfg!(miri) {
        // SAFETY: as the caller vouches; a slice does not overlap what is written.
        return unsafe { copy_words(destination, source) };
    }
    match method {
        // SAFETY: the caller vouches for the processor and for the ranges.
        #[cfg(target_arch = "x86_64")]
        CopyMethod::Avx512 => unsafe { stream_avx512(destination, source) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        CopyMethod::Avx2 => unsafe { stream_avx2(destination, source) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        CopyMethod::Sse2 => unsafe { stream_sse2(destination, source) },
        // SAFETY: as above.
        #[cfg(not(target_arch = "x86_64"))]
        CopyMethod::Plain => unsafe {
            destination.copy_from_nonoverlapping(source.as_ptr(), source.len());
        },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_avx512(destination: *mut u8, source: &[u8]) {
    use core::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    for (index, line) in source.chunks_exact(64).enumerate() {
        // SAFETY: 64 readable bytes at `line`, 64 writable aligned bytes at the destination.
        unsafe {
            let value = _mm512_loadu_si512(line.as_ptr().cast());
            _mm512_stream_si512(destination.add(index * 64).cast(), value);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_avx2(destination: *mut u8, source: &[u8]) {
    use core::arch::x86_64::{_mm256_loadu_si256, _mm256_stream_si256};
    for (index, half) in source.chunks_exact(32).enumerate() {
        // SAFETY: 32 readable bytes at `half`, 32 writable aligned bytes at the destination.
        unsafe {
            let value = _mm256_loadu_si256(half.as_ptr().cast());
            _mm256_stream_si256(destination.add(index * 32).cast(), value);
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn stream_sse2(destination: *mut u8, source: &[u8]) {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    for (index, quarter) in source.chunks_exact(16).enumerate() {
        // SAFETY: 16 readable bytes at `quarter`, 16 writable aligned bytes at the destination.
        unsafe {
            let value = _mm_loadu_si128(quarter.as_ptr().cast());
            _mm_stream_si128(destination.add(index * 16).cast(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hardware;

    #[repr(align(64))]
    struct Buffer([u8; 1024]);

    #[cfg(target_arch = "x86_64")]
    fn methods() -> Vec<CopyMethod> {
        let mut methods = vec![CopyMethod::Sse2];
        if is_x86_feature_detected!("avx2") {
            methods.push(CopyMethod::Avx2);
        }
        if is_x86_feature_detected!("avx512f") {
            methods.push(CopyMethod::Avx512);
        }
        methods
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn methods() -> Vec<CopyMethod> {
        vec![CopyMethod::Plain]
    }

    #[test]
    fn every_width_copies_every_alignment_and_length_exactly() {
        let hardware = Hardware::detect();
        let source: Vec<u8> = (0..700u32).map(|i| (i * 7 + 3) as u8).collect();
        for method in methods() {
            for offset in [0, 1, 7, 8, 63, 64, 65] {
                for length in [0, 1, 8, 63, 64, 65, 127, 128, 256, 300, 700] {
                    let mut buffer = Buffer([0xEE; 1024]);
                    // SAFETY: offset + length <= 765 < 1024, exclusively borrowed.
                    unsafe {
                        let destination = buffer.0.as_mut_ptr().add(offset);
                        copy(&hardware, method, destination, &source[..length]);
                    }
                    hardware.fence();
                    assert_eq!(&buffer.0[offset..offset + length], &source[..length]);
                    assert!(buffer.0[..offset].iter().all(|&b| b == 0xEE));
                    assert!(buffer.0[offset + length..].iter().all(|&b| b == 0xEE));
                }
            }
        }
    }
}
