//! Deciding whether a history has a linearization that ends in a given state.
//!
//! The search is that of Wing and Gong (Journal of Parallel and Distributed Computing, 1993) with the
//! memory of Lowe (Concurrency and Computation, 2017): calls are put in order one by one, and a set of
//! calls that led to a state without success is not tried again. Maps are decided key by key, which
//! is the same (Herlihy and Wing: linearizability is local) and keeps each search short.

use std::collections::HashSet;
use std::hash::Hash;

use super::history::Call;

/// What operations mean, one after the other.
pub trait Specification {
    /// What there is.
    type State: Clone + Eq + Hash;
    /// What can be asked.
    type Operation;
    /// What is answered.
    type Returned: Eq;

    /// The state after an operation, and its answer.
    fn step(
        &self,
        state: &Self::State,
        operation: &Self::Operation,
    ) -> (Self::State, Self::Returned);
}

/// Calls that one search takes.
const MOST_CALLS: usize = 128;

/// A history that is too long to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{calls} calls on one object are more than can be decided ({MOST_CALLS})")]
pub struct TooManyCalls {
    /// How many there are.
    pub calls: usize,
}

/// Whether all completed calls and some of the pending ones can be put into an order that respects
/// [`Call::precedes`], starts from `initial`, gives every completed call its result, and ends in one
/// of `ends`.
///
/// # Errors
/// [`TooManyCalls`].
pub fn is_linearizable<S: Specification>(
    specification: &S,
    calls: &[Call<S::Operation, S::Returned>],
    initial: &S::State,
    end: &S::State,
) -> Result<bool, TooManyCalls> {
    if calls.len() > MOST_CALLS {
        return Err(TooManyCalls { calls: calls.len() });
    }
    // Calls that must have a place before each call has one.
    let before: Vec<u128> = calls
        .iter()
        .map(|call| {
            let earlier = calls.iter().enumerate().filter(|(_, other)| other.precedes(call));
            earlier.fold(0, |mask, (at, _)| mask | 1 << at)
        })
        .collect();
    let completed = calls
        .iter()
        .enumerate()
        .filter(|(_, call)| call.completed.is_some())
        .fold(0u128, |mask, (at, _)| mask | 1 << at);
    let mut tried = HashSet::new();
    let mut open = vec![(0u128, initial.clone())];
    while let Some((placed, state)) = open.pop() {
        if placed & completed == completed && state == *end {
            return Ok(true);
        }
        for (at, call) in calls.iter().enumerate() {
            if placed & 1 << at != 0 || before[at] & !placed != 0 {
                continue;
            }
            let (after, answer) = specification.step(&state, &call.operation);
            if call.completed.as_ref().is_some_and(|(_, returned)| *returned != answer) {
                continue;
            }
            let next = (placed | 1 << at, after);
            if tried.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(false)
}

/// What can be done with one key of a map. The answer is the value before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapAction {
    /// Adds if absent.
    Insert(u64),
    /// Replaces if present.
    Update(u64),
    /// Adds or replaces.
    Put(u64),
    /// Removes.
    Remove,
    /// Reads.
    Get,
}

/// One key of a map.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapKey;

impl Specification for MapKey {
    type State = Option<u64>;
    type Operation = MapAction;
    type Returned = Option<u64>;

    fn step(&self, state: &Option<u64>, action: &MapAction) -> (Option<u64>, Option<u64>) {
        let after = match *action {
            MapAction::Insert(value) => state.or(Some(value)),
            MapAction::Update(value) => state.map(|_| value),
            MapAction::Put(value) => Some(value),
            MapAction::Remove => None,
            MapAction::Get => *state,
        };
        (after, *state)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type MapCall = Call<MapAction, Option<u64>>;

    fn call(
        (worker, number): (u8, u32),
        operation: MapAction,
        begin: usize,
        completed: Option<(usize, Option<u64>)>,
    ) -> MapCall {
        Call { worker, number, operation, begin, completed }
    }

    fn decide(calls: &[MapCall], initial: Option<u64>, end: Option<u64>) -> bool {
        is_linearizable(&MapKey, calls, &initial, &end).unwrap()
    }

    #[test]
    fn a_pending_call_may_have_happened_or_not() {
        let calls = [call((0, 1), MapAction::Put(1), 0, None)];
        assert!(decide(&calls, None, None));
        assert!(decide(&calls, None, Some(1)));
        assert!(!decide(&calls, None, Some(2)));
    }

    #[test]
    fn a_completed_call_has_happened() {
        let calls = [call((0, 1), MapAction::Put(1), 0, Some((1, None)))];
        assert!(!decide(&calls, None, None));
        assert!(decide(&calls, None, Some(1)));
    }

    #[test]
    fn a_read_of_a_value_that_was_lost_has_no_place() {
        let write = call((0, 1), MapAction::Put(1), 0, None);
        let read = |end| call((1, 2), MapAction::Get, 1, end);
        let seen = read(Some((2, Some(1))));
        assert!(!decide(&[write.clone(), seen], None, None));
        assert!(decide(&[write, read(None)], None, None), "nobody was told of it");
    }

    #[test]
    fn a_read_that_is_over_precedes_the_write_it_did_not_see() {
        let read = call((0, 1), MapAction::Get, 0, Some((1, None)));
        let write = call((1, 2), MapAction::Put(1), 2, Some((3, None)));
        let late = call((0, 3), MapAction::Get, 4, Some((5, None)));
        assert!(decide(&[read.clone(), write.clone()], None, Some(1)));
        assert!(!decide(&[read, write, late], None, Some(1)));
    }

    #[test]
    fn more_calls_than_can_be_decided_are_an_error() {
        let calls: Vec<_> = (0..129).map(|n| call((n as u8, n), MapAction::Get, 0, None)).collect();
        let found = is_linearizable(&MapKey, &calls, &None, &None);
        assert_eq!(found, Err(TooManyCalls { calls: 129 }));
    }

    /// The definition: some order of some subset.
    fn by_brute_force(calls: &[MapCall], initial: Option<u64>, end: Option<u64>) -> bool {
        fn extend(
            calls: &[MapCall],
            order: &mut Vec<usize>,
            initial: Option<u64>,
            end: Option<u64>,
        ) -> bool {
            let complete =
                (0..calls.len()).all(|at| calls[at].completed.is_none() || order.contains(&at));
            let respects = order.iter().enumerate().all(|(place, &later)| {
                (0..calls.len()).all(|earlier| {
                    !calls[earlier].precedes(&calls[later]) || order[..place].contains(&earlier)
                })
            });
            let mut state = initial;
            let explains = order.iter().all(|&at| {
                let (after, answer) = MapKey.step(&state, &calls[at].operation);
                state = after;
                calls[at].completed.is_none_or(|(_, returned)| returned == answer)
            });
            if complete && respects && explains && state == end {
                return true;
            }
            (0..calls.len()).any(|next| {
                if order.contains(&next) {
                    return false;
                }
                order.push(next);
                let found = extend(calls, order, initial, end);
                order.pop();
                found
            })
        }
        extend(calls, &mut Vec::new(), initial, end)
    }

    /// Calls of three workers, one after the other for each, with answers that are often wrong.
    fn histories() -> impl Strategy<Value = Vec<MapCall>> {
        let value = prop::option::of(0u64..2);
        let one = (0u8..3, 0u8..5, 0u64..2, 1usize..4, 1usize..5, value);
        proptest::collection::vec(one, 0..6).prop_map(|calls| {
            let mut clocks = [0usize; 3];
            let mut pending = [false; 3];
            let mut history = Vec::new();
            for (number, (worker, kind, value, gap, length, answer)) in
                calls.into_iter().enumerate()
            {
                let clock = &mut clocks[usize::from(worker)];
                if pending[usize::from(worker)] {
                    continue;
                }
                let operation = match kind {
                    0 => MapAction::Insert(value),
                    1 => MapAction::Update(value),
                    2 => MapAction::Put(value),
                    3 => MapAction::Remove,
                    _ => MapAction::Get,
                };
                let begin = *clock + gap;
                *clock = begin + length;
                pending[usize::from(worker)] = length == 4;
                let completed = (length < 4).then_some((*clock, answer));
                history.push(call((worker, number as u32), operation, begin, completed));
            }
            history
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_search_decides_as_brute_force_does(
            calls in histories(),
            initial in prop::option::of(0u64..2),
            end in prop::option::of(0u64..2),
        ) {
            prop_assert_eq!(decide(&calls, initial, end), by_brute_force(&calls, initial, end));
        }
    }
}
