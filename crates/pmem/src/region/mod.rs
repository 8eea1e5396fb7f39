//! Regions: byte ranges that a pool lies in, and what each medium promises.
//!
//! A region reserves address space once and maps storage into it from the front, extent by extent:
//! it grows while it is in use and nothing ever moves. It begins at a multiple of 2 MiB, so that huge pages
//! are possible.
//!
//! ```text
//!  base                        base + mapped              base + reserved
//!   | storage, readable, writable  |  reserved, inaccessible    |
//! ```

#[cfg(not(miri))]
mod address_space;
#[cfg(miri)]
#[path = "heap_space.rs"]
mod address_space;
mod detection;
mod disk_space;
mod error;
mod extents;
mod medium;
mod memory_fault;
mod memory_module;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::retry_on_intr;
use rustix::mm::{self, MapFlags, ProtFlags};

use self::address_space::{map_zeroed, reserve, unreserve};
pub(crate) use self::detection::is_in_memory;
use self::detection::{detect_medium, device_dax_shape};
use self::disk_space::{allocate, write_zeroes};
pub use self::error::RegionError;
use self::error::{open_error, os};
pub use self::medium::{Caches, Durability, Guarantee, Medium};
use self::memory_fault::FaultGuard;
pub(crate) use self::memory_fault::MemoryFault;
use self::memory_module::DeviceKind;
pub use self::memory_module::{MemoryModule, PersistenceDomain};
use crate::file_lock::{Access, LockError, LockedFile};
use crate::hardware::{FlushMethod, Hardware};
use crate::sync_file::SyncFile;

/// Regions are mapped, and grow, in multiples of this.
pub const EXTENT_BYTES: usize = 64 * 1024;

/// Pages that the processor maps in one piece where address and storage begin at multiples of this.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Address space reserved for a pool unless the caller says otherwise: 1 TiB.
pub const DEFAULT_RESERVE_BYTES: usize = 1 << 40;

/// `bytes`, rounded up to whole extents, as far as there are that many.
fn whole_extents(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(EXTENT_BYTES).unwrap_or(usize::MAX / EXTENT_BYTES * EXTENT_BYTES)
}

/// How to open a region.
#[derive(Clone, Debug)]
pub struct RegionOptions {
    /// Address space to reserve: the size the region can grow to. If the system does not give as much it is less, but
    /// never less than the region has at first.
    pub reserve_bytes: usize,
    /// What a persist must survive.
    pub durability: Durability,
    /// Whether a persist on DAX writes back the processor's caches.
    pub caches: Caches,
    /// To read, a file is mapped copy on write: what is stored stays in memory and ends with the region, and the file
    /// is shared with others who read it. A device-DAX device cannot be mapped so.
    pub access: Access,
    /// A device that holds a pool may be made one anew. A file is never overwritten.
    pub overwrite: bool,
    /// The name that a file will have for which this one stands until it is whole: the one that users are told.
    pub known_as: Option<PathBuf>,
    /// Where the kernel tells of devices: `/sys`.
    pub sysfs: PathBuf,
    /// Memory of a file or device that cannot be read is an error of [`Domain::health`](crate::Domain::health), for
    /// good, and reads as zeroes, instead of ending the process by `SIGBUS`. For that a handler of that signal is
    /// installed in the process, once, which passes on what does not concern such a region.
    pub contain_faults: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            reserve_bytes: DEFAULT_RESERVE_BYTES,
            durability: Durability::Medium,
            caches: Caches::Detect,
            access: Access::Write,
            overwrite: false,
            known_as: None,
            sysfs: PathBuf::from("/sys"),
            contain_faults: false,
        }
    }
}

/// A mapped byte range. See the module documentation in the source.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    reserved: usize,
    mapped: AtomicUsize,
    medium: Medium,
    guarantee: Guarantee,
    module: Option<MemoryModule>,
    caches: Caches,
    page_bytes: usize,
    file: Option<Arc<LockedFile>>,
    path: Option<PathBuf>,
    sync: Option<Arc<SyncFile>>,
    access: Access,
    growth: Mutex<()>,
    /// Notes what cannot be read.
    faults: Option<FaultGuard>,
    /// Whether dropping this gives the address space back. An alias does not.
    owner: bool,
}

