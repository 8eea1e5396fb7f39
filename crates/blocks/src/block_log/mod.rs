//! A write-ahead log on a [`BlockDevice`], with group commit.
//!
//! Group commit is DeWitt, Katz, Olken, Shapiro, Stonebraker, Wood, *Implementation Techniques for Main
//! Memory Database Systems*, SIGMOD 1984; what a log sequence number is, Mohan, Haderle, Lindsay,
//! Pirahesh, Schwarz, *ARIES*, TODS 1992. There is no timer: a batch is what was appended while the
//! last sync ran. The device may lie in persistent memory ([`PoolDevice`](lapis_pmem::PoolDevice)): then a
//! batch is the lines of its records and one fence.
//!
//! # Layout
//!
//! An [`Lsn`] is a byte position in a stream without end. The device has two copies of a header, then
//! a ring, in which position `p` lies at byte `p - base` modulo the ring's length.
//!
//! ```text
//!  block 0   block 1   blocks 2 ..: the ring, segments of equal length
//!  ┌────────┬────────┬───────────────────────────┬───────────────────────────┬─ ─ ─
//!  │ header │ header │ S record record mark … pad│ S record record mark …    │
//!  └────────┴────────┴───────────────────────────┴───────────────────────────┴─ ─ ─
//!
//!  header   0 magic │ 8 version │ 12 closed │ 16 identity │ 24 segment bytes │ 32 segments
//!           40 batch bytes │ 48 base │ 56 fewest segments │ 64 most segments
//!           72 sequence │ 80 start │ 88 durable │ 96 CRC-32C of the bytes before │ 100
//!
//!  record   0 CRC-32C │ 4 payload bytes │ 8 LSN │ 16 form │ 17 kind │ 18 zero │ 24 payload … zero to 8 │
//! ```
//!
//! The checksum of a record is over the identity of the log, the payload, and bytes 4 to 24, so that a
//! record of another log, of an earlier round of the ring or from another block is told from the one
//! that should be there. A record lies in one segment, on any number of blocks. A segment begins with a
//! record of the log's own, `S`, and is filled by another one, `pad`, where the next record does not
//! fit; fewer than 24 bytes at its end stay free. The last record of a batch is a *mark*. Marks and `S`
//! carry a *witness*: a position before which all was durable when they were written.
//!
//! # Invariants
//!
//! * B1. Between `start` and the position before which all is durable, there is record after record.
//! * B2. A byte of a record is written with one value only, however often its unit is written: the
//!   last unit of a batch, not full, is written again with the next batch, and has the records of the
//!   first one where it had them. A unit is what the device takes for one: a block, or a line.
//! * B3. Batches are written one after the other: none before the one before it is durable. So what was
//!   written and may be missing lies in `batch bytes` from the first unit on that is not durable whole.
//! * B4. A witness is true whenever it can be read.
//! * B5. Nothing is written to the ring where a byte at or behind the `start` of a durable header lies.
//! * B6. Before the first append after an opening, nothing is left behind the end of what an unfinished batch wrote
//!   there, neither records nor parts of one: what is appended next may have the bytes that such a part lacks, and
//!   make a record of it that nobody appended.
//! * B7. The device has all of the ring that a header describes, durably. What is retained lies at the same bytes of the
//!   device by either of two headers of which a power cut may leave one.
//! * B8. Nothing was written to the ring since a header was that says `closed`: the log ends at its `durable`.
//!
//! What B2 relies on: rule D3 of [`lapis_pmem::block_device`], of which it needs that each *byte* of a
//! write which a power cut interrupts is one that was written there, no more. So a device whose unit of
//! atomicity is 512 bytes, 4 KiB or one byte is alike, and nothing has to be padded to a block, which
//! would make the log of small commits forty times as long. The header relies on 512 bytes: its copies
//! are written together and each lies in one sector, so each is old or new and whole.
//!
//! # Order of writes and flushes
//!
//! * Commit: write the batch, flush, then tell (B1, B3). A write or flush that fails is for good: nobody
//!   is told that anything is durable from then on, by D5 whatever comes after.
//! * Truncation: write both headers, flush, then let the space be used (B5). An interrupted one leaves
//!   the old start or the new one. It takes turns with commits, so that no two flushes run at a time: a
//!   kernel tells one of two of what it failed to write, perhaps not the one that waits for it.
//! * Growth: make the device longer, durably; write both headers, flush; then let the space be used (B7). It takes turns as
//!   truncation does, and is possible while all that is retained lies in one round: that goes on behind where the ring
//!   ended, instead of coming round.
//! * Closing: write both headers, flush; then make the device shorter, if nothing is retained and it may be: the
//!   stream then goes on at the next segment, with which the ring begins. Before the next
//!   batch is written, write both headers without `closed`, flush (B8).
//! * Opening, if the log was closed: read what is retained, no further. Nothing is written, nor flushed: before anything
//!   is, the headers are.
//! * Opening: read up to the first place where no record is. What no witness vouches for is written
//!   again as it is read, since a kernel that failed to write a page may go on showing it, and a batch from the end on
//!   is zeroed, whatever is read there (B3, B6). Write the headers, unless they say all that already. Flush, and only then use what
//!   was read.
//!
//! # End or damage
//!
//! The log ends where no record is. But if a witness behind that place says that it was durable (or the
//! header's `durable`, or any record so far behind it that B3 forbids), then the log is *damaged* there,
//! which is reported and not taken for the end. Damage to the last batch before a crash, or to the last
//! block, leaves no witness behind it and cannot be told from a batch that was not finished.
//!
//! # Why a ring of segments
//!
//! The storage of a ring is there before it is needed, so that a commit finds neither the disk full nor metadata to sync, and
//! written over it costs a sync of data alone. A ring that is as long as the setting that bounds recovery says, from
//! the first record on, makes small stores large; a file that grows with each batch syncs metadata with each. So the ring
//! grows by steps, while who would find it full may, and stays a whole ring when the disk is full: then it comes round at
//! the length that it has. Segments give records an end that they do not cross, so that each lies in one piece, and witnesses at
//! known places, so that an opening which looks for damage reads a block of each and not the whole ring.

