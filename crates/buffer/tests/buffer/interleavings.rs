//! The manager on the modelled machine, whose scheduler explores the races on its latches, its table and
//! its clock: four frames for nine pages, so that nearly every access evicts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis_buffer::mutants::{
    CHANGE_DURING_WRITE_FORGOTTEN, DIRTY_LINE_LOST_IN_PROMOTION, GIVING_UP_UNNOTICED,
    LATCHED_PAGE_OVERLOOKED, LINE_LOADED_BESIDE_WRITERS, LINE_NOT_MARKED, PAGE_BEFORE_LOG,
    READ_ON_IN_PM, SWIZZLED_REFERENCE_WRITTEN,
};
use lapis_buffer::{
    BufferError, BufferManager, BufferOptions, ExclusivePage, LogError, NoLog, PageKind,
    PageNumber, PersistentTier, Placement, Statistics, TierOptions, TierStatistics, WriteAheadLog,
};
use lapis_device::{
    Config, Modelled, ModelledSsd, RunEnd, SchedulePolicy, SsdConfig, WorkerProgram,
};
use lapis_pmem::{BlockDevice, Mutant, Pool, Region};

use crate::pool::options;
use crate::tier::placements;

type Manager = BufferManager<Modelled>;

const LEAVES: usize = 8;
const REFERENCES: usize = 64;
const TIER: TierOptions = TierOptions { frames: 3, page_bytes: 4096, lanes: 2, identity: 5 };
/// The words of a leaf that are changed together.
const WORDS: [usize; 3] = [40, 2000, 4000];
/// Those of its wide changes, in more lines than a mini frame has.
const WIDE_WORDS: [usize; 20] = {
    let (mut words, mut line) = ([0; 20], 0);
    while line < words.len() {
        words[line] = (line + 1) * 128 + 8;
        line += 1;
    }
    words
};

/// A root with leaves, on a machine whose power is never cut.
struct Bench {
    machine: Modelled,
    device: ModelledSsd,
    manager: Manager,
    root: PageNumber,
    /// Whether somebody has read half of a change.
    saw_half: AtomicBool,
    // The machine is over its region.
    _pool: Arc<Pool<Modelled>>,
}

impl Bench {
    fn new(config: Config, options: &BufferOptions, placement: Placement) -> Self {
        Self::over(config, options, placement, &TIER)
    }

    fn over(
        config: Config,
        options: &BufferOptions,
        placement: Placement,
        tier: &TierOptions,
    ) -> Self {
        Self::over_log(config, options, placement, tier, Arc::new(NoLog))
    }

    fn over_log(
        config: Config,
        options: &BufferOptions,
        placement: Placement,
        tier: &TierOptions,
        log: Arc<dyn WriteAheadLog>,
    ) -> Self {
        let region = Region::anonymous(2 << 20, 2 << 20).unwrap();
        let machine = Modelled::over(&region, config);
        let pool = Arc::new(Pool::create(region, machine.clone()).unwrap());
        let device = ModelledSsd::attached_to(&machine, 1, SsdConfig::default()).unwrap();
        let medium = Arc::new(device.clone());
        let manager = if placement.has_persistent_memory() {
            let root = pool.fence(PersistentTier::create(&pool, tier).unwrap()).release();
            let tier = PersistentTier::open(Arc::clone(&pool), root).unwrap();
            BufferManager::create_with_tier(tier, medium, log, options, placement)
        } else {
            BufferManager::create(machine.clone(), medium, log, options)
        };
        let manager = manager.unwrap();
        let leaves: Vec<_> = (0..LEAVES)
            .map(|_| manager.allocate_page(PageKind(17), |_| 0).unwrap().number())
            .collect();
        let mut root = manager.allocate_page(PageKind(16), |_| 0).unwrap();
        root.write(0).set_references(REFERENCES, LEAVES);
        for (at, leaf) in leaves.iter().enumerate() {
            root.write(0).set_word(REFERENCES + at * 8, leaf.get());
        }
        let number = root.number();
        drop(root);
        Self {
            machine,
            device,
            manager,
            root: number,
            saw_half: AtomicBool::new(false),
            _pool: pool,
        }
    }

