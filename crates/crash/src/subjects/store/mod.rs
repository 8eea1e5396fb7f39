//! The store: transactions over trees, with pages on a modelled SSD and in modelled persistent memory.

mod live;
mod operation;
mod site;
mod taken_back;

use std::collections::BTreeMap;

use lapis_device::Modelled;
use lapis_engine::{Engine, IndexKind, Placement};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

pub(crate) use live::EXPIRED;
pub use live::LiveStore;
pub use operation::{RollBack, StoreOperation, StoreState};
use operation::{
    TABLES, Write, canonical, extra_table, filling, key, loaded, loaded_table, restored, roll_back,
    stream, taken_back, write, writes,
};
pub use site::{SPITFIRE, TUNED_SPITFIRE};
pub(crate) use site::{Site, Tiers};

use crate::storage::Storage;
use crate::subject::{Subject, text};

/// What they are in, if they are in indexes: one that orders what was flushed before, and one that does not.
pub(crate) const KINDS: [IndexKind; 2] = [IndexKind::Wort, IndexKind::FastFair];
/// Blocks that a disk has which is often full: the journal of pages, the reserve, and not much more.
const FULL_DISK_BLOCKS: u64 = 120;
/// There, so many operations fill it, as many make room, and so on.
const FILLING: usize = 20;

/// The store, to check.
#[derive(Debug)]
pub struct StoreSubject {
    name: &'static str,
    tiers: Tiers,
    course: Course,
}

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Transactions.
    Transactions,
    /// The disk is filled again and again, and after a crash it has no room but what the store has.
    FullDisk,
    /// Loads, backups, compaction and values in pieces come between, and some removals are entries that expire.
    Bulk,
    /// The store is restored from a backup. Much of what is done is taken back: writes by savepoints, tables with their long
    /// values; and nothing of it may be left.
    TakenBack,
}

impl StoreSubject {
    /// With pages and log on SSDs.
    pub fn on_ssd(name: &'static str) -> Self {
        Self { name, tiers: Tiers::SSD, course: Course::Transactions }
    }

    /// With the log, and pages if the placement says so, in persistent memory.
    pub fn in_pool(name: &'static str, placement: Placement) -> Self {
        Self { name, tiers: Tiers::in_pool(placement), course: Course::Transactions }
    }

    /// With the log and tables in persistent memory.
    pub fn nvm_direct(name: &'static str) -> Self {
        Self { name, tiers: Tiers::NVM_DIRECT, course: Course::Transactions }
    }

    /// The same on a disk that is filled again and again, and after a crash has no room but what the store has.
    pub fn on_full_disk(self) -> Self {
        Self { course: Course::FullDisk, ..self }
    }

    /// The same with loads, backups and compaction.
    pub fn in_bulk(self) -> Self {
        Self { course: Course::Bulk, ..self }
    }

    /// The same, restored from a backup, and much of what is done to it is taken back.
    pub fn that_takes_back(self) -> Self {
        Self { course: Course::TakenBack, ..self }
    }

    /// An open store, as nothing has happened to it.
    fn live(&self, engine: Engine<Modelled>, site: Site) -> LiveStore {
        let Self { tiers, course, .. } = *self;
        let (engine, before) = (Some(engine), Vec::new());
        let (refused, was_refused, expired, streamed) = (0, false, 0, 0);
        let taken_back = Default::default();
        LiveStore {
            engine,
            site,
            tiers,
            course,
            before,
            refused,
            was_refused,
            expired,
            streamed,
            taken_back,
        }
    }
}

