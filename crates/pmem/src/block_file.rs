//! What both file back ends of [`BlockDevice`](crate::BlockDevice) stand on: one open file or
//! block special file, locked, of a whole number of blocks.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};

use crate::block_buffer::BlockBuffer;
use crate::block_device::{BLOCK_BYTES, BlockCounters, BlockError, BlockOperation};
use crate::file_lock::{Access, LockError, LockHolder, LockedFile};
use crate::region::{Medium, is_in_memory};

/// Why a block device could not be opened or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockOpenError {
    /// Somebody else has it open.
    #[error("{0}")]
    AlreadyOpen(LockHolder),
    /// The file may not be written.
    #[error("the file may not be written; open it to read only, or make it writable")]
    ReadOnly,
    /// The disk is full.
    #[error("no space left for {needed_bytes} bytes")]
    NoSpace {
        /// Bytes that were asked for.
        needed_bytes: u64,
    },
    /// It holds no block.
    #[error("a device of {bytes} bytes is too small; it needs at least one block of {BLOCK_BYTES}")]
    TooSmall {
        /// Its size.
        bytes: u64,
    },
    /// Its size is not a multiple of a block.
    #[error(
        "{bytes} bytes are not a whole number of {BLOCK_BYTES}-byte blocks: its end is missing, or it is something else; restore it from a copy, or cut it to whole blocks (truncate -s) to save what is left"
    )]
    NotWholeBlocks {
        /// Its size.
        bytes: u64,
    },
    /// Neither a regular file nor a block special file.
    #[error("not a regular file or block device")]
    NotAFile,
    /// It exists already and was to be created.
    #[error("the file exists already")]
    Exists,
    /// No such file.
    #[error("no such file")]
    NotFound,
    /// The page cache was to be bypassed and cannot be.
    #[error("the file system cannot bypass the page cache (O_DIRECT); ask for it only if possible")]
    DirectUnavailable,
    /// The operating system refuses what this back end is made of.
    #[error("{what} is not available here: {source}")]
    Unavailable {
        /// What was refused.
        what: &'static str,
        /// What the operating system answered.
        source: io::Error,
    },
    /// Anything else the operating system refused.
    #[error("the operating system refused to {doing}: {source}")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// What it answered.
        source: io::Error,
    },
}

/// Whether transfers bypass the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DirectTransfers {
    /// They go through the page cache.
    #[default]
    Never,
    /// They bypass it where the file system allows.
    IfPossible,
    /// They bypass it, or the device cannot be opened.
    Required,
}

fn open_error(source: io::Error) -> BlockOpenError {
    match source.kind() {
        io::ErrorKind::NotFound => BlockOpenError::NotFound,
        io::ErrorKind::AlreadyExists => BlockOpenError::Exists,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            BlockOpenError::ReadOnly
        }
        io::ErrorKind::IsADirectory => BlockOpenError::NotAFile,
        _ => BlockOpenError::Os { doing: "open the file", source },
    }
}

fn os(doing: &'static str) -> impl Fn(io::Error) -> BlockOpenError {
    move |source| BlockOpenError::Os { doing, source }
}

/// The open file beneath a device and all of its queues.
#[derive(Debug)]
pub struct BlockFile {
    file: LockedFile,
    capacity_blocks: AtomicU64,
    direct: bool,
    special: bool,
    medium: Medium,
    growth: Mutex<()>,
    /// Who flushes. The kernel tells of a write that failed once per open file, so of two flushes at a
    /// time one would be told that all is well.
    flushing: Mutex<()>,
    /// What the operating system answered to the first flush that failed. It stays: the kernel may
    /// since have marked pages clean that it never wrote (rule D5).
    lost: Mutex<Option<String>>,
    pub(crate) counters: BlockCounters,
}

