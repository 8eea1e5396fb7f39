//! Calls to an index that several workers use: of one key, and of many.
//!
//! Those of many keys promise something for each key alone: somewhere between begin and end it was there with the value
//! that is told, or not. So a history of such calls is one of calls of one key, as many at once as a call had keys. A
//! scan has those of all keys that it went past, be they there or not.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use lapis_device::Modelled;
use lapis_index::{AnyIndex, Change, Direction, IndexKey};

use crate::concurrent::history::Call;
use crate::concurrent::linearizability::MapAction;
use crate::concurrent::subject::Offence;
use crate::subject::text;

/// Entries after which a scan stops.
const SCANNED: usize = 8;

/// What is asked of an index. `B` is a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexCall<B> {
    /// Something with one key.
    One(B, MapAction),
    /// [`AnyIndex::get_many`].
    GetMany(Vec<B>),
    /// [`AnyIndex::insert_many`], of keys that differ.
    InsertMany(Vec<(B, u64)>),
    /// A few entries from a key on; all of an index that has no order.
    Scan(B, Direction),
}

/// What an index answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexAnswer<B> {
    /// The value before.
    One(Option<u64>),
    /// The value of each key before.
    Many(Vec<Option<u64>>),
    /// Entries as they were visited, and between which keys these are all.
    Entries(Vec<(B, u64)>, (Bound<B>, Bound<B>)),
}

/// A call to an index.
pub(super) type CallTo<B> = Call<IndexCall<B>, IndexAnswer<B>>;
/// Calls of each key.
pub(super) type CallsByKey<'c, B> = BTreeMap<&'c B, Vec<Call<MapAction, Option<u64>>>>;

impl<B: Ord + Clone + std::fmt::Debug> IndexCall<B> {
    /// Whether it may change something.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::One(_, action) => *action != MapAction::Get,
            Self::InsertMany(_) => true,
            Self::GetMany(_) | Self::Scan(..) => false,
        }
    }

    /// The keys that are named, and what is to be done with each.
    fn named(&self) -> Vec<(&B, MapAction)> {
        match self {
            Self::One(key, action) => vec![(key, *action)],
            Self::GetMany(keys) => keys.iter().map(|key| (key, MapAction::Get)).collect(),
            Self::InsertMany(entries) => {
                entries.iter().map(|(key, value)| (key, MapAction::Insert(*value))).collect()
            }
            Self::Scan(..) => Vec::new(),
        }
    }

    /// Asks it of an index.
    ///
    /// # Errors
    /// It cannot be done, not each key is answered once, or a scan is out of order.
    pub(super) fn ask<K>(&self, index: &AnyIndex<Modelled, K>) -> Result<IndexAnswer<B>, String>
    where
        K: IndexKey<Buf = B> + ?Sized,
    {
        match self {
            Self::One(key, action) => {
                let key = K::borrow(key);
                let change = match *action {
                    MapAction::Insert(value) => Change::Insert(value),
                    MapAction::Update(value) => Change::Update(value),
                    MapAction::Put(value) => Change::Put(value),
                    MapAction::Remove => Change::Remove,
                    MapAction::Get => return Ok(IndexAnswer::One(index.get(key))),
                };
                Ok(IndexAnswer::One(index.change(key, change).map_err(text)?.previous))
            }
            Self::GetMany(keys) => {
                let keys: Vec<&K> = keys.iter().map(K::borrow).collect();
                let mut answers = vec![Vec::new(); keys.len()];
                index.get_many(&keys, &mut |place, value| answers[place].push(value));
                each_once(answers)
            }
            Self::InsertMany(entries) => {
                let entries: Vec<(&K, u64)> =
                    entries.iter().map(|(key, value)| (K::borrow(key), *value)).collect();
                let mut answers = vec![Vec::new(); entries.len()];
                let mut answer = |place: usize, previous| answers[place].push(previous);
                let done = index.insert_many(&entries, &mut |place, it| answer(place, it.previous));
                done.map_err(text)?;
                each_once(answers)
            }
            Self::Scan(from, direction) => scan(index, from, *direction),
        }
    }
}