mod batch;
mod commit;
mod error;
mod header;
mod length;
pub mod mutants;
mod reader;
mod record;
mod recovery;
mod reservation;
mod ring;
mod window;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis_pmem::host_lock::{self, HostGuard};
use lapis_pmem::{BlockBuffer, BlockDevice, BlockError, Domain, DramCell};
use parking_lot::{Condvar, Mutex, MutexGuard};

use batch::Batch;
use header::{Header, HeaderCopies};
use ring::Ring;

pub use commit::{Durability, Ticket};
pub use error::{BlockLogError, LogDamage};
pub use reader::Reader;
pub use record::{Lsn, Record};
pub use recovery::Recovery;
pub use reservation::Reservation;
pub use ring::BlockLogOptions;

/// What a log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLogStatistics {
    /// Calls of [`BlockLog::commit`].
    pub commits: u64,
    /// Batches that were written and synced.
    pub syncs: u64,
    /// Records that were appended.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes of the batches, in whole units of the device.
    pub written_bytes: u64,
    /// Times that the ring became longer.
    pub growths: u64,
}

/// A log on a block device, shared by threads. See the [module documentation](self).
pub struct BlockLog<D: Domain> {
    domain: D,
    device: Arc<dyn BlockDevice>,
    identity: u64,
    largest_payload_bytes: usize,
    most_capacity_bytes: u64,
    /// Bytes of the ring. Stored with the lock on `header`.
    capacity_bytes: AtomicU64,
    /// Where records that are not durable begin. Stored with the lock on `state`.
    durable: DramCell<u64, D>,
    /// Where the oldest retained record begins. Stored with the lock on `header`.
    start: DramCell<u64, D>,
    state: Mutex<State>,
    /// Notified when a batch has been written, or could not be.
    written: Condvar,
    /// Who writes headers takes turns.
    header: Mutex<HeaderCopies>,
    commits: AtomicU64,
    /// Half of a batch has been filled since somebody asked.
    half_full: AtomicBool,
}

/// What appending changes. The lock on it is held while a record is copied, and for nothing longer: the
/// checksum of the payload is known before, and writing has a buffer of its own. A copy takes as long
/// as the lock itself up to some hundred bytes; filling places side by side would need unsafe code and
/// a second pass over who is ready, and commits wait for a device that is a thousand times slower.
struct State {
    batch: Batch,
    /// The other buffer; none while somebody writes. Nobody else does then: of two flushes at a time,
    /// one may be told of the failure to write what the other one waits for.
    spare: Option<BlockBuffer>,
    /// Changes in the turn to write.
    ring: Ring,
    /// The header says so, or is about to (B8).
    closed: bool,
    /// Where the ring may be written up to.
    limit: u64,
    /// Bytes before `limit` that are promised to reservations.
    promised: u64,
    /// What ended the log.
    failure: Option<Arc<BlockError>>,
    statistics: BlockLogStatistics,
}

