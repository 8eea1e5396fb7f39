//! Kinds of accesses.

/// What an access is to its worker: it writes or not, and the worker waits or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    const WRITES: u8 = 1;
    const WAITS: u8 = 2;
    const LOCKS: u8 = 4;

    /// The worker waits for the line.
    pub(crate) const LOAD: Self = Self(Self::WAITS);
    /// The worker goes on.
    pub(crate) const STORE: Self = Self(Self::WRITES);
    /// The worker goes on and has written nothing.
    pub(crate) const PREFETCH: Self = Self(0);

    /// The worker waits and may have written.
    #[inline]
    pub(crate) fn locked(stored: bool) -> Self {
        Self(Self::LOCKS | Self::WAITS | if stored { Self::WRITES } else { 0 })
    }

    #[inline]
    pub(crate) fn writes(self) -> bool {
        self.0 & Self::WRITES != 0
    }

    #[inline]
    pub(super) fn waits(self) -> bool {
        self.0 & Self::WAITS != 0
    }

    #[inline]
    pub(super) fn locks(self) -> bool {
        self.0 & Self::LOCKS != 0
    }
}