    /// Reads a leaf: what these words hold, all of them the same.
    fn get_words(&self, leaf: usize, words: &[usize]) -> Result<u64, BufferError> {
        self.manager.retry(|| {
            let mut root = self.manager.fix(self.root)?;
            let page = self.manager.fix_child(&mut root, REFERENCES + leaf * 8)?;
            let first = page.read().word(words[0]);
            // All are looked at: a worker who latches the page meanwhile may come to an end before the last.
            let differ = words.iter().filter(|&&at| page.read().word(at) != first).count();
            page.validate()?;
            if differ > 0 {
                self.saw_half.store(true, Ordering::Relaxed);
            }
            Ok(first)
        })
    }

    fn get(&self, leaf: usize) -> Result<u64, BufferError> {
        self.get_words(leaf, &WORDS)
    }

    fn add_to_words(&self, leaf: usize, words: &[usize]) {
        let added = self.manager.retry(|| {
            let mut root = self.manager.fix(self.root)?;
            let page = self.manager.fix_child(&mut root, REFERENCES + leaf * 8)?;
            let mut page = page.exclusive()?;
            let next = page.read().word(words[0]) + 1;
            words.iter().for_each(|&at| page.write(0).set_word(at, next));
            Ok(())
        });
        added.unwrap();
    }

    fn add(&self, leaf: usize) {
        self.add_to_words(leaf, &WORDS);
    }

    fn sum(&self) -> Result<u64, BufferError> {
        (0..LEAVES).map(|leaf| self.get(leaf)).sum()
    }
}

/// Two workers that add, one that reads and one that writes back. What is wrong afterwards, and what
/// happened.
fn run(
    config: Config,
    policy: &SchedulePolicy,
    placement: Placement,
) -> (Result<(), String>, Statistics) {
    let options = BufferOptions { mini_frames: 2, most_changed_frames: 3, ..options(4) };
    let bench = &Bench::new(config, &options, placement);
    let adding = |first: usize| -> WorkerProgram<'_> {
        Box::new(move || (0..6).for_each(|step| bench.add((first + step * 3) % LEAVES)))
    };
    let programs: Vec<WorkerProgram<'_>> = vec![
        adding(0),
        adding(1),
        Box::new(|| (0..8).for_each(|leaf| _ = bench.get(leaf).unwrap())),
        Box::new(|| (0..4).for_each(|_| _ = bench.manager.write_back().unwrap())),
    ];
    let end = bench.machine.run_workers(policy, programs).end;
    let statistics = bench.manager.statistics();
    let sum = bench.sum();
    let outcome = match (end, sum) {
        _ if bench.saw_half.load(Ordering::Relaxed) => Err("half of a change".to_owned()),
        (RunEnd::Completed, Ok(12)) => Ok(()),
        (end, sum) => Err(format!("{end:?}, and instead of 12: {sum:?}")),
    };
    (outcome, statistics)
}

/// Random schedules, and such as change workers seldom.
fn policies(seeds: u64) -> impl Iterator<Item = SchedulePolicy> {
    SchedulePolicy::of_seeds(seeds, 4, 2000)
}

#[test]
fn readers_writers_and_evictions_lose_nothing_under_any_schedule() {
    let mut total = Statistics::default();
    for policy in policies(150) {
        let (outcome, statistics) = run(Config::concurrent(), &policy, Placement::Ssd);
        assert_eq!(outcome, Ok(()), "{policy:?}");
        total.evictions += statistics.evictions;
        total.unswizzled += statistics.unswizzled;
        total.restarts += statistics.restarts;
        total.batches += statistics.batches;
    }
    println!("{total:?}");
    assert!(total.evictions > 3000 && total.unswizzled > 1000, "{total:?}");
    assert!(total.restarts > 1000 && total.batches > 1000, "{total:?}");
}

