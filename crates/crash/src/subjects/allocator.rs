//! The allocator and the pool: a directory of blocks of all sizes.

use std::collections::BTreeMap;
use std::ops::Range;

use lapis_device::Modelled;
use lapis_pmem::{AuditReport, EXTENT_BYTES, Link, PCell, Pool, Slot, persistent};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Kills, Live, Subject, text};

const ROOT: &str = "directory";
const SLOTS: usize = 64;
const POOL_BYTES: usize = 16 << 20;

persistent! {
    /// A block of the directory: how long it is, and a number that its tail repeats.
    ///
    /// D1. A block that a slot refers to is durable, tail and all.
    pub struct Entry: 16 {
        tail_bytes: PCell<u64>,
        number: PCell<u64>,
    }
}

persistent! {
    /// The directory.
    pub struct Directory: 512 {
        slots: [Slot<Entry>; 64],
    }
}

/// An operation on the directory.
#[derive(Clone, Debug)]
pub enum AllocatorOperation {
    /// Allocates a block, fills it and hangs it into a slot; what was there is freed.
    Replace {
        /// Which slot.
        slot: usize,
        /// Bytes behind the head.
        tail_bytes: usize,
        /// The number.
        number: u64,
    },
    /// Empties a slot and frees the block.
    Free {
        /// Which slot.
        slot: usize,
    },
    /// A reader pins, and stays until the pool is closed: what is freed meanwhile waits until then.
    Pin,
    /// Asks for more than there can be, and is refused: before that, what threads keep at hand goes back to the slabs.
    AskTooMuch,
}

/// The allocator, to check.
#[derive(Debug)]
pub struct AllocatorSubject {
    name: &'static str,
    prior_contents: u8,
    created_bytes: usize,
    draws: Draws,
    asks_too_much: bool,
}

/// From what operations are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draws {
    /// Blocks of all sizes.
    All,
    /// Large blocks and large slabs.
    Runs,
    /// The same, behind one block that takes nearly all of the first table of chunks.
    RunsInSecondTable,
}

/// Slots that runs of chunks are drawn for: so few that runs are freed and divided anew all the time.
const RUN_SLOTS: usize = 10;
/// Operations on runs that are tried after a recovery.
const RUN_PROBES: usize = 12;
/// Of runs, so many operations are of one kind: as many as there are between a shutdown and the next.
const PHASE: usize = 61;
/// Behind so many operations one asks for too much.
const ASKING_EVERY: usize = 5;
/// So many operations before a shutdown a reader pins.
const PINNED: usize = 10;
/// Chunks that the first table names, and those that the second one takes.
const FIRST_TABLE_CHUNKS: usize = 7680;
const SECOND_TABLE_CHUNKS: usize = 128;
/// Chunks that a pool has behind that, and that are left before it: fewer than the high-water mark is moved ahead by.
const CHUNKS_BEHIND: usize = 400;
const CHUNKS_BEFORE: usize = 8;
/// Runs are of so many chunks at most: more than the descriptors of a line.
const LONGEST_RUN: usize = 14;

impl AllocatorSubject {
    /// On a device that holds something, or in a file of zeroes.
    pub fn new(name: &'static str, prior_contents: u8) -> Self {
        let (created_bytes, draws) = (POOL_BYTES, Draws::All);
        Self { name, prior_contents, created_bytes, draws, asks_too_much: false }
    }

    /// With operations between that ask for more than there can be.
    #[must_use]
    pub fn asking_too_much(self) -> Self {
        Self { asks_too_much: true, ..self }
    }

    /// In a file that is small at first and grows, during operations and after recoveries.
    #[must_use]
    pub fn growing(self) -> Self {
        Self { created_bytes: 8 * EXTENT_BYTES, ..self }
    }
}

impl AllocatorSubject {
    /// With large blocks and large slabs alone: descriptors lie where runs were divided otherwise before.
    #[must_use]
    pub fn of_runs(self) -> Self {
        Self { draws: Draws::Runs, ..self }
    }

    /// Where there are more chunks than one table names, on a device that holds something where the next one comes.
    #[must_use]
    pub fn of_two_tables(self) -> Self {
        let chunks = FIRST_TABLE_CHUNKS + SECOND_TABLE_CHUNKS + CHUNKS_BEHIND;
        Self { draws: Draws::RunsInSecondTable, created_bytes: chunks * EXTENT_BYTES, ..self }
    }

    fn run_operation(random: &mut SmallRng) -> AllocatorOperation {
        let slot = random.random_range(1..=RUN_SLOTS);
        let tail_bytes = match random.random_range(0..10) {
            0..=2 => return AllocatorOperation::Free { slot },
            // A slab of several chunks for one block.
            3..=5 => random.random_range(28_000..32_000),
            _ => random.random_range(1..=LONGEST_RUN) * EXTENT_BYTES - 100,
        };
        AllocatorOperation::Replace { slot, tail_bytes, number: random.random() }
    }

