//! Persistent fields: [`PCell`] for words, [`Link`] and [`Slot`] for references between blocks.
//!
//! A persistent struct has no bare fields behind a shared reference. Each field is a cell whose
//! every access names the domain it happens on, which is what lets one source run on hardware and
//! on the model.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use crate::blocks::{Blocks, InOrder};
use crate::commit::Visible;
use crate::domain::Domain;
use crate::owned::{Durable, Owned};
use crate::word::Word;

/// Types that may lie in a pool.
///
/// Use [`persistent!`](crate::persistent) to define one; the macro proves the conditions.
///
/// # Safety
/// Every bit pattern is a valid value, the layout is `repr(C)` (or `transparent`) and the same on
/// every machine, all fields are cells (interior mutability through atomics), there is no `Drop`.
pub unsafe trait Persistent: Send + Sync + 'static {}

/// A word in persistent memory.
#[repr(transparent)]
pub struct PCell<W: Word>(W::Atomic);

// SAFETY: an atomic integer: any bit pattern is valid, the layout is the integer's.
unsafe impl<W: Word> Persistent for PCell<W> {}
// SAFETY: arrays add neither padding nor invalid patterns.
unsafe impl<T: Persistent, const N: usize> Persistent for [T; N] {}

impl<W: Word> PCell<W> {
    /// A cell outside of any pool, for tests and for values that are copied in whole.
    pub fn new(value: W) -> Self {
        Self(W::atomic(value))
    }

    /// The atomic underneath.
    #[inline(always)]
    pub fn atomic(&self) -> &W::Atomic {
        &self.0
    }

    /// Loads without ordering.
    #[inline(always)]
    pub fn load<D: Domain>(&self, domain: &D) -> W {
        domain.load::<W>(&self.0, Ordering::Relaxed)
    }

    /// Loads; what follows in program order is not moved before it.
    #[inline(always)]
    pub fn load_acquire<D: Domain>(&self, domain: &D) -> W {
        domain.load::<W>(&self.0, Ordering::Acquire)
    }

    /// Stores without ordering: for blocks that nobody else can reach yet.
    #[inline(always)]
    pub fn store<D: Domain>(&self, domain: &D, value: W) {
        domain.store::<W>(&self.0, value, Ordering::Relaxed);
    }

    /// Stores after everything earlier in program order (rule R2 of [`crate::domain`]): the
    /// documented ordered-store primitive for structures whose order types cannot express.
    ///
    /// The store is visible at once and durable only after a flush and a fence; whoever calls this
    /// on a reachable block says, at the call, which numbered invariant holds before and after it.
    #[inline(always)]
    pub fn store_ordered<D: Domain>(&self, domain: &D, value: W) {
        domain.store::<W>(&self.0, value, Ordering::Release);
    }

    /// Stores as [`PCell::store_ordered`] does and returns the obligation to persist it.
    #[inline(always)]
    pub fn publish<'a, D: Domain>(&'a self, domain: &'a D, value: W) -> Visible<'a, D> {
        domain.store::<W>(&self.0, value, Ordering::Release);
        Visible::of(domain, self)
    }

