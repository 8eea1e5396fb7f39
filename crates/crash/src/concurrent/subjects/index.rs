//! An index, with keys of one kind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lapis_device::Modelled;
use lapis_index::{
    AnyIndex, Direction, Exploration, IndexKey, IndexKind, IndexOptions, InnerNodes,
};
use lapis_pmem::AuditReport;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::index_call::{CallTo, IndexAnswer, IndexCall, by_key};
use crate::concurrent::history::Call;
use crate::concurrent::linearizability::{MapAction, MapKey, is_linearizable};
use crate::concurrent::subject::{ConcurrentSubject, Offence, Plan};
use crate::storage::Storage;
use crate::subjects::{KeySpace, created, opened, visit_from_root};

/// An index that several workers change.
#[derive(Debug)]
pub struct ConcurrentIndex<K: IndexKey + ?Sized> {
    name: &'static str,
    sources: &'static [&'static str],
    kind: IndexKind,
    options: IndexOptions,
    keys: u64,
    planned: Option<Plan<IndexCall<K::Buf>>>,
}

impl<K: IndexKey + ?Sized> ConcurrentIndex<K> {
    /// An index of a kind. `name` on the command line; `sources` are parts of the paths of its
    /// source files; beforehand there are up to `keys` keys.
    pub fn new(
        kind: IndexKind,
        name: &'static str,
        sources: &'static [&'static str],
        options: IndexOptions,
        keys: u64,
    ) -> Self {
        Self { name, sources, kind, options, keys, planned: None }
    }

    /// With this one history, whatever the seed.
    #[must_use]
    pub(in crate::concurrent) fn planned(self, plan: Plan<IndexCall<K::Buf>>) -> Self {
        Self { planned: Some(plan), ..self }
    }
}

impl<K: KeySpace + ?Sized> ConcurrentIndex<K> {
    /// What is to be done with a key, or now and then in its place a scan from there, or a call of this key and those
    /// that workers meet at.
    fn perhaps_of_many(
        &self,
        number: u64,
        action: MapAction,
        hot: &[u64],
        random: &mut SmallRng,
    ) -> IndexCall<K::Buf> {
        let key = K::key(number);
        let direction = [Direction::Forward, Direction::Backward][random.random_range(0..2)];
        let kind = random.random_range(0..8);
        let mut keys: Vec<_> = hot.iter().map(|&hot| K::key(hot)).collect();
        keys.extend([K::key(number + 4), key.clone()]);
        keys.sort();
        keys.dedup();
        let first = random.random_range(0..keys.len());
        keys.rotate_left(first);
        match (action, kind) {
            (MapAction::Get, 0 | 1) => IndexCall::GetMany(keys),
            (MapAction::Get, 2 | 3) => IndexCall::Scan(key, direction),
            (MapAction::Insert(value), 0) => {
                IndexCall::InsertMany(keys.into_iter().map(|key| (key, value)).collect())
            }
            _ => IndexCall::One(key, action),
        }
    }
}

