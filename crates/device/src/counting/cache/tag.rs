//! What stands in a way of a set.

/// A line and whether it is dirty, or nothing.
///
/// ```text
///  bit  31      30              0
///      +-------+-----------------+
///      | dirty | line number + 1 |      zero: nothing
///      +-------+-----------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(super) u32);

/// The bit of a dirty line.
pub(super) const DIRTY: u32 = 1 << 31;

impl Tag {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);

    #[inline(always)]
    pub(crate) fn of(line: u32, dirty: bool) -> Self {
        Self((line + 1) | u32::from(dirty) << DIRTY.trailing_zeros())
    }

    #[inline(always)]
    pub(crate) fn line(self) -> Option<u32> {
        (self.0 & !DIRTY).checked_sub(1)
    }

    /// Nothing is not dirty.
    #[inline(always)]
    pub(crate) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
}
