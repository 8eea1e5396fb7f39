//! One worker, cut at every point.

use lapis_buffer::TierStatistics;
use lapis_buffer::mutants::PAGE_LSN_NOT_RAISED;
use lapis_crash::{
    ExploreOptions, ExploreReport, Live, Modelled, Storage, Strategy, Subject, explore,
};
use lapis_device::{Config, ModelledSsd, SsdConfig};
use lapis_pmem::{AuditReport, Mutant, Pool, Region};
use lapis_tree::TreeStatistics;
use lapis_tree::mutants::{
    CUT_NOT_LOGGED, MOVE_WITHOUT_PARENT, MOVED_RECORDS_NOT_LOGGED, REDO_WITHOUT_LSN_TEST,
};

use super::logged::{BLOCKS, LiveTree, State};
use super::text;

/// A path, its sibling, and little more.
const FRAMES: usize = 6;
const KEYS: u64 = 44;
const OPS: usize = 200;

#[derive(Clone, Debug)]
enum Operation {
    Put(u64, u64),
    Remove(u64),
    WriteBack,
    WriteAll,
    CutLog,
    Compact,
    Close,
}

/// Over an SSD, or with persistent memory between.
struct Logged {
    tiered: bool,
}

impl Subject for Logged {
    type Operation = Operation;
    type State = State;
    type Live = LiveTree;

    fn name(&self) -> &'static str {
        if self.tiered { "tree:three-tier" } else { "tree:ssd" }
    }
    fn pool_bytes(&self) -> usize {
        if self.tiered { 2 << 20 } else { 0 }
    }
    fn device_blocks(&self) -> Vec<u64> {
        BLOCKS.to_vec()
    }
    fn operations(&self, count: usize, seed: u64) -> Vec<Operation> {
        let (mut random, mut removed) = (seed, 0);
        let operation = |at: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at as u64 | 1);
            let number = (random >> 33) % KEYS;
            // The tree grows, is emptied, and grows again.
            let is_emptied = (at * 5 / count) / 2 == 1;
            match (random >> 50) % 16 {
                0..11 if is_emptied => {
                    removed += 1;
                    Operation::Remove(removed * 5 % KEYS)
                }
                0..9 => Operation::Put(number, at as u64 + 100),
                9..11 => Operation::Remove(number),
                11 | 12 => Operation::WriteBack,
                13 => Operation::WriteAll,
                14 if at.is_multiple_of(2) => Operation::CutLog,
                14 => Operation::Compact,
                _ => Operation::Close,
            }
        };
        (0..count).map(operation).collect()
    }
    fn probes(&self, state: &State, _: Option<&Operation>, seed: u64) -> Vec<Operation> {
        let some = state.keys().copied().nth(seed as usize % state.len().max(1));
        let removed = some.map(Operation::Remove);
        let puts = (0..4).map(|at| Operation::Put((seed + at) % KEYS, seed + 89 * at));
        puts.chain(removed).chain([Operation::WriteAll, Operation::CutLog]).collect()
    }
    fn create(&self, storage: Storage) -> Result<LiveTree, String> {
        LiveTree::create(storage, FRAMES)
    }
    fn open(&self, storage: Storage) -> Result<Option<LiveTree>, String> {
        LiveTree::open(storage, FRAMES)
    }
    fn initial(&self) -> State {
        State::new()
    }
    fn apply(&self, state: &mut State, operation: &Operation) {
        match *operation {
            Operation::Put(number, made_from) => _ = state.insert(number, made_from),
            Operation::Remove(number) => _ = state.remove(&number),
            _ => {}
        }
    }
    fn owns_source(&self, file: &str) -> bool {
        file.contains("tree/src") || file.ends_with("tree/logged.rs")
    }
}

impl Live<Operation, State> for LiveTree {
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        match *operation {
            Operation::Put(number, made_from) => self.put(number, made_from),
            Operation::Remove(number) => self.remove(number).map(|_| ()),
            Operation::WriteBack => self.manager.write_back().map(|_| ()).map_err(text),
            Operation::WriteAll => self.manager.write_all().map_err(text),
            Operation::CutLog => self.cut_log(),
            Operation::Compact => self.compact(),
            Operation::Close => self.manager.close().map_err(text),
        }
    }
    fn observe(&self) -> Result<State, String> {
        self.contents()
    }
    fn check(&self) -> Vec<String> {
        self.problems()
    }
    fn reclaim_and_audit(&self) -> AuditReport {
        self.audit()
    }
    fn pool(&self) -> Option<&Pool<Modelled>> {
        self.manager.tier().map(|tier| &**tier.pool())
    }
}

