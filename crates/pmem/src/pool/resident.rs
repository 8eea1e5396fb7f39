//! A block that is followed again and again.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Pool;
use crate::cell::{Link, Persistent};
use crate::domain::Domain;

/// The `T` at a link that was checked once: what [`Pool::at`] gives, for one load. Keeps the pool
/// open.
pub struct Resident<D: Domain, T> {
    at: NonNull<T>,
    pool: Arc<Pool<D>>,
}

// SAFETY: no more than a pool, which is `Send`, and a link.
unsafe impl<D: Domain, T: Persistent> Send for Resident<D, T> {}
// SAFETY: as above; a pool gives `&T` to every thread that has a link.
unsafe impl<D: Domain, T: Persistent> Sync for Resident<D, T> {}

impl<D: Domain, T: Persistent> Resident<D, T> {
    pub(super) fn new(pool: &Arc<Pool<D>>, link: Link<T>) -> Self {
        Self { at: NonNull::from(pool.at(link)), pool: Arc::clone(pool) }
    }
}

impl<D: Domain, T: Persistent> Deref for Resident<D, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a reference that the pool gave, whose region stays mapped where it is as long as
        // the pool is open; any bytes there are some `T`.
        unsafe { self.at.as_ref() }
    }
}

impl<D: Domain, T> fmt::Debug for Resident<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resident({:?})", self.pool)
    }
}