#[test]
fn with_persistent_memory_too_they_lose_nothing_under_any_schedule() {
    for placement in placements() {
        let mut total = TierStatistics::default();
        for policy in policies(150) {
            let (outcome, statistics) = run(Config::concurrent(), &policy, placement);
            assert_eq!(outcome, Ok(()), "{placement}, {policy:?}");
            total.admissions += statistics.tier.admissions;
            total.loads += statistics.tier.loads;
            total.evictions += statistics.tier.evictions;
            total.pages_to_ssd += statistics.tier.pages_to_ssd;
            total.lines_loaded += statistics.tier.lines_loaded;
            total.lines_written += statistics.tier.lines_written;
        }
        println!("{placement}: {total:?}");
        assert!(total.admissions > 1000 && total.loads > 500, "{total:?}");
        assert!(total.evictions > 500 && total.pages_to_ssd > 500, "{total:?}");
        if placement != Placement::BasicNvm {
            assert!(total.lines_loaded > 1000 && total.lines_written > 100, "{total:?}");
        }
    }
}

/// Readers of a page whose lines come one by one, one worker that latches it for nothing, and one that changes it.
fn race_on_lines(config: Config, policy: &SchedulePolicy) -> Result<(), String> {
    let tier = TierOptions { frames: LEAVES + 1, ..TIER };
    let bench = &Bench::over(config, &options(4), Placement::ThreeTier, &tier);
    (0..LEAVES).for_each(|leaf| (0..=leaf).for_each(|_| bench.add(leaf)));
    let expected = (1..=LEAVES as u64).sum();
    for _ in 0..4 {
        assert_eq!(bench.sum().unwrap(), expected);
    }
    // Others push it out of DRAM.
    (1..LEAVES).for_each(|leaf| _ = bench.get(leaf).unwrap());
    let first = bench.manager.fix_exclusive(bench.root).unwrap().child_number(REFERENCES).unwrap();
    let before = bench.manager.statistics().tier;
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| _ = bench.get(0).unwrap()),
        Box::new(|| _ = bench.get(0).unwrap()),
        Box::new(|| {
            for _ in 0..12 {
                let page = bench.manager.fix_exclusive(first).unwrap();
                assert!((0..4).all(|_| page.number() == first));
            }
        }),
        Box::new(|| bench.add(0)),
    ];
    let end = bench.machine.run_workers(policy, programs).end;
    assert!(bench.manager.statistics().tier.lines_loaded > before.lines_loaded);
    match bench.sum() {
        _ if bench.saw_half.load(Ordering::Relaxed) => Err("half of a change".to_owned()),
        Ok(sum) if sum == expected + 1 && end == RunEnd::Completed => Ok(()),
        sum => Err(format!("{end:?}, and instead of {expected} and 1: {sum:?}")),
    }
}

#[test]
fn readers_load_lines_beside_writers_and_each_other() {
    for policy in policies(300) {
        assert_eq!(race_on_lines(Config::concurrent(), &policy), Ok(()), "{policy:?}");
    }
}

#[test]
fn what_races_on_lines_may_do_is_found() {
    for mutant in [GIVING_UP_UNNOTICED, LINE_LOADED_BESIDE_WRITERS] {
        let config = || Config::concurrent().committing(mutant);
        let found = policies(300).find_map(|policy| race_on_lines(config(), &policy).err());
        println!("{}: {found:?}", mutant.0);
        assert!(found.is_some(), "{} survived", mutant.0);
    }
}

/// One worker frees pages that are in persistent memory, too, one makes that durable, and one gets their numbers again.
fn race_on_numbers(policy: &SchedulePolicy, placement: Placement) -> Result<u64, String> {
    let tier = TierOptions { frames: LEAVES + 1, ..TIER };
    let bench = &Bench::over(Config::concurrent(), &options(4), placement, &tier);
    let (manager, space) = (&bench.manager, bench.manager.space().unwrap());
    let allocate = || manager.allocate_page(PageKind(17), |_| 0).unwrap().number();
    let pages: Vec<_> = (0..4).map(|_| allocate()).collect();
    let value = |page: PageNumber| {
        manager.retry(|| {
            let page = manager.fix(page)?;
            let value = page.read().word(WORDS[0]);
            page.validate()?;
            Ok(value)
        })
    };
    let set = |page: PageNumber, value: u64| {
        manager.fix_exclusive(page).unwrap().write(0).set_word(WORDS[0], value);
    };
    for _ in 0..4 {
        pages.iter().for_each(|&page| set(page, 1));
        manager.write_all().unwrap();
    }
    let given_out = &AtomicU64::new(0);
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| {
            for &page in &pages {
                set(page, 2);
                _ = manager.write_back().unwrap();
                manager.free_page(manager.fix_exclusive(page).unwrap(), 0).unwrap();
            }
        }),
        Box::new(|| {
            for _ in 0..12 {
                _ = manager.write_back().unwrap();
                space.write_freed(u64::MAX).unwrap();
            }
        }),
        Box::new(|| {
            let mut own = Vec::new();
            for round in 10..16 {
                let page = allocate();
                assert!(own.iter().all(|&(other, _)| other != page));
                set(page, round);
                own.push((page, round));
                given_out.fetch_add(pages.contains(&page).into(), Ordering::Relaxed);
            }
            let wrong = own.iter().find(|&&(page, round)| value(page).unwrap() != round);
            assert_eq!(wrong, None);
        }),
    ];
    match bench.machine.run_workers(policy, programs).end {
        RunEnd::Completed => Ok(given_out.load(Ordering::Relaxed)),
        end => Err(format!("{end:?}")),
    }
}

