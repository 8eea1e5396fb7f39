//! Every index among workers that sleep through many operations of others: schedules of the modelled machine that change workers
//! a few times, over structures with small nodes that grow and shrink meanwhile.
//!
//! The crash checker explores changes of structure that meet. Here a worker may stand anywhere while the others
//! split, join, grow and free what it stands in, time and again; no power is cut.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_device::{Config, Modelled, RunEnd, SchedulePolicy, WorkerProgram};
use lapis_index::{AnyIndex, Direction, IndexKey, IndexKind, IndexMaker};
use lapis_pmem::{Mutant, Pool, Region};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Keys that are there throughout. Between them lie those that come and go.
const STEADY: u64 = 100;
/// Keys of each writer that come and go: so few that nodes become empty and are made again, or so many that levels are, and
/// tables grow twice while somebody sleeps.
const OWN: [u64; 4] = [5, 24, 100, 400];
/// What each writer does at least.
const TURNS: u64 = 300;
const WRITERS: u64 = 2;
/// Values of a key: its number, and which.
const VALUES: u64 = 10_000;

/// Keys that are in the order of their numbers, or in none, or share most of what they are.
trait Numbered: IndexKey {
    fn number(number: u64, order: u64) -> Self::Buf;
}

fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Numbered for u64 {
    fn number(number: u64, order: u64) -> u64 {
        match order % 3 {
            0 => number,
            1 => mixed(number),
            _ => (number % 16) << 40 | number,
        }
    }
}

impl Numbered for [u8] {
    fn number(number: u64, order: u64) -> Vec<u8> {
        match order % 3 {
            0 => number.to_be_bytes().to_vec(),
            1 => mixed(number).to_be_bytes().to_vec(),
            _ => format!("{}/a long way down/{number}", number % 4).into_bytes(),
        }
    }
}

/// An index among workers.
struct Explored<K: Numbered + ?Sized> {
    index: AnyIndex<Modelled, K>,
    order: u64,
}

impl<K: Numbered + ?Sized> Explored<K> {
    fn key(&self, number: u64) -> K::Buf {
        K::number(number, self.order)
    }

    fn get(&self, number: u64) -> Option<u64> {
        self.index.get(K::borrow(&self.key(number)))
    }

    /// All entries, in the order in which the index has them.
    fn entries(&self) -> Vec<(K::Buf, u64)> {
        let mut found = Vec::new();
        let mut visit = |key: &K, value| {
            found.push((key.to_buf(), value));
            ControlFlow::Continue(())
        };
        match self.index.kind().0.is_ordered() {
            true => _ = self.index.scan(Bound::Unbounded, Direction::Forward, &mut visit),
            false => self.index.for_each(&mut visit),
        }
        found
    }

    /// What keys have, looked up all at once.
    fn get_many(&self, numbers: impl Iterator<Item = u64>) -> Vec<Option<u64>> {
        let keys: Vec<_> = numbers.map(|number| self.key(number)).collect();
        let mut found = vec![None; keys.len()];
        let keys: Vec<_> = keys.iter().map(K::borrow).collect();
        self.index.get_many(&keys, &mut |at, value| found[at] = value);
        found
    }

    /// Looks for the steady keys one by one, all at once, and among all entries.
    fn look(&self) {
        let numbers = || (0..STEADY).map(|at| at * (WRITERS + 1));
        for number in numbers() {
            assert_eq!(self.get(number), Some(number * VALUES), "key {number}");
        }
        let at_once = self.get_many(numbers());
        let expected = numbers().map(|number| Some(number * VALUES));
        assert!(expected.eq(at_once.iter().copied()), "steady keys at once: {at_once:?}");
        let mut found = self.entries();
        if self.index.kind().0.is_ordered() {
            assert!(found.is_sorted_by(|one, next| one.0 < next.0), "a scan is not in order");
        }
        found.retain(|(_, value)| (value / VALUES).is_multiple_of(WRITERS + 1));
        assert_eq!(found.len() as u64, STEADY, "steady keys in a scan");
    }

    /// Adds, changes and removes keys that no other worker changes: first they become more, then fewer, then more. What there
    /// is of them at the end.
    fn write(&self, worker: u64, seed: u64) -> BTreeMap<u64, u64> {
        let mut random = SmallRng::seed_from_u64(WRITERS * seed + worker);
        let mut mine = BTreeMap::new();
        let (own, apart) = (OWN[(seed % 4) as usize], seed / 4 % 2 * STEADY);
        let turns = TURNS.max(3 * own);
        let number_of = |at: u64| (apart + at) * (WRITERS + 1) + 1 + worker;
        for turn in 0..turns {
            if turn % 50 == 49 {
                let expected = (0..own).map(|at| mine.get(&number_of(at)).copied());
                let found = self.get_many((0..own).map(number_of));
                assert!(expected.eq(found.iter().copied()), "own keys at once: {found:?}");
            }
            let number = number_of(random.random_range(0..own));
            let (buf, value) = (self.key(number), number * VALUES + turn);
            let key = K::borrow(&buf);
            let grows = turn * 3 / turns != 1;
            let before = mine.get(&number).copied();
            let previous = match random.random_range(0..8) {
                0 => {
                    assert_eq!(self.get(number), before, "key {number}");
                    continue;
                }
                1 => {
                    mine.entry(number).and_modify(|it| *it = value);
                    self.index.update(key, value)
                }
                2 | 3 if grows => {
                    mine.remove(&number);
                    self.index.remove(key)
                }
                2 | 3 => {
                    mine.insert(number, value);
                    self.index.put(key, value)
                }
                _ if grows => {
                    mine.entry(number).or_insert(value);
                    self.index.insert(key, value)
                }
                _ => {
                    mine.remove(&number);
                    self.index.remove(key)
                }
            };
            assert_eq!(previous.unwrap().previous, before, "key {number} at turn {turn}");
        }
        mine
    }
}

