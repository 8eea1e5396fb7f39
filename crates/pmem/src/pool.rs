//! Pools: a region with a header, named roots, an allocator and readers' epochs.

mod header;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::allocator::{AllocError, Allocator, Block, mutants};
use crate::cell::{Link, PCell, Persistent};
use crate::commit::{Committed, Visible};
use crate::domain::{Domain, DomainFault};
use crate::hardware::Hardware;
use crate::lock::LockGeneration;
use crate::owned::{Batch, Dirty, Durable, Owned};
use crate::reclaim::{Guard, Limbo};
use crate::region::{EXTENT_BYTES, Region, RegionError, RegionOptions};
use crate::trace::{AuditReport, ReclaimReport, Traced, Tracer};

pub use header::{FORMAT_VERSION, ROOT_CAPACITY, ROOT_NAME_BYTES};
use header::{
    HEADER_BYTES, Header, KNOWN_FEATURES, MAGIC, MAGIC_CREATING, STATE_BITMAPS_VALID, STATE_CLEAN,
    encode_name,
};

/// The smallest pool: the first chunk (header and chunk table) and one chunk of data.
pub const MIN_POOL_BYTES: usize = 2 * EXTENT_BYTES;

/// Why a pool could not be opened or created. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The bytes are something else.
    #[error("this is not a Lapis pool")]
    NotAPool,
    /// The file ends before the pool does.
    #[error("the pool is truncated: {found_bytes} of {expected_bytes} bytes are there")]
    Truncated {
        /// Bytes the header says the file has.
        expected_bytes: u64,
        /// Bytes it has.
        found_bytes: u64,
    },
    /// Written by a newer Lapis.
    #[error("the pool has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u32,
        /// The newest version this code reads.
        supported: u32,
    },
    /// Uses features this code does not know.
    #[error("the pool needs features {unknown:#x} that this Lapis does not know")]
    UnknownFeatures {
        /// The bits that are not known.
        unknown: u64,
    },
    /// The header does not match its checksum.
    #[error("the pool's header has a wrong checksum; it is damaged")]
    WrongChecksum,
    /// A header field contradicts the others although the checksum is right.
    #[error("the pool's header is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// Creation was cut short before anything could be stored.
    #[error("the creation of this pool was interrupted; it holds nothing and can be created anew")]
    InterruptedCreation,
    /// Too small for a pool.
    #[error("a pool takes at least {minimum_bytes} bytes, not {asked_bytes}")]
    TooSmall {
        /// Bytes asked for.
        asked_bytes: usize,
        /// Bytes needed.
        minimum_bytes: usize,
    },
    /// The region could not be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The medium refused to persist the change.
    #[error(transparent)]
    Fault(#[from] DomainFault),
}

/// Why a root could not be published.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootError {
    /// There is a root of that name.
    #[error("a root of that name exists already")]
    Exists,
    /// Empty, longer than [`ROOT_NAME_BYTES`] or with a zero byte.
    #[error("a root's name has 1 to {ROOT_NAME_BYTES} bytes, none of them zero")]
    BadName,
    /// All [`ROOT_CAPACITY`] are taken.
    #[error("the pool has no free root")]
    Full,
}

/// A pool of persistent memory on a machine `D`.
///
/// Everything in it is named by [`Link`]s, which are offsets, so that a pool opens at any address.
/// Dropping the pool shuts it down cleanly (see [`Pool::abandon`] for the other way).
pub struct Pool<D: Domain = Hardware> {
    /// Many kilobytes, which are not to move with the pool.
    allocator: Box<Allocator>,
    limbo: Limbo,
    domain: D,
    generation: u64,
    opened_clean: bool,
    abandoned: AtomicBool,
    region: Region,
}

impl<D: Domain> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({}, {} bytes)", self.region.medium().name(), self.region.mapped_bytes())
    }
}