#[test]
fn numbers_of_pages_that_are_being_freed_are_given_out_again() {
    for placement in placements() {
        let race = |policy| match race_on_numbers(&policy, placement) {
            Ok(given_out) => given_out,
            Err(what) => panic!("{what}: {placement}, {policy:?}"),
        };
        let given_out: u64 = policies(300).map(race).sum();
        println!("{placement}: {given_out} numbers given out again");
        assert!(given_out > 100, "{placement}: {given_out}");
    }
}

/// Readers and writers of few lines and of many of a page in a mini frame, and one worker that pushes it out. How often a page
/// was promoted.
fn race_on_minis(config: Config, policy: &SchedulePolicy) -> Result<u64, String> {
    let tier = TierOptions { frames: LEAVES + 1, ..TIER };
    let options = BufferOptions { mini_frames: 6, ..options(4) };
    let bench = &Bench::over(config, &options, Placement::ThreeTier, &tier);
    for _ in 0..4 {
        assert_eq!(bench.sum().unwrap(), 0);
    }
    let before = bench.manager.statistics().tier;
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| {
            bench.add(0);
            _ = bench.get_words(0, &WIDE_WORDS).unwrap();
        }),
        Box::new(|| {
            bench.add(0);
            bench.add_to_words(1, &WIDE_WORDS);
            _ = bench.get(1).unwrap();
        }),
        Box::new(|| {
            bench.add(1);
            bench.add_to_words(0, &WIDE_WORDS);
        }),
        Box::new(|| {
            (2..LEAVES).for_each(|leaf| _ = bench.get(leaf).unwrap());
            _ = bench.manager.write_back().unwrap();
        }),
    ];
    let end = bench.machine.run_workers(policy, programs).end;
    let after = bench.manager.statistics().tier;
    let wide = [0, 1].map(|leaf| bench.get_words(leaf, &WIDE_WORDS));
    match (bench.sum(), wide) {
        _ if bench.saw_half.load(Ordering::Relaxed) => Err("half of a change".to_owned()),
        (Ok(3), [Ok(1), Ok(1)]) if end == RunEnd::Completed => {
            Ok(after.promotions - before.promotions)
        }
        (sum, wide) => Err(format!("{end:?}, and instead of 3 and 1, 1: {sum:?}, {wide:?}")),
    }
}

#[test]
fn readers_writers_promotions_and_evictions_of_mini_pages_lose_nothing() {
    let race = |policy| match race_on_minis(Config::concurrent(), &policy) {
        Ok(promotions) => promotions,
        Err(what) => panic!("{what}: {policy:?}"),
    };
    let promotions: u64 = policies(300).map(race).sum();
    println!("{promotions} promotions");
    assert!(promotions > 500, "{promotions}");
}

#[test]
fn a_dirty_line_that_promotion_loses_is_found() {
    let config = || Config::concurrent().committing(DIRTY_LINE_LOST_IN_PROMOTION);
    let found = policies(50).find_map(|policy| race_on_minis(config(), &policy).err());
    println!("{found:?}");
    assert!(found.is_some());
}

