//! A block device over a file or block special file.

use std::path::Path;
use std::sync::Arc;

use crate::block_device::{BlockError, BlockQueue};
use crate::block_file::{BlockFile, BlockOpenError, DirectTransfers};
use crate::file_backed::FileBacked;
use crate::file_lock::Access;
use crate::region::{Guarantee, Medium};
use crate::serial_queue::SerialQueue;

/// A [`BlockDevice`](crate::BlockDevice) over a file (`pread`, `pwrite`, `fdatasync`). Its queues do each request when it is
/// submitted. Where transfers bypass the page cache, they keep several in flight as those of `IoUringDevice` do, if the kernel lets
/// them; through the page cache a write is a copy, for which the kernel would only start threads.
///
/// The file is locked: a second opener, here or in another process, is refused, but for one who reads beside others
/// who read.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<BlockFile>,
}

impl FileDevice {
    /// Creates a file of `capacity_blocks` zeroed blocks, with storage allocated for all of them.
    /// Name, size and contents are durable when this returns.
    ///
    /// # Errors
    /// [`BlockOpenError`]; nothing is left behind.
    pub fn create(
        path: &Path,
        capacity_blocks: u64,
        direct: DirectTransfers,
    ) -> Result<Self, BlockOpenError> {
        Ok(Self { file: Arc::new(BlockFile::create(path, capacity_blocks, direct)?) })
    }

    /// Opens an existing file or block special file whole.
    ///
    /// # Errors
    /// [`BlockOpenError`].
    pub fn open(path: &Path, direct: DirectTransfers) -> Result<Self, BlockOpenError> {
        Ok(Self { file: Arc::new(BlockFile::open(path, direct, Access::Write)?) })
    }

    /// The same, to read only, beside others who do. The system refuses whatever would change the file.
    ///
    /// # Errors
    /// [`BlockOpenError`].
    pub fn open_to_read(path: &Path, direct: DirectTransfers) -> Result<Self, BlockOpenError> {
        Ok(Self { file: Arc::new(BlockFile::open(path, direct, Access::Read)?) })
    }

    /// A device of zeroed blocks in memory, without a name: it goes when it is dropped.
    ///
    /// # Errors
    /// [`BlockOpenError`].
    pub fn in_memory(capacity_blocks: u64) -> Result<Self, BlockOpenError> {
        Ok(Self { file: Arc::new(BlockFile::in_memory(capacity_blocks)?) })
    }

    /// What its blocks lie on: [`Medium::File`] is what a flush makes survive a power cut.
    pub fn medium(&self) -> Medium {
        self.file.medium()
    }

    /// What a flushed block survives.
    pub fn guarantee(&self) -> Guarantee {
        match self.medium() {
            Medium::Anonymous => Guarantee::Nothing,
            Medium::MemoryFile => Guarantee::ProcessCrash,
            Medium::File | Medium::Dax | Medium::DeviceDax => Guarantee::PowerFail,
        }
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl FileBacked for FileDevice {
    fn file(&self) -> &Arc<BlockFile> {
        &self.file
    }

    fn queue_of(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        #[cfg(all(target_os = "linux", feature = "io-uring"))]
        if self.is_direct()
            && let Ok(queue) = crate::io_uring_device::queue_over(&self.file, depth)
        {
            return Ok(queue);
        }
        Ok(Box::new(SerialQueue::new(Self { file: Arc::clone(&self.file) }, depth)))
    }
}

// Miri has no such files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::block_device::{BLOCK_BYTES, BlockDevice};
    use std::os::unix::fs::PermissionsExt;

    const NEVER: DirectTransfers = DirectTransfers::Never;

    #[test]
    fn a_second_opener_is_refused_until_the_first_and_its_queues_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = FileDevice::create(&path, 4, NEVER).unwrap();
        assert!(matches!(FileDevice::open(&path, NEVER), Err(BlockOpenError::AlreadyOpen(_))));
        let queue = device.queue(1).unwrap();
        drop(device);
        assert!(matches!(FileDevice::open(&path, NEVER), Err(BlockOpenError::AlreadyOpen(_))));
        drop(queue);
        assert_eq!(FileDevice::open(&path, NEVER).unwrap().capacity_blocks(), 4);
    }

