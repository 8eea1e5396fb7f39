//! Pages in four frames, and two mini frames, over an SSD, or over three frames of persistent memory and an SSD, with a redo log in
//! persistent memory that is durable when it is told to be.
//!
//! A directory page refers to a page for each slot. A change appends its record to the log and then
//! changes pages; before it is acknowledged the log is made durable. A checkpoint notes where redo
//! begins. Recovery repeats the records from there on that pages do not have yet, by their LSNs; a
//! record says which LSN its page had before, so that a change is never repeated on another base.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_buffer::mutants::{
    CHANGED_PAGE_IN_PM_DROPPED, DIRTY_LINE_DROPPED, DIRTY_LINE_LOST_IN_PROMOTION, PAGE_BEFORE_LOG,
    STALE_PAGE_ADMITTED, STALE_PAGE_LEFT_IN_PM, STALE_PAGE_OUTLIVES_NUMBER,
    SWIZZLED_REFERENCE_WRITTEN, TORN_PAGE_IN_PM,
};
use lapis_buffer::{
    BufferError, BufferManager, BufferOptions, ExclusivePage, LogError, PageKind, PageNumber,
    PersistentTier, Placement, SpaceError, Statistics, TierOptions, TierRoot, WriteAheadLog,
};
use lapis_crash::{
    ExploreOptions, ExploreReport, Live, Modelled, Storage, Strategy, Subject, explore,
};
use lapis_device::{Config, ModelledSsd, SsdConfig};
use lapis_pmem::{
    AuditReport, BlockDevice, Domain, Link, Mutant, Observed, PCell, Pool, Region, host_lock,
};
use parking_lot::Mutex;

use super::{SPACE, number, text};

pub(super) const SLOTS: usize = 8;
const ROOT: &str = "log";
const TIER_ROOT: &str = "tier";
/// Records there is room for.
const RECORDS: usize = 128;
const REFERENCES: usize = 64;
/// Where a page says whose it is and what it holds: in three of its sectors, or in more lines than a mini frame has.
const COPIES: [usize; 3] = [32, 2000, 4000];
const MANY_COPIES: usize = 20;

const OPTIONS: BufferOptions = BufferOptions {
    frames: 4,
    mini_frames: 2,
    most_changed_frames: 2,
    swizzling: true,
    space: SPACE,
};

const TIER: TierOptions = TierOptions { frames: 3, page_bytes: 4096, lanes: 1, identity: 7 };

/// A record: its LSN, which is stored last, then what, slot, page, value and the page's LSN before.
type Record = [PCell<u64>; 8];
/// Behind the records, in the first word, where redo begins.
type Records = [Record; RECORDS + 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Insert,
    Update,
    Remove,
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Put(usize, u64),
    Remove(usize),
    WriteBack,
    Checkpoint,
    Close,
}

/// The log in the pool.
#[derive(Debug)]
struct PoolLog {
    pool: Arc<Pool<Modelled>>,
    records: Link<Records>,
    /// Of the records; held while one is appended or some are flushed.
    appended: Mutex<u64>,
    flushed: AtomicU64,
}

impl PoolLog {
    /// Over what a crash left: the records up to the first that is missing.
    fn over(pool: Arc<Pool<Modelled>>, records: Link<Records>) -> Self {
        let (domain, found) = (pool.domain(), pool.at(records));
        let whole =
            found[..RECORDS].iter().zip(1u64..).take_while(|(it, lsn)| it[0].load(domain) == *lsn);
        let count = whole.count() as u64;
        Self { pool, records, appended: Mutex::new(count), flushed: count.into() }
    }

    fn append(&self, what: Change, slot: usize, page: PageNumber, value: u64, before: u64) -> u64 {
        let domain = self.pool.domain();
        let mut appended = host_lock::lock(domain, &self.appended);
        let record = &self.pool.at(self.records)[*appended as usize];
        let words = [what as u64, slot as u64, page.get(), value, before];
        record[1..].iter().zip(words).for_each(|(word, value)| word.store_ordered(domain, value));
        *appended += 1;
        record[0].store_ordered(domain, *appended);
        *appended
    }

    /// The first record that is to be repeated.
    fn redo_from(&self) -> &PCell<u64> {
        &self.pool.at(self.records)[RECORDS][0]
    }