/// Readers of pages in persistent memory, of which one comes to DRAM whenever it is to be changed, and workers that change pages there.
fn race_in_place(
    config: Config,
    chances: &str,
    policy: &SchedulePolicy,
) -> Result<TierStatistics, String> {
    let tier = TierOptions { frames: LEAVES + 1, ..TIER };
    let options = BufferOptions { mini_frames: 2, ..options(4) };
    let placement = format!("spitfire:{chances}").parse().unwrap();
    let bench = &Bench::over(config, &options, placement, &tier);
    bench.manager.write_all().unwrap();
    for _ in 0..4 {
        assert_eq!(bench.sum().unwrap(), 0);
    }
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| (0..6).for_each(|step| _ = bench.get(step % 2).unwrap())),
        Box::new(|| (0..6).for_each(|step| bench.add(step % 2))),
        Box::new(|| {
            (0..4).for_each(|step| bench.add(step % 2));
            (2..LEAVES).for_each(|leaf| _ = bench.get(leaf).unwrap());
        }),
        Box::new(|| (0..2).for_each(|_| _ = bench.manager.write_back().unwrap())),
    ];
    let end = bench.machine.run_workers(policy, programs).end;
    let statistics = bench.manager.statistics().tier;
    match bench.sum() {
        _ if bench.saw_half.load(Ordering::Relaxed) => Err("half of a change".to_owned()),
        Ok(10) if end == RunEnd::Completed => Ok(statistics),
        sum => Err(format!("{end:?}, and instead of 10: {sum:?}")),
    }
}

#[test]
fn readers_and_writers_in_persistent_memory_lose_nothing_under_any_schedule() {
    for chances in ["0,0,1,1", "0,1,1,1", "0.3,0.5,0.5,0.5"] {
        let (mut in_place, mut to_dram, mut written) = (0, 0, 0);
        for policy in policies(150) {
            let found = race_in_place(Config::concurrent(), chances, &policy);
            let tier = found.unwrap_or_else(|what| panic!("{what}: {chances}, {policy:?}"));
            in_place += tier.migration.unwrap().dram_reads.otherwise;
            (to_dram, written) = (to_dram + tier.loads, written + tier.writes_in_place);
        }
        println!("{chances}: {in_place} reads and {written} writes in place, {to_dram} to DRAM");
        assert!(in_place > 3000, "{chances}");
        assert!(if chances == "0,0,1,1" { written > 1000 } else { to_dram > 300 }, "{chances}");
    }
}

#[test]
fn who_reads_in_persistent_memory_begins_again_once_the_page_is_changed_in_dram() {
    for mutant in [None, Some(READ_ON_IN_PM)] {
        let placement = "spitfire:0,1,1,1".parse().unwrap();
        let tier = TierOptions { frames: LEAVES + 1, ..TIER };
        let bench = Bench::over(committing(mutant), &options(4), placement, &tier);
        bench.manager.write_all().unwrap();
        (0..4).for_each(|_| assert_eq!(bench.sum().unwrap(), 0));
        let root = bench.manager.fix_exclusive(bench.root).unwrap();
        let leaves = (0..LEAVES).filter_map(|leaf| root.child_number(REFERENCES + leaf * 8));
        let leaves: Vec<_> = leaves.collect();
        drop(root);
        let reads = || bench.manager.statistics().tier.migration.unwrap().dram_reads.otherwise;
        let is_in_place = |leaf: &usize| {
            let before = reads();
            bench.manager.fix(leaves[*leaf]).is_ok() && reads() > before
        };
        let leaf = (0..LEAVES).find(is_in_place).unwrap();
        let page = bench.manager.fix(leaves[leaf]).unwrap();
        assert_eq!(page.read().word(WORDS[0]), 0);
        bench.add(leaf);
        assert_eq!(page.validate().is_err(), mutant.is_none());
    }
}