    #[test]
    fn who_reads_shares_the_file_with_others_and_cannot_change_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        FileDevice::create(&path, 2, NEVER).unwrap().write_blocks(0, &[7; BLOCK_BYTES]).unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_mode(0o444);
        std::fs::set_permissions(&path, permissions).unwrap();
        let [one, other] = [(); 2].map(|()| FileDevice::open_to_read(&path, NEVER).unwrap());
        for device in [&one, &other] {
            let mut block = [0; BLOCK_BYTES];
            device.read_blocks(0, &mut block).unwrap();
            assert_eq!(block, [7; BLOCK_BYTES]);
            assert!(device.write_blocks(0, &[8; BLOCK_BYTES]).is_err());
            assert!(device.grow_to(4).is_err());
        }
        assert_eq!(std::fs::read(&path).unwrap().len(), 2 * BLOCK_BYTES);
    }

    #[test]
    fn files_that_cannot_be_devices_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert!(matches!(FileDevice::open(&path, NEVER), Err(BlockOpenError::NotFound)));
        assert!(matches!(FileDevice::open(directory.path(), NEVER), Err(BlockOpenError::NotAFile)));
        std::fs::write(&path, []).unwrap();
        assert!(matches!(
            FileDevice::open(&path, NEVER),
            Err(BlockOpenError::TooSmall { bytes: 0 })
        ));
        std::fs::write(&path, [0; 5000]).unwrap();
        assert!(matches!(
            FileDevice::open(&path, NEVER),
            Err(BlockOpenError::NotWholeBlocks { bytes: 5000 })
        ));
        assert!(matches!(FileDevice::create(&path, 1, NEVER), Err(BlockOpenError::Exists)));
        assert!(matches!(
            FileDevice::open(Path::new("/dev/null"), NEVER),
            Err(BlockOpenError::NotAFile)
        ));
    }

    #[test]
    fn a_read_only_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        std::fs::write(&path, [0; BLOCK_BYTES]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        // The super-user may write it all the same, and then this says nothing.
        if std::fs::OpenOptions::new().write(true).open(&path).is_err() {
            assert!(matches!(FileDevice::open(&path, NEVER), Err(BlockOpenError::ReadOnly)));
        }
    }

    #[test]
    fn a_device_without_blocks_or_larger_than_any_disk_is_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        assert!(matches!(
            FileDevice::create(&path, 0, NEVER),
            Err(BlockOpenError::TooSmall { .. })
        ));
        for blocks in [u64::MAX, 1 << 50] {
            assert!(matches!(
                FileDevice::create(&path, blocks, NEVER),
                Err(BlockOpenError::NoSpace { .. })
            ));
        }
        assert!(!path.exists(), "a failed creation leaves nothing behind");
    }

    #[test]
    fn growth_that_finds_no_space_leaves_the_device_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = FileDevice::create(&path, 2, NEVER).unwrap();
        assert!(matches!(device.grow_to(1 << 50), Err(BlockError::NoSpace { block: 2 })));
        assert_eq!(device.capacity_blocks(), 2);
        drop(device);
        assert_eq!(FileDevice::open(&path, NEVER).unwrap().capacity_blocks(), 2);
    }

    #[test]
    fn a_flush_that_failed_makes_the_device_refuse_for_good() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = FileDevice::create(&path, 4, NEVER).unwrap();
        let error = std::io::Error::other("the disk is gone");
        device.file.failed(crate::block_device::BlockOperation::Flush, 0, error);
        let block = [0; BLOCK_BYTES];
        for refused in [device.write_blocks(0, &block), device.flush(), device.discard(0, 1)] {
            let Err(BlockError::WritesLost { reason }) = refused else { panic!("{refused:?}") };
            assert_eq!(reason, "the disk is gone");
        }
        device.read_blocks(0, &mut block.clone()).unwrap();
    }

    #[test]
    fn a_file_truncated_underneath_is_an_error_that_names_the_block() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = FileDevice::create(&path, 8, NEVER).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(3 * BLOCK_BYTES as u64).unwrap();
        let mut buffer = vec![0; 4 * BLOCK_BYTES];
        let error = device.read_blocks(1, &mut buffer).unwrap_err();
        assert!(matches!(error, BlockError::Io { block: 3, .. }), "{error}");
        assert_eq!(device.counts().failures, 1);
    }

    #[test]
    fn transfers_that_bypass_the_page_cache_take_any_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = FileDevice::create(&path, 4, DirectTransfers::IfPossible).unwrap();
        let contents: Vec<u8> = (0..2 * BLOCK_BYTES).map(|at| at as u8).collect();
        let mut shifted = vec![0; 2 * BLOCK_BYTES + 1];
        shifted[1..].copy_from_slice(&contents);
        device.write_blocks(1, &shifted[1..]).unwrap();
        shifted.fill(0);
        device.read_blocks(1, &mut shifted[1..]).unwrap();
        assert_eq!(shifted[1..], contents);
    }
}
