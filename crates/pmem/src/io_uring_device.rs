//! A block device over a file whose queues keep several requests in flight (`io_uring`, Linux).

use core::fmt;
use core::mem::ManuallyDrop;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use crate::block_buffer::BlockBuffer;
use crate::block_device::{
    BLOCK_BYTES, BlockError, BlockOperation, BlockQueue, Completion, Request,
};
use crate::block_file::{BlockFile, BlockOpenError, DirectTransfers, block_of, shortened};
use crate::file_backed::FileBacked;
use crate::file_lock::Access;

/// A [`BlockDevice`](crate::BlockDevice) over a file, whose queues hand a whole batch to the kernel in one system call
/// and keep it in flight. Each queue has a ring of its own, so that threads share nothing.
///
/// The methods that wait for one request use `pread`, `pwrite` and `fdatasync`: through a ring they
/// would cost the same one system call. A flush in a queue uses `fdatasync` too, and waits for it where it is
/// submitted: of two flushes at a time the kernel would tell only one of a write that failed.
#[derive(Debug)]
pub struct IoUringDevice {
    file: Arc<BlockFile>,
}

const WHAT: &str = "io_uring";

impl IoUringDevice {
    /// Whether the kernel, and whatever sandbox this runs in, lets this process use `io_uring`.
    ///
    /// # Errors
    /// [`BlockOpenError::Unavailable`] with the kernel's answer.
    pub fn check_available() -> Result<(), BlockOpenError> {
        match IoUring::new(1) {
            Ok(_) => Ok(()),
            Err(source) => Err(BlockOpenError::Unavailable { what: WHAT, source }),
        }
    }

    /// As [`FileDevice::create`](crate::FileDevice::create).
    ///
    /// # Errors
    /// [`BlockOpenError`]: [`Unavailable`](BlockOpenError::Unavailable), before anything is
    /// created, where the kernel refuses `io_uring`. [`FileDevice`](crate::FileDevice) works there.
    pub fn create(
        path: &Path,
        capacity_blocks: u64,
        direct: DirectTransfers,
    ) -> Result<Self, BlockOpenError> {
        Self::check_available()?;
        Ok(Self { file: Arc::new(BlockFile::create(path, capacity_blocks, direct)?) })
    }

    /// As [`FileDevice::open`](crate::FileDevice::open).
    ///
    /// # Errors
    /// As [`IoUringDevice::create`].
    pub fn open(path: &Path, direct: DirectTransfers) -> Result<Self, BlockOpenError> {
        Self::check_available()?;
        Ok(Self { file: Arc::new(BlockFile::open(path, direct, Access::Write)?) })
    }

    /// Whether transfers bypass the page cache. Only then does a queue of reads wait for the disk
    /// in parallel for certain; through the page cache the kernel may do some at submission.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl FileBacked for IoUringDevice {
    fn file(&self) -> &Arc<BlockFile> {
        &self.file
    }

    fn queue_of(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        queue_over(&self.file, depth)
    }
}

/// A queue with a ring of its own.
pub(crate) fn queue_over(
    file: &Arc<BlockFile>,
    depth: u32,
) -> Result<Box<dyn BlockQueue>, BlockError> {
    Ok(Box::new(RingQueue::over(file, depth)?))
}

/// A request that the kernel has, and with it the memory that the kernel may touch.
struct Flight {
    tag: u64,
    operation: BlockOperation,
    first_block: u64,
    buffer: Option<BlockBuffer>,
    /// Bytes transferred: the kernel may do less than it was asked for.
    done: usize,
}

/// Requests in flight in one ring.
///
/// The kernel writes to the buffers of `flights` until it has answered. So they are given up only
/// with their answers; dropping the queue waits for these, and if even waiting fails, leaks ring
/// and buffers. Forgetting the queue leaks them too.
struct RingQueue {
    file: Arc<BlockFile>,
    ring: ManuallyDrop<IoUring>,
    flights: ManuallyDrop<Vec<Option<Flight>>>,
    /// Indexes of empty places in `flights`.
    free: Vec<u32>,
    /// Indexes of flights that the kernel has yet to be given, first or again after a partial
    /// transfer.
    resume: VecDeque<u32>,
    /// Requests that were answered without the ring.
    answered: Vec<Completion>,
    /// Entries in the rings that have not been answered.
    in_kernel: u32,
}

impl RingQueue {
    fn over(file: &Arc<BlockFile>, depth: u32) -> Result<Self, BlockError> {
        let ring =
            IoUring::new(depth).map_err(|source| BlockError::Unavailable { what: WHAT, source })?;
        Ok(Self {
            file: Arc::clone(file),
            ring: ManuallyDrop::new(ring),
            flights: ManuallyDrop::new((0..depth).map(|_| None).collect()),
            free: (0..depth).rev().collect(),
            resume: VecDeque::new(),
            answered: Vec::new(),
            in_kernel: 0,
        })
    }