impl Subject for StoreSubject {
    type Operation = StoreOperation;
    type State = StoreState;
    type Live = LiveStore;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        self.tiers.pool_bytes()
    }

    fn device_blocks(&self) -> Vec<u64> {
        self.tiers.device_blocks()
    }

    fn most_blocks(&self, after_crash: bool) -> Vec<u64> {
        let of_pages = if after_crash { 0 } else { FULL_DISK_BLOCKS };
        if self.course == Course::FullDisk { vec![of_pages] } else { Vec::new() }
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<StoreOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        if self.course == Course::TakenBack {
            let all = std::iter::repeat_with(|| taken_back(&mut random));
            return all.flatten().take(count).collect();
        }
        (0..count)
            .map(|at| match random.random_range(0..40) {
                0 => StoreOperation::CreateTable(random.random_range(0..3)),
                1 => StoreOperation::DropTable(random.random_range(0..3)),
                2 => StoreOperation::Abort(writes(&mut random)),
                3..=6 => StoreOperation::Maintain,
                7 | 8 => StoreOperation::Checkpoint,
                9 => StoreOperation::Reopen,
                10 if self.course != Course::Transactions => StoreOperation::Compact,
                11..=15 if self.course == Course::Bulk => {
                    StoreOperation::LoadOrDrop(random.random_range(0..3))
                }
                16..=18 if self.course == Course::Bulk => {
                    StoreOperation::BackUp(write(&mut random))
                }
                19 | 20 if self.course == Course::Bulk => {
                    StoreOperation::Stream(stream(&mut random))
                }
                21 | 22 if self.course == Course::Bulk => StoreOperation::RemoveExpired,
                _ if self.course == Course::FullDisk => {
                    let fills = (at / FILLING).is_multiple_of(2);
                    StoreOperation::Commit(filling(writes(&mut random), fills))
                }
                _ => StoreOperation::Commit(writes(&mut random)),
            })
            .collect()
    }

    fn probes(
        &self,
        _: &StoreState,
        interrupted: Option<&StoreOperation>,
        seed: u64,
    ) -> Vec<StoreOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut probes: Vec<_> = interrupted.cloned().into_iter().collect();
        probes.push(StoreOperation::Commit((0..4).map(|_| write(&mut random)).collect()));
        probes.push(match random.random_range(0..4) {
            0 if self.course == Course::TakenBack => StoreOperation::Settle,
            1 if self.course == Course::TakenBack => {
                StoreOperation::RollBack(roll_back(&mut random))
            }
            0 => StoreOperation::CreateTable(random.random_range(0..3)),
            1 => StoreOperation::Checkpoint,
            2 => StoreOperation::Reopen,
            _ => StoreOperation::Maintain,
        });
        probes.push(StoreOperation::Commit(vec![write(&mut random)]));
        if self.course == Course::FullDisk {
            let removed = (0..4).map(|_| write(&mut random)).collect();
            probes.push(StoreOperation::Commit(filling(removed, false)));
        }
        probes
    }

    fn create(&self, storage: Storage) -> Result<LiveStore, String> {
        let site = Site::new(storage, self.tiers)?;
        let engine = site.create()?;
        if self.course == Course::TakenBack {
            taken_back::restore_first(&site, &engine)?;
            return Ok(self.live(engine, site));
        }
        for (name, kind) in TABLES.into_iter().zip(KINDS) {
            self.tiers.create_table(&engine, name, kind).map_err(text)?;
        }
        Ok(self.live(engine, site))
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveStore>, String> {
        let site = Site::new(storage, self.tiers)?;
        let Some(engine) = site.open()? else { return Ok(None) };
        if self.course == Course::TakenBack && taken_back::is_cut_short(&engine) {
            return Err("what a restore that was cut short has left can be opened (K3)".to_owned());
        }
        // Creation ends with the last of the tables.
        let whole = TABLES.iter().all(|name| engine.table(name).is_ok());
        Ok(whole.then(|| self.live(engine, site)))
    }

    fn initial(&self) -> StoreState {
        if self.course == Course::TakenBack {
            return restored();
        }
        TABLES.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect()
    }

    fn apply(&self, state: &mut StoreState, operation: &StoreOperation) {
        let mut write = |(table, number, value): &Write| {
            let table = state.entry(TABLES[*table].to_owned()).or_default();
            match value {
                Some(value) => table.insert(key(*number), canonical(*value)),
                None => table.remove(&key(*number)),
            };
        };
        match operation {
            StoreOperation::Commit(writes) | StoreOperation::CommitBesideReader(writes) => {
                writes.iter().for_each(write);
            }
            StoreOperation::RollBack(RollBack { kept, last, .. }) => {
                kept.iter().chain(last).for_each(write);
            }
            StoreOperation::BackUp(one)
            | StoreOperation::Stream(one)
            | StoreOperation::Restore(one) => write(one),
            StoreOperation::Fill(number, loaded_into) => {
                let table = state.entry(extra_table(*number)).or_default();
                table.extend(loaded(*loaded_into));
            }
            StoreOperation::LoadOrDrop(number) => {
                let name = loaded_table(*number);
                if state.remove(&name).is_none() {
                    state.insert(name, loaded(*number));
                }
            }
            StoreOperation::CreateTable(number) => {
                let table = state.entry(extra_table(*number)).or_default();
                table.entry(b"first".to_vec()).or_insert((1, 1));
            }
            StoreOperation::DropTable(number) | StoreOperation::DropBeside(number, _) => {
                state.remove(&extra_table(*number));
            }
            StoreOperation::Abort(_)
            | StoreOperation::Maintain
            | StoreOperation::Checkpoint
            | StoreOperation::Reopen
            | StoreOperation::Settle
            | StoreOperation::RemoveExpired
            | StoreOperation::Compact => {}
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        let full_disk = self.course == Course::FullDisk;
        let promises = full_disk && file.contains("buffer/src/space/promise.rs");
        promises || file.contains("engine/src")
    }
}
