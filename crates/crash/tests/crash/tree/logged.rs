//! A tree with its log, as a store has them: changes are appended, applied, and then made durable; recovery
//! redoes structure records and then replays changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lapis_blocks::block_log::{
    BlockLog, BlockLogError, BlockLogOptions, Durability, Lsn, Recovery,
};
use lapis_buffer::{
    BufferError, BufferManager, BufferOptions, LogError, PageNumber, PersistentTier, Placement,
    SpaceError, SpaceOptions, TierOptions, TierRoot, WriteAheadLog,
};
use lapis_crash::{Modelled, Storage};
use lapis_pmem::{AuditReport, Committed, host_lock};
use lapis_tree::{CompactionPlace, Finding, LeafLayout, Redo, StructureLog, Tree};
use parking_lot::Mutex;

use super::text;

/// Key to what made its value.
pub(super) type State = BTreeMap<u64, u64>;

const STRUCTURE: u8 = 1;
const PUT: u8 = 2;
const REMOVE: u8 = 3;
const ROOT: PageNumber = PageNumber::FIRST;
const SPACE: SpaceOptions = SpaceOptions { page_bytes: 4096, batch_pages: 6 };
const LOG: BlockLogOptions =
    BlockLogOptions { segment_bytes: 32_768, batch_bytes: 32_768, ..BlockLogOptions::new(0x7EE) };
/// Where there is a pool, it has some of the pages.
const TIER: TierOptions = TierOptions { frames: 5, page_bytes: 4096, lanes: 2, identity: 0x7EE };
const TIER_ROOT: &str = "tier";
/// Of the log and of the pages.
pub(super) const BLOCKS: [u64; 2] = [2 + 4 * 8, 1];
/// The log is cut before it is so full.
const MOST_LOG_BYTES: u64 = 40_000;
/// Each has two pages in the log.
const MOST_MOVES: usize = 4;

#[derive(Debug)]
pub(super) struct Wal(BlockLog<Modelled>);

impl StructureLog for Wal {
    fn append(&self, parts: &[&[u8]]) -> Result<u64, LogError> {
        let appended = self.0.append(STRUCTURE, parts);
        appended.map(Lsn::number).map_err(|error| LogError { reason: error.to_string() })
    }
}

impl WriteAheadLog for Wal {
    fn flushed_lsn(&self) -> u64 {
        // A record that begins before it is durable.
        self.0.durable().number().saturating_sub(1)
    }

    fn flush_to(&self, lsn: u64) -> Result<(), LogError> {
        let committed = self.0.commit(Lsn::from_number(lsn), Durability::Immediate);
        committed.map(|_| ()).map_err(|error| LogError { reason: error.to_string() })
    }
}

pub(super) struct LiveTree {
    log: Arc<Wal>,
    machine: Modelled,
    pub(super) manager: Arc<BufferManager<Modelled>>,
    pub(super) tree: Tree<Modelled, Arc<Wal>>,
    /// Records that are appended and not applied yet, by LSN.
    ahead: Mutex<BTreeSet<u64>>,
}

/// Some keys are short; some have much in common, and are told apart in the end.
fn key(number: u64) -> Vec<u8> {
    match number % 4 {
        3 => [&[b'z'; 150][..], &number.to_be_bytes()].concat(),
        _ => number.to_be_bytes().to_vec(),
    }
}

fn value(made_from: u64) -> Vec<u8> {
    made_from.to_le_bytes().repeat(60 + made_from as usize % 40)
}

impl LiveTree {
    pub(super) fn create(storage: Storage, frames: usize) -> Result<Self, String> {
        let [pages, log]: [_; 2] = devices(&storage)?;
        let log = BlockLog::create(storage.machine.clone(), log, LOG).map_err(text)?;
        let (machine, log) = (storage.machine, Arc::new(Wal(log)));
        let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
        let made = match storage.pool.map(Arc::new) {
            None => BufferManager::create(machine.clone(), pages, hook, &options(frames)),
            Some(pool) => {
                let tier = pool.fence(PersistentTier::create(&pool, &TIER).map_err(text)?);
                let root = tier.link();
                let _: Committed = pool.publish_root(TIER_ROOT, 0, tier).map_err(text)?.persist();
                let tier = PersistentTier::open(Arc::clone(&pool), root).map_err(text)?;
                let (options, placement) = (options(frames), Placement::ThreeTier);
                BufferManager::create_with_tier(tier, pages, hook, &options, placement)
            }
        };
        let manager = Arc::new(made.map_err(text)?);
        // Of lines, hashed leaves change others.
        let leaves = match manager.tier() {
            Some(_) => LeafLayout::Hashed,
            None => LeafLayout::Sorted,
        };
        let tree = Tree::create_with(Arc::clone(&manager), Arc::clone(&log), leaves);
        let tree = tree.map_err(text)?;
        log.0.sync().map_err(text)?;
        Ok(Self { log, machine, manager, tree, ahead: Mutex::default() })
    }

