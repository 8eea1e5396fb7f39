//! Values of generic types whose destructors stay in this crate.
//!
//! A destructor is compiled where a value is dropped, which is in the program that uses the store; the engine's ends
//! with a checkpoint, and so takes all of the engine with it. A [`Kept`] value is dropped through a pointer
//! that was made here.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A value that is dropped by code of the crate that kept it.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    value: ManuallyDrop<T>,
    /// [`ManuallyDrop::drop`].
    drop: unsafe fn(&mut ManuallyDrop<T>),
}

impl<T> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), drop: ManuallyDrop::drop }
    }

    pub(crate) fn into_inner(self) -> T {
        let mut kept = ManuallyDrop::new(self);
        // SAFETY: `kept` is never dropped nor used again, so this is the only use of the value.
        unsafe { ManuallyDrop::take(&mut kept.value) }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // SAFETY: this is `ManuallyDrop::drop`, called once, and nobody sees the value afterwards.
        unsafe { (self.drop)(&mut self.value) }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Clone> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self::new((**self).clone())
    }
}
