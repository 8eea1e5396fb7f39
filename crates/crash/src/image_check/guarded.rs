//! Panics as failures.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::oracle::Failure;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Panics of the calling thread print nothing from now on: a checker that tries a million images on a
/// faulty structure would print a million messages.
pub(crate) fn be_quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
    QUIET.set(true);
}

/// Turns a panic of `check` into a failure, quietly.
pub(crate) fn guarded<T>(check: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    be_quiet();
    let result = catch_unwind(AssertUnwindSafe(check));
    QUIET.set(false);
    result.unwrap_or_else(|payload| {
        let what = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "for an unknown reason".to_owned());
        Err(Failure::Panic { what })
    })
}