impl Pool<Hardware> {
    /// A pool in anonymous memory that uses this machine's flush instruction although nothing
    /// outlives the process: for measurements and tests.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn create_anonymous(bytes: usize) -> Result<Self, PoolError> {
        let region = Region::anonymous(bytes, bytes.max(RegionOptions::default().reserve_bytes))?;
        Self::create(region, Hardware::detect())
    }

    /// Creates a pool in a new file of `bytes`.
    ///
    /// # Errors
    /// [`PoolError`]; no file is left behind.
    pub fn create_file(
        path: &Path,
        bytes: usize,
        options: &RegionOptions,
    ) -> Result<Self, PoolError> {
        check_size(bytes)?;
        let region = Region::create_file(path, bytes, options)?;
        let domain = region.domain();
        Self::create(region, domain).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    }

    /// Opens the pool in a file or on a device-DAX device.
    ///
    /// # Errors
    /// [`PoolError`]; the file is as it was.
    pub fn open_file(path: &Path, options: &RegionOptions) -> Result<Self, PoolError> {
        let region = Region::open_file(path, options)?;
        if region.mapped_bytes() < MIN_POOL_BYTES {
            return Err(region.too_short_for_a_pool(&MAGIC.to_le_bytes()));
        }
        let domain = region.domain();
        Self::open(region, domain)
    }
}

fn check_size(bytes: usize) -> Result<(), PoolError> {
    if bytes < MIN_POOL_BYTES {
        return Err(PoolError::TooSmall { asked_bytes: bytes, minimum_bytes: MIN_POOL_BYTES });
    }
    Ok(())
}

impl<D: Domain> Pool<D> {
    /// Writes a new pool into `region`, over whatever is there.
    ///
    /// On return the pool is durable and empty. A power cut before that leaves something that
    /// [`Pool::open`] calls [`PoolError::InterruptedCreation`] (H1), or whatever was there before. 3
    /// fences.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn create(region: Region, domain: D) -> Result<Self, PoolError> {
        check_size(region.mapped_bytes())?;
        let header = header_of(&region);
        header.magic.store_ordered(&domain, MAGIC_CREATING);
        domain.persist(&header.magic);

