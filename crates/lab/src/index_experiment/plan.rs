//! What each thread will do, made before the clock runs.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::Operation;
use crate::keys::{KeySet, scatter};
use crate::ycsb::{Kind, Workload};
use crate::zipfian::Latest;

/// Entries that [`Operation::Range`] reads.
pub(crate) const RANGE_ENTRIES: u32 = 100;
/// Most entries that a scan of workload E reads.
const LONGEST_SCAN: u32 = 100;

/// One call of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Insert { key: u64 },
    Get { key: u64 },
    Update { key: u64, round: u32 },
    ReadUpdate { key: u64, round: u32 },
    Remove { key: u64 },
    Scan { from: u64, limit: u32 },
}

/// Hands out keys that were not loaded.
pub(crate) struct Fresh<'k> {
    keys: &'k [u64],
}

impl<'k> Fresh<'k> {
    pub(crate) fn new(keys: &'k KeySet) -> Self {
        Self { keys: keys.fresh() }
    }

    pub(crate) fn take(&mut self, count: usize) -> &'k [u64] {
        let (taken, rest) = self.keys.split_at(count.min(self.keys.len()));
        self.keys = rest;
        taken
    }
}

/// Inserts that `repetitions` of these operations make, at most.
pub(crate) fn fresh_keys(operations: &[Operation], repetitions: usize) -> usize {
    let share = |operation: &Operation| match operation {
        Operation::Insert | Operation::InsertMany => repetitions,
        // 5 % on average; the plan takes from the rest if chance has it otherwise.
        Operation::Ycsb(workload) if workload.mix().insert > 0 => repetitions / 10 + 64,
        _ => 0,
    };
    operations.iter().map(share).sum()
}

/// The steps of each thread for one operation.
pub(crate) fn plan(
    operation: Operation,
    keys: &KeySet,
    fresh: &mut Fresh<'_>,
    repetitions: usize,
    threads: usize,
    seed: u64,
) -> Vec<Vec<Step>> {
    let loaded = keys.loaded();
    let share =
        |total: usize, thread: usize| total * thread / threads..total * (thread + 1) / threads;
    let repetitions = repetitions.min(loaded.len());
    let each = |total: usize, step: &mut dyn FnMut(usize) -> Step| -> Vec<Vec<Step>> {
        (0..threads).map(|thread| share(total, thread).map(&mut *step).collect()).collect()
    };
    let (requests, mut random) = (keys.requests(), SmallRng::seed_from_u64(seed));
    let request = |random: &mut SmallRng| loaded[requests.next(random)];
    match operation {
        Operation::Load => each(loaded.len(), &mut |i| Step::Insert { key: loaded[i] }),
        Operation::Get | Operation::GetMany => {
            each(repetitions, &mut |_| Step::Get { key: request(&mut random) })
        }
        Operation::Range => each(repetitions, &mut |_| Step::Scan {
            from: request(&mut random),
            limit: RANGE_ENTRIES,
        }),
        Operation::Update => {
            each(repetitions, &mut |i| Step::Update { key: request(&mut random), round: i as u32 })
        }
        // Loaded keys are in random order already.
        Operation::Delete => each(repetitions, &mut |i| Step::Remove { key: loaded[i] }),
        Operation::Insert | Operation::InsertMany => {
            let inserts = fresh.take(repetitions);
            each(inserts.len(), &mut |i| Step::Insert { key: inserts[i] })
        }
        Operation::Ycsb(workload) => {
            let plan_of = |thread: usize| {
                let count = share(repetitions, thread).len();
                let random = SmallRng::seed_from_u64(scatter(seed ^ thread as u64));
                ycsb(workload, keys, fresh, count, random)
            };
            (0..threads).map(plan_of).collect()
        }
    }
}

/// Look-ups of so many different keys, in random order.
pub(crate) fn each_once(
    keys: &KeySet,
    repetitions: usize,
    threads: usize,
    seed: u64,
) -> Vec<Vec<Step>> {
    let mut order = keys.loaded().to_vec();
    order.shuffle(&mut SmallRng::seed_from_u64(seed));
    order.truncate(repetitions);
    let shares = order.chunks(order.len().div_ceil(threads).max(1));
    let mut plans: Vec<Vec<Step>> =
        shares.map(|share| share.iter().map(|&key| Step::Get { key }).collect()).collect();
    plans.resize(threads, Vec::new());
    plans
}