/// Workers that change one page in persistent memory: some come too late, and let go of a workspace in which nothing was ever.
/// Then the log fails, and pages stay in both workspaces, one line of which was changed. How often somebody had to begin again.
fn race_for_workspaces(policy: &SchedulePolicy) -> Result<u64, String> {
    let tier = TierOptions { frames: 60, ..TIER };
    let (log, placement) = (Arc::new(ToldLog::default()), "spitfire:0,0,1,1".parse().unwrap());
    let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
    let bench = &Bench::over_log(Config::concurrent(), &options(32), placement, &tier, hook);
    let manager = &bench.manager;
    let allocate = |_| {
        let mut page = manager.allocate_page(PageKind(17), |_| 0).unwrap();
        WIDE_WORDS.iter().for_each(|&at| page.write(0).set_word(at, 1));
        page.number()
    };
    let pages: Vec<_> = (0..40).map(allocate).collect();
    manager.write_all().unwrap();
    let read = |page: &PageNumber| {
        let page = manager.fix(*page).unwrap();
        let words = WIDE_WORDS.map(|at| page.read().word(at));
        page.validate().is_ok() && words == [1; 20]
    };
    assert!((0..2).all(|_| pages.iter().all(read)));
    let in_place = || manager.statistics().tier.migration.unwrap().dram_reads.otherwise;
    let is_in_place = |page: &&PageNumber| {
        let before = in_place();
        read(page) && in_place() > before
    };
    let pages: Vec<_> = pages.iter().filter(is_in_place).take(3).collect();
    let change = |at: usize, lsn| {
        let mut page = manager.fix_exclusive(*pages[at]).unwrap();
        page.write(lsn).set_word(WORDS[0], 7);
        page
    };
    let changing = || -> WorkerProgram<'_> { Box::new(|| drop(change(0, 0))) };
    let end = bench.machine.run_workers(policy, (0..2).map(|_| changing()).collect()).end;
    log.1.store(true, Ordering::Relaxed);
    let before = manager.statistics();
    drop((change(1, 1), change(2, 2)));
    let after = manager.statistics();
    assert_eq!(after.changed_frames, before.changed_frames + 2);
    let [was, is] = [before, after].map(|it| (it.tier.writes_in_place, it.tier.loads));
    assert_eq!(was, is);
    match pages.iter().all(|page| read(page)) {
        true if end == RunEnd::Completed => Ok(before.restarts),
        right => Err(format!("{end:?}, read right: {right}")),
    }
}

#[test]
fn a_page_that_stays_in_a_workspace_is_read_right_after_races_for_it() {
    let race = |policy| match race_for_workspaces(&policy) {
        Ok(restarts) => restarts,
        Err(what) => panic!("{what}: {policy:?}"),
    };
    let restarts: u64 = policies(100).map(race).sum();
    println!("{restarts} times somebody came too late, or found the latch held");
    assert!(restarts > 100, "{restarts}");
}

#[test]
#[should_panic(expected = "changed where it was not marked")]
fn a_change_that_is_not_marked_is_found_when_the_page_leaves() {
    let bench = Bench::new(committing(Some(LINE_NOT_MARKED)), &options(4), Placement::ThreeTier);
    (0..20 * LEAVES).for_each(|step| bench.add(step % LEAVES));
}

#[test]
fn the_same_schedule_gives_the_same_run() {
    for policy in policies(3) {
        let (_, first) = run(Config::concurrent(), &policy, Placement::Ssd);
        let (_, again) = run(Config::concurrent(), &policy, Placement::Ssd);
        assert_eq!(first, again, "{policy:?}");
    }
}

#[test]
fn a_change_that_is_forgotten_because_it_came_during_a_write_is_found() {
    let mutant = || Config::concurrent().committing(CHANGE_DURING_WRITE_FORGOTTEN);
    let found = policies(150).find_map(|policy| run(mutant(), &policy, Placement::Ssd).0.err());
    println!("{found:?}");
    assert!(found.is_some_and(|found| found.starts_with("Completed")));
}

fn committing(mutant: Option<Mutant>) -> Config {
    Config { mutant, ..Config::default() }
}

#[test]
fn a_swizzled_reference_that_is_written_out_is_found_when_it_is_read() {
    for mutant in [None, Some(SWIZZLED_REFERENCE_WRITTEN)] {
        let bench = Bench::new(committing(mutant), &options(16), Placement::Ssd);
        bench.add(3);
        let mut root = bench.manager.fix_exclusive(bench.root).unwrap();
        root.write(0);
        drop(root);
        bench.manager.close().unwrap();
        let (domain, medium) = (bench.machine.clone(), Arc::new(bench.device.clone()));
        let manager = BufferManager::open(domain, medium, Arc::new(NoLog), &options(16)).unwrap();
        let bench = Bench { manager, ..bench };
        assert_eq!(bench.sum().is_ok(), mutant.is_none());
    }
}