        header.format_version.store(&domain, FORMAT_VERSION);
        header.header_bytes.store(&domain, HEADER_BYTES as u32);
        header.features_required.store(&domain, 0);
        header.features_optional.store(&domain, 0);
        let (high, low) =
            if D::DETERMINISTIC { (0, 1) } else { uuid::Uuid::new_v4().as_u64_pair() };
        header.uuid[0].store(&domain, high);
        header.uuid[1].store(&domain, low);
        header.chunk_bytes.store(&domain, EXTENT_BYTES as u64);
        header.checksum.store(&domain, header.expected_checksum(&domain));
        header.generation.store(&domain, 0);
        header.state.store(&domain, STATE_CLEAN | STATE_BITMAPS_VALID);
        header.high_water.store(&domain, 1);
        header.storage_bytes.store(&domain, region.mapped_bytes() as u64);
        for word in header.boot.iter().chain(&header.reserved) {
            word.store(&domain, 0);
        }
        for root in &header.roots {
            for word in &root.name {
                word.store(&domain, 0);
            }
            root.kind.store(&domain, 0);
            root.reserved.store(&domain, 0);
            root.link.word().store(&domain, 0);
        }
        Allocator::format(&region, &domain);
        domain.flush(header);
        domain.fence();
        // H1: everything else is durable. `open` fences for this too.
        let _covered = header.magic.publish(&domain, MAGIC).flush();
        Self::open(region, domain)
    }

    /// Opens the pool in `region`. 1 fence, and time independent of how much the pool holds; with one
    /// exception: where the medium survives power cuts, and a process died with the pool open while
    /// the machine ran on, everything is written back first, because what that process left in the
    /// caches is visible and not durable (H6).
    ///
    /// # Errors
    /// [`PoolError`]; until the checks have passed nothing is written.
    pub fn open(region: Region, domain: D) -> Result<Self, PoolError> {
        check_size(region.mapped_bytes())?;
        let header = header_of(&region);
        match header.magic.load(&domain) {
            MAGIC => {}
            MAGIC_CREATING => return Err(PoolError::InterruptedCreation),
            0 if page_is_blank(header, &domain) => return Err(PoolError::InterruptedCreation),
            _ => return Err(PoolError::NotAPool),
        }
        let version = header.format_version.load(&domain);
        if version > FORMAT_VERSION {
            return Err(PoolError::NewerVersion { found: version, supported: FORMAT_VERSION });
        }
        if header.checksum.load(&domain) != header.expected_checksum(&domain) {
            return Err(PoolError::WrongChecksum);
        }
        if version == 0
            || header.header_bytes.load(&domain) as usize != HEADER_BYTES
            || header.chunk_bytes.load(&domain) as usize != EXTENT_BYTES
        {
            return Err(PoolError::Damaged { what: "its version or sizes are impossible" });
        }
        let unknown = header.features_required.load(&domain) & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(PoolError::UnknownFeatures { unknown });
        }
        let found_bytes = region.mapped_bytes() as u64;
        let expected_bytes = header.storage_bytes.load(&domain);
        if expected_bytes > found_bytes {
            return Err(PoolError::Truncated { expected_bytes, found_bytes });
        }
        let high_water = header.high_water.load(&domain);
        if high_water == 0 || high_water > expected_bytes / EXTENT_BYTES as u64 {
            return Err(PoolError::Damaged { what: "its high-water mark is beyond its end" });
        }
        let state = header.state.load(&domain);
        let generation = header.generation.load(&domain).wrapping_add(1);

        let boot = domain.boot();
        let [last_high, last_low] = &header.boot;
        let last_boot =
            u128::from(last_high.load(&domain)) << 64 | u128::from(last_low.load(&domain));
        if state & STATE_CLEAN == 0 && boot != 0 && boot == last_boot {
            // H6: the caches still hold what a dead process left there.
            tracing::info!("writing back what a process that died has stored");
            let touched = (high_water as usize * EXTENT_BYTES).min(region.mapped_bytes());
            // SAFETY: mapped.
            unsafe { domain.flush_range(region.base(), touched) };
            domain.fence();
        }
        last_high.store_ordered(&domain, (boot >> 64) as u64);
        last_low.store_ordered(&domain, boot as u64);
        // H2, H3: all in one line, durable before anything can be locked or allocated.
        let stays = domain.commits(mutants::STALE_BITMAPS_BELIEVED);
        header.state.store_ordered(&domain, if stays { state & STATE_BITMAPS_VALID } else { 0 });
        header.generation.store_ordered(&domain, generation);
        domain.persist(&header.generation);
        domain.health()?;
        domain.note_generation(LockGeneration::of(generation));

        let allocator =
            Box::new(Allocator::open(high_water as u32, state & STATE_BITMAPS_VALID != 0));
        Ok(Self {
            allocator,
            limbo: Limbo::default(),
            domain,
            generation,
            opened_clean: state & STATE_CLEAN != 0,
            abandoned: AtomicBool::new(false),
            region,
        })
    }

    /// The machine the pool is on.
    #[inline(always)]
    pub fn domain(&self) -> &D {
        &self.domain
    }

    /// The region the pool lies in.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// How often the pool has been opened. Locks of another generation are free (H2).
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The pool's identity.
    pub fn uuid(&self) -> uuid::Uuid {
        let header = self.header();
        uuid::Uuid::from_u64_pair(
            header.uuid[0].load(&self.domain),
            header.uuid[1].load(&self.domain),
        )
    }

    /// Whether the last user shut the pool down cleanly.
    pub fn opened_clean(&self) -> bool {
        self.opened_clean
    }

    pub(crate) fn header(&self) -> &Header {
        header_of(&self.region)
    }

    /// The address of an offset. Not checked.
    #[inline(always)]
    pub(crate) fn address_of(&self, offset: u64) -> *mut u8 {
        self.region.base().wrapping_add(offset as usize)
    }

    /// The `T` at `link`.
    ///
    /// The link is checked to lie inside the pool and to be aligned for a `T`; any bytes there are
    /// some `T`, so a wrong link yields wrong data but no undefined behaviour.
    ///
    /// # Panics
    /// If the link is null, outside the pool or misaligned: the pool is damaged. Code that must
    /// survive damage uses [`Pool::try_at`].
    #[inline(always)]
    pub fn at<T: Persistent>(&self, link: Link<T>) -> &T {
        match self.try_at(link) {
            Some(value) => value,
            None => damaged(link.offset()),
        }
    }

    /// The `T` at `link`, or `None` if the link is null, outside the pool or misaligned.
    #[inline(always)]
    pub fn try_at<T: Persistent>(&self, link: Link<T>) -> Option<&T> {
        let offset = link.offset() as usize;
        let room = self.region.mapped_bytes().wrapping_sub(size_of::<T>());
        // Offset zero is the header, never a block; wrapped around it fails the comparison too.
        if offset.wrapping_sub(1) >= room || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned (checked above; bases are page-aligned), valid for any bit
        // pattern and only mutated through its cells (`Persistent`), mapped as long as `self`.
        Some(unsafe { &*self.address_of(link.offset()).cast::<T>() })
    }

    /// The `count` values of type `T` that lie one after the other from `link` on, or `None` if
    /// they are not all inside the pool or misaligned. For arrays whose length is known only at run
    /// time.
    #[inline(always)]
    pub fn try_slice<T: Persistent>(&self, link: Link<T>, count: usize) -> Option<&[T]> {
        let offset = link.offset() as usize;
        let bytes = size_of::<T>().checked_mul(count)?;
        let room = self.region.mapped_bytes().checked_sub(bytes)?;
        if offset.wrapping_sub(1) >= room || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: all of it is in bounds and aligned (checked above), each `T` is valid for any bit
        // pattern and only mutated through its cells (`Persistent`), mapped as long as `self`.
        Some(unsafe {
            std::slice::from_raw_parts(self.address_of(link.offset()).cast::<T>(), count)
        })
    }

    /// The `bytes` bytes behind the `T` at `link`, which were written before it was published and
    /// do not change while it is reachable or pinned. `None` if they are not inside the pool.
    #[inline]
    pub fn try_tail<T: Persistent>(&self, link: Link<T>, bytes: usize) -> Option<&[u8]> {
        let start = (link.offset() as usize).checked_add(size_of::<T>())?;
        let end = start.checked_add(bytes)?;
        if link.is_null() || end > self.region.mapped_bytes() {
            return None;
        }
        let address = self.address_of(start as u64);
        self.domain.note_read(address, bytes);
        // SAFETY: in bounds; the structure keeps tails immutable from publication until the epoch
        // after retirement (the contract of this method).
        Some(unsafe { std::slice::from_raw_parts(address, bytes) })
    }

    /// As [`Pool::try_tail`].
    ///
    /// # Panics
    /// If the range is not inside the pool.
    #[inline]
    pub fn tail<T: Persistent>(&self, link: Link<T>, bytes: usize) -> &[u8] {
        match self.try_tail(link, bytes) {
            Some(tail) => tail,
            None => damaged(link.offset()),
        }
    }

    /// Hints that the block at `link` will be read soon.
    #[inline(always)]
    pub fn prefetch<T: Persistent>(&self, link: Link<T>) {
        self.domain.prefetch(self.address_of(link.offset()));
    }

    /// Allocates a block for a `T`. Its contents are arbitrary: write every field.
    ///
    /// Steady state: no flush, no fence. A new slab costs 1 flush and 1 fence, and as much again when
    /// the pool's high-water mark moves; see [`crate::allocator`].
    ///
    /// # Errors
    /// [`AllocError`]; the pool is as it was.
    #[inline]
    pub fn allocate<T: Persistent>(&self) -> Result<Owned<'_, D, T, Dirty>, AllocError> {
        self.allocate_with_tail(0)
    }

    /// Allocates a block for a `T` with `tail_bytes` bytes behind it.
    ///
    /// # Errors
    /// [`AllocError`]; the pool is as it was.
    #[inline]
    pub fn allocate_with_tail<T: Persistent>(
        &self,
        tail_bytes: usize,
    ) -> Result<Owned<'_, D, T, Dirty>, AllocError> {
        const { assert!(align_of::<T>() <= 16, "blocks are aligned to at least 16 bytes") };
        let bytes = size_of::<T>()
            .checked_add(tail_bytes)
            .ok_or(AllocError::TooLarge { asked_bytes: usize::MAX })?;
        let offset = self.allocator.allocate(self, bytes)?;
        Ok(Owned::new(self, Link::from_bits(offset), tail_bytes))
    }

    /// Gives back a block that nothing refers to and that was never reachable, or whose epoch has
    /// passed.
    pub(crate) fn free_block(&self, offset: u64, bytes: usize) {
        self.allocator.free(self, Block { offset, bytes });
    }

    /// One fence for a batch of in-flight blocks.
    ///
    /// ```
    /// # use lapis_pmem::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::create_anonymous(1 << 20)?;
    /// let a = pool.allocate::<PCell<u64>>()?.flush();
    /// let b = pool.allocate::<PCell<u64>>()?.flush();
    /// let (a, b) = pool.fence((a, b));
    /// # drop((a, b)); Ok(()) }
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fence<B: Batch>(&self, batch: B) -> B::Durable {
        self.domain.fence();
        batch.fenced()
    }

    /// Starts a read: blocks that are reachable now stay readable until the guard is dropped.
    #[inline]
    pub fn pin(&self) -> Guard<'_, D> {
        Guard::new(self)
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    pub(crate) fn limbo(&self) -> &Limbo {
        &self.limbo
    }

    /// Hands over a block that is no longer reachable, of which `_unlinked` is the proof: it is
    /// freed when every reader that may still see it has gone.
    #[inline]
    pub fn retire<T: Persistent>(
        &self,
        link: Link<T>,
        block_bytes: usize,
        _unlinked: Committed,
        guard: &Guard<'_, D>,
    ) {
        self.limbo.retire(Block { offset: link.offset(), bytes: block_bytes }, guard);
    }

    /// Takes back a block that *was* published but that the calling thread alone can reach now and
    /// that no reader can have seen, of which `_unlinked` is the proof. For building and tearing
    /// down whole structures.
    pub fn free_unshared<T: Persistent>(
        &self,
        link: Link<T>,
        block_bytes: usize,
        _unlinked: Committed,
    ) {
        self.free_block(link.offset(), block_bytes);
    }

    /// The root called `name`, if it has been published.
    pub fn root<T: Persistent>(&self, name: &str) -> Option<Link<T>> {
        let name = encode_name(name)?;
        let entry = self.header().roots.iter().find(|entry| {
            !entry.link.load(&self.domain).is_null() && entry.name_is(&self.domain, &name)
        })?;
        Some(entry.link.load(&self.domain).cast())
    }

    /// Every root: name, kind, link.
    pub fn roots(&self) -> Vec<(String, u64, Link<PCell<u64>>)> {
        let domain = &self.domain;
        let used = self.header().roots.iter().filter(|entry| !entry.link.load(domain).is_null());
        used.map(|entry| {
            (entry.name_text(domain), entry.kind.load(domain), entry.link.load(domain))
        })
        .collect()
    }

    /// Makes `node` the root called `name`. `kind` is the caller's to define: it says what the
    /// root is. 1 flush and 1 fence, those of persisting the result (H4). Callers take turns.
    ///
    /// # Errors
    /// [`RootError`]; the node goes back to the allocator.
    #[track_caller]
    pub fn publish_root<'a, T: Persistent>(
        &'a self,
        name: &str,
        kind: u64,
        node: Owned<'a, D, T, Durable>,
    ) -> Result<Visible<'a, D>, RootError> {
        let words = encode_name(name).ok_or(RootError::BadName)?;
        if self.root::<T>(name).is_some() {
            return Err(RootError::Exists);
        }
        let domain = &self.domain;
        let free = self.header().roots.iter().find(|entry| entry.link.load(domain).is_null());
        let entry = free.ok_or(RootError::Full)?;
        // H4: one line, in this order.
        for (cell, word) in entry.name.iter().zip(words) {
            cell.store_ordered(domain, word);
        }
        entry.kind.store_ordered(domain, kind);
        let link = node.into_link();
        Ok(entry.link.redirect(domain, link.cast()))
    }

    /// Removes the root called `name`: null if there is none, else what it referred to. The caller
    /// retires what hung from it, with the proof that persisting gives.
    pub fn unpublish_root(&self, name: &str) -> Option<Visible<'_, D>> {
        let name = encode_name(name)?;
        let domain = &self.domain;
        let entry = self
            .header()
            .roots
            .iter()
            .find(|entry| !entry.link.load(domain).is_null() && entry.name_is(domain, &name))?;
        Some(entry.link.redirect(domain, Link::NULL))
    }

    /// Makes sure that `bytes` can be allocated before the first of them is, growing the region if
    /// need be: for callers that must not fail half-way. A promise only while nobody else
    /// allocates.
    ///
    /// # Errors
    /// [`AllocError::Full`]; the pool is as it was.
    pub fn ensure_headroom(&self, bytes: usize) -> Result<(), AllocError> {
        self.allocator.ensure_headroom(self, bytes)
    }

    /// Retires every block that `traced` reached: for dropping a whole structure, of which
    /// `_unlinked` proves that it can no longer be reached.
    pub fn retire_traced(&self, traced: &Traced, _unlinked: Committed, guard: &Guard<'_, D>) {
        for block in traced.blocks() {
            self.limbo.retire(block, guard);
        }
    }

    /// Bytes of storage, bytes in use by blocks as far as the allocator knows, and whether that is
    /// exact (it is not between a crash and [`Pool::reclaim`]).
    pub fn usage(&self) -> Usage {
        self.allocator.usage(self)
    }

    /// Whether the pool was opened after a crash and [`Pool::reclaim`] has not run since. Until it
    /// has, blocks that were free at the crash are not reused.
    pub fn needs_reclaim(&self) -> bool {
        self.allocator.is_untraced(self)
    }

    /// Collects every block that is reachable: `trace` calls [`Tracer::visit`] for each. Nothing is
    /// changed. Nobody may mutate the structures meanwhile.
    pub fn trace(&self, trace: impl FnOnce(&mut Tracer<'_, D>)) -> Traced {
        let mut tracer = Tracer::new(self);
        trace(&mut tracer);
        tracer.finish()
    }

    /// Makes the allocator's picture equal to `traced`: every block that is neither reachable nor
    /// in limbo becomes free.
    ///
    /// Between the trace and the end of this call nobody may allocate, free or mutate, and no
    /// [`Owned`] may be outstanding; readers may go on. Durable at the next clean shutdown; after
    /// a crash it is simply done again.
    pub fn reclaim(&self, traced: &Traced) -> ReclaimReport {
        self.allocator.reclaim(self, traced)
    }

    /// Compares `traced` with the allocator's picture: blocks that are allocated and neither
    /// reachable nor in limbo have leaked. The same conditions as for [`Pool::reclaim`] hold.
    pub fn audit(&self, traced: &Traced) -> AuditReport {
        self.allocator.audit(self, traced)
    }

    /// Lets go of the pool as a crash would: dropping it will not mark a clean shutdown.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn shut_down(&mut self) {
        // Nobody can hold a guard: guards borrow the pool.
        for block in self.limbo.drain_all() {
            self.free_block(block.offset, block.bytes);
        }
        let bitmaps_valid = self.allocator.save(self);
        let domain = &self.domain;
        domain.fence();
        if domain.health().is_err() {
            return;
        }
        let state = STATE_CLEAN | if bitmaps_valid { STATE_BITMAPS_VALID } else { 0 };
        // H3: the bitmaps are durable.
        let _: Committed = self.header().state.publish(domain, state).persist();
    }
}