    fn entry(&mut self, place: u32) -> squeue::Entry {
        let descriptor = types::Fd(self.file.file().as_raw_fd());
        let flight =
            self.flights[place as usize].as_mut().expect("a flight is kept until answered");
        let offset = flight.first_block * BLOCK_BYTES as u64 + flight.done as u64;
        let entry = match (flight.operation, &mut flight.buffer) {
            (BlockOperation::Read, Some(buffer)) => {
                let rest = &mut buffer[flight.done..];
                opcode::Read::new(descriptor, rest.as_mut_ptr(), request_bytes(rest.len()))
                    .offset(offset)
                    .build()
            }
            (BlockOperation::Write, Some(buffer)) => {
                let rest = &buffer[flight.done..];
                opcode::Write::new(descriptor, rest.as_ptr(), request_bytes(rest.len()))
                    .offset(offset)
                    .build()
            }
            _ => unreachable!("what has no buffer is answered without the ring"),
        };
        entry.user_data(u64::from(place))
    }

    /// Hands everything that is ready to the kernel and waits for `answers` answers.
    fn enter(&mut self, answers: u32) -> Result<(), BlockError> {
        while let Some(&place) = self.resume.front() {
            let entry = self.entry(place);
            // SAFETY: the file and the buffer that the entry points to are owned by this queue and
            // kept until the kernel has answered; the buffer's memory does not move with it.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                break;
            }
            self.resume.pop_front();
            self.in_kernel += 1;
        }
        loop {
            let wanted = answers.min(self.in_kernel) as usize;
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory or its completion queue is full: what it has not
                // taken stays in the ring for the next call.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                    ) =>
                {
                    return Ok(());
                }
                Err(source) => {
                    return Err(BlockError::Unavailable { what: "submitting to io_uring", source });
                }
            }
        }
    }

    /// Takes the kernel's answers.
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let Self { ring, flights, file, free, resume, in_kernel, .. } = self;
        for answer in ring.completion() {
            *in_kernel -= 1;
            let place = answer.user_data() as u32;
            let held = &mut flights[place as usize];
            let flight = held.as_mut().expect("a flight is kept until answered");
            let asked = flight.buffer.as_ref().map_or(0, |buffer| buffer.len());
            let at = flight.first_block * BLOCK_BYTES as u64 + flight.done as u64;
            let outcome = match answer.result() {
                result if result < 0 => {
                    let error = io::Error::from_raw_os_error(-result);
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) {
                        resume.push_back(place);
                        continue;
                    }
                    Err(file.failed(flight.operation, block_of(at), error))
                }
                0 if asked > flight.done => {
                    Err(file.failed(flight.operation, block_of(at), shortened()))
                }
                bytes => {
                    flight.done += bytes as usize;
                    if flight.done < asked {
                        resume.push_back(place);
                        continue;
                    }
                    Ok(())
                }
            };
            let Flight { tag, operation, buffer, .. } =
                held.take().expect("a flight is kept until answered");
            free.push(place);
            completions.push(Completion { tag, operation, buffer, outcome });
        }
    }
}

/// What one entry of a ring can ask for at most.
fn request_bytes(bytes: usize) -> u32 {
    const MOST: usize = 1 << 30;
    bytes.min(MOST) as u32
}

impl BlockQueue for RingQueue {
    fn depth(&self) -> u32 {
        self.flights.len() as u32
    }

    fn in_flight(&self) -> u32 {
        self.depth() - self.free.len() as u32 + self.answered.len() as u32
    }

    fn submit(&mut self, requests: &mut Vec<Request>) -> Result<u32, BlockError> {
        let room = (self.depth() - self.in_flight()) as usize;
        let taken = requests.len().min(room);
        for request in requests.drain(..taken) {
            let operation = request.operation();
            let (tag, first_block, buffer) = request.into_parts();
            let bytes = buffer.as_ref().map_or(0, |buffer| buffer.len());
            let outcome = match operation {
                BlockOperation::Flush => self.file.flush(),
                _ => self.file.admit(operation, first_block, bytes),
            };
            if outcome.is_err() || bytes == 0 {
                self.answered.push(Completion { tag, operation, buffer, outcome });
                continue;
            }
            let place = self.free.pop().expect("there is room");
            self.flights[place as usize] =
                Some(Flight { tag, operation, first_block, buffer, done: 0 });
            self.resume.push_back(place);
        }
        self.enter(0)?;
        Ok(taken as u32)
    }

