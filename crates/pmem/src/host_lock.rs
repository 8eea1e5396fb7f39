//! Locks of the host's memory that are held across events of the persistence domain.
//!
//! On hardware these are the locks they are. A deterministic machine runs one worker at a time and
//! may change to another at any event: a worker that slept in the operating system for a lock whose
//! holder is not to run would stop the machine. There a worker tries, and gives its turn away
//! ([`Observed::pause`]) as long as somebody else holds the lock. Taking and giving back a lock of the
//! host orders the worker's stores like a locked instruction ([`Observed::synchronize`]).

use core::fmt;
use core::ops::{Deref, DerefMut};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::domain::Domain;
use crate::owner_lock::{OwnerGuard, OwnerLock};

/// A lock of the host, held. Dropping it orders the worker's stores, then lets go.
pub struct HostGuard<'a, D: Domain, G> {
    domain: &'a D,
    guard: G,
}

impl<D: Domain, G> fmt::Debug for HostGuard<'_, D, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostGuard")
    }
}

impl<D: Domain, G: Deref> Deref for HostGuard<'_, D, G> {
    type Target = G::Target;

    #[inline(always)]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<D: Domain, G: DerefMut> DerefMut for HostGuard<'_, D, G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<D: Domain, G> Drop for HostGuard<'_, D, G> {
    #[inline(always)]
    fn drop(&mut self) {
        self.domain.synchronize();
    }
}

/// Takes `mutex`.
#[inline]
pub fn lock<'a, D: Domain, T>(
    domain: &'a D,
    mutex: &'a Mutex<T>,
) -> HostGuard<'a, D, MutexGuard<'a, T>> {
    HostGuard { domain, guard: wait_for(domain, || mutex.try_lock(), || mutex.lock()) }
}

/// Takes `lock`, which has no owner on a deterministic machine.
#[inline]
pub fn lock_owned<'a, D: Domain, T>(
    domain: &'a D,
    lock: &'a OwnerLock<T>,
) -> HostGuard<'a, D, OwnerGuard<'a, T>> {
    HostGuard { domain, guard: wait_for(domain, || lock.try_lock_shared(), || lock.lock()) }
}

/// Takes `mutex` if nobody holds it; none if somebody does.
#[inline]
pub fn try_lock<'a, D: Domain, T>(
    domain: &'a D,
    mutex: &'a Mutex<T>,
) -> Option<HostGuard<'a, D, MutexGuard<'a, T>>> {
    domain.synchronize();
    mutex.try_lock().map(|guard| HostGuard { domain, guard })
}

/// Lets go of `mutex` until `changed` is notified, and takes it again. It may return for no reason:
/// whoever waits for something looks again whether it is there.
#[inline]
pub fn wait<'a, D: Domain, T>(
    mutex: &'a Mutex<T>,
    mut held: HostGuard<'a, D, MutexGuard<'a, T>>,
    changed: &Condvar,
) -> HostGuard<'a, D, MutexGuard<'a, T>> {
    if D::DETERMINISTIC {
        let domain = held.domain;
        drop(held);
        domain.pause();
        return lock(domain, mutex);
    }
    changed.wait(&mut held.guard);
    held
}

/// Takes `lock` together with other readers.
#[inline]
pub fn read<'a, D: Domain, T>(
    domain: &'a D,
    lock: &'a RwLock<T>,
) -> HostGuard<'a, D, RwLockReadGuard<'a, T>> {
    HostGuard { domain, guard: wait_for(domain, || lock.try_read(), || lock.read()) }
}

/// Takes `lock` alone.
#[inline]
pub fn write<'a, D: Domain, T>(
    domain: &'a D,
    lock: &'a RwLock<T>,
) -> HostGuard<'a, D, RwLockWriteGuard<'a, T>> {
    HostGuard { domain, guard: wait_for(domain, || lock.try_write(), || lock.write()) }
}

/// `acquire` waits for a lock, `try_acquire` does not.
#[inline(always)]
fn wait_for<D: Domain, G>(
    domain: &D,
    try_acquire: impl Fn() -> Option<G>,
    acquire: impl FnOnce() -> G,
) -> G {
    if !D::DETERMINISTIC {
        return acquire();
    }
    domain.synchronize();
    loop {
        match try_acquire() {
            Some(guard) => return guard,
            None => domain.pause(),
        }
    }
}
