//! Words of ordinary memory that are observed: what workers see of each other through them and
//! through persistent words, compared with the exhaustive litmus search over the same store buffers.

use std::collections::BTreeSet;
use std::sync::Mutex;

use lapis_device::litmus::{CutTime, Instruction, LitmusProgram};
use lapis_device::{
    BoundedSearch, Config, Modelled, PowerFailDomain, RunEnd, SchedulePolicy, WorkerProgram,
};
use lapis_pmem::{DramCell, PCell, Region};
use proptest::prelude::*;

use Instruction::{Exchange, Load, Store};

/// Words below this are persistent, the others are not.
const DRAM: usize = 16;
const WORDS: usize = 32;

/// What the loads and exchanges of each worker have returned.
type Registers = Vec<Vec<u64>>;

struct Bench {
    region: Region,
    domain: Modelled,
    dram: Vec<DramCell<u64, Modelled>>,
}

impl Bench {
    fn new() -> Self {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let domain = Modelled::over(&region, Config::concurrent());
        let dram = (DRAM..WORDS).map(|_| DramCell::new(0)).collect();
        Self { region, domain, dram }
    }

    fn persistent(&self, word: usize) -> &PCell<u64> {
        // SAFETY: inside the mapped region, aligned, only accessed atomically.
        unsafe { &*self.region.base().add(word * 8).cast() }
    }

    fn execute(&self, instruction: Instruction) -> Option<u64> {
        let domain = &self.domain;
        match instruction {
            Load(word) if word < DRAM => Some(self.persistent(word).load_acquire(domain)),
            Load(word) => Some(self.dram[word - DRAM].load_acquire(domain)),
            Store(word, value) if word < DRAM => {
                self.persistent(word).store_ordered(domain, value);
                None
            }
            Store(word, value) => {
                self.dram[word - DRAM].store_release(domain, value);
                None
            }
            Exchange(word, value) if word < DRAM => Some(self.persistent(word).swap(domain, value)),
            Exchange(word, value) => Some(self.dram[word - DRAM].swap(domain, value)),
            other => panic!("{other:?} is of no concern here"),
        }
    }
}

/// One run of a program on the machine.
fn run(
    program: &LitmusProgram,
    policy: &SchedulePolicy,
) -> (Registers, lapis_device::InterleavedRun) {
    let bench = Bench::new();
    let registers: Vec<Mutex<Vec<u64>>> =
        program.workers.iter().map(|_| Mutex::default()).collect();
    let workers = program.workers.iter().zip(&registers).map(|(instructions, registers)| {
        let bench = &bench;
        let worker: WorkerProgram<'_> = Box::new(move || {
            for &instruction in instructions {
                registers.lock().unwrap().extend(bench.execute(instruction));
            }
        });
        worker
    });
    let run = bench.domain.run_workers(policy, workers.collect());
    assert_eq!(run.end, RunEnd::Completed);
    (registers.into_iter().map(|it| it.into_inner().unwrap()).collect(), run)
}

/// What all schedules within a bound show.
fn seen(program: &LitmusProgram) -> BTreeSet<Registers> {
    let mut search = BoundedSearch::new(3, 50_000);
    let mut seen = BTreeSet::new();
    while let Some(policy) = search.next_policy() {
        let (registers, run) = run(program, &policy);
        search.ran(&run);
        seen.insert(registers);
    }
    assert!(search.is_complete());
    seen
}

/// What the exhaustive search shows, which makes no difference between the two kinds of words as
/// long as the power stays on.
fn by_search(program: &LitmusProgram) -> BTreeSet<Registers> {
    let outcomes = program.outcomes(PowerFailDomain::Adr, CutTime::End);
    outcomes.into_iter().map(|outcome| outcome.registers).collect()
}

fn program(workers: [&[Instruction]; 2]) -> LitmusProgram {
    LitmusProgram { workers: workers.map(<[Instruction]>::to_vec).to_vec() }
}