    /// Whether a record behind this one removes the page.
    fn is_removed_after(&self, lsn: u64, page: PageNumber) -> bool {
        let removes =
            |lsn: u64| matches!(self.read(lsn), Ok((Change::Remove, _, it, ..)) if it == page);
        (lsn + 1..=self.flushed_lsn()).any(removes)
    }

    fn read(&self, lsn: u64) -> Result<(Change, usize, PageNumber, u64, u64), String> {
        let (domain, record) = (self.pool.domain(), &self.pool.at(self.records)[lsn as usize - 1]);
        let words = [1, 2, 3, 4, 5].map(|at: usize| record[at].load(domain));
        let [what, slot, page, value, before] = words;
        let changes = [Change::Insert, Change::Update, Change::Remove];
        Ok((changes[what as usize], slot as usize, number(page)?, value, before))
    }
}

impl WriteAheadLog for PoolLog {
    fn flushed_lsn(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed)
    }

    fn flush_to(&self, lsn: u64) -> Result<(), LogError> {
        let domain = self.pool.domain();
        let _held = host_lock::lock(domain, &self.appended);
        let flushed = self.flushed_lsn();
        if lsn > flushed {
            domain.flush(&self.pool.at(self.records)[flushed as usize..lsn as usize]);
            domain.fence();
            // The fence waits in the buffer like a store.
            domain.synchronize();
            self.flushed.store(lsn, Ordering::Relaxed);
        }
        Ok(())
    }
}

pub(super) struct Paged(pub(super) Placement);

/// Every way is taken in a short run.
pub(super) fn spitfire() -> Placement {
    "spitfire:0.25,0.25,0.5,0.5".parse().unwrap()
}

pub(super) struct LivePages {
    log: Arc<PoolLog>,
    pub(super) manager: BufferManager<Modelled>,
}

type Page<'m> = ExclusivePage<'m, Modelled>;

fn reference(slot: usize) -> usize {
    REFERENCES + slot * 8
}

fn set_reference(directory: &mut Page<'_>, slot: usize, page: u64, lsn: u64) {
    directory.unswizzle(reference(slot));
    directory.write(lsn).set_word(reference(slot), page);
}

/// Where the page of a slot does so.
fn copies(slot: usize) -> Vec<usize> {
    match slot % 2 {
        1 => (0..MANY_COPIES).map(|copy| 32 + copy * 192).collect(),
        _ => COPIES.to_vec(),
    }
}

fn set_value(page: &mut Page<'_>, slot: usize, value: u64, lsn: u64) {
    let mut page = page.write(lsn);
    for at in copies(slot) {
        page.set_word(at, slot as u64);
        page.set_word(at + 8, value);
    }
}

