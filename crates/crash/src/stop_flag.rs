//! Ending an exploration early, from outside.

use std::sync::atomic::{AtomicBool, Ordering};

/// Ends explorations early once it is raised, with what they have found until then. Who raises it, on a signal or for
/// another reason, is a program's business and not the library's.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopFlag(Option<&'static AtomicBool>);

impl StopFlag {
    /// Raised when `flag` is true.
    pub const fn at(flag: &'static AtomicBool) -> Self {
        Self(Some(flag))
    }

    /// Whether to end.
    pub fn is_raised(self) -> bool {
        self.0.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}