/// Writers with keys of their own, and one who looks at all. What is wrong.
fn explore<K: Numbered + ?Sized>(
    kind: IndexKind,
    policy: &SchedulePolicy,
    seed: u64,
    mutant: Option<Mutant>,
) -> Result<(), String> {
    let region = Region::anonymous(16 << 20, 16 << 20).unwrap();
    let machine = Modelled::over(&region, Config { mutant, ..Config::concurrent() });
    let pool = Arc::new(Pool::create(region, machine.clone()).unwrap());
    let options = &kind.declaration().exploration.options;
    let index =
        IndexMaker::<Modelled, K>::HERE.create_named(kind, &pool, "index", options).unwrap();
    let explored = &Explored { index, order: seed };
    for number in (0..STEADY).map(|at| at * (WRITERS + 1)) {
        let key = explored.key(number);
        let _ = explored.index.insert(K::borrow(&key), number * VALUES).unwrap();
    }
    let mut left = [const { BTreeMap::new() }; WRITERS as usize];
    let writers = (0..).zip(&mut left).map(|(worker, left)| -> WorkerProgram<'_> {
        Box::new(move || *left = explored.write(worker, seed))
    });
    let looks: WorkerProgram<'_> = Box::new(|| (0..2).for_each(|_| explored.look()));
    let end = machine.run_workers(policy, writers.chain([looks]).collect()).end;
    if end != RunEnd::Completed {
        return Err(format!("{end:?}"));
    }
    let steady = (0..STEADY).map(|at| at * (WRITERS + 1)).map(|number| (number, number * VALUES));
    let expected = steady.chain(left.into_iter().flatten());
    let mut expected: Vec<_> =
        expected.map(|(number, value)| (explored.key(number), value)).collect();
    let mut found = explored.entries();
    expected.sort();
    found.sort();
    let problems = explored.index.check();
    match found == expected && problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{} entries of {}; {problems:?}", found.len(), expected.len())),
    }
}

/// Policies that change workers a few times, of which each sleeps for long.
fn policies(seeds: std::ops::Range<u64>) -> impl Iterator<Item = (u64, SchedulePolicy)> {
    seeds.map(|seed| {
        let (changes, events) = (2 + seed as u32 * 7 % 5, 3_000 << (seed / 4 % 7));
        (seed, SchedulePolicy::Priorities { seed, changes, events })
    })
}

/// Whatever becomes of a worker, or of the keys before there are any: what is wrong with a schedule of either kind of keys.
fn explore_both(
    kind: IndexKind,
    (seed, policy): (u64, SchedulePolicy),
    mutant: Option<Mutant>,
) -> Result<(), String> {
    let integers = explore::<u64>(kind, &policy, seed, mutant);
    integers.map_err(|what| format!("{kind}, integers, {policy:?}: {what}"))?;
    let byte_strings = explore::<[u8]>(kind, &policy, seed, mutant);
    byte_strings.map_err(|what| format!("{kind}, byte strings, {policy:?}: {what}"))
}

fn nothing_is_lost(seeds: u64) {
    for kind in IndexKind::ALL {
        for schedule in policies(0..seeds) {
            assert_eq!(explore_both(kind, schedule, None), Ok(()));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "many schedules")]
fn workers_that_sleep_through_many_operations_of_others_lose_nothing() {
    nothing_is_lost(4);
}

#[test]
#[ignore = "thousands of schedules: minutes"]
fn in_thousands_of_schedules_workers_that_sleep_lose_nothing_either() {
    nothing_is_lost(300);
}

#[test]
#[cfg_attr(miri, ignore = "many schedules")]
fn who_goes_on_from_what_others_have_changed_is_found() {
    for (kind, mutant) in [
        (IndexKind::Wort, "wort/stale-decision"),
        (IndexKind::FastFair, "fast-fair/wrong-node-after-split"),
        (IndexKind::PHot, "p-hot/pull-up-in-two-steps"),
    ] {
        let mut schedules = policies(0..60);
        let found = schedules.find_map(|it| explore_both(kind, it, Some(Mutant(mutant))).err());
        println!("{mutant}: {found:?}");
        assert!(found.is_some(), "{mutant} survived");
    }
}