impl<D: Domain> Drop for Pool<D> {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) && !std::thread::panicking() {
            self.shut_down();
        }
    }
}

/// How much of a pool is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of storage mapped.
    pub storage_bytes: u64,
    /// Bytes in chunks that have ever been handed out.
    pub touched_bytes: u64,
    /// Bytes in blocks that are allocated, as far as known.
    pub allocated_bytes: u64,
    /// Whether `allocated_bytes` is exact.
    pub exact: bool,
}

impl Region {
    /// What a file that is shorter than any pool is.
    fn too_short_for_a_pool(&self, magic: &[u8; 8]) -> PoolError {
        let (length, start) = self.file_start();
        match start.get(..8) {
            _ if length == 0 => PoolError::InterruptedCreation,
            Some(found) if found == magic => {
                PoolError::Truncated { expected_bytes: MIN_POOL_BYTES as u64, found_bytes: length }
            }
            _ => PoolError::NotAPool,
        }
    }
}

#[cold]
#[inline(never)]
fn damaged(offset: u64) -> ! {
    panic!("the pool is damaged: a link refers to offset {offset:#x}, where no block can be")
}

fn header_of(region: &Region) -> &Header {
    // SAFETY: regions are page-aligned and at least MIN_POOL_BYTES long (checked by the callers
    // before this); a Header is valid for any bit pattern.
    unsafe { &*region.base().cast::<Header>() }
}

fn page_is_blank<D: Domain>(header: &Header, domain: &D) -> bool {
    header.checksum.load(domain) == 0
        && header.generation.load(domain) == 0
        && header.storage_bytes.load(domain) == 0
        && header.roots.iter().all(|root| root.link.load(domain).is_null())
}