fn explored(subject: &Logged, seed: u64, mutant: Option<Mutant>) -> Result<ExploreReport, String> {
    let options = ExploreOptions {
        ops: OPS,
        seed,
        mutant,
        strategy: Strategy::Sampled,
        samples: if subject.tiered { 1 } else { 2 },
        // Each error is at few of the points. A page that is written to persistent memory is many.
        spread_images: match (mutant, subject.tiered) {
            (Some(_), _) => 0,
            (None, false) => 4_000,
            (None, true) => 6_000,
        },
        crash_in_recovery_every: 1000,
        whole_check_every: 4,
        violation_limit: 1,
        ..ExploreOptions::default()
    };
    explore(subject, &options, &|_| {}).map_err(text)
}

/// What happens in a run of the same operations from beginning to end.
fn happened(subject: &Logged, seed: u64) -> ([u64; 9], TreeStatistics, TierStatistics) {
    let bytes = subject.pool_bytes().max(1 << 16);
    let region = Region::anonymous(bytes, bytes).unwrap();
    let machine = Modelled::over(&region, Config::default());
    let pool = subject.tiered.then(|| Pool::create(region, machine.clone()).unwrap());
    let device = |blocks| ModelledSsd::attached_to(&machine, blocks, SsdConfig::default()).unwrap();
    let storage = Storage { pool, devices: BLOCKS.map(device).to_vec(), machine: machine.clone() };
    let mut live = subject.create(storage).unwrap();
    // A page that is given out although there are higher numbers was somebody's.
    let (mut highest, mut reused, mut cuts) = (0, 0, 0);
    for operation in subject.operations(OPS, seed) {
        let before = live.manager.space().unwrap().numbers();
        live.perform(&operation).unwrap();
        let after = live.manager.space().unwrap().numbers();
        let new = after.iter().filter(|number| !before.contains(number));
        reused += new.filter(|number| number.get() < highest).count() as u64;
        highest = after.last().map_or(highest, |last| last.get().max(highest));
        cuts += u64::from(matches!(operation, Operation::CutLog));
    }
    let (of_tree, of_manager) = (live.tree.statistics(), live.manager.statistics());
    let counts = [
        of_tree.splits,
        of_tree.growths,
        of_tree.merges,
        of_tree.shrinkages,
        of_manager.evictions,
        of_manager.batches,
        reused,
        cuts,
        of_tree.moves,
    ];
    (counts, of_tree, of_manager.tier)
}

#[test]
fn a_tree_on_pages_survives_every_power_cut() {
    let mut total = [0; 9];
    for seed in 1..=2 {
        let subject = Logged { tiered: false };
        let report = explored(&subject, seed, None).unwrap();
        let (happened, ..) = happened(&subject, seed);
        println!("seed {seed}: {} images, {happened:?}", report.images);
        assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
        assert!(report.images > 3000 && report.images_in_recovery > 300, "{report:?}");
        total.iter_mut().zip(happened).for_each(|(total, of_seed)| *total += of_seed);
    }
    let [splits, growths, merges, shrinkages, evictions, batches, reused, cuts, moves] = total;
    assert!(splits > 10 && growths > 1 && merges > 4 && shrinkages > 0, "{total:?}");
    assert!(evictions > 20 && batches > 20 && reused > 2 && cuts > 4 && moves > 0, "{total:?}");
}

#[test]
fn a_tree_with_pages_in_persistent_memory_survives_every_power_cut() {
    let subject = Logged { tiered: true };
    let report = explored(&subject, 1, None).unwrap();
    let (_, tree, tier) = happened(&subject, 1);
    println!("{} images, {tree:?}, {tier:?}", report.images);
    assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
    assert!(report.images > 3000 && report.images_in_recovery > 300, "{report:?}");
    for often in [tier.loads, tier.admissions, tier.evictions, tier.promotions, tier.lines_written]
    {
        assert!(often >= 2, "{tier:?}");
    }
    assert!(tree.hashed_splits > 4 && tree.hashed_merges > 1, "{tree:?}");
}

#[test]
fn every_mutant_of_the_tree_that_a_power_cut_shows_is_killed() {
    let mutants = [
        MOVED_RECORDS_NOT_LOGGED,
        CUT_NOT_LOGGED,
        REDO_WITHOUT_LSN_TEST,
        MOVE_WITHOUT_PARENT,
        PAGE_LSN_NOT_RAISED,
    ];
    for mutant in mutants {
        // The first run moves nothing that is cut off then.
        let first = if mutant.0 == MOVE_WITHOUT_PARENT.0 { 2 } else { 1 };
        let found = (first..=4).find_map(|seed| {
            match explored(&Logged { tiered: false }, seed, Some(mutant)) {
                Ok(report) => report.violations.first().map(|it| it.what.clone()),
                // It does not even survive an orderly end.
                Err(what) => Some(what),
            }
        });
        let found = found.unwrap_or_else(|| panic!("{} survived", mutant.0));
        println!("{}: {found}", mutant.0);
    }
}