impl LivePages {
    fn directory(&self) -> Result<Page<'_>, String> {
        self.manager.fix_exclusive(PageNumber::FIRST).map_err(text)
    }

    fn child(&self, slot: usize) -> Result<Option<PageNumber>, String> {
        Ok(self.directory()?.child_number(reference(slot)))
    }

    /// The page of a slot, by way of the directory.
    fn descend(&self, slot: usize) -> Result<Option<Page<'_>>, String> {
        self.manager.relieve().map_err(text)?;
        let page = self.manager.retry(|| {
            let mut directory = self.manager.fix(PageNumber::FIRST)?;
            if directory.read().word(reference(slot)) == 0 {
                directory.validate()?;
                return Ok(None);
            }
            let page = self.manager.fix_child(&mut directory, reference(slot))?;
            Ok(Some(page.exclusive()?))
        });
        page.map_err(text)
    }

    pub(super) fn put(&self, slot: usize, value: u64) -> Result<(), String> {
        if let Some(mut page) = self.descend(slot)? {
            let before = page.read().lsn();
            let lsn = self.log.append(Change::Update, slot, page.number(), value, before);
            set_value(&mut page, slot, value, lsn);
            return Ok(());
        }
        let log = |page: PageNumber| self.log.append(Change::Insert, slot, page, value, 0);
        let mut page = self.manager.allocate_page(PageKind(17), log).map_err(text)?;
        let (child, lsn) = (page.number(), page.read().lsn());
        set_value(&mut page, slot, value, lsn);
        drop(page);
        set_reference(&mut self.directory()?, slot, child.get(), lsn);
        Ok(())
    }

    fn remove(&self, slot: usize) -> Result<(), String> {
        let Some(child) = self.child(slot)? else { return Ok(()) };
        let lsn = self.log.append(Change::Remove, slot, child, 0, 0);
        set_reference(&mut self.directory()?, slot, 0, lsn);
        let page = self.manager.fix_exclusive(child).map_err(text)?;
        self.manager.free_page(page, lsn).map_err(text)
    }

    /// The page, if there is one.
    fn page(&self, page: PageNumber) -> Result<Option<Page<'_>>, String> {
        match self.manager.fix_exclusive(page) {
            Ok(page) => Ok(Some(page)),
            Err(BufferError::Space(SpaceError::NotInUse { .. })) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn redo(&self, lsn: u64) -> Result<(), String> {
        let (what, slot, child, value, before) = self.log.read(lsn)?;
        let found =
            self.page(child)?.filter(|page| what != Change::Insert || page.read().lsn() >= lsn);
        let found = match (found, what) {
            (None, Change::Insert) => {
                let again = self.manager.allocate_page_again(child, PageKind(17), lsn);
                let mut page = again.map_err(text)?;
                set_value(&mut page, slot, value, lsn);
                Some(page)
            }
            (None, _) if !self.log.is_removed_after(lsn - 1, child) => {
                return Err(format!("change {lsn}: page {child} is not there"));
            }
            (found, _) => found,
        };
        let has_it = found.as_ref().is_none_or(|page| page.read().lsn() >= lsn);
        if let Some(mut page) = found
            && what == Change::Update
            && !has_it
        {
            let base = page.read().lsn();
            if base != before {
                return Err(format!(
                    "change {lsn}: of page {child} at {before}, which is at {base}"
                ));
            }
            set_value(&mut page, slot, value, lsn);
        }
        let mut directory = self.directory()?;
        if directory.read().lsn() < lsn && what != Change::Update {
            let page = if what == Change::Insert { child.get() } else { 0 };
            set_reference(&mut directory, slot, page, lsn);
        }
        drop(directory);
        if what == Change::Remove && !has_it {
            let page = self.manager.fix_exclusive(child).map_err(text)?;
            self.manager.free_page(page, lsn).map_err(text)?;
        }
        Ok(())
    }

    /// Slot and value of a slot's page; by way of the directory, as a reader goes.
    pub(super) fn get(&self, slot: usize) -> Result<u64, String> {
        if self.child(slot)?.is_none() {
            return Ok(0);
        }
        let words = self.manager.retry(|| {
            let mut directory = self.manager.fix(PageNumber::FIRST)?;
            let page = self.manager.fix_child(&mut directory, reference(slot))?;
            let words = copies(slot).into_iter();
            let words = words.map(|at| (page.read().word(at), page.read().word(at + 8)));
            let words: Vec<_> = words.collect();
            page.validate()?;
            Ok(words)
        });
        let words = words.map_err(text)?;
        match words.iter().all(|pair| *pair == (slot as u64, words[0].1)) {
            true => Ok(words[0].1),
            false => Err(format!("the page of slot {slot} holds {words:?}")),
        }
    }

    pub(super) fn contents(&self) -> Result<[u64; SLOTS], String> {
        let mut state = [0; SLOTS];
        for (slot, value) in state.iter_mut().enumerate() {
            *value = self.get(slot)?;
        }
        Ok(state)
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let Some(space) = self.manager.space() else { return vec!["there is no SSD".to_owned()] };
        let damaged = space.check().into_iter().map(|problem| format!("{problem:?}"));
        let children = (0..SLOTS).filter_map(|slot| self.child(slot).ok().flatten());
        let used: Vec<_> = children.chain([PageNumber::FIRST]).collect();
        let orphans = space.numbers().into_iter().filter(|page| !used.contains(page));
        damaged.chain(orphans.map(|page| format!("page {page} is nobody's"))).collect()
    }

    pub(super) fn audit(&self) -> AuditReport {
        let (pool, records) = (&self.log.pool, self.log.records);
        let reachable = pool.reachable(|visitor| {
            visitor.visit(records, size_of::<Records>());
            self.manager.tier().into_iter().for_each(|tier| tier.visit_blocks(visitor));
        });
        if pool.needs_reclaim() {
            pool.reclaim(&reachable);
        }
        pool.audit(&reachable)
    }

    pub(super) fn domain(&self) -> &Modelled {
        self.log.pool.domain()
    }

    /// Makes durable that what was freed is free, and where redo begins.
    fn checkpoint(&self) -> Result<(), String> {
        let (domain, end) = (self.domain(), *host_lock::lock(self.domain(), &self.log.appended));
        if let Some(space) = self.manager.space() {
            space.write_freed(self.log.flushed_lsn()).map_err(text)?;
        }
        let from = self.manager.oldest_change().unwrap_or(end + 1);
        let _committed = self.log.redo_from().publish(domain, from).persist();
        Ok(())
    }

    /// Makes durable what was appended.
    pub(super) fn flush_log(&self) -> Result<(), String> {
        let appended = *host_lock::lock(self.domain(), &self.log.appended);
        self.log.flush_to(appended).map_err(text)
    }
}

