//! What an answer rests on is durable before it is given.

use crate::domain::Domain;

/// Makes durable what the caller has seen of changes that others have under way, or may have: a value
/// that is visible may be gone after a power cut, and an answer, or a change that is acknowledged on
/// top of it, would not be. Called after the last load that the answer rests on.
///
/// A single thread never sees such changes. So there is one place for all who call this, and it does
/// not count among their persist points.
#[cold]
#[inline(never)]
pub fn persist_before_answer<'s, D: Domain, T: ?Sized + 's>(
    domain: &D,
    seen: impl IntoIterator<Item = &'s T>,
) {
    for part in seen {
        domain.flush(part);
    }
    domain.fence();
}
