//! The buffer manager from outside: the space on a device that misbehaves, a pool far smaller than its
//! data, mini pages, pages that are used in persistent memory, swizzled references, and interleavings on the modelled machine.

mod in_place;
mod interleavings;
mod lines;
mod mini;
mod pool;
mod space;
mod swizzling;
mod tier;
mod tuning;

/// This machine, of which pages in DRAM need no flush: a domain that an interpreter can be, too.
fn hardware() -> lapis_pmem::Hardware {
    lapis_pmem::Hardware::with_method(lapis_pmem::FlushMethod::PageCacheNone).unwrap()
}