impl BlockFile {
    pub(crate) fn create(
        path: &Path,
        capacity_blocks: u64,
        direct: DirectTransfers,
    ) -> Result<Self, BlockOpenError> {
        if capacity_blocks == 0 {
            return Err(BlockOpenError::TooSmall { bytes: 0 });
        }
        let needed_bytes = capacity_blocks
            .checked_mul(BLOCK_BYTES as u64)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .ok_or(BlockOpenError::NoSpace { needed_bytes: u64::MAX })?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
            .map_err(open_error)?;
        let created = move || {
            let file = lock(file, Access::Write)?;
            allocate(&file, 0, needed_bytes).map_err(|source| match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge => {
                    BlockOpenError::NoSpace { needed_bytes }
                }
                _ => BlockOpenError::Os { doing: "allocate the file", source },
            })?;
            file.sync_all().map_err(os("synchronise the file"))?;
            // A file that has no name after a power cut is lost, however durable its blocks are.
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))
                .and_then(|directory| directory.sync_all())
                .map_err(os("synchronise the directory"))?;
            let direct = bypass_page_cache(&file, direct)?;
            Ok(Self::over(file, capacity_blocks, direct, false))
        };
        created().inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    }

    /// A file without a name, in memory: it goes when it is closed.
    #[cfg(target_os = "linux")]
    pub(crate) fn in_memory(capacity_blocks: u64) -> Result<Self, BlockOpenError> {
        let file = rustix::fs::memfd_create("lapis", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|errno| os("make a file in memory")(errno.into()))?;
        let file = lock(File::from(file), Access::Write)?;
        file.set_len(capacity_blocks * BLOCK_BYTES as u64).map_err(os("size the file"))?;
        let mut device = Self::over(file, capacity_blocks, false, false);
        device.medium = Medium::Anonymous;
        Ok(device)
    }

    /// A file without a name, in memory: it goes when it is closed.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn in_memory(_: u64) -> Result<Self, BlockOpenError> {
        let source = io::ErrorKind::Unsupported.into();
        Err(BlockOpenError::Unavailable { what: "a file in memory", source })
    }

    /// What the file lies on.
    pub(crate) fn medium(&self) -> Medium {
        self.medium
    }

    pub(crate) fn open(
        path: &Path,
        direct: DirectTransfers,
        access: Access,
    ) -> Result<Self, BlockOpenError> {
        let writes = access == Access::Write;
        let opened = OpenOptions::new().read(true).write(writes).open(path);
        let file = opened.map_err(|source| match open_error(source) {
            BlockOpenError::ReadOnly if !writes => {
                os("open the file")(io::ErrorKind::PermissionDenied.into())
            }
            error => error,
        })?;
        let kind = file.metadata().map_err(os("stat the file"))?.file_type();
        let special = kind.is_block_device();
        if !special && !kind.is_file() {
            return Err(BlockOpenError::NotAFile);
        }
        let file = lock(file, access)?;
        let bytes = (&*file).seek(SeekFrom::End(0)).map_err(os("find out the size"))?;
        if !bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(BlockOpenError::NotWholeBlocks { bytes });
        }
        if bytes == 0 {
            return Err(BlockOpenError::TooSmall { bytes });
        }
        let direct = bypass_page_cache(&file, direct)?;
        Ok(Self::over(file, bytes / BLOCK_BYTES as u64, direct, special))
    }

    fn over(file: LockedFile, capacity_blocks: u64, direct: bool, special: bool) -> Self {
        let in_memory = is_in_memory(&file).unwrap_or(false);
        Self {
            medium: if in_memory { Medium::MemoryFile } else { Medium::File },
            file,
            capacity_blocks: AtomicU64::new(capacity_blocks),
            direct,
            special,
            growth: Mutex::new(()),
            flushing: Mutex::new(()),
            lost: Mutex::new(None),
            counters: BlockCounters::default(),
        }
    }

    #[cfg(all(feature = "io-uring", target_os = "linux"))]
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    pub(crate) fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks.load(Ordering::Acquire)
    }

    /// Checks a request and counts it.
    pub(crate) fn admit(
        &self,
        operation: BlockOperation,
        first_block: u64,
        bytes: usize,
    ) -> Result<(), BlockError> {
        BlockError::check_run(self.capacity_blocks(), first_block, bytes)?;
        self.counters.count(operation, bytes);
        if matches!(operation, BlockOperation::Read) { Ok(()) } else { self.check_not_lost() }
    }

    fn check_not_lost(&self) -> Result<(), BlockError> {
        match &*self.lost.lock() {
            Some(reason) => Err(BlockError::WritesLost { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// The error of a failed transfer, counted; a failed flush is remembered for good.
    pub(crate) fn failed(
        &self,
        operation: BlockOperation,
        block: u64,
        source: io::Error,
    ) -> BlockError {
        self.counters.count_failure();
        if operation == BlockOperation::Flush {
            tracing::error!(error = %source, "the device failed to flush");
            self.lost.lock().get_or_insert_with(|| source.to_string());
        }
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                BlockError::NoSpace { block }
            }
            _ => BlockError::Io { operation, block, source },
        }
    }

    pub(crate) fn read(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        self.admit(BlockOperation::Read, first_block, into.len())?;
        let offset = first_block * BLOCK_BYTES as u64;
        if self.direct && !is_aligned(into) {
            let mut bounce = BlockBuffer::zeroed(into.len() / BLOCK_BYTES);
            self.read_whole(offset, &mut bounce)?;
            into.copy_from_slice(&bounce);
            return Ok(());
        }
        self.read_whole(offset, into)
    }

    fn read_whole(&self, offset: u64, into: &mut [u8]) -> Result<(), BlockError> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            match self.file.read_at(&mut into[done..], at) {
                Ok(0) => return Err(self.failed(BlockOperation::Read, block_of(at), shortened())),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(BlockOperation::Read, block_of(at), error)),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        self.admit(BlockOperation::Write, first_block, from.len())?;
        let offset = first_block * BLOCK_BYTES as u64;
        if self.direct && !is_aligned(from) {
            return self.write_whole(offset, &BlockBuffer::copy_of(from));
        }
        self.write_whole(offset, from)
    }

    fn write_whole(&self, offset: u64, from: &[u8]) -> Result<(), BlockError> {
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            match self.file.write_at(&from[done..], at) {
                Ok(0) => return Err(self.failed(BlockOperation::Write, block_of(at), shortened())),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(BlockOperation::Write, block_of(at), error)),
            }
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<(), BlockError> {
        let alone = self.flushing.lock();
        self.admit(BlockOperation::Flush, 0, 0)?;
        self.synchronise(&alone)
    }

    /// Writes out what was written. Who calls it is alone in that.
    fn synchronise(&self, _alone: &MutexGuard<'_, ()>) -> Result<(), BlockError> {
        let synchronised = retry_on_intr(|| rustix::fs::fdatasync(&*self.file));
        synchronised.map_err(|errno| self.failed(BlockOperation::Flush, 0, errno.into()))
    }

    pub(crate) fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        BlockError::check_blocks(self.capacity_blocks(), first_block, blocks)?;
        self.counters.count(BlockOperation::Discard, 0);
        self.check_not_lost()?;
        if blocks == 0 {
            return Ok(());
        }
        let (offset, bytes) = (first_block * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&*self.file, hole, offset, bytes) {
            Ok(()) => Ok(()),
            // Storage that cannot be given back can still be zeroed.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeroes(first_block, blocks),
            Err(errno) => Err(self.failed(BlockOperation::Discard, first_block, errno.into())),
        }
    }

    fn write_zeroes(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        const STEP_BLOCKS: u64 = 64;
        let zeroes = BlockBuffer::zeroed(STEP_BLOCKS.min(blocks) as usize);
        let mut done = 0;
        while done < blocks {
            let step = STEP_BLOCKS.min(blocks - done);
            let offset = (first_block + done) * BLOCK_BYTES as u64;
            self.write_whole(offset, &zeroes[..step as usize * BLOCK_BYTES])?;
            done += step;
        }
        Ok(())
    }

    pub(crate) fn shrink_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        let _growing = self.growth.lock();
        let current = self.capacity_blocks();
        if capacity_blocks >= current {
            return Ok(());
        }
        if self.special {
            return self.discard(capacity_blocks, current - capacity_blocks);
        }
        self.check_not_lost()?;
        self.counters.count(BlockOperation::Discard, 0);
        self.capacity_blocks.store(capacity_blocks, Ordering::Release);
        let end = capacity_blocks * BLOCK_BYTES as u64;
        rustix::fs::ftruncate(&*self.file, end).map_err(|errno| {
            self.capacity_blocks.store(current, Ordering::Release);
            self.failed(BlockOperation::Discard, capacity_blocks, errno.into())
        })
    }

    pub(crate) fn reserve(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        BlockError::check_blocks(self.capacity_blocks(), first_block, blocks)?;
        if self.special || blocks == 0 {
            return Ok(());
        }
        let (offset, bytes) = (first_block * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64);
        match fallocate(&*self.file, FallocateFlags::empty(), offset, bytes) {
            // Where storage cannot be asked for, none was given back but by zeroes.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.failed(BlockOperation::Write, first_block, errno.into())),
        }
    }

    pub(crate) fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        let _growing = self.growth.lock();
        let current = self.capacity_blocks();
        if capacity_blocks <= current {
            return Ok(());
        }
        let full = || BlockError::NoSpace { block: current };
        if self.special {
            return Err(full());
        }
        let end = capacity_blocks.checked_mul(BLOCK_BYTES as u64).ok_or_else(full)?;
        i64::try_from(end).map_err(|_| full())?;
        let start = current * BLOCK_BYTES as u64;
        if let Err(error) = allocate(&self.file, start, end - start) {
            // Whatever was allocated before it failed would make the file longer than the device.
            let _ = rustix::fs::ftruncate(&*self.file, start);
            return Err(match error.kind() {
                io::ErrorKind::FileTooLarge => full(),
                _ => self.failed(BlockOperation::Write, current, error),
            });
        }
        // Makes the new size durable, and incidentally whatever was written before.
        self.synchronise(&self.flushing.lock())?;
        self.capacity_blocks.store(capacity_blocks, Ordering::Release);
        Ok(())
    }
}