impl Subject for Paged {
    type Operation = Operation;
    type State = [u64; SLOTS];
    type Live = LivePages;

    fn name(&self) -> &'static str {
        match self.0 {
            Placement::BasicNvm => "buffer:basic-nvm",
            Placement::ThreeTier => "buffer:three-tier",
            Placement::Spitfire(_) => "buffer:spitfire",
            _ => "buffer:ssd",
        }
    }
    fn pool_bytes(&self) -> usize {
        if self.0.has_persistent_memory() { 2 << 20 } else { 1 << 20 }
    }
    fn device_blocks(&self) -> Vec<u64> {
        vec![1]
    }
    fn operations(&self, count: usize, seed: u64) -> Vec<Operation> {
        let mut random = seed;
        let operation = |at: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at as u64 | 1);
            let slot = (random >> 33) as usize % SLOTS;
            match (random >> 50) % 16 {
                0..10 => Operation::Put(slot, at as u64 + 100),
                10..13 => Operation::Remove(slot),
                13 => Operation::WriteBack,
                14 => Operation::Checkpoint,
                _ => Operation::Close,
            }
        };
        (0..count).map(operation).collect()
    }
    fn probes(&self, _: &[u64; SLOTS], _: Option<&Operation>, seed: u64) -> Vec<Operation> {
        vec![Operation::Put(0, seed | 1), Operation::Checkpoint, Operation::Remove(0)]
    }
    fn create(&self, storage: Storage) -> Result<LivePages, String> {
        let Storage { pool: Some(pool), mut devices, machine } = storage else {
            return Err("there is no pool".to_owned());
        };
        let pool = Arc::new(pool);
        let mut node = pool.allocate::<Records>().map_err(text)?;
        node.zero();
        let node = pool.fence(node.flush());
        let log = Arc::new(PoolLog::over(Arc::clone(&pool), node.link()));
        let device = Arc::new(devices.pop().ok_or("there is no SSD")?) as Arc<dyn BlockDevice>;
        let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
        let manager = if self.0.has_persistent_memory() {
            let tier = pool.fence(PersistentTier::create(&pool, &TIER).map_err(text)?);
            let root = tier.link();
            let _committed = pool.publish_root(TIER_ROOT, 0, tier).map_err(text)?.persist();
            let tier = PersistentTier::open(Arc::clone(&pool), root).map_err(text)?;
            BufferManager::create_with_tier(tier, device, hook, &OPTIONS, self.0)
        } else {
            BufferManager::create(machine, device, hook, &OPTIONS)
        };
        let manager = manager.map_err(text)?;
        let mut directory = manager.allocate_page(PageKind(16), |_| 0).map_err(text)?;
        directory.write(0).set_references(REFERENCES, SLOTS);
        drop(directory);
        manager.write_all().map_err(text)?;
        let _committed = pool.publish_root(ROOT, 0, node).map_err(text)?.persist();
        Ok(LivePages { log, manager })
    }
    fn open(&self, storage: Storage) -> Result<Option<LivePages>, String> {
        let Storage { pool: Some(pool), mut devices, machine } = storage else {
            return Err("there is no pool".to_owned());
        };
        let Some(records) = pool.root::<Records>(ROOT) else { return Ok(None) };
        let tier = pool.root::<TierRoot>(TIER_ROOT);
        let pool = Arc::new(pool);
        let log = Arc::new(PoolLog::over(Arc::clone(&pool), records));
        let device = Arc::new(devices.pop().ok_or("there is no SSD")?) as Arc<dyn BlockDevice>;
        let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
        let manager = match tier {
            Some(root) => {
                let tier = PersistentTier::open(pool, root).map_err(text)?;
                BufferManager::open_with_tier(tier, device, hook, &OPTIONS, self.0)
            }
            None => BufferManager::open(machine, device, hook, &OPTIONS),
        };
        let live = LivePages { log, manager: manager.map_err(text)? };
        let from = live.log.redo_from().load(live.domain()).max(1);
        for lsn in from..=live.log.flushed_lsn() {
            live.redo(lsn)?;
        }
        Ok(Some(live))
    }
    fn initial(&self) -> [u64; SLOTS] {
        [0; SLOTS]
    }
    fn apply(&self, state: &mut [u64; SLOTS], operation: &Operation) {
        match *operation {
            Operation::Put(slot, value) => state[slot] = value,
            Operation::Remove(slot) => state[slot] = 0,
            Operation::WriteBack | Operation::Checkpoint | Operation::Close => {}
        }
    }
    fn owns_source(&self, file: &str) -> bool {
        file.ends_with("buffer/paged.rs")
    }
}

