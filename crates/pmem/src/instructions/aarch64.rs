//! aarch64: `dc cvap` (clean to the point of persistence, ARMv8.2) and `dsb`.

use core::arch::asm;

use crate::hardware::FlushMethod;

pub(crate) fn is_available(method: FlushMethod) -> bool {
    method == FlushMethod::DcCvap && std::arch::is_aarch64_feature_detected!("dpb")
}

/// `dc cvap` where the processor has it. Without it no user-space instruction reaches the point of
/// persistence, and stores are as durable as the page cache.
pub(crate) fn detect() -> FlushMethod {
    if is_available(FlushMethod::DcCvap) { FlushMethod::DcCvap } else { FlushMethod::PageCacheNone }
}

/// # Safety
/// `at` must be mapped and the processor must have `dc cvap`.
#[inline(always)]
pub(crate) unsafe fn dc_cvap(at: *const u8) {
    // SAFETY: cleans a line without changing its contents; the caller vouches for `at`. The
    // encoding `sys #3, c7, c12, #1` is `dc cvap`, written so that no target feature is needed.
    unsafe { asm!("sys #3, c7, c12, #1, {}", in(reg) at, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub(crate) fn store_fence() {
    // SAFETY: a full-system data synchronisation barrier has no operands.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) }
}

/// Copies sixteen bytes. Others may store to the source meanwhile, or load the destination.
///
/// # Safety
/// `source` is valid for reads and `destination` for writes of as many.
#[inline(always)]
pub(crate) unsafe fn copy_chunk(destination: *mut u8, source: *const u8) {
    // SAFETY: the caller vouches for the ranges.
    unsafe {
        asm!("ldr {chunk:q}, [{source}]", "str {chunk:q}, [{destination}]", chunk = out(vreg) _,
            source = in(reg) source, destination = in(reg) destination,
            options(nostack, preserves_flags));
    }
}