/// The block that a byte lies in.
pub(crate) fn block_of(offset: u64) -> u64 {
    offset / BLOCK_BYTES as u64
}

/// Somebody truncated the file under the device.
pub(crate) fn shortened() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than the device")
}

fn is_aligned(buffer: &[u8]) -> bool {
    buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
}

fn lock(file: File, access: Access) -> Result<LockedFile, BlockOpenError> {
    LockedFile::new(file, access).map_err(|error| match error {
        LockError::Held(holder) => BlockOpenError::AlreadyOpen(holder),
        LockError::Os(errno) => os("lock the file")(errno.into()),
    })
}

/// Gives the file real blocks rather than a hole, so that a full disk is an error here and not at
/// some later write.
fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), offset, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeroes = BlockBuffer::zeroed(64);
            let mut done = 0;
            while done < bytes {
                let step = (bytes - done).min(zeroes.len() as u64);
                file.write_all_at(&zeroes[..step as usize], offset + done)?;
                done += step;
            }
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Sets `O_DIRECT` where that is asked for and works; a trial read tells.
fn bypass_page_cache(file: &File, direct: DirectTransfers) -> Result<bool, BlockOpenError> {
    if direct == DirectTransfers::Never {
        return Ok(false);
    }
    let trial = || -> io::Result<()> {
        let flags = fcntl_getfl(file)?;
        fcntl_setfl(file, flags | OFlags::DIRECT)?;
        let read = file.read_exact_at(&mut BlockBuffer::zeroed(1), 0);
        if read.is_err() {
            fcntl_setfl(file, flags)?;
        }
        read
    };
    match trial() {
        Ok(()) => Ok(true),
        Err(_) if direct == DirectTransfers::IfPossible => Ok(false),
        Err(_) => Err(BlockOpenError::DirectUnavailable),
    }
}