/// The steps of one thread for a workload of YCSB. What a thread inserts is asked for by that
/// thread only, and only later, so every answer is known.
fn ycsb(
    workload: Workload,
    keys: &KeySet,
    fresh: &mut Fresh<'_>,
    count: usize,
    mut random: SmallRng,
) -> Vec<Step> {
    let (mix, loaded, requests) = (workload.mix(), keys.loaded(), keys.requests());
    let mut latest = Latest::new(loaded.len() as u64);
    let mut inserted: Vec<u64> = Vec::new();
    let mut steps = Vec::with_capacity(count);
    for round in 0..count as u32 {
        let mut kind = mix.kind(random.random_range(0..100));
        let mut new = None;
        if kind == Kind::Insert {
            new = fresh.take(1).first().copied();
            if new.is_none() {
                // Out of fresh keys, against all odds.
                kind = Kind::Read;
            }
        }
        let key = if workload == Workload::D {
            let at = latest.next(&mut random, (loaded.len() + inserted.len()) as u64) as usize;
            loaded.get(at).copied().unwrap_or_else(|| inserted[at - loaded.len()])
        } else {
            loaded[requests.next(&mut random)]
        };
        steps.push(match (kind, new) {
            (Kind::Insert, Some(key)) => {
                inserted.push(key);
                Step::Insert { key }
            }
            (Kind::Update, _) => Step::Update { key, round },
            (Kind::ReadModifyWrite, _) => Step::ReadUpdate { key, round },
            (Kind::Scan, _) => {
                Step::Scan { from: key, limit: random.random_range(1..=LONGEST_SCAN) }
            }
            _ => Step::Get { key },
        });
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::keys::Distribution;

    fn steps(operation: Operation, threads: usize) -> Vec<Vec<Step>> {
        let fresh = fresh_keys(&[operation], 2000);
        let keys = KeySet::generate(Distribution::Uniform, 4000, fresh, 1);
        plan(operation, &keys, &mut Fresh::new(&keys), 2000, threads, 7)
    }

    #[test]
    fn threads_share_the_steps_evenly() {
        for operation in Operation::ALL {
            let plans = steps(operation, 3);
            let total: usize = plans.iter().map(Vec::len).sum();
            let expected = if operation == Operation::Load { 4000 } else { 2000 };
            assert_eq!((plans.len(), total), (3, expected), "{operation}");
            assert!(plans.iter().all(|plan| plan.len().abs_diff(expected / 3) <= 1));
        }
    }

    /// Asserts that no key comes twice, and says how many there are.
    fn distinct(plans: Vec<Vec<Step>>) -> usize {
        let keys = plans.into_iter().flatten().map(|step| match step {
            Step::Insert { key } | Step::Remove { key } | Step::Get { key } => key,
            other => panic!("{other:?}"),
        });
        let all: Vec<u64> = keys.collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        all.len()
    }

    #[test]
    fn inserts_and_removals_are_of_distinct_keys() {
        for operation in [Operation::Load, Operation::Insert, Operation::Delete] {
            distinct(steps(operation, 2));
        }
    }

    #[test]
    fn look_ups_ask_for_each_key_once_if_they_are_to() {
        let keys = KeySet::generate(Distribution::Zipf, 4000, 0, 1);
        let plans = each_once(&keys, 2000, 3, 7);
        assert_ne!(plans[0][0], Step::Get { key: keys.loaded()[0] });
        assert_eq!((plans.len(), distinct(plans)), (3, 2000));
        assert_eq!(each_once(&keys, 1, 3, 7).len(), 3);
    }

    #[test]
    fn workload_d_asks_for_what_it_inserted() {
        let plan = &steps(Operation::Ycsb(Workload::D), 1)[0];
        let mut inserted = BTreeSet::new();
        let mut asked = 0;
        for step in plan {
            match step {
                Step::Insert { key } => drop(inserted.insert(*key)),
                Step::Get { key } => asked += usize::from(inserted.contains(key)),
                other => panic!("{other:?}"),
            }
        }
        assert!((60..140).contains(&inserted.len()), "{}", inserted.len());
        assert!(asked > 400, "{asked}");
    }

    #[test]
    fn plans_repeat_for_the_same_seed() {
        for operation in Operation::ALL {
            assert_eq!(steps(operation, 2), steps(operation, 2));
        }
    }
}