impl<K: KeySpace + ?Sized> ConcurrentSubject for ConcurrentIndex<K>
where
    K::Buf: std::hash::Hash,
{
    type Operation = IndexCall<K::Buf>;
    type Returned = IndexAnswer<K::Buf>;
    type State = BTreeMap<K::Buf, u64>;
    type Live = AnyIndex<Modelled, K>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        match self.options.inner_nodes {
            InnerNodes::Dram => 2 << 20,
            // The allocator takes half a MiB at once for blocks of their size.
            InnerNodes::Pm => 4 << 20,
        }
    }

    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Self::Operation> {
        if let Some(plan) = &self.planned {
            return plan.clone();
        }
        let mut random = SmallRng::seed_from_u64(seed);
        // Some histories on a structure with many keys, some on an empty one.
        let filled = random.random_range(0..=self.keys);
        let mut before: Vec<_> = (0..filled)
            .map(|_| {
                let key = K::key(random.random_range(0..self.keys));
                IndexCall::One(key, MapAction::Put(random.random_range(0..100)))
            })
            .collect();
        if random.random_range(0..3) == 0 {
            // And some on one that most keys were removed from.
            for _ in 0..filled {
                let key = K::key(random.random_range(0..self.keys));
                before.push(IndexCall::One(key, MapAction::Remove));
            }
        }
        // Few keys that workers meet at, neighbours of one another, and now and then any other.
        // In some histories all meet at one key, which the first worker changes and others read.
        let contended = random.random_range(0..3) == 0;
        let hot: Vec<u64> =
            (0..if contended { 1 } else { 3 }).map(|_| random.random_range(0..self.keys)).collect();
        let reads = random.random_range(2..6);
        let grows = random.random_range(2..7);
        let mut value = 100;
        let mut many = SmallRng::seed_from_u64(!seed);
        Plan::sharing(before, workers, operations, |worker| {
            let reads = match (contended, worker) {
                (true, 0) => 0,
                (true, _) => 8,
                (false, _) => reads,
            };
            let number = match random.random_range(0..5) {
                _ if contended => hot[0],
                0 => random.random_range(0..self.keys),
                1 => hot[random.random_range(0..hot.len())].saturating_add(4),
                _ => hot[random.random_range(0..hot.len())],
            };
            value += 1;
            let action = if random.random_range(0..10) < reads {
                MapAction::Get
            } else {
                match random.random_range(0..10) {
                    0 => MapAction::Update(value),
                    // What others read is to be replaced more often than anything else.
                    1 => MapAction::Put(value),
                    2 | 3 if contended => MapAction::Put(value),
                    kind if kind < 2 + grows => MapAction::Insert(value),
                    _ => MapAction::Remove,
                }
            };
            self.perhaps_of_many(number, action, &hot, &mut many)
        })
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        created(self.kind, storage, &self.options)
    }

    fn open(&self, storage: Storage) -> Result<Self::Live, String> {
        opened(self.kind, storage)?.ok_or_else(|| "the root is gone".to_owned())
    }

    fn perform(
        &self,
        index: &Self::Live,
        call: &IndexCall<K::Buf>,
    ) -> Result<IndexAnswer<K::Buf>, String> {
        call.ask(index)
    }

    fn observe(&self, index: &Self::Live) -> Result<Self::State, String> {
        let mut state = BTreeMap::new();
        let mut twice = None;
        index.for_each(&mut |key, value| {
            if state.insert(key.to_buf(), value).is_some() {
                twice = Some(key.to_buf());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if let Some(key) = twice {
            return Err(format!("{key:?} is visited twice"));
        }
        for (key, &value) in &state {
            let found = index.get(K::borrow(key));
            if found != Some(value) {
                return Err(format!("iteration finds {value} for {key:?}, a look-up {found:?}"));
            }
        }
        Ok(state)
    }

    fn problems(&self, index: &Self::Live) -> Vec<String> {
        index.check()
    }

    fn audit(&self, index: &Self::Live) -> AuditReport {
        let pool = index.pool();
        let reachable = pool.reachable(visit_from_root(index));
        pool.reclaim_and_audit(&reachable)
    }

    fn judge(
        &self,
        initial: &Self::State,
        all: &[CallTo<K::Buf>],
        found: &Self::State,
    ) -> Result<(), Offence> {
        for (key, calls) in by_key(all, initial.keys().chain(found.keys()))? {
            let (first, last) = (initial.get(key).copied(), found.get(key).copied());
            let explained = |calls: &[Call<_, _>]| {
                is_linearizable(&MapKey, calls, &first, &last)
                    .map_err(|error| Offence { operation: None, what: error.to_string() })
            };
            if explained(&calls)? {
                continue;
            }
            // The call whose answer, had nobody been told it, would leave nothing to explain.
            let mut offender = None;
            for at in (0..calls.len()).rev() {
                let mut others = calls.clone();
                if others[at].completed.take().is_some() && explained(&others)? {
                    offender = Some(format!("{}: {:?}", calls[at].number, calls[at].operation));
                    break;
                }
            }
            let told: Vec<String> = calls.iter().map(|call| describe(call, all)).collect();
            let changed = format!("key {key:?} had {first:?} and has {last:?}, which no");
            return Err(Offence {
                operation: offender,
                what: match told.is_empty() {
                    true => format!("{changed} call has to do with"),
                    false => {
                        format!("{changed} order of these calls explains: {}", told.join("; "))
                    }
                },
            });
        }
        Ok(())
    }

    fn changes(&self, call: &IndexCall<K::Buf>) -> bool {
        call.changes()
    }

    fn owns_source(&self, file: &str) -> bool {
        Exploration::owns(self.sources, file)
    }
}

/// A call of one key, and what it is part of.
fn describe<B: std::fmt::Debug>(call: &Call<MapAction, Option<u64>>, all: &[CallTo<B>]) -> String {
    let Call { worker, number, operation, begin, completed } = call;
    let part = match all.iter().find(|whole| whole.number == *number).map(|it| &it.operation) {
        None | Some(IndexCall::One(..)) => "",
        Some(IndexCall::GetMany(_)) => " of many keys",
        Some(IndexCall::InsertMany(_)) => " with others",
        Some(IndexCall::Scan(..)) => " by a scan",
    };
    let called = format!("call {number} of worker {worker}");
    match completed {
        Some((end, answer)) => {
            format!("{called} [{begin}, {end}] {operation:?}{part} = {answer:?}")
        }
        None => format!("{called} [{begin}, pending] {operation:?}{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapis_device::{Schedule, SchedulePolicy};

    use crate::concurrent::ConcurrentOptions;
    use crate::concurrent::machines::Machines;
    use crate::concurrent::options::Selection;

    /// Of a worker that makes a layer: those from where it refers to it.
    const LAST_STEPS: usize = 40;

    /// At each step of what one worker asks another has come to each of its last ones, in which it gives two keys a
    /// layer. What was asked before has taken the node's lock: it is the node's first section no longer.
    fn beside_a_new_layer_of_p_masstree(asked: IndexCall<Vec<u8>>) {
        let exploration = &IndexKind::PMasstree.declaration().exploration;
        let (sources, options) = (exploration.sources, exploration.options.clone());
        let insert = |key: Vec<u8>| IndexCall::One(key, MapAction::Insert(1));
        let subject = ConcurrentIndex::<[u8]> {
            planned: Some(Plan {
                before: vec![insert(vec![b'a'; 16])],
                workers: vec![vec![insert(vec![b'b']), asked], vec![insert(vec![b'a'; 12])]],
            }),
            ..ConcurrentIndex::new(IndexKind::PMasstree, "p-masstree", sources, options, 2)
        };
        let options =
            ConcurrentOptions { most_deviations: Some(2), ..ConcurrentOptions::default() };
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        machines.prepare(options.seed, &Selection::default()).unwrap();
        let mut run = |policy| {
            let ran = machines.run(&policy).unwrap();
            assert_eq!(ran.wrong.map(|wrong| wrong.what), None, "{}", ran.run.schedule);
            (ran.run.schedule, ran.spans)
        };
        let (plain, spans) = run(SchedulePolicy::Replay(Schedule::default()));
        let (.., asked) = spans.into_iter().find(|(number, ..)| *number == 2).unwrap();
        let [_, (_, of_other)] = &plain.stretches()[..] else { panic!("{plain}") };
        for to in asked {
            for end in of_other.end - LAST_STEPS..of_other.end {
                run(SchedulePolicy::Guided(plain.with_span_moved(1, of_other.start..end, to)));
            }
        }
    }

    #[test]
    fn a_look_up_goes_into_a_layer_that_comes_meanwhile() {
        beside_a_new_layer_of_p_masstree(IndexCall::One(vec![b'a'; 16], MapAction::Get));
    }

    #[test]
    fn look_ups_in_turns_go_into_a_layer_that_comes_meanwhile() {
        beside_a_new_layer_of_p_masstree(IndexCall::GetMany(vec![vec![b'a'; 16]]));
    }

    #[test]
    fn a_change_goes_into_a_layer_that_comes_meanwhile() {
        beside_a_new_layer_of_p_masstree(IndexCall::One(vec![b'a'; 16], MapAction::Update(3)));
    }

    #[test]
    fn scans_go_into_a_layer_that_comes_meanwhile() {
        for direction in [Direction::Forward, Direction::Backward] {
            let from = vec![b'a'; if direction == Direction::Forward { 13 } else { 20 }];
            beside_a_new_layer_of_p_masstree(IndexCall::Scan(from, direction));
        }
    }
}