// Miri has no such files.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    /// Whether `work` waits until nobody else flushes.
    fn waits_to_be_alone(file: &BlockFile, work: impl FnOnce() + Send) -> bool {
        std::thread::scope(|scope| {
            let alone = file.flushing.lock();
            let working = scope.spawn(work);
            std::thread::sleep(Duration::from_millis(200));
            let waits = !working.is_finished();
            drop(alone);
            working.join().unwrap();
            waits
        })
    }

    #[test]
    fn whoever_flushes_by_growing_or_in_a_queue_is_alone_in_that() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let file = Arc::new(BlockFile::create(&path, 4, DirectTransfers::Never).unwrap());
        assert!(waits_to_be_alone(&file, || file.flush().unwrap()));
        assert!(waits_to_be_alone(&file, || file.grow_to(8).unwrap()));
        #[cfg(all(feature = "io-uring", target_os = "linux"))]
        if crate::IoUringDevice::check_available().is_ok() {
            use crate::block_device::Request;
            let flush = || {
                let mut queue = crate::io_uring_device::queue_over(&file, 2).unwrap();
                queue.submit(&mut vec![Request::Flush { tag: 1 }]).unwrap();
                let mut completions = Vec::new();
                queue.complete(1, &mut completions).unwrap();
                completions[0].outcome.as_ref().unwrap();
            };
            assert!(waits_to_be_alone(&file, flush));
        }
    }
}