type Held<'a, D> = HostGuard<'a, D, MutexGuard<'a, State>>;

impl State {
    /// Whether half of a batch waits to be written.
    fn is_due(&self) -> bool {
        self.batch.end() - self.batch.first() > self.ring.batch_bytes() / 2
    }

    fn check_health(&self) -> Result<(), BlockLogError> {
        match &self.failure {
            Some(failure) => Err(BlockLogError::Failed(Arc::clone(failure))),
            None => Ok(()),
        }
    }
}

impl<D: Domain> fmt::Debug for BlockLog<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockLog(durable up to {})", self.durable())
    }
}

impl<D: Domain> BlockLog<D> {
    /// Lays out an empty log on all of the device, durably. What is on the device is lost.
    ///
    /// # Errors
    /// [`BlockLogError::Options`], [`BlockLogError::DeviceTooSmall`], [`BlockLogError::Device`].
    pub fn create(
        domain: D,
        device: Arc<dyn BlockDevice>,
        options: BlockLogOptions,
    ) -> Result<Self, BlockLogError> {
        let ring = Ring::new(options, device.capacity_blocks())?.in_units_of(device.unit_bytes());
        let header = Header { ring, sequence: 1, start: 0, durable: 0, closed: false };
        let mut copies = HeaderCopies::of(header);
        copies.write(&*device, header)?;
        let batch = Batch::at(0, ring.unit_bytes(), BlockBuffer::zeroed(ring.batch_blocks()));
        Ok(Self::over(domain, device, copies, batch))
    }

    /// Opens a log, after a crash or not. Who wants to read all of it besides takes
    /// [`Recovery::begin`].
    ///
    /// # Errors
    /// Those of [`Recovery`].
    pub fn open(domain: D, device: Arc<dyn BlockDevice>) -> Result<Self, BlockLogError> {
        Recovery::begin(domain, device)?.finish()
    }

    /// A log with durable contents up to the end of `batch`.
    fn over(domain: D, device: Arc<dyn BlockDevice>, header: HeaderCopies, batch: Batch) -> Self {
        let Header { ring, start, closed, .. } = header.header();
        let state = State {
            spare: Some(BlockBuffer::zeroed(ring.batch_blocks())),
            ring,
            closed,
            limit: ring.limit(start),
            promised: 0,
            failure: None,
            statistics: BlockLogStatistics::default(),
            batch,
        };
        Self {
            durable: DramCell::new(state.batch.end()),
            start: DramCell::new(start),
            state: Mutex::new(state),
            written: Condvar::new(),
            header: Mutex::new(header),
            commits: AtomicU64::new(0),
            half_full: AtomicBool::new(false),
            identity: ring.identity(),
            largest_payload_bytes: ring.largest_payload_bytes(),
            most_capacity_bytes: ring.most_bytes(),
            capacity_bytes: AtomicU64::new(ring.bytes()),
            domain,
            device,
        }
    }