impl Live<Operation, [u64; SLOTS]> for LivePages {
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        match *operation {
            Operation::Put(slot, value) => self.put(slot, value)?,
            Operation::Remove(slot) => self.remove(slot)?,
            Operation::WriteBack => {
                self.manager.write_back().map_err(text)?;
                self.checkpoint()?;
            }
            Operation::Checkpoint => {
                self.manager.write_all().map_err(text)?;
                self.checkpoint()?;
            }
            Operation::Close => self.manager.close().map_err(text)?,
        }
        self.flush_log()
    }
    fn observe(&self) -> Result<[u64; SLOTS], String> {
        self.contents()
    }
    fn check(&self) -> Vec<String> {
        self.problems()
    }
    fn reclaim_and_audit(&self) -> AuditReport {
        self.audit()
    }
    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(&self.log.pool)
    }
}

impl Paged {
    /// Operations of a run: pages have to leave DRAM twice to enter persistent memory.
    fn run_operations(&self) -> usize {
        if self.0.has_persistent_memory() { 110 } else { 60 }
    }
}

/// Images of a crash point, and of how many images one is cut again in its recovery.
type Budget = (u32, u64);

fn explored(subject: &Paged, seed: u64, mutant: Option<Mutant>) -> Result<ExploreReport, String> {
    explored_by(
        subject,
        seed,
        mutant,
        if subject.0.has_persistent_memory() { (2, 256) } else { (12, 32) },
    )
}

fn explored_by(
    subject: &Paged,
    seed: u64,
    mutant: Option<Mutant>,
    (samples, crash_in_recovery_every): Budget,
) -> Result<ExploreReport, String> {
    let options = ExploreOptions {
        ops: subject.run_operations(),
        seed,
        mutant,
        strategy: Strategy::Sampled,
        samples,
        crash_in_recovery_every,
        whole_check_every: 4,
        violation_limit: 1,
        ..ExploreOptions::default()
    };
    explore(subject, &options, &|_| {}).map_err(text)
}

/// How a mutant is found: by what a power cut leaves, or by the run itself.
fn killed(subject: &Paged, mutant: Mutant) -> String {
    let explored = |seed| catch_unwind(AssertUnwindSafe(|| explored(subject, seed, Some(mutant))));
    let found = (1..=4).find_map(|seed| match explored(seed) {
        Ok(Ok(report)) if report.violations.is_empty() => None,
        Ok(Ok(report)) => {
            Some(format!("after {} images: {}", report.images, report.violations[0].what))
        }
        Ok(Err(failed)) => Some(format!("the run itself: {failed}")),
        Err(_panic) => Some("the run itself: a check of the manager's own".to_owned()),
    });
    found.unwrap_or_else(|| panic!("{} survived", mutant.0))
}