// SAFETY: the mapping is owned by the region and lives as long as it does; all access to its
// contents goes through atomics or exclusively owned ranges.
unsafe impl Send for Region {}
// SAFETY: as above; growth is serialised by a lock and only ever adds mapped pages.
unsafe impl Sync for Region {}

impl Region {
    /// Anonymous memory of `bytes` (rounded up to [`EXTENT_BYTES`]), zeroed, that can grow to
    /// `reserve_bytes`. Nothing outlives the process.
    ///
    /// # Errors
    /// [`RegionError::Os`] if the memory cannot be had.
    pub fn anonymous(bytes: usize, reserve_bytes: usize) -> Result<Self, RegionError> {
        let bytes = whole_extents(bytes.max(1));
        let (base, reserved) = reserve(reserve_bytes, bytes, HUGE_PAGE_BYTES)?;
        let region = Self {
            base,
            reserved,
            mapped: AtomicUsize::new(0),
            medium: Medium::Anonymous,
            guarantee: Guarantee::Nothing,
            module: None,
            caches: Caches::Detect,
            page_bytes: rustix::param::page_size(),
            file: None,
            path: None,
            sync: None,
            access: Access::Write,
            growth: Mutex::new(()),
            faults: None,
            owner: true,
        };
        region.map_extent(0, bytes)?;
        Ok(region)
    }

    /// A second region over the same anonymous memory, for opening a pool on it again and again:
    /// dropping a pool drops its region, and dropping an alias gives nothing back.
    ///
    /// What an alias maps beyond [`Region::mapped_bytes`] by growing, this region does not know:
    /// it maps those extents anew, zeroed, when it grows itself.
    ///
    /// # Safety
    /// The alias, and whatever was made from it, is dropped before this region is, and is not used
    /// while this region or another alias of it is being written.
    ///
    /// # Panics
    /// If the region lies on a file or device.
    pub unsafe fn alias(&self) -> Self {
        // SAFETY: as the caller vouches; that much is mapped.
        unsafe { self.alias_of(self.mapped_bytes()) }
    }

    /// An alias that knows of `mapped_bytes` from the start, because an alias that is gone has mapped
    /// so much: what stands there stays.
    ///
    /// # Safety
    /// As for [`Region::alias`]; and an alias of this region has grown to at least `mapped_bytes`,
    /// or this region has.
    ///
    /// # Panics
    /// If the region lies on a file or device.
    pub unsafe fn alias_of(&self, mapped_bytes: usize) -> Self {
        assert_eq!(self.medium, Medium::Anonymous, "only anonymous memory has aliases");
        Self {
            base: self.base,
            reserved: self.reserved,
            mapped: AtomicUsize::new(mapped_bytes),
            medium: self.medium,
            guarantee: self.guarantee,
            module: None,
            caches: Caches::Detect,
            page_bytes: self.page_bytes,
            file: None,
            path: None,
            sync: None,
            access: Access::Write,
            growth: Mutex::new(()),
            faults: None,
            owner: false,
        }
    }

    /// Creates a file of `bytes` (rounded up to [`EXTENT_BYTES`]), zeroed and with its disk space
    /// allocated, and maps it. A device-DAX device is there already: it is mapped whole, and holds what it holds.
    ///
    /// # Errors
    /// [`RegionError`]; a file that could not be completed is removed again.
    pub fn create_file(
        path: &Path,
        bytes: usize,
        options: &RegionOptions,
    ) -> Result<Self, RegionError> {
        if path.metadata().is_ok_and(|about| about.file_type().is_char_device()) {
            let file = OpenOptions::new().read(true).write(true).open(path).map_err(open_error)?;
            return Self::over_file(path, file, bytes, options);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
            .map_err(open_error)?;
        Self::over_file(path, file, bytes, options).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    }

    /// Maps an existing file, or a device-DAX device, whole. Does not change it; to read ([`RegionOptions::access`]), nor
    /// does anything that is done to the region.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn open_file(path: &Path, options: &RegionOptions) -> Result<Self, RegionError> {
        let writes = options.access == Access::Write;
        let opened = OpenOptions::new().read(true).write(writes).open(path);
        let file = opened.map_err(|source| match open_error(source) {
            RegionError::ReadOnly if !writes => RegionError::Os {
                doing: "open the file",
                source: std::io::ErrorKind::PermissionDenied.into(),
            },
            error => error,
        })?;
        Self::over_file(path, file, 0, options)
    }

