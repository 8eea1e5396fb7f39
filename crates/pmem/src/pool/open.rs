//! Making a pool, opening it and shutting it down.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::header::{
    FORMAT_VERSION, HEADER_BYTES, Header, KNOWN_FEATURES, MAGIC, MAGIC_CREATING,
    STATE_BITMAPS_VALID, STATE_CLEAN,
};
use super::{MIN_POOL_BYTES, Pool, PoolError};
use crate::allocator::{Allocator, is_unused_from, mutants};
use crate::commit::Committed;
use crate::domain::Domain;
use crate::hardware::Hardware;
use crate::lock_word::LockGeneration;
use crate::reclaim::Limbo;
use crate::region::{EXTENT_BYTES, Medium, Region, RegionOptions};

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

    /// Creates a pool in a new file of `bytes`, or on a device-DAX device that is at least so large.
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
        let is_device = region.medium() == Medium::DeviceDax;
        if is_device && !options.overwrite && header_of(&region).magic.load(&domain) == MAGIC {
            return Err(PoolError::HoldsAPool);
        }
        Self::create(region, domain).inspect_err(|_| {
            if !is_device {
                let _ = std::fs::remove_file(path);
            }
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

/// Whether this Lapis can read a pool with this header.
fn check_header<D: Domain>(header: &Header, domain: &D) -> Result<(), PoolError> {
    match header.magic.load(domain) {
        MAGIC => {}
        MAGIC_CREATING => return Err(PoolError::InterruptedCreation),
        0 if page_is_blank(header, domain) => return Err(PoolError::InterruptedCreation),
        _ => return Err(PoolError::NotAPool),
    }
    let version = header.format_version.load(domain);
    if version > FORMAT_VERSION {
        return Err(PoolError::NewerVersion { found: version, supported: FORMAT_VERSION });
    }
    if header.checksum.load(domain) != header.expected_checksum(domain) {
        return Err(PoolError::WrongChecksum);
    }
    if version == 0
        || header.header_bytes.load(domain) as usize != HEADER_BYTES
        || header.chunk_bytes.load(domain) as usize != EXTENT_BYTES
    {
        return Err(PoolError::Damaged { what: "its version or sizes are impossible" });
    }
    let unknown = header.features_required.load(domain) & !KNOWN_FEATURES;
    if unknown != 0 {
        return Err(PoolError::UnknownFeatures { unknown });
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
        header.unsafe_shutdowns.store(&domain, 0);
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
        // What cannot be read looks blank.
        check_header(header, &domain)
            .or_else(|error| domain.health().map_err(PoolError::from).and(Err(error)))?;
        let found_bytes = region.mapped_bytes() as u64;
        let expected_bytes = header.storage_bytes.load(&domain);
        let mut high_water = header.high_water.load(&domain);
        if high_water == 0 || high_water > expected_bytes / EXTENT_BYTES as u64 {
            return Err(PoolError::Damaged { what: "its high-water mark is beyond its end" });
        }
        if expected_bytes > found_bytes {
            let end = u32::try_from(found_bytes / EXTENT_BYTES as u64).unwrap_or(u32::MAX);
            let mark = u32::try_from(high_water).unwrap_or(u32::MAX);
            if !is_unused_from(&region, &domain, end, mark) {
                return Err(PoolError::Truncated { expected_bytes, found_bytes });
            }
            // H5
            tracing::warn!(expected_bytes, found_bytes, "the pool is shorter by what was free");
            high_water = u64::from(mark.min(end));
        }
        let state = header.state.load(&domain);
        let generation = header.generation.load(&domain).wrapping_add(1);

        let boot = domain.boot();
        let [last_high, last_low] = &header.boot;
        let last_boot =
            u128::from(last_high.load(&domain)) << 64 | u128::from(last_low.load(&domain));
        // Whose boot it was is not known: then it may have been this one.
        let is_same = |boot: u128| boot == 0 || last_boot == 0 || boot == last_boot;
        if state & STATE_CLEAN == 0 && boot.is_some_and(is_same) {
            // H6: the caches still hold what a dead process left there.
            domain.happens("what a process that died has stored is written back");
            tracing::info!("writing back what a process that died has stored");
            let touched = (high_water as usize * EXTENT_BYTES).min(region.mapped_bytes());
            let _mutant = domain.omitting(mutants::NOT_WRITTEN_BACK);
            // SAFETY: mapped.
            unsafe { domain.flush_range(region.base(), touched) };
            domain.fence();
        }
        let boot = boot.unwrap_or(0);
        last_high.store_ordered(&domain, (boot >> 64) as u64);
        last_low.store_ordered(&domain, boot as u64);
        let unsafe_shutdowns = region.module().and_then(|module| module.unsafe_shutdowns);
        let lost_power_unsafely = unsafe_shutdowns.map_or(0, |now| {
            let noted = header.unsafe_shutdowns.load(&domain).checked_sub(1);
            header.unsafe_shutdowns.store_ordered(&domain, now.saturating_add(1));
            match noted {
                Some(noted) if state & STATE_CLEAN == 0 => now.saturating_sub(noted),
                _ => 0,
            }
        });
        if lost_power_unsafely > 0 {
            tracing::warn!(
                lost_power_unsafely,
                "the memory lost power without keeping all that it should have; check the pool"
            );
        }
        if expected_bytes > found_bytes {
            header.high_water.store_ordered(&domain, high_water);
            header.storage_bytes.store_ordered(&domain, found_bytes);
        }
        // H2, H3, H5: all in one line, durable before anything can be locked or allocated.
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
            lost_power_unsafely,
            abandoned: AtomicBool::new(false),
            in_use: Mutex::default(),
            region,
        })
    }

    fn shut_down(&mut self) {
        // Nobody can hold a guard: guards borrow the pool. One that was forgotten has left blocks here.
        let retired = self.limbo.drain_all::<D>();
        if !retired.is_empty() {
            self.domain.happens("what readers have kept is freed at a shutdown");
        }
        if !self.domain.commits(mutants::RETIRED_FORGOTTEN) {
            retired.into_iter().for_each(|block| self.free_block(block.offset, block.bytes));
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

pub(super) fn header_of(region: &Region) -> &Header {
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