    fn short_run_operation(random: &mut SmallRng) -> AllocatorOperation {
        let slot = random.random_range(1..=RUN_SLOTS);
        if random.random_range(0..5) < 2 {
            return AllocatorOperation::Free { slot };
        }
        let tail_bytes = random.random_range(1..=3) * EXTENT_BYTES - 100;
        AllocatorOperation::Replace { slot, tail_bytes, number: random.random() }
    }

    /// Slabs alone, then removals alone, so that slabs become empty, of which some were not looked at since the pool
    /// was opened; then all that there is.
    fn run_operations(count: usize, random: &mut SmallRng) -> Vec<AllocatorOperation> {
        let slab = |random: &mut SmallRng| AllocatorOperation::Replace {
            slot: random.random_range(1..SLOTS),
            tail_bytes: random.random_range(28_000..32_000),
            number: random.random(),
        };
        // The first operation has number 1.
        let operation = |index: usize| match (index + 1) / PHASE % 4 {
            1 => slab(&mut *random),
            2 => AllocatorOperation::Free { slot: index % PHASE + 1 },
            _ => Self::run_operation(&mut *random),
        };
        (0..count).map(operation).collect()
    }
}

/// An open directory.
#[derive(Debug)]
pub struct LiveDirectory {
    pool: Pool<Modelled>,
    root: Link<Directory>,
}

impl Subject for AllocatorSubject {
    type Operation = AllocatorOperation;
    /// Slot to tail length and number.
    type State = BTreeMap<usize, (usize, u64)>;
    type Live = LiveDirectory;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        self.created_bytes.max(POOL_BYTES)
    }

    fn created_bytes(&self) -> usize {
        self.created_bytes
    }

    fn prior_contents(&self) -> u8 {
        self.prior_contents
    }

    fn prior_range(&self) -> Range<usize> {
        let table = FIRST_TABLE_CHUNKS..FIRST_TABLE_CHUNKS + SECOND_TABLE_CHUNKS;
        match self.draws {
            Draws::RunsInSecondTable => table.start * EXTENT_BYTES..table.end * EXTENT_BYTES,
            _ => 0..self.created_bytes,
        }
    }

    fn first_operation(&self) -> usize {
        // It takes much memory, and some seconds.
        if self.draws == Draws::RunsInSecondTable { 2 } else { 0 }
    }

    fn kills(&self) -> Kills {
        if self.draws == Draws::All { Kills::WrittenBack } else { Kills::Untried }
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<AllocatorOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        match self.draws {
            Draws::All => {}
            Draws::Runs => return Self::run_operations(count, &mut random),
            Draws::RunsInSecondTable => {
                let chunks = FIRST_TABLE_CHUNKS - CHUNKS_BEFORE;
                let tail_bytes = chunks * EXTENT_BYTES - 100;
                let first = AllocatorOperation::Replace { slot: 0, tail_bytes, number: 0 };
                let drawn = (1..count).map(|_| Self::run_operation(&mut random));
                return std::iter::once(first).chain(drawn).collect();
            }
        }
        (0..count)
            .map(|index| {
                if self.asks_too_much && (index + 1) % ASKING_EVERY == 0 {
                    return AllocatorOperation::AskTooMuch;
                }
                if (index + 1) % PHASE == PHASE - PINNED {
                    return AllocatorOperation::Pin;
                }
                let slot = random.random_range(0..SLOTS);
                match random.random_range(0..10) {
                    0..=2 => AllocatorOperation::Free { slot },
                    3 => AllocatorOperation::Replace {
                        slot,
                        tail_bytes: random.random_range(0..6) * 60_000,
                        number: random.random(),
                    },
                    // Slabs of several chunks.
                    4..=6 => AllocatorOperation::Replace {
                        slot,
                        tail_bytes: random.random_range(5000..32_000),
                        number: random.random(),
                    },
                    _ => AllocatorOperation::Replace {
                        slot,
                        tail_bytes: random.random_range(0..5000),
                        number: random.random(),
                    },
                }
            })
            .collect()
    }

    fn probes(
        &self,
        _: &Self::State,
        interrupted: Option<&AllocatorOperation>,
        seed: u64,
    ) -> Vec<AllocatorOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut probes: Vec<_> = interrupted.cloned().into_iter().collect();
        if self.draws != Draws::All {
            // What reclaiming has made free is divided otherwise, and freed again.
            probes.extend((0..RUN_PROBES).map(|_| Self::short_run_operation(&mut random)));
            return probes;
        }
        probes.extend(random.random::<bool>().then_some(AllocatorOperation::Pin));
        for _ in 0..3 {
            let slot = random.random_range(0..SLOTS);
            let tail_bytes = [100, 4000, 20_000, 70_000][random.random_range(0..4)];
            probes.push(AllocatorOperation::Replace { slot, tail_bytes, number: random.random() });
        }
        probes.extend(self.asks_too_much.then_some(AllocatorOperation::AskTooMuch));
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveDirectory, String> {
        let pool = storage.into_pool();
        let mut directory = pool.allocate::<Directory>().map_err(text)?;
        directory.zero();
        let directory = pool.fence(directory.flush());
        let root = directory.link();
        let _committed = pool.publish_root(ROOT, 0, directory).map_err(text)?.persist();
        Ok(LiveDirectory { pool, root })
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveDirectory>, String> {
        let pool = storage.into_pool();
        let Some(root) = pool.root(ROOT) else { return Ok(None) };
        Ok(Some(LiveDirectory { pool, root }))
    }

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &mut Self::State, operation: &AllocatorOperation) {
        match *operation {
            AllocatorOperation::Replace { slot, tail_bytes, number } => {
                state.insert(slot, (tail_bytes, number));
            }
            AllocatorOperation::Free { slot } => {
                state.remove(&slot);
            }
            AllocatorOperation::Pin | AllocatorOperation::AskTooMuch => {}
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("pmem/src/allocator") || file.contains("pmem/src/pool/")
    }
}

