//! A barrier in every thread, which one thread pays for.
//!
//! `membarrier(2)` with `PRIVATE_EXPEDITED`: when it returns, each thread of the process has passed
//! through a full barrier since it was called, by an interrupt if it was running. A microsecond or
//! two, and nothing for those who are not interrupted.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

/// Whether the kernel has no such barrier, so that pins and reclaimers both have to fence. The same
/// for the life of the process.
pub(crate) fn pins_need_fences() -> bool {
    static MISSING: OnceLock<bool> = OnceLock::new();
    *MISSING.get_or_init(|| !kernel::register())
}

/// Has all threads of the process, and this one, pass a full barrier. False if the kernel could not
/// do it, which it has said it can.
pub(crate) fn order_all_threads() -> bool {
    if pins_need_fences() {
        fence(Ordering::SeqCst);
        return true;
    }
    // A process that was forked may have to say again that it wants this.
    kernel::order_all_threads() || (kernel::register() && kernel::order_all_threads())
}

#[cfg(all(target_os = "linux", not(miri)))]
mod kernel {
    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    pub(super) fn register() -> bool {
        let command = MembarrierCommand::RegisterPrivateExpedited;
        membarrier_query().contains_command(command) && membarrier(command).is_ok()
    }

    pub(super) fn order_all_threads() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod kernel {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn order_all_threads() -> bool {
        false
    }
}