fn each_once<B>(answers: Vec<Vec<Option<u64>>>) -> Result<IndexAnswer<B>, String> {
    let each = answers.into_iter().enumerate().map(|(place, answers)| match answers[..] {
        [answer] => Ok(answer),
        _ => Err(format!("of many keys the one at {place} is answered {} times", answers.len())),
    });
    each.collect::<Result<_, _>>().map(IndexAnswer::Many)
}

fn scan<K: IndexKey + ?Sized>(
    index: &AnyIndex<Modelled, K>,
    from: &K::Buf,
    direction: Direction,
) -> Result<IndexAnswer<K::Buf>, String> {
    let mut entries: Vec<(K::Buf, u64)> = Vec::new();
    let has_scanned = index.scan(Bound::Included(K::borrow(from)), direction, &mut |key, value| {
        entries.push((key.to_buf(), value));
        if entries.len() < SCANNED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if !has_scanned {
        index.for_each(&mut |key, value| {
            entries.push((key.to_buf(), value));
            ControlFlow::Continue(())
        });
        return Ok(IndexAnswer::Entries(entries, (Bound::Unbounded, Bound::Unbounded)));
    }
    let keys = || entries.iter().map(|(key, _)| key);
    let in_order = match direction {
        Direction::Forward => keys().is_sorted_by(|one, other| one < other),
        Direction::Backward => keys().is_sorted_by(|one, other| one > other),
    };
    let begins_there = keys().next().is_none_or(|first| match direction {
        Direction::Forward => first >= from,
        Direction::Backward => first <= from,
    });
    if !in_order || !begins_there {
        let visited: Vec<_> = keys().collect();
        return Err(format!("a scan {direction:?} from {from:?} visits {visited:?}"));
    }
    let from = Bound::Included(from.clone());
    let to = match entries.last() {
        Some((last, _)) if entries.len() == SCANNED => Bound::Included(last.clone()),
        _ => Bound::Unbounded,
    };
    let between = match direction {
        Direction::Forward => (from, to),
        Direction::Backward => (to, from),
    };
    Ok(IndexAnswer::Entries(entries, between))
}

/// The calls of each key that these calls come apart into, where `others` are all other keys.
///
/// # Errors
/// [`Offence`]: an entry that nobody changed meanwhile was visited twice.
pub(super) fn by_key<'c, B: Ord + Clone + std::fmt::Debug>(
    calls: &'c [CallTo<B>],
    others: impl Iterator<Item = &'c B>,
) -> Result<CallsByKey<'c, B>, Offence> {
    let mut by_key: CallsByKey<'_, B> = others.map(|key| (key, Vec::new())).collect();
    for call in calls {
        for (place, (key, action)) in call.operation.named().into_iter().enumerate() {
            let previous = |answer: &IndexAnswer<B>| match answer {
                IndexAnswer::One(previous) => *previous,
                IndexAnswer::Many(all) => all[place],
                IndexAnswer::Entries(..) => None,
            };
            by_key.entry(key).or_default().push(of_one_key(call, action, previous));
        }
        if let Some((_, IndexAnswer::Entries(entries, _))) = &call.completed {
            for (key, _) in entries {
                by_key.entry(key).or_default();
            }
        }
    }
    for call in calls {
        let Some((_, IndexAnswer::Entries(entries, between))) = &call.completed else { continue };
        let mut visited: BTreeMap<&B, Vec<u64>> = BTreeMap::new();
        entries.iter().for_each(|(key, value)| visited.entry(key).or_default().push(*value));
        let between = (between.0.as_ref(), between.1.as_ref());
        for (key, calls) in by_key.range_mut::<B, _>(between) {
            let values = visited.remove(*key).unwrap_or_default();
            let is_changed = calls.iter().any(|other| {
                let is_over = other.completed.is_some_and(|(end, _)| end < call.begin);
                other.worker != call.worker && other.operation != MapAction::Get && !is_over
            });
            if values.len() > 1 && !is_changed {
                return Err(Offence {
                    operation: Some(format!("{}: {:?}", call.number, call.operation)),
                    what: format!("key {key:?} is visited {} times", values.len()),
                });
            }
            let found = values.into_iter().map(Some);
            let absent = (found.len() == 0).then_some(None);
            for value in found.chain(absent) {
                calls.push(of_one_key(call, MapAction::Get, |_| value));
            }
        }
    }
    Ok(by_key)
}

