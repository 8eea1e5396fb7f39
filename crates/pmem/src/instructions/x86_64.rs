//! x86-64: `clwb`, `clflushopt`, `clflush`, `sfence`, `prefetcht0`, and copies beside others.
//!
//! Inline assembly without `nomem` also keeps the compiler from moving stores across it. Miri executes none: there a
//! flush does nothing, and a fence is the compiler's.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{Ordering::SeqCst, fence};

use crate::hardware::FlushMethod;

/// CPUID leaf 7, sub-leaf 0, EBX: bit 23 is CLFLUSHOPT, bit 24 CLWB.
fn leaf7_ebx() -> u32 {
    if cfg!(miri) || __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).ebx }
}

pub(crate) fn is_available(method: FlushMethod) -> bool {
    match method {
        FlushMethod::Clwb => leaf7_ebx() & (1 << 24) != 0,
        FlushMethod::ClflushOpt => leaf7_ebx() & (1 << 23) != 0,
        // CPUID leaf 1, EDX bit 19; every x86-64 processor has it.
        FlushMethod::Clflush => true,
        _ => false,
    }
}

pub(crate) fn detect() -> FlushMethod {
    [FlushMethod::Clwb, FlushMethod::ClflushOpt]
        .into_iter()
        .find(|&method| is_available(method))
        .unwrap_or(FlushMethod::Clflush)
}

/// # Safety
/// `at` must be mapped and the processor must have `clwb`.
#[inline(always)]
pub(crate) unsafe fn clwb(at: *const u8) {
    // SAFETY: writes a line back without changing its contents; the caller vouches for `at`.
    unsafe { asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)) }
}

/// # Safety
/// `at` must be mapped and the processor must have `clflushopt`.
#[inline(always)]
pub(crate) unsafe fn clflushopt(at: *const u8) {
    // SAFETY: as for `clwb`.
    unsafe { asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags)) }
}

/// # Safety
/// `at` must be mapped.
#[inline(always)]
pub(crate) unsafe fn clflush(at: *const u8) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: as for `clwb`.
    unsafe { asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub(crate) fn store_fence() {
    if cfg!(miri) {
        return fence(SeqCst);
    }
    // SAFETY: `sfence` has no operands and is part of x86-64.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast()) }
}

/// Copies bytes as [`copy_chunk`] does, so many of them that the processor does it faster by itself.
///
/// # Safety
/// `source` is valid for reads and `destination` for writes of so many bytes, which do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_string(destination: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: the caller vouches for the ranges; the direction flag is clear.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") destination => _,
            inout("rsi") source => _, options(nostack, preserves_flags));
    }
}

/// Copies sixteen bytes. Others may store to the source meanwhile, or load the destination.
///
/// # Safety
/// `source` is valid for reads and `destination` for writes of as many.
#[inline(always)]
pub(crate) unsafe fn copy_chunk(destination: *mut u8, source: *const u8) {
    // SAFETY: the caller vouches for the ranges.
    unsafe {
        asm!("movdqu {chunk}, [{source}]", "movdqu [{destination}], {chunk}", chunk = out(xmm_reg) _,
            source = in(reg) source, destination = in(reg) destination,
            options(nostack, preserves_flags));
    }
}