/// What happens in a run of the same operations from beginning to end.
fn happened(subject: &Paged, seed: u64) -> Statistics {
    let region = Region::anonymous(subject.pool_bytes(), subject.pool_bytes()).unwrap();
    let machine = Modelled::over(&region, Config::default());
    let pool = Some(Pool::create(region, machine.clone()).unwrap());
    let devices = vec![ModelledSsd::attached_to(&machine, 1, SsdConfig::default()).unwrap()];
    let mut live = subject.create(Storage { pool, devices, machine }).unwrap();
    for operation in subject.operations(subject.run_operations(), seed) {
        live.perform(&operation).unwrap();
    }
    live.manager.statistics()
}

#[test]
fn pages_over_an_ssd_survive_every_power_cut() {
    let (subject, seed) = (Paged(Placement::Ssd), 2);
    let (report, happened) = (explored(&subject, seed, None).unwrap(), happened(&subject, seed));
    println!("{} images, {happened:?}", report.images);
    assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
    assert!(report.images > 10_000 && report.images_in_recovery > 5000, "{report:?}");
    for often in [happened.evictions, happened.batches, happened.swizzled, happened.unswizzled] {
        assert!(often > 10, "{happened:?}");
    }
}

#[test]
fn every_mutant_of_the_manager_that_a_power_cut_shows_is_killed() {
    for mutant in [PAGE_BEFORE_LOG, SWIZZLED_REFERENCE_WRITTEN] {
        println!("{}: {}", mutant.0, killed(&Paged(Placement::Ssd), mutant));
    }
}

#[test]
fn pages_over_persistent_memory_and_an_ssd_survive_every_power_cut() {
    for (placement, seed) in [(Placement::BasicNvm, 1), (Placement::ThreeTier, 6), (spitfire(), 1)]
    {
        let subject = Paged(placement);
        let (report, happened) =
            (explored(&subject, seed, None).unwrap(), happened(&subject, seed));
        println!("seed {seed}: {} images, {happened:?}", report.images);
        assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
        assert!(report.images > 5_000 && report.images_in_recovery > 2000, "{report:?}");
        let tier = happened.tier;
        let by_lines = placement != Placement::BasicNvm;
        assert_eq!(tier.lines_written > 10, by_lines, "{happened:?}");
        assert_eq!(tier.promotions > 2, placement == Placement::ThreeTier, "{happened:?}");
        if let Some(migration) = tier.migration {
            let [reads, writes] = [migration.dram_reads, migration.dram_writes];
            let [loads, leaves] = [migration.memory_reads, migration.memory_writes];
            for decided in [reads, writes, loads, leaves] {
                assert!(decided.so > 2 && decided.otherwise > 2, "{happened:?}");
            }
            assert!(tier.writes_in_place > 5 && tier.loads_from_ssd > 2, "{happened:?}");
        }
        for often in [tier.admissions, tier.denials, tier.evictions, tier.loads, tier.pages_to_ssd]
        {
            assert!(often > 3, "{happened:?}");
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn pages_survive_power_cuts_at_length() {
    for placement in [Placement::Ssd, Placement::BasicNvm, Placement::ThreeTier, spitfire()] {
        for seed in 3..=8 {
            let report = explored_by(&Paged(placement), seed, None, (12, 32)).unwrap();
            println!("{placement}, seed {seed}: {} images", report.images);
            assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
        }
    }
}

#[test]
fn every_mutant_of_pages_in_persistent_memory_is_killed() {
    let subject = Paged(Placement::ThreeTier);
    for mutant in [
        PAGE_BEFORE_LOG,
        SWIZZLED_REFERENCE_WRITTEN,
        TORN_PAGE_IN_PM,
        STALE_PAGE_ADMITTED,
        STALE_PAGE_OUTLIVES_NUMBER,
        CHANGED_PAGE_IN_PM_DROPPED,
        DIRTY_LINE_DROPPED,
        DIRTY_LINE_LOST_IN_PROMOTION,
    ] {
        println!("{}: {}", mutant.0, killed(&subject, mutant));
    }
}

#[test]
fn every_mutant_of_pages_that_are_used_in_persistent_memory_is_killed() {
    for mutant in [STALE_PAGE_LEFT_IN_PM, TORN_PAGE_IN_PM] {
        println!("{}: {}", mutant.0, killed(&Paged(spitfire()), mutant));
    }
}