    fn lock(&self) -> Held<'_, D> {
        host_lock::lock(&self.domain, &self.state)
    }

    /// The number that no other log has.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// The longest payload of a record.
    pub fn largest_payload_bytes(&self) -> usize {
        self.largest_payload_bytes
    }

    /// The position before which all is durable.
    pub fn durable(&self) -> Lsn {
        Lsn::from_number(self.durable.load_acquire(&self.domain))
    }

    /// Where the next record will be, or shortly before that.
    pub fn end(&self) -> Lsn {
        Lsn::from_number(self.lock().batch.end())
    }

    /// The position before which records were dropped.
    pub fn start(&self) -> Lsn {
        Lsn::from_number(self.start.load_acquire(&self.domain))
    }

    /// Bytes of the ring.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the ring may grow to.
    pub fn most_capacity_bytes(&self) -> u64 {
        self.most_capacity_bytes
    }

    /// What was done since the log was opened.
    pub fn statistics(&self) -> BlockLogStatistics {
        let commits = self.commits.load(Ordering::Relaxed);
        BlockLogStatistics { commits, ..self.lock().statistics }
    }

    /// Appends a record whose payload is `parts` end to end; `kind` means something to the caller
    /// alone. It is durable after [`BlockLog::commit`]; until then it is lost when the process ends.
    ///
    /// # Errors
    /// [`BlockLogError::RecordTooLarge`], [`BlockLogError::Full`]: nothing was appended.
    /// [`BlockLogError::Failed`].
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, BlockLogError> {
        self.append_promised(kind, parts, &mut 0)
    }

    /// [`BlockLog::append`], into `promise` bytes that were promised as far as they go.
    fn append_promised(
        &self,
        kind: u8,
        parts: &[&[u8]],
        promise: &mut u64,
    ) -> Result<Lsn, BlockLogError> {
        let length = parts.iter().map(|part| part.len()).sum();
        if length > self.largest_payload_bytes {
            let largest = self.largest_payload_bytes;
            return Err(BlockLogError::RecordTooLarge { bytes: length, largest });
        }
        let checksum = record::payload_checksum(self.identity, parts);
        let mut state = self.lock();
        loop {
            state.check_health()?;
            if state.closed {
                drop(state);
                self.reopen()?;
                state = self.lock();
                continue;
            }
            // Whatever is appended, a mark fits behind it: a commit never finds the log full.
            let end = state.ring.end_of(state.batch.end(), length) + ring::MARK_ROOM;
            let kept = Ring::room_for(1, length as u64).min(*promise);
            if end + state.promised - kept > state.limit {
                let free = state.limit.saturating_sub(state.batch.end() + state.promised);
                let capacity = state.ring.bytes();
                drop(state);
                if !self.grow_beyond(capacity)? {
                    return Err(BlockLogError::Full { bytes: length, free });
                }
                state = self.lock();
                continue;
            }
            if state.batch.has_room_until(end) {
                state.promised -= kept;
                *promise -= kept;
                break;
            }
            state = self.write_batch_or_wait(state);
        }
        let witness = self.durable.load(&self.domain);
        let ring = state.ring;
        let was_due = state.is_due();
        let lsn = state.batch.append(ring, witness, kind, parts, checksum);
        if !was_due && state.is_due() {
            self.half_full.store(true, Ordering::Relaxed);
        }
        state.statistics.records += 1;
        state.statistics.payload_bytes += length as u64;
        Ok(Lsn::from_number(lsn))
    }

    /// Drops the records before the one at `lsn`, so that their space can be used again. Durable on
    /// return; nothing happens if they are gone already.
    ///
    /// # Errors
    /// [`BlockLogError::NotDurable`], [`BlockLogError::NotARecord`]: nothing happened.
    /// [`BlockLogError::Device`]: a block could not be read. [`BlockLogError::Failed`].
    pub fn truncate_before(&self, lsn: Lsn) -> Result<(), BlockLogError> {
        let mut copies = host_lock::lock(&self.domain, &self.header);
        let (start, durable) = (lsn.number(), self.durable.load_acquire(&self.domain));
        let header = copies.header();
        if start > durable {
            return Err(BlockLogError::NotDurable { asked: lsn, durable: self.durable() });
        }
        if start <= header.start {
            return Ok(());
        }
        // Of a start that is none, the next opening could make nothing.
        if start < durable && !self.is_record_at(lsn)? {
            return Err(BlockLogError::NotARecord { asked: lsn });
        }
        self.domain.happens("records are dropped");
        let turn = self.wait_to_write()?;
        let next = Header { start, durable, ..header };
        let flushes = !self.domain.commits(mutants::REUSED_BEFORE_TRUNCATION);
        let mut state = self.write_header(&mut copies, turn, next, flushes)?;
        // Readers look at the start when they have read something (B5).
        self.start.store_release(&self.domain, start);
        state.limit = state.ring.limit(start);
        Ok(())
    }

    /// Writes another header, durably, and gives back the turn to write.
    fn write_header(
        &self,
        copies: &mut HeaderCopies,
        turn: BlockBuffer,
        header: Header,
        flushes: bool,
    ) -> Result<Held<'_, D>, BlockLogError> {
        let next = Header { sequence: header.sequence + 1, ..header };
        let outcome = match flushes {
            true => copies.write(&*self.device, next),
            false => copies.write_unflushed(&*self.device, next),
        };
        let mut state = self.give_back(turn);
        if let Err(error) = outcome {
            let failure = state.failure.get_or_insert_with(|| Arc::new(error));
            return Err(BlockLogError::Failed(Arc::clone(failure)));
        }
        Ok(state)
    }
}