fn of_one_key<B>(
    call: &CallTo<B>,
    operation: MapAction,
    previous: impl Fn(&IndexAnswer<B>) -> Option<u64>,
) -> Call<MapAction, Option<u64>> {
    let completed = call.completed.as_ref().map(|(end, answer)| (*end, previous(answer)));
    Call { worker: call.worker, number: call.number, operation, begin: call.begin, completed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of worker `number - 1`.
    fn call(
        number: u32,
        operation: IndexCall<u64>,
        begin: usize,
        completed: Option<(usize, IndexAnswer<u64>)>,
    ) -> CallTo<u64> {
        Call { worker: number as u8 - 1, number, operation, begin, completed }
    }

    fn told(calls: &[CallTo<u64>], others: &[u64]) -> Vec<(u64, MapAction, Option<Option<u64>>)> {
        let by_key = by_key(calls, others.iter()).unwrap();
        let each = by_key.into_iter().flat_map(|(key, calls)| {
            calls.into_iter().map(|it| (*key, it.operation, it.completed.map(|(_, answer)| answer)))
        });
        each.collect()
    }

    fn entries(
        number: u32,
        found: &[(u64, u64)],
        between: (Bound<u64>, Bound<u64>),
    ) -> CallTo<u64> {
        let answer = IndexAnswer::Entries(found.to_vec(), between);
        call(number, IndexCall::Scan(0, Direction::Forward), 2, Some((9, answer)))
    }

    #[test]
    fn each_of_many_keys_has_a_call_with_its_own_answer() {
        let answer = IndexAnswer::Many(vec![Some(10), None]);
        let calls = [call(1, IndexCall::GetMany(vec![7, 3]), 0, Some((5, answer)))];
        let expected = [(3, MapAction::Get, Some(None)), (7, MapAction::Get, Some(Some(10)))];
        assert_eq!(told(&calls, &[]), expected);
    }

    #[test]
    fn each_entry_of_a_pending_insertion_is_pending() {
        let calls = [call(1, IndexCall::InsertMany(vec![(7, 1), (3, 2)]), 0, None)];
        let expected = [(3, MapAction::Insert(2), None), (7, MapAction::Insert(1), None)];
        assert_eq!(told(&calls, &[]), expected);
    }

    #[test]
    fn a_scan_reads_every_key_that_it_went_past() {
        let between = (Bound::Included(2), Bound::Included(6));
        let calls = [entries(1, &[(3, 30), (6, 60)], between)];
        let expected = [
            (3, MapAction::Get, Some(Some(30))),
            (5, MapAction::Get, Some(None)),
            (6, MapAction::Get, Some(Some(60))),
        ];
        assert_eq!(told(&calls, &[1, 3, 5, 6, 8]), expected);
    }

    #[test]
    fn a_pending_scan_says_nothing() {
        let calls = [call(1, IndexCall::Scan(0, Direction::Backward), 0, None)];
        assert_eq!(told(&calls, &[1, 2]), []);
    }

    #[test]
    fn an_entry_is_visited_twice_only_if_somebody_changes_it_meanwhile() {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let twice = entries(2, &[(3, 30), (3, 30)], all);
        let put = |begin, end| {
            let change = IndexCall::One(3, MapAction::Put(30));
            call(1, change, begin, Some((end, IndexAnswer::One(None))))
        };
        let visited = |calls: &[CallTo<u64>]| by_key(calls, [].iter()).map(|_| ());
        assert!(visited(&[put(0, 5), twice.clone()]).is_ok());
        let offence = visited(&[put(0, 1), twice]).unwrap_err();
        assert_eq!(offence.what, "key 3 is visited 2 times");
    }
}