    fn over_file(
        path: &Path,
        file: File,
        create_bytes: usize,
        options: &RegionOptions,
    ) -> Result<Self, RegionError> {
        let metadata =
            file.metadata().map_err(|source| RegionError::Os { doing: "stat the file", source })?;
        let device = metadata.file_type().is_char_device();
        if !device && !metadata.file_type().is_file() {
            return Err(RegionError::NotAFile);
        }
        let file = LockedFile::new(file, options.access).map_err(|error| match error {
            LockError::Held(holder) => RegionError::AlreadyOpen(holder),
            LockError::Os(errno) => os("lock the file")(errno),
        })?;
        if device && options.access == Access::Read {
            return Err(RegionError::AlwaysShared);
        }
        let (kind, number) = match device {
            true => (DeviceKind::Character, metadata.rdev()),
            false => (DeviceKind::Block, metadata.dev()),
        };
        let place = memory_module::directory_of(&options.sysfs, kind, number);
        let (medium, length, page_bytes) = if device {
            let (length, page_bytes) = device_dax_shape(place.as_deref())?;
            (Medium::DeviceDax, length, page_bytes)
        } else {
            let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
            (detect_medium(&file)?, length, rustix::param::page_size())
        };
        let is_dax = matches!(medium, Medium::Dax | Medium::DeviceDax);
        let place = place.filter(|_| is_dax);
        let module = place.as_deref().and_then(MemoryModule::beneath);
        check_bad_blocks(&file, place.as_deref(), module.as_ref().filter(|_| device))?;
        let is_emulated = module.as_ref().is_some_and(MemoryModule::is_emulated);
        let keeps = |module: &MemoryModule| module.persistence_domain == PersistenceDomain::Caches;
        let caches = match options.caches {
            Caches::Detect if module.as_ref().is_some_and(keeps) => Caches::PowerFailSafe,
            told => told,
        };
        let power_fail = options.durability == Durability::PowerFail;
        let file = Arc::new(file);
        let sync = (medium == Medium::File && power_fail)
            .then(|| Arc::new(SyncFile::new(Arc::clone(&file))));
        let guarantee = match medium {
            Medium::Dax | Medium::DeviceDax if !is_emulated => Guarantee::PowerFail,
            Medium::File if sync.is_some() => Guarantee::PowerFail,
            Medium::Anonymous => Guarantee::Nothing,
            _ => Guarantee::ProcessCrash,
        };
        if power_fail && guarantee < Guarantee::PowerFail {
            return Err(RegionError::DurabilityUnavailable { medium });
        }
        let least_bytes = length.max(create_bytes);
        let align_bytes = page_bytes.max(HUGE_PAGE_BYTES);
        let (base, reserved) = reserve(options.reserve_bytes, least_bytes, align_bytes)?;
        let name = options.known_as.clone().unwrap_or_else(|| path.to_owned());
        let mut region = Self {
            base,
            reserved,
            mapped: AtomicUsize::new(0),
            medium,
            guarantee,
            module,
            caches,
            page_bytes,
            file: Some(Arc::clone(&file)),
            path: Some(name.clone()),
            sync,
            access: options.access,
            growth: Mutex::new(()),
            faults: None,
            owner: true,
        };
        if options.contain_faults {
            let of_file = (name.clone(), (!device).then(|| Arc::clone(&file)));
            region.faults = FaultGuard::over(base.addr().get(), reserved, page_bytes, of_file);
            if region.faults.is_none() {
                tracing::warn!(?path, "memory that cannot be read will end the process");
            }
        }
        // A trailing partial extent is not mapped: touching a page past the end of a file is
        // SIGBUS. The pool header says how long the file must be.
        let whole = length / EXTENT_BYTES * EXTENT_BYTES;
        if device && create_bytes > whole {
            let (device_bytes, asked_bytes) = (whole, create_bytes);
            return Err(RegionError::DeviceTooShort { device_bytes, asked_bytes });
        }
        if whole > 0 {
            region.map_extent(0, whole)?;
        }
        if create_bytes > whole {
            region.grow_to(create_bytes)?;
            if guarantee == Guarantee::PowerFail {
                region.sync_directory_entry()?;
            }
        }
        Ok(region)
    }