const X: usize = DRAM;
const Y: usize = DRAM + 1;
/// A persistent word.
const P: usize = 0;

#[test]
fn stores_wait_in_the_buffer_while_loads_go_on() {
    let program = program([&[Store(X, 1), Load(Y)], &[Store(Y, 1), Load(X)]]);
    let seen = seen(&program);
    assert!(seen.contains(&vec![vec![0], vec![0]]));
    assert_eq!(seen, by_search(&program));
}

#[test]
fn locked_instructions_wait_for_an_empty_buffer() {
    let program = program([&[Exchange(X, 1), Load(Y)], &[Exchange(Y, 1), Load(X)]]);
    let seen = seen(&program);
    assert!(!seen.contains(&vec![vec![0, 0], vec![0, 0]]));
    assert_eq!(seen, by_search(&program));
}

#[test]
fn whoever_sees_a_word_of_dram_sees_the_persistent_store_before_it_and_the_other_way_round() {
    for (first, second) in [(P, X), (X, P), (X, Y)] {
        let program = program([&[Store(first, 1), Store(second, 1)], &[Load(second), Load(first)]]);
        let seen = seen(&program);
        assert!(!seen.contains(&vec![vec![], vec![1, 0]]), "{first} before {second}");
        assert!(
            seen.contains(&vec![vec![], vec![1, 1]]) && seen.contains(&vec![vec![], vec![0, 1]])
        );
        assert_eq!(seen, by_search(&program));
    }
}

#[test]
fn a_worker_sees_its_own_newest_store() {
    let program = program([&[Store(X, 1), Store(X, 2), Load(X)], &[Load(X), Load(X)]]);
    let seen = seen(&program);
    assert!(seen.iter().all(|registers| registers[0] == [2]));
    assert_eq!(seen, by_search(&program));
}

#[test]
fn a_lock_of_two_words_that_looks_before_it_stores_is_broken_by_the_buffer() {
    // Each says that it comes in and enters if the other has not said so: both may enter.
    let broken = program([&[Store(X, 1), Load(Y)], &[Store(Y, 1), Load(X)]]);
    let both = |registers: &Registers| registers.iter().all(|worker| worker.last() == Some(&0));
    assert!(seen(&broken).iter().any(both));
    let right = program([&[Exchange(X, 1), Load(Y)], &[Exchange(Y, 1), Load(X)]]);
    assert!(!seen(&right).iter().any(both));
}

#[test]
fn a_word_may_go_before_the_last_store_to_it_leaves_the_buffer() {
    for seed in 0..20 {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let domain = Modelled::over(&region, Config::concurrent());
        let programs = (0..2).map(|_| -> WorkerProgram<'_> {
            Box::new(|| {
                for value in 0..10 {
                    let cell = DramCell::<u32, Modelled>::new(0);
                    cell.store_release(&domain, value);
                    assert_eq!(cell.load(&domain), value);
                }
            })
        });
        let run = domain.run_workers(&SchedulePolicy::Random { seed }, programs.collect());
        assert_eq!(run.end, RunEnd::Completed);
    }
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let word = prop::sample::select(vec![P, P + 8, X, Y]);
    (0..4u8, word, 1..4u64).prop_map(|(kind, word, value)| match kind {
        0 => Exchange(word, value),
        1 => Load(word),
        _ => Store(word, value),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_run_shows_what_the_exhaustive_search_shows(
        workers in prop::collection::vec(prop::collection::vec(instruction(), 1..5), 2..3),
        seed in any::<u64>(),
    ) {
        let program = LitmusProgram { workers };
        let legal = by_search(&program);
        for seed in seed..seed.saturating_add(20) {
            let (registers, _) = run(&program, &SchedulePolicy::Random { seed });
            prop_assert!(legal.contains(&registers), "{:?} of {:?}", registers, program);
        }
    }
}