    /// Makes `blocks` reachable by the word that `word` makes of them: a link with the structure's
    /// own tags, or what makes the place count in which their links lie already. For callers that
    /// hold the lock under which alone this cell is written.
    ///
    /// ```
    /// # use lapis_pmem::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::create_anonymous(1 << 20)?;
    /// # let top = pool.allocate::<PCell<u64>>()?;
    /// let leaf = pool.fence(pool.allocate::<PCell<u64>>()?.flush());
    /// let _: Committed =
    ///     top.publish_word(pool.domain(), leaf, |leaf| leaf.link().bits() | 1).persist();
    /// # Ok(()) }
    /// ```
    /// ```compile_fail
    /// # use lapis_pmem::*;
    /// # fn f<D: Domain>(pool: &Pool<D>, top: &PCell<u64>) {
    /// // Not before the fence.
    /// let leaf = pool.allocate::<PCell<u64>>().unwrap().flush();
    /// let _ = top.publish_word(pool.domain(), leaf, |leaf| leaf.link().bits() | 1).persist();
    /// # }
    /// ```
    /// ```compile_fail
    /// # use lapis_pmem::*;
    /// # fn f<D: Domain>(pool: &Pool<D>, top: &PCell<u64>) {
    /// // Nor if one of several was left out of it.
    /// let leaf = pool.fence(pool.allocate::<PCell<u64>>().unwrap().flush());
    /// let node = pool.allocate::<PCell<u64>>().unwrap().flush();
    /// let _ = top.publish_word(pool.domain(), (leaf, node), |(_, node)| node.link().bits());
    /// # }
    /// ```
    #[inline(always)]
    pub fn publish_word<'a, D: Domain, B: Blocks<Durable>>(
        &'a self,
        domain: &'a D,
        blocks: B,
        word: impl FnOnce(&B) -> W,
    ) -> Visible<'a, D> {
        let word = word(&blocks);
        blocks.hand_over(InOrder(()));
        self.publish(domain, word)
    }

    /// As [`PCell::publish_word`], if the cell still holds `current` (compare-exchange).
    ///
    /// ```compile_fail
    /// # use lapis_pmem::*;
    /// # fn f<D: Domain>(pool: &Pool<D>, top: &PCell<u64>) {
    /// let leaf = pool.allocate::<PCell<u64>>().unwrap().flush();
    /// let _ = top.publish_word_if(pool.domain(), 0, leaf, |leaf| leaf.link().bits() | 1);
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Rejected`] with the blocks when the cell held something else.
    #[inline(always)]
    pub fn publish_word_if<'a, D: Domain, B: Blocks<Durable>>(
        &'a self,
        domain: &'a D,
        current: W,
        blocks: B,
        word: impl FnOnce(&B) -> W,
    ) -> Result<Visible<'a, D>, Rejected<W, B>> {
        match self.publish_if(domain, current, word(&blocks)) {
            Ok(visible) => {
                blocks.hand_over(InOrder(()));
                Ok(visible)
            }
            Err(found) => Err(Rejected { found, blocks }),
        }
    }

    /// Compares and exchanges; on success the new value is visible and must be persisted.
    ///
    /// # Errors
    /// The value found, when it is not `current`.
    #[inline(always)]
    pub fn publish_if<'a, D: Domain>(
        &'a self,
        domain: &'a D,
        current: W,
        new: W,
    ) -> Result<Visible<'a, D>, W> {
        domain.compare_exchange::<W>(&self.0, current, new)?;
        Ok(Visible::of(domain, self))
    }

    /// Compares and exchanges a word whose durability does not matter (a lock, a hint).
    ///
    /// # Errors
    /// The value found, when it is not `current`.
    #[inline(always)]
    pub fn compare_exchange<D: Domain>(&self, domain: &D, current: W, new: W) -> Result<W, W> {
        domain.compare_exchange::<W>(&self.0, current, new)
    }

    /// Exchanges a word whose durability does not matter.
    #[inline(always)]
    pub fn swap<D: Domain>(&self, domain: &D, value: W) -> W {
        domain.swap::<W>(&self.0, value)
    }
}

impl<W: Word> fmt::Debug for PCell<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", W::load(&self.0, Ordering::Relaxed))
    }
}

/// A pool-relative reference to a block that begins with a `T`: the byte offset from the start of
/// the pool, in the low 48 bits, or zero for none. The upper 16 bits are free for tags of the
/// structure that owns the slot; [`Link`] itself never has them set.
///
/// ```text
///  63      48 47                                              0
/// +----------+------------------------------------------------+
/// |  zero    |  offset in bytes from the start of the pool    |
/// +----------+------------------------------------------------+
/// ```
#[repr(transparent)]
pub struct Link<T: ?Sized>(u64, PhantomData<fn() -> *const T>);

/// The bits of a word that hold an offset.
pub const LINK_MASK: u64 = (1 << 48) - 1;

impl<T: ?Sized> Link<T> {
    /// The link that refers to nothing.
    pub const NULL: Self = Self(0, PhantomData);

    /// A link from its bits; anything above bit 47 is dropped. A wrong offset is harmless until
    /// it is followed, and following it is bounds-checked by the pool.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & LINK_MASK, PhantomData)
    }

    /// The bits, for storing in a word.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The byte offset from the start of the pool.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.0
    }

    /// Whether this refers to nothing.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The same block seen as another type.
    #[inline(always)]
    pub const fn cast<U: ?Sized>(self) -> Link<U> {
        Link(self.0, PhantomData)
    }
}

impl<T: ?Sized> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized> Copy for Link<T> {}
impl<T: ?Sized> PartialEq for Link<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T: ?Sized> Eq for Link<T> {}
impl<T: ?Sized> core::hash::Hash for Link<T> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<T: ?Sized> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:#x}", self.0)
    }
}

