//! Leaves as FPTree has them, over hashed keys: where interleaving is shown.
//!
//! The leaf is that of I. Oukid, J. Lasperas, A. Nica, T. Willhalm, W. Lehner, *FPTree*, SIGMOD 2016,
//! in the reduced form in which section 3.5.1 of van Renen et al. (VLDB Journal 2020) measures it:
//! a bitmap, a fingerprint of one byte per key, and unsorted pairs of key and value.
//!
//! # Layout
//!
//! ```text
//!  FpLeavesRoot (64 bytes)                 leaf (576 bytes, nine lines)
//!   0  8  magic           "LAPISFPL"        0  64  bitmap, fingerprints (the first 32)
//!   8  8  format_version  1                64 512  32 slots: key (8), value (8)
//!  16  8  leaves
//!  24  8  checksum        CRC of 0..24
//!  32 32  reserved, zero
//!  64     leaf 0, leaf 1, …
//! ```
//!
//! The first line and the slots are those of [`fp_leaf`](crate::fp_leaf), where it says what FPTree does
//! otherwise. A key belongs in the leaf that its hash names; a leaf that is full refuses. Keys are never 0.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. A slot whose bit is set holds a pair that was acknowledged, or is being inserted, durably,
//!   with its fingerprint.
//! * I2. A slot whose bit is not set is anything.
//! * I3. A key is in one slot at most.
//!
//! # Order of stores, and cost
//!
//! Insert: pair stored, its line flushed, fence; fingerprint stored, then the bit, in one line and so
//! in this order (rule R2); flush; fence. Two flushes and two fences, or a share in two group
//! fences. (The papers flush the fingerprint together with the pair, that is the first line twice;
//! [`FpLeaves::insert_as_published`] does that too.) Update of a key that is there: value stored, flushed, fenced. Remove: the bit cleared,
//! flushed, fenced. Nothing to recover.

use std::cell::Cell;
use std::sync::Arc;

use lapis_pmem::{
    AllocError, BlockVisitor, Committed, Domain, InFlight, LINE_BYTES, Link, Owned, PCell, Pool,
    SoleUse, persistent,
};

use crate::fp_leaf::{Entry, FINGERPRINTS, FingerprintLine, fingerprint_of, slots_in};
use crate::interleave::Turn;
use crate::mutants::{LEAVES_BIT_BEFORE_FINGERPRINT, LEAVES_BIT_WITH_PAIR};

const MAGIC: u64 = u64::from_le_bytes(*b"LAPISFPL");
const FORMAT_VERSION: u64 = 1;
/// Pairs of a leaf.
pub const SLOTS: usize = 32;

persistent! {
    /// The header: what the caller publishes.
    pub struct FpLeavesRoot: 64 {
        magic: PCell<u64>,
        format_version: PCell<u64>,
        leaves: PCell<u64>,
        checksum: PCell<u64>,
        reserved: [PCell<u64>; 4],
    }
}

persistent! {
    struct Leaf: 576 {
        line: FingerprintLine,
        slots: [Entry; SLOTS],
    }
}

const _: () = assert!(SLOTS <= FINGERPRINTS && size_of::<Leaf>().is_multiple_of(LINE_BYTES));

/// Why leaves could not do what they were asked. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FpLeavesError {
    /// There has to be a leaf.
    #[error("there has to be at least one leaf")]
    NoLeaves,
    /// Zero is no key.
    #[error("zero is not a key")]
    ZeroKey,
    /// The leaf of the key has no free slot.
    #[error("the leaf of key {key} is full")]
    LeafFull {
        /// The key.
        key: u64,
    },
    /// The block is no such array.
    #[error("there are no leaves at pool offset {pool_offset:#x}")]
    NotLeaves {
        /// Where they were looked for.
        pool_offset: u64,
    },
    /// Written by a newer Lapis.
    #[error("the leaves have format version {found}; this Lapis reads up to {FORMAT_VERSION}")]
    NewerVersion {
        /// The version found.
        found: u64,
    },
    /// They are open in this opening of the pool: which are busy, that handle knows.
    #[error("the leaves are open already: their handle is to be shared")]
    InUse,
    /// No room in the pool.
    #[error("no room for the leaves: {0}")]
    Full(#[from] AllocError),
}