    /// None if it was never created.
    pub(super) fn open(storage: Storage, frames: usize) -> Result<Option<Self>, String> {
        let [pages, log]: [_; 2] = devices(&storage)?;
        let machine = storage.machine;
        let mut recovery = match Recovery::begin(machine.clone(), log) {
            Ok(recovery) => recovery,
            Err(BlockLogError::NotALog) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut records = Vec::new();
        while let Some(record) = recovery.next_record().map_err(text)? {
            records.push((record.lsn.number(), record.kind, record.payload.to_vec()));
        }
        let log = Arc::new(Wal(recovery.finish().map_err(text)?));
        let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
        let opened = match storage.pool {
            None => BufferManager::open(machine.clone(), pages, hook, &options(frames)),
            Some(pool) => {
                let Some(root) = pool.root::<TierRoot>(TIER_ROOT) else { return Ok(None) };
                let tier = PersistentTier::open(Arc::new(pool), root).map_err(text)?;
                let (options, placement) = (options(frames), Placement::ThreeTier);
                BufferManager::open_with_tier(tier, pages, hook, &options, placement)
            }
        };
        let manager = match opened {
            Ok(manager) => Arc::new(manager),
            Err(BufferError::Space(SpaceError::NotASpace { .. })) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut redo = Redo::default();
        for (lsn, kind, payload) in &records {
            if *kind == STRUCTURE {
                redo.record(&manager, payload, *lsn).map_err(text)?;
            }
        }
        redo.end().map_err(text)?;
        match manager.fix_exclusive(ROOT) {
            Ok(_) => {}
            Err(BufferError::Space(SpaceError::NotInUse { .. })) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
        let tree = Tree::open(Arc::clone(&manager), Arc::clone(&log), ROOT);
        let live = Self { log, machine, manager, tree, ahead: Mutex::default() };
        let problems = live.problems_of_tree();
        if !problems.is_empty() {
            return Err(format!("after pass 1: {}", problems.join("; ")));
        }
        for (lsn, kind, payload) in &records {
            let word =
                |at: usize| payload[at..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
            match *kind {
                PUT => live.tree.put(&key(word(0)), &value(word(8)), *lsn, None).map_err(text)?,
                REMOVE => _ = live.tree.remove(&key(word(0)), *lsn, None).map_err(text)?,
                _ => {}
            }
        }
        Ok(Some(live))
    }

    pub(super) fn audit(&self) -> AuditReport {
        let Some(tier) = self.manager.tier() else { return AuditReport::default() };
        let reachable = tier.pool().reachable(|visitor| tier.visit_blocks(visitor));
        if tier.pool().needs_reclaim() {
            tier.pool().reclaim(&reachable);
        }
        tier.pool().audit(&reachable)
    }

    pub(super) fn machine(&self) -> &Modelled {
        &self.machine
    }

    /// Appends a record, and notes that it is to be applied.
    fn begin(&self, kind: u8, words: &[u64]) -> Result<u64, String> {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut ahead = host_lock::lock(&self.machine, &self.ahead);
        let lsn = self.log.0.append(kind, &[&payload]).map_err(text)?.number();
        ahead.insert(lsn);
        Ok(lsn)
    }

    fn end(&self, lsn: u64) {
        host_lock::lock(&self.machine, &self.ahead).remove(&lsn);
    }

    /// Makes durable what was appended.
    pub(super) fn sync(&self) -> Result<(), String> {
        self.log.0.sync().map_err(text)
    }

    pub(super) fn put(&self, number: u64, made_from: u64) -> Result<(), String> {
        let lsn = self.begin(PUT, &[number, made_from])?;
        self.tree.put(&key(number), &value(made_from), lsn, None).map_err(text)?;
        self.end(lsn);
        self.finish()
    }

    pub(super) fn remove(&self, number: u64) -> Result<bool, String> {
        let lsn = self.begin(REMOVE, &[number])?;
        let removed = self.tree.remove(&key(number), lsn, None).map_err(text)?;
        self.end(lsn);
        self.finish().map(|()| removed)
    }

    fn finish(&self) -> Result<(), String> {
        self.sync()?;
        if self.log.0.end().number() - self.log.0.start().number() > MOST_LOG_BYTES {
            self.manager.write_all().map_err(text)?;
            self.cut_log()?;
        }
        Ok(())
    }

    /// Drops what recovery does not need of the log.
    pub(super) fn cut_log(&self) -> Result<(), String> {
        // Records begin there; a change that is not applied is before it.
        let marker = self.begin(0, &[])?;
        let ahead = host_lock::lock(&self.machine, &self.ahead).first().copied();
        let oldest = self.manager.oldest_change();
        self.end(marker);
        self.sync()?;
        let start = ahead.unwrap_or(marker).min(oldest.unwrap_or(marker)).min(marker);
        self.log.0.truncate_before(Lsn::from_number(start)).map_err(text)
    }

    /// Moves some pages to the front, and gives the end back.
    pub(super) fn compact(&self) -> Result<(), String> {
        self.cut_log()?;
        let space = self.manager.space().ok_or("there is no SSD")?;
        // Where pages may go to.
        space.write_freed(self.log.flushed_lsn()).map_err(text)?;
        let highest = PageNumber::new(space.used_pages()).ok_or("there are no pages")?;
        let mut place = CompactionPlace::default();
        for _ in 0..MOST_MOVES {
            if !self.tree.move_one_page(highest, &mut place).map_err(text)? {
                break;
            }
        }
        self.sync()?;
        space.write_freed(self.log.flushed_lsn()).map_err(text)?;
        space.trim().map(|_| ()).map_err(text)
    }

    pub(super) fn get(&self, number: u64) -> Result<Option<u64>, String> {
        let mut found = Vec::new();
        match self.tree.get(&key(number), &mut found).map_err(text)? {
            true => made_from(&found).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn contents(&self) -> Result<State, String> {
        let (mut cursor, mut state) = (self.tree.cursor(), State::new());
        while let Some((found, value)) = cursor.next().map_err(text)? {
            let number = found.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            if key(number) != found {
                return Err(format!("a key of {} bytes is none of ours", found.len()));
            }
            state.insert(number, made_from(value)?);
        }
        Ok(state)
    }

    fn problems_of_tree(&self) -> Vec<String> {
        let mut problems = Vec::new();
        self.tree.check(&mut |finding| {
            if let Finding::Problem { page, what } = finding {
                problems.push(format!("page {page}: {what}"));
            }
        });
        problems
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let (mut problems, mut pages) = (Vec::new(), BTreeSet::new());
        self.tree.check(&mut |finding| match finding {
            Finding::Page(page) => _ = pages.insert(page),
            Finding::Problem { page, what } => problems.push(format!("page {page}: {what}")),
        });
        let Some(space) = self.manager.space() else { return vec!["there is no SSD".to_owned()] };
        problems.extend(space.check().into_iter().map(|problem| format!("{problem:?}")));
        let orphans = space.numbers().into_iter().filter(|page| !pages.contains(page));
        problems.extend(orphans.map(|page| format!("page {page} is nobody's")));
        problems
    }
}

fn made_from(value: &[u8]) -> Result<u64, String> {
    let made_from = value.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    match self::value(made_from) == value {
        true => Ok(made_from),
        false => Err(format!("a value of {} bytes is half of one", value.len())),
    }
}

fn options(frames: usize) -> BufferOptions {
    let most_changed_frames = frames / 2;
    BufferOptions { frames, mini_frames: 2, most_changed_frames, swizzling: true, space: SPACE }
}

type Device = Arc<dyn lapis_pmem::BlockDevice>;

/// The devices of the pages and of the log.
fn devices(storage: &Storage) -> Result<[Device; 2], String> {
    match &storage.devices[..] {
        [log, pages] => Ok([Arc::new(pages.clone()), Arc::new(log.clone())]),
        _ => Err("there are not two SSDs".to_owned()),
    }
}