/// A log that is durable when it is told to be, and cannot be any more once it has failed.
#[derive(Debug, Default)]
struct ToldLog(AtomicU64, AtomicBool);

impl WriteAheadLog for ToldLog {
    fn flushed_lsn(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn flush_to(&self, lsn: u64) -> Result<(), LogError> {
        if self.1.load(Ordering::Relaxed) {
            return Err(LogError { reason: "it has failed".to_owned() });
        }
        self.0.fetch_max(lsn, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_page_that_is_written_before_the_log_is_found_on_the_device() {
    for mutant in [None, Some(PAGE_BEFORE_LOG)] {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let machine = Modelled::over(&region, committing(mutant));
        let device = ModelledSsd::new(1, SsdConfig::default()).unwrap();
        let (medium, log) =
            (Arc::new(device) as Arc<dyn BlockDevice>, Arc::new(ToldLog::default()));
        let hook = Arc::clone(&log) as Arc<dyn WriteAheadLog>;
        let manager = BufferManager::create(machine, medium, hook, &options(4)).unwrap();
        for lsn in 1..20 {
            manager.allocate_page(PageKind(16), |_| lsn).unwrap();
        }
        let space = manager.space().unwrap();
        let lsn_of = |page: &[u8]| u64::from_le_bytes(*page[16..].first_chunk().unwrap());
        let written = (1..20).filter_map(PageNumber::new);
        let lsns = written.filter_map(|number| space.read(number, lsn_of).ok());
        let latest = lsns.max().unwrap();
        assert_eq!(latest <= log.flushed_lsn(), mutant.is_none(), "{latest}");
    }
}

/// One worker logs a change of a page, which it has latched, and makes it; one asks where redo begins.
fn ask_while_a_page_changes(
    config: Config,
    policy: &SchedulePolicy,
    make: impl Fn(&BufferManager<Modelled>, ExclusivePage<'_, Modelled>, u64) + Sync,
) -> RunEnd {
    let bench = &Bench::new(config, &options(16), Placement::Ssd);
    let page = bench.manager.allocate_page(PageKind(17), |_| 0).unwrap().number();
    bench.manager.write_all().unwrap();
    let (appended, make) = (&AtomicU64::new(0), &make);
    let programs: Vec<WorkerProgram<'_>> = vec![
        Box::new(|| {
            let page = bench.manager.fix_exclusive(page).unwrap();
            let lsn = 1 + appended.fetch_add(1, Ordering::Relaxed);
            make(&bench.manager, page, lsn);
        }),
        Box::new(|| {
            let end = appended.load(Ordering::Relaxed);
            let oldest = bench.manager.oldest_change();
            assert!(end == 0 || oldest == Some(1), "the log would be cut behind change {end}");
        }),
    ];
    bench.machine.run_workers(policy, programs).end
}

#[test]
fn a_page_that_is_being_changed_holds_back_the_log() {
    let ask = |config, policy: &SchedulePolicy| {
        ask_while_a_page_changes(config, policy, |_, mut page, lsn| {
            page.write(lsn).set_word(3000, lsn);
        })
    };
    for policy in policies(100) {
        assert_eq!(ask(Config::concurrent(), &policy), RunEnd::Completed);
    }
    let mutant = || Config::concurrent().committing(LATCHED_PAGE_OVERLOOKED);
    let mut ends = policies(100).map(|policy| ask(mutant(), &policy));
    assert!(ends.any(|end| end != RunEnd::Completed));
}

#[test]
fn a_page_that_is_being_freed_holds_back_the_log() {
    for policy in policies(200) {
        let end = ask_while_a_page_changes(Config::concurrent(), &policy, |manager, page, lsn| {
            assert_eq!(page.read().lsn(), 0);
            manager.free_page(page, lsn).unwrap();
        });
        assert_eq!(end, RunEnd::Completed, "{policy:?}");
    }
}