/// What operations of a group overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Reads: prefetch a line and give way before it is needed.
    pub reads: bool,
    /// Writes: wait for the group's fence instead of fencing alone.
    pub writes: bool,
}

impl Overlap {
    /// Both.
    pub const BOTH: Self = Self { reads: true, writes: true };
    /// Neither: each operation is done when it is first polled.
    pub const NONE: Self = Self { reads: false, writes: false };
}

/// What a fingerprint is made durable with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FingerprintGoes {
    /// The bit, whose line it shares.
    WithBit,
    /// The pair, before the bit.
    WithPair,
}

/// Leaves over hashed keys. For one thread, which may have many operations in flight.
#[derive(Debug)]
pub struct FpLeaves<D: Domain> {
    pool: Arc<Pool<D>>,
    root: Link<FpLeavesRoot>,
    /// Leaves with an operation in flight, which has the leaf to itself: two inserts would take one
    /// slot, and a reader would see what is not durable.
    busy: Vec<Cell<bool>>,
    _alone: SoleUse<D>,
}

#[inline]
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn checksum(leaves: u64) -> u64 {
    let words = [MAGIC, FORMAT_VERSION, leaves].map(u64::to_le_bytes);
    u64::from(crc32c::crc32c(words.as_flattened()))
}

impl<D: Domain> FpLeaves<D> {
    /// Makes so many empty leaves, for the caller to fence and publish.
    ///
    /// # Errors
    /// [`FpLeavesError::NoLeaves`], [`FpLeavesError::Full`].
    pub fn create(
        pool: &Pool<D>,
        leaves: usize,
    ) -> Result<Owned<'_, D, FpLeavesRoot, InFlight>, FpLeavesError> {
        const ZEROES: [u8; 4096] = [0; 4096];
        if leaves == 0 {
            return Err(FpLeavesError::NoLeaves);
        }
        let tail_bytes = leaves.saturating_mul(size_of::<Leaf>());
        let mut root = pool.allocate_with_tail::<FpLeavesRoot>(tail_bytes)?;
        for at in (0..tail_bytes).step_by(ZEROES.len()) {
            root.write_tail_nontemporal(at, &ZEROES[..ZEROES.len().min(tail_bytes - at)]);
        }
        let domain = pool.domain();
        root.magic.store(domain, MAGIC);
        root.format_version.store(domain, FORMAT_VERSION);
        root.leaves.store(domain, leaves as u64);
        root.checksum.store(domain, checksum(leaves as u64));
        root.reserved.iter().for_each(|word| word.store(domain, 0));
        Ok(root.flush_head())
    }

    /// Opens them.
    ///
    /// # Errors
    /// [`FpLeavesError::NotLeaves`], [`FpLeavesError::NewerVersion`], [`FpLeavesError::InUse`].
    pub fn open(pool: &Arc<Pool<D>>, root: Link<FpLeavesRoot>) -> Result<Self, FpLeavesError> {
        let nothing = || FpLeavesError::NotLeaves { pool_offset: root.offset() };
        let domain = pool.domain();
        let header = pool.try_at(root).ok_or_else(nothing)?;
        if header.magic.load(domain) != MAGIC {
            return Err(nothing());
        }
        let found = header.format_version.load(domain);
        if found > FORMAT_VERSION {
            return Err(FpLeavesError::NewerVersion { found });
        }
        let leaves = header.leaves.load(domain);
        let first = Link::<Leaf>::from_bits(root.offset() + size_of::<FpLeavesRoot>() as u64);
        if header.checksum.load(domain) != checksum(leaves)
            || leaves == 0
            || pool.try_slice(first, leaves as usize).is_none()
        {
            return Err(nothing());
        }
        let alone = pool.sole_use(root).ok_or(FpLeavesError::InUse)?;
        let busy = vec![Cell::new(false); leaves as usize];
        Ok(Self { pool: Arc::clone(pool), root, busy, _alone: alone })
    }

    #[inline]
    fn leaf(&self, number: usize) -> &Leaf {
        let at = size_of::<FpLeavesRoot>() + number * size_of::<Leaf>();
        self.pool.at(Link::from_bits(self.root.offset() + at as u64))
    }

    #[inline]
    fn number_of(&self, hash: u64) -> usize {
        ((hash >> 8) % self.busy.len() as u64) as usize
    }

    /// The slots of a leaf that are in use.
    #[inline]
    fn used(&self, leaf: &Leaf) -> u64 {
        leaf.line.bitmap.load_acquire(self.pool.domain()) & ((1 << SLOTS) - 1)
    }

    /// The leaf of a key, for this operation alone.
    #[inline]
    async fn take(&self, turn: Turn<'_, D>, key: u64, overlap: Overlap) -> Taken<'_> {
        let hash = hash(key);
        let number = self.number_of(hash);
        let leaf = self.leaf(number);
        if overlap.reads {
            turn.prefetch(std::ptr::from_ref(leaf).cast()).await;
        }
        let busy = &self.busy[number];
        let busy = turn.until(|| Busy::take(busy)).await;
        Taken { leaf, used: self.used(leaf), fingerprint: fingerprint_of(hash), _busy: busy }
    }

    /// The slot of a key, read with or without giving way.
    #[inline]
    async fn find(
        &self,
        turn: Turn<'_, D>,
        taken: &Taken<'_>,
        key: u64,
        overlap: Overlap,
    ) -> Option<usize> {
        let (domain, leaf) = (self.pool.domain(), taken.leaf);
        for number in slots_in(taken.used) {
            if leaf.line.fingerprint(domain, number) != taken.fingerprint {
                continue;
            }
            let slot = &leaf.slots[number];
            if overlap.reads {
                turn.prefetch(std::ptr::from_ref(slot).cast()).await;
            }
            if slot.key.load(domain) == key {
                return Some(number);
            }
        }
        None
    }

    /// The value of a key, as a task of an [`Interleaver`](crate::interleave::Interleaver). Never
    /// one that an insert in flight has stored and no fence has made durable.
    pub async fn get(&self, turn: Turn<'_, D>, key: u64, overlap: Overlap) -> Option<u64> {
        let taken = self.take(turn, key, overlap).await;
        let slot = self.find(turn, &taken, key, overlap).await?;
        Some(taken.leaf.slots[slot].value.load(self.pool.domain()))
    }

    /// Adds or replaces a pair, as a task of an [`Interleaver`](crate::interleave::Interleaver).
    /// Durable on return. Operations on one leaf take turns.
    ///
    /// # Errors
    /// [`FpLeavesError::ZeroKey`], [`FpLeavesError::LeafFull`].
    #[inline]
    pub fn insert<'f>(
        &'f self,
        turn: Turn<'f, D>,
        key: u64,
        value: u64,
        overlap: Overlap,
    ) -> impl Future<Output = Result<Committed, FpLeavesError>> + 'f {
        self.insert_with(turn, key, value, overlap, FingerprintGoes::WithBit)
    }

    /// As [`FpLeaves::insert`], in the order in which the papers write: the fingerprint is flushed
    /// together with the pair, and the line of fingerprints and bitmap once more with the bit. That is
    /// one flush more than is necessary, and a line that is persisted twice. It is here to be
    /// measured.
    ///
    /// # Errors
    /// As [`FpLeaves::insert`].
    #[inline]
    pub fn insert_as_published<'f>(
        &'f self,
        turn: Turn<'f, D>,
        key: u64,
        value: u64,
        overlap: Overlap,
    ) -> impl Future<Output = Result<Committed, FpLeavesError>> + 'f {
        self.insert_with(turn, key, value, overlap, FingerprintGoes::WithPair)
    }

    #[inline]
    async fn insert_with(
        &self,
        turn: Turn<'_, D>,
        key: u64,
        value: u64,
        overlap: Overlap,
        fingerprint_goes: FingerprintGoes,
    ) -> Result<Committed, FpLeavesError> {
        if key == 0 {
            return Err(FpLeavesError::ZeroKey);
        }
        let taken = self.take(turn, key, overlap).await;
        let (domain, leaf, used) = (self.pool.domain(), taken.leaf, taken.used);
        if let Some(slot) = self.find(turn, &taken, key, overlap).await {
            let slot = &leaf.slots[slot].value;
            slot.store_ordered(domain, value);
            domain.flush(slot);
            return Ok(self.fence(turn, overlap).await);
        }
        let free = (!used).trailing_zeros() as usize;
        let Some(slot) = leaf.slots.get(free) else { return Err(FpLeavesError::LeafFull { key }) };
        let (fingerprints, with_new) = leaf.line.with_fingerprint(domain, free, taken.fingerprint);
        slot.write(domain, key, value);
        domain.flush(slot);
        if fingerprint_goes == FingerprintGoes::WithPair {
            fingerprints.store_ordered(domain, with_new);
            domain.flush(fingerprints);
        }
        if !domain.commits(LEAVES_BIT_WITH_PAIR) {
            self.fence(turn, overlap).await; // I1: the pair before its bit
        }
        if domain.commits(LEAVES_BIT_BEFORE_FINGERPRINT) {
            leaf.line.bitmap.store_ordered(domain, used | 1 << free);
        }
        if fingerprint_goes == FingerprintGoes::WithBit {
            fingerprints.store_ordered(domain, with_new);
        }
        leaf.line.bitmap.store_ordered(domain, used | 1 << free); // I1: after the fingerprint, by R2
        domain.flush(&leaf.line.bitmap);
        Ok(self.fence(turn, overlap).await)
    }

    /// Removes a pair, as a task of an [`Interleaver`](crate::interleave::Interleaver); says whether
    /// it was there. Durable on return. One flush, one fence.
    pub async fn remove(&self, turn: Turn<'_, D>, key: u64, overlap: Overlap) -> bool {
        let taken = self.take(turn, key, overlap).await;
        let Some(slot) = self.find(turn, &taken, key, overlap).await else { return false };
        let (domain, bitmap) = (self.pool.domain(), &taken.leaf.line.bitmap);
        bitmap.store_ordered(domain, bitmap.load(domain) & !(1 << slot)); // I2
        domain.flush(bitmap);
        self.fence(turn, overlap).await;
        true
    }

    #[inline]
    async fn fence(&self, turn: Turn<'_, D>, overlap: Overlap) -> Committed {
        if overlap.writes { turn.fence().await } else { Committed::after_fence(self.pool.domain()) }
    }

    /// Every pair, in no particular order.
    pub fn for_each(&self, mut visit: impl FnMut(u64, u64)) {
        let domain = self.pool.domain();
        for number in 0..self.busy.len() {
            let leaf = self.leaf(number);
            for slot in slots_in(self.used(leaf)).map(|at| &leaf.slots[at]) {
                visit(slot.key.load(domain), slot.value.load(domain));
            }
        }
    }

    /// What is wrong: pairs in leaves of other keys, fingerprints of other keys (I1), keys twice
    /// (I3).
    pub fn check(&self) -> Vec<String> {
        let domain = self.pool.domain();
        let mut problems = Vec::new();
        for number in 0..self.busy.len() {
            let leaf = self.leaf(number);
            let mut keys = Vec::new();
            if leaf.line.bitmap.load(domain) >> SLOTS != 0 {
                problems.push(format!("I1: leaf {number} uses slots that it does not have"));
            }
            for at in slots_in(self.used(leaf)) {
                let key = leaf.slots[at].key.load(domain);
                if self.number_of(hash(key)) != number {
                    problems.push(format!("I1: key {key} is in leaf {number}, not its own"));
                } else if leaf.line.fingerprint(domain, at) != fingerprint_of(hash(key)) {
                    problems.push(format!("I1: key {key} has the fingerprint of another"));
                }
                if keys.contains(&key) {
                    problems.push(format!("I3: key {key} is in leaf {number} twice"));
                }
                keys.push(key);
            }
        }
        problems
    }

    /// Says which blocks there are: one.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        let tail_bytes = self.busy.len() * size_of::<Leaf>();
        visitor.visit(self.root, size_of::<FpLeavesRoot>() + tail_bytes);
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }
}

/// What an operation has found in a leaf that it has to itself: nobody changes it meanwhile.
struct Taken<'l> {
    leaf: &'l Leaf,
    used: u64,
    /// Of the key that the operation is about.
    fingerprint: u8,
    _busy: Busy<'l>,
}

/// A leaf that one operation has to itself; dropped, it is free again.
struct Busy<'l>(&'l Cell<bool>);

impl<'l> Busy<'l> {
    fn take(flag: &'l Cell<bool>) -> Option<Self> {
        // Lazily: one that is made and dropped would free the leaf.
        (!flag.replace(true)).then(|| Self(flag))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