    fn complete(
        &mut self,
        at_least: u32,
        completions: &mut Vec<Completion>,
    ) -> Result<u32, BlockError> {
        let before = completions.len();
        let wanted = at_least.min(self.in_flight()) as usize;
        completions.append(&mut self.answered);
        loop {
            self.reap(completions);
            let given = completions.len() - before;
            let missing = wanted.saturating_sub(given) as u32;
            // What the kernel did not take, for want of memory, is still in the ring.
            let all_taken = self.resume.is_empty() && self.ring.submission().is_empty();
            if missing == 0 && all_taken {
                return Ok(given as u32);
            }
            self.enter(missing)?;
            if missing == 0 {
                // What was interrupted or done in part is on its way again.
                self.reap(completions);
                return Ok((completions.len() - before) as u32);
            }
        }
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        let mut answers = Vec::new();
        while self.in_kernel > 0 || !self.resume.is_empty() {
            if self.enter(1).is_err() {
                // The kernel may still write to the buffers: they, and the ring, stay for good.
                return;
            }
            let before = answers.len();
            self.reap(&mut answers);
            if answers.len() == before {
                // The kernel is short of something; it may be others who have to give it back.
                std::thread::yield_now();
            }
        }
        // SAFETY: the kernel has answered every entry, and neither is used again. The ring goes
        // first, so that nothing could reach the buffers afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::drop(&mut self.flights);
        }
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingQueue({} of {} in flight)", self.in_flight(), self.depth())
    }
}

// Miri has no such files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::block_device::BlockDevice;

    #[test]
    fn io_uring_works_or_says_that_it_is_unavailable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        match IoUringDevice::create(&path, 4, DirectTransfers::Never) {
            Ok(device) => {
                let mut queue = device.queue(2).unwrap();
                let buffer = BlockBuffer::copy_of(&[9; BLOCK_BYTES]);
                let mut requests = vec![Request::Write { tag: 1, first_block: 3, buffer }];
                assert_eq!(queue.submit(&mut requests).unwrap(), 1);
                let mut completions = Vec::new();
                assert_eq!(queue.complete(1, &mut completions).unwrap(), 1);
                completions[0].outcome.as_ref().unwrap();
                let mut block = vec![0; BLOCK_BYTES];
                device.read_blocks(3, &mut block).unwrap();
                assert_eq!(block, [9; BLOCK_BYTES]);
            }
            Err(error) => {
                assert!(matches!(error, BlockOpenError::Unavailable { .. }), "{error}");
                assert!(!path.exists(), "nothing is created where it cannot be used");
            }
        }
    }

    #[test]
    fn what_the_kernel_did_not_take_is_handed_to_it_by_whoever_asks_for_answers_without_waiting() {
        if IoUringDevice::check_available().is_err() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = IoUringDevice::create(&path, 4, DirectTransfers::Never).unwrap();
        let mut queue = RingQueue::over(&device.file, 2).unwrap();
        let place = queue.free.pop().unwrap();
        let buffer = Some(BlockBuffer::copy_of(&[9; BLOCK_BYTES]));
        let operation = BlockOperation::Write;
        queue.flights[place as usize] =
            Some(Flight { tag: 1, operation, first_block: 3, buffer, done: 0 });
        let entry = queue.entry(place);
        // As `enter` leaves it when the kernel is short of memory.
        // SAFETY: as in `enter`.
        unsafe { queue.ring.submission().push(&entry).unwrap() };
        queue.in_kernel += 1;
        let mut completions = Vec::new();
        let began = std::time::Instant::now();
        while completions.is_empty() && began.elapsed().as_secs() < 10 {
            queue.complete(0, &mut completions).unwrap();
        }
        completions[0].outcome.as_ref().unwrap();
    }

    #[test]
    fn a_queue_dropped_with_requests_in_flight_waits_for_them() {
        if IoUringDevice::check_available().is_err() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ssd");
        let device = IoUringDevice::create(&path, 64, DirectTransfers::IfPossible).unwrap();
        let mut queue = device.queue(64).unwrap();
        let mut requests: Vec<_> = (0..64)
            .map(|block| Request::Write {
                tag: block,
                first_block: block,
                buffer: BlockBuffer::copy_of(&[block as u8; BLOCK_BYTES]),
            })
            .collect();
        assert_eq!(queue.submit(&mut requests).unwrap(), 64);
        drop(queue);
        let mut block = vec![0; BLOCK_BYTES];
        for number in 0..64 {
            device.read_blocks(number, &mut block).unwrap();
            assert_eq!(block, vec![number as u8; BLOCK_BYTES]);
        }
    }
}