impl LiveDirectory {
    fn slots(&self) -> &[Slot<Entry>; SLOTS] {
        &self.pool.at(self.root).slots
    }

    fn block_bytes(&self, entry: Link<Entry>) -> usize {
        16 + self.pool.at(entry).tail_bytes.load(self.pool.domain()) as usize
    }
}

impl LiveDirectory {
    /// Performs an operation on a slot that nobody else changes meanwhile.
    pub(crate) fn perform_alone(&self, operation: &AllocatorOperation) -> Result<(), String> {
        let (pool, domain) = (&self.pool, self.pool.domain());
        let guard = pool.pin();
        let (slot, block) = match *operation {
            AllocatorOperation::Pin => {
                std::mem::forget(guard);
                return Ok(());
            }
            AllocatorOperation::AskTooMuch => {
                let refused = pool.allocate_with_tail::<Entry>(pool.region().reserved_bytes());
                let is_had = refused.is_ok();
                return if is_had { Err("more was had than there is".into()) } else { Ok(()) };
            }
            AllocatorOperation::Free { slot } => (slot, None),
            AllocatorOperation::Replace { slot, tail_bytes, number } => {
                let mut block = pool.allocate_with_tail::<Entry>(tail_bytes).map_err(text)?;
                block.tail_bytes.store(domain, tail_bytes as u64);
                block.number.store(domain, number);
                // Only the ends of a long tail: they are what a neighbour would overwrite.
                let ends = tail_bytes.min(40);
                block.write_tail(0, &vec![number as u8; ends]);
                block.write_tail(tail_bytes - ends, &vec![number as u8; ends]);
                (slot, Some(pool.fence(block.flush())))
            }
        };
        let slot = &self.slots()[slot];
        let old = slot.load(domain);
        let visible = match block {
            Some(block) => slot.publish_exclusive(block),
            None => slot.redirect(domain, Link::NULL),
        };
        let unlinked = visible.persist();
        if !old.is_null() {
            pool.retire(old, self.block_bytes(old), unlinked, &guard);
        }
        Ok(())
    }
}

impl Live<AllocatorOperation, BTreeMap<usize, (usize, u64)>> for LiveDirectory {
    fn perform(&mut self, operation: &AllocatorOperation) -> Result<(), String> {
        self.perform_alone(operation)
    }

    fn observe(&self) -> Result<BTreeMap<usize, (usize, u64)>, String> {
        let (pool, domain) = (&self.pool, self.pool.domain());
        let mut state = BTreeMap::new();
        for (slot, link) in self.slots().iter().enumerate() {
            let link = link.load(domain);
            if link.is_null() {
                continue;
            }
            let entry = pool.try_at(link).ok_or("a slot leads outside the pool")?;
            let tail_bytes = entry.tail_bytes.load(domain) as usize;
            let number = entry.number.load(domain);
            // The ends alone: long blocks are longer than all that is looked at in a state besides.
            let ends = tail_bytes.min(40);
            let last =
                Link::<Entry>::from_bits(link.offset().saturating_add((tail_bytes - ends) as u64));
            let right = Some(&[number as u8; 40][..ends]);
            let [head, back] = [link, last].map(|link| pool.try_tail(link, ends));
            if back.is_none() {
                return Err("a block ends outside the pool".into());
            }
            if head != right || back != right {
                return Err(format!("the block in slot {slot} holds something else"));
            }
            state.insert(slot, (tail_bytes, number));
        }
        Ok(state)
    }

    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let reachable = self.pool.reachable(|visitor| {
            visitor.visit(self.root, size_of::<Directory>());
            for slot in self.slots() {
                let link = slot.load(self.pool.domain());
                if !link.is_null() {
                    visitor.visit(link, self.block_bytes(link));
                }
            }
        });
        self.pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(&self.pool)
    }
}