/// An 8-byte word in persistent memory that refers to a block: where blocks are published.
///
/// ```compile_fail
/// # use lapis_pmem::*;
/// # fn f<'p, D: Domain>(pool: &'p Pool<D>, slot: &'p Slot<PCell<u64>>) {
/// // A dirty node cannot be published: it was never flushed.
/// let node = pool.allocate::<PCell<u64>>().unwrap();
/// let _ = slot.publish(Link::NULL, node);
/// # }
/// ```
/// ```compile_fail
/// # use lapis_pmem::*;
/// # fn f<'p, D: Domain>(pool: &'p Pool<D>, slot: &'p Slot<PCell<u64>>) {
/// // Nor can a flushed but unfenced one.
/// let node = pool.allocate::<PCell<u64>>().unwrap().flush();
/// let _ = slot.publish(Link::NULL, node);
/// # }
/// ```
#[repr(transparent)]
pub struct Slot<T>(PCell<u64>, PhantomData<fn() -> *const T>);

// SAFETY: transparent over an atomic word.
unsafe impl<T: 'static> Persistent for Slot<T> {}

/// Publication failed: the cell or slot held something else. The blocks are handed back.
#[derive(Debug)]
pub struct Rejected<F, B> {
    /// What it held.
    pub found: F,
    /// The blocks, still owned.
    pub blocks: B,
}

/// What becomes of a block that is published if a slot holds what was expected.
pub type Publication<'a, 'p, D, T> =
    Result<Visible<'a, D>, Rejected<Link<T>, Owned<'p, D, T, Durable>>>;

impl<T: Persistent> Slot<T> {
    /// The word underneath, for structures that keep tags beside the link: see
    /// [`PCell::publish_word`].
    #[inline(always)]
    pub fn word(&self) -> &PCell<u64> {
        &self.0
    }

    /// Loads the link; what follows in program order is not moved before it.
    #[inline(always)]
    pub fn load<D: Domain>(&self, domain: &D) -> Link<T> {
        Link::from_bits(self.0.load_acquire(domain))
    }

    /// Makes `node` reachable if the slot still holds `expected` (compare-exchange). On success the
    /// node belongs to the structure; the returned [`Visible`] must be persisted.
    ///
    /// # Errors
    /// [`Rejected`] with the node when the slot held something else.
    #[inline(always)]
    pub fn publish<'a, 'p: 'a, D: Domain>(
        &'a self,
        expected: Link<T>,
        node: Owned<'p, D, T, Durable>,
    ) -> Publication<'a, 'p, D, T> {
        let (domain, expected) = (node.domain(), expected.bits());
        self.0.publish_word_if(domain, expected, node, |node| node.link().bits()).map_err(
            |Rejected { found, blocks }| Rejected { found: Link::from_bits(found), blocks },
        )
    }

    /// Makes `node` reachable with a plain ordered store: for callers that hold the lock under which
    /// alone this slot is written.
    #[inline(always)]
    pub fn publish_exclusive<'a, 'p: 'a, D: Domain>(
        &'a self,
        node: Owned<'p, D, T, Durable>,
    ) -> Visible<'a, D> {
        self.0.publish_word(node.domain(), node, |node| node.link().bits())
    }

    /// Points the slot at a block that is reachable and durable already, or at nothing: for callers
    /// that hold the lock under which alone this slot is written. This is how a block is unlinked;
    /// what was here may be retired only with the [`Committed`](crate::Committed) that persisting
    /// the returned [`Visible`] gives.
    #[inline(always)]
    pub fn redirect<'a, D: Domain>(&'a self, domain: &'a D, to: Link<T>) -> Visible<'a, D> {
        self.0.publish(domain, to.bits())
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:?}", self.0)
    }
}

/// Defines a `repr(C)` struct that may lie in a pool, and pins its size in bytes.
///
/// ```
/// use lapis_pmem::{PCell, Slot, persistent};
/// persistent! {
///     /// A list node.
///     pub struct Node: 16 {
///         /// The payload.
///         pub value: PCell<u64>,
///         /// The next node.
///         pub next: Slot<Node>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! persistent {
    ($(#[$meta:meta])* $vis:vis struct $name:ident : $size:literal {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type),* }

        // SAFETY: repr(C), every field is Persistent (checked below), and the pinned size equals
        // the sum of the fields' sizes, so there is no padding.
        unsafe impl $crate::Persistent for $name {}
        const _: () = {
            const fn field<T: $crate::Persistent>() -> usize { size_of::<T>() }
            assert!(size_of::<$name>() == $size, concat!(stringify!($name), " has another size"));
            assert!(0 $(+ field::<$type>())* == $size, concat!(stringify!($name), " has padding"));
        };
    };
}
