//! Leaving out flushes and fences on purpose: half of all published errors of persistent structures
//! are one that is missing.

use core::cell::Cell;
use core::marker::PhantomData;

std::thread_local! {
    /// How many [`Omission`]s of this thread omit.
    static OMITTING: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, a modelled machine leaves out the flushes and fences of this thread, and does
/// non-temporal copies with ordinary stores; or nothing happens, if the mutant it is for is not
/// asked for. See [`Observed::omitting`](crate::Observed::omitting).
#[must_use = "nothing is left out any more once this is dropped"]
#[derive(Debug)]
pub struct Omission {
    omits: bool,
    _thread: PhantomData<*const ()>,
}

impl Omission {
    #[inline(always)]
    pub(crate) fn if_committed(omits: bool) -> Self {
        if omits {
            OMITTING.set(OMITTING.get() + 1);
        }
        Self { omits, _thread: PhantomData }
    }

    /// Whether this thread's flushes and fences are to be left out: what a domain that
    /// [commits](crate::Observed::commits) mutants asks before each.
    #[inline]
    pub fn is_in_force() -> bool {
        OMITTING.get() > 0
    }
}

impl Drop for Omission {
    #[inline(always)]
    fn drop(&mut self) {
        if self.omits {
            OMITTING.set(OMITTING.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_omission_ends_with_the_last_of_those_that_omit() {
        let outer = Omission::if_committed(true);
        drop(Omission::if_committed(true));
        drop(Omission::if_committed(false));
        assert!(Omission::is_in_force());
        drop(outer);
        assert!(!Omission::is_in_force());
    }
}