    /// The first byte.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes that are mapped now.
    #[inline(always)]
    pub fn mapped_bytes(&self) -> usize {
        self.mapped.load(Ordering::Acquire)
    }

    /// Bytes that the region can grow to.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved
    }

    /// What the bytes lie on.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// The memory module that it lies on, where the kernel tells of one.
    pub fn module(&self) -> Option<&MemoryModule> {
        self.module.as_ref()
    }

    /// The largest pages in which it can be mapped, as far as that can be told.
    pub fn page_bytes(&self) -> usize {
        let huge = HUGE_PAGE_BYTES as u64;
        let allows_huge = |file: &File| {
            extents::of(file).iter().any(|extent| {
                extent.bytes >= huge && extent.physical.wrapping_sub(extent.logical) % huge == 0
            })
        };
        match (self.medium, &self.file) {
            (Medium::Dax, Some(file)) if allows_huge(file) => HUGE_PAGE_BYTES,
            _ => self.page_bytes,
        }
    }

    /// What survives what, once a persist has returned.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Why [`Region::guarantee`] is what it is, in a sentence for the user.
    pub fn why(&self) -> &'static str {
        match (self.medium, self.guarantee) {
            (Medium::Anonymous, _) => "anonymous memory ends with the process",
            (Medium::File, Guarantee::PowerFail) => {
                "an ordinary file; every persist waits for msync or fdatasync, so acknowledged \
                 writes survive a power cut as far as the disk honours a flush"
            }
            (Medium::File, _) => {
                "an ordinary file behind the page cache: acknowledged writes survive a crash of \
                 the process, not a power cut; open with power-fail durability to pay for that"
            }
            (Medium::MemoryFile, _) => {
                "a file in a memory file system: acknowledged writes survive a crash of the \
                 process, and are gone when the machine restarts"
            }
            (Medium::Dax | Medium::DeviceDax, Guarantee::ProcessCrash) => {
                "emulated: DRAM that the kernel was told to take for persistent memory (memmap=): \
                 acknowledged writes survive a crash of the process, and are gone with the power"
            }
            (Medium::Dax | Medium::DeviceDax, _) if self.caches == Caches::PowerFailSafe => {
                "persistent memory of a platform that keeps its caches when the power fails \
                 (eADR): a fence reaches the persistence domain"
            }
            (Medium::Dax, _) => {
                "a DAX file mapped with MAP_SYNC: flush and fence reach the persistence domain"
            }
            (Medium::DeviceDax, _) => {
                "a device-DAX device: flush and fence reach the persistence domain"
            }
        }
    }

    /// The hardware domain that makes persists true on this medium.
    pub fn domain(&self) -> Hardware {
        let memory = self.faults.as_ref().map(|guard| Arc::clone(guard.fault()));
        let method = match (self.medium, &self.sync) {
            (_, Some(sync)) => return Hardware::with_sync(Arc::clone(sync)).with_memory(memory),
            (Medium::Dax | Medium::DeviceDax, None) => match self.caches {
                Caches::PowerFailSafe => FlushMethod::EadrNone,
                Caches::Detect | Caches::Volatile => FlushMethod::detect(),
            },
            // What poses as persistent memory costs what that does.
            _ if self.caches == Caches::Volatile => FlushMethod::detect(),
            _ => FlushMethod::PageCacheNone,
        };
        let hardware = Hardware::with_method(method).unwrap_or_else(|_| Hardware::detect());
        hardware.with_memory(memory)
    }

    /// Grows the mapping to at least `bytes`, durably: the size that this returns with is there after a
    /// power cut. New bytes are zero. Nothing moves; other threads may go on using what is mapped.
    ///
    /// # Errors
    /// [`RegionError::Full`] beyond the reservation, [`RegionError::NoSpace`] when the disk is
    /// full; the region stays as it was.
    pub fn grow_to(&self, bytes: usize) -> Result<(), RegionError> {
        let _growing = self.growth.lock();
        let mapped = self.mapped_bytes();
        let unit = if self.medium == Medium::Dax { HUGE_PAGE_BYTES } else { EXTENT_BYTES };
        let Some(target) = bytes.checked_next_multiple_of(unit) else {
            return Err(RegionError::Full { capacity_bytes: self.reserved });
        };
        if target <= mapped {
            return Ok(());
        }
        if target > self.reserved || self.medium == Medium::DeviceDax {
            return Err(RegionError::Full { capacity_bytes: self.reserved.min(mapped) });
        }
        if let Some(file) = self.file.as_ref().filter(|_| self.access == Access::Write) {
            let grown = self.grow_file(file, mapped as u64, target as u64);
            grown.inspect_err(|_| {
                // Part of it may be there.
                let _ = file.set_len(mapped as u64);
            })?;
        }
        self.map_extent(mapped, target)
    }

    /// Lengthens the file, durably: whoever claims the new size later finds it after a power cut.
    fn grow_file(&self, file: &File, from: u64, to: u64) -> Result<(), RegionError> {
        let has_blocks = allocate(file, from, to - from)?;
        // Where persists are of memory, the first store to a page that was never written would wait for the
        // file system's journal.
        if !has_blocks || self.guarantee == Guarantee::PowerFail {
            write_zeroes(file, from, to - from)?;
        }
        let synced = match (self.medium, &self.sync) {
            // A power cut leaves nothing of it.
            (Medium::MemoryFile, _) => Ok(()),
            // What the kernel says of writes that are lost, it says once.
            (_, Some(sync)) => sync.sync_whole(),
            (_, None) => retry_on_intr(|| rustix::fs::fsync(file.as_fd())),
        };
        synced.map_err(os("write the file's size"))
    }

    fn map_extent(&self, from: usize, to: usize) -> Result<(), RegionError> {
        assert!(to <= self.reserved, "a region is mapped within its reservation");
        let (length, protection) = (to - from, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: `[from, to)` lies within the reservation (just checked), beyond what is mapped; MAP_FIXED
        // replaces inaccessible reserved pages only.
        unsafe {
            let at = self.base().add(from);
            // A region that is not to change its file grows beside it.
            let grows_beside = self.access == Access::Read && from > 0;
            match self.file.as_ref().filter(|_| !grows_beside) {
                None => map_zeroed(at, length)?,
                Some(file) => {
                    let flags = match (self.access, self.medium) {
                        (Access::Read, _) => MapFlags::PRIVATE | MapFlags::NORESERVE,
                        (Access::Write, Medium::Dax) => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                        (Access::Write, _) => MapFlags::SHARED,
                    };
                    mm::mmap(
                        at.cast(),
                        length,
                        protection,
                        flags | MapFlags::FIXED,
                        &***file,
                        from as u64,
                    )
                    .map_err(os("map the file"))?;
                }
            }
            // So does one that is not to change it any more.
            if self.faults.as_ref().is_some_and(|faults| !faults.note_mapped(to)) {
                map_zeroed(at, length)?;
            }
        }
        self.mapped.store(to, Ordering::Release);
        Ok(())
    }

    /// The length of the file and its first bytes, read without the mapping.
    pub(crate) fn file_start(&self) -> (u64, Vec<u8>) {
        use std::os::unix::fs::FileExt;
        let Some(file) = &self.file else { return (0, Vec::new()) };
        let mut start = vec![0; 64];
        let read = file.read_at(&mut start, 0).unwrap_or(0);
        start.truncate(read);
        (file.metadata().map_or(0, |metadata| metadata.len()), start)
    }

    /// Makes the file's existence durable: its directory entry.
    fn sync_directory_entry(&self) -> Result<(), RegionError> {
        let Some(parent) = self.path.as_deref().and_then(Path::parent) else { return Ok(()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| RegionError::Os { doing: "write the directory", source })
    }
}

/// Refuses what the medium says it has lost. `device` is the module, if it is a device-DAX device.
fn check_bad_blocks(
    file: &File,
    place: Option<&Path>,
    device: Option<&MemoryModule>,
) -> Result<(), RegionError> {
    let Some(place) = place else { return Ok(()) };
    let bad = match device {
        Some(module) => module.bad_bytes_of_device(place),
        None => memory_module::bad_bytes_of_file(place, file),
    };
    let Some(first) = bad.first() else { return Ok(()) };
    let bad_bytes = bad.iter().map(|bad| bad.end - bad.start).sum();
    Err(RegionError::BadBlocks { offset: first.start, bad_bytes })
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.owner {
            return;
        }
        self.faults = None;
        // SAFETY: the reservation was made by `reserve` and everything in it belongs to the region.
        unsafe { unreserve(self.base, self.reserved) };
    }
}
