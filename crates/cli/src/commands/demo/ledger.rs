//! What the store must hold: kept by the process that is never killed.

use std::collections::HashMap;

use super::operations::{Action, Actions, Keys, Stamp};
use super::worker::parse_report;
use crate::failure::Failure;
use crate::json_bytes::shown;

/// The last acknowledged state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was never there, or a delete was acknowledged.
    Absent,
    /// As it was loaded.
    Loaded,
    /// As this put left it.
    Put(Stamp),
}

/// The states of all keys.
#[derive(Debug)]
pub struct Ledger<'a> {
    keys: &'a Keys,
    states: Vec<State>,
    /// What the operation that was under way in a thread may have left instead.
    in_flight: HashMap<usize, State>,
}

/// What became of the acknowledged writes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Keys compared.
    pub checked: u64,
    /// Keys that do not have their acknowledged state.
    pub lost: u64,
    /// Entries of the store beyond those that it must have.
    pub unexpected: u64,
    /// In-flight writes that took effect.
    pub in_flight_done: u64,
    /// In-flight writes that left no trace.
    pub in_flight_undone: u64,
    /// The first of the losses, in words.
    pub examples: Vec<String>,
}

/// Losses that are described.
const MOST_EXAMPLES: usize = 5;

/// What a round's reports amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundSummary {
    /// Acknowledged puts and deletes.
    pub writes: u64,
    /// Operations, reads included, up to the last acknowledged write of each thread.
    pub operations: u64,
}

impl<'a> Ledger<'a> {
    /// A ledger of a store into which the first `loaded` keys have been loaded.
    pub fn new(keys: &'a Keys, loaded: usize) -> Self {
        let state = |index| if index < loaded { State::Loaded } else { State::Absent };
        Self { keys, states: (0..keys.len()).map(state).collect(), in_flight: HashMap::new() }
    }

    /// Enters the reports of a round that ended in a kill.
    pub fn enter_round(
        &mut self,
        seed: u64,
        round: u32,
        threads: usize,
        reports: &[u64],
    ) -> Result<RoundSummary, Failure> {
        let mut actions: Vec<_> = (0..threads)
            .map(|thread| Actions::new(seed, round, thread, threads, self.keys.len()))
            .collect();
        let mut operations = vec![0; threads];
        for &report in reports {
            let (thread, number) = parse_report(report);
            let actions = actions.get_mut(thread).ok_or_else(out_of_step)?;
            let (key, state) = next_write(actions, round, thread, Some(number))?;
            self.states[key] = state;
            operations[thread] = number + 1;
        }
        self.in_flight.clear();
        for (thread, actions) in actions.iter_mut().enumerate() {
            let (key, state) = next_write(actions, round, thread, None)?;
            self.in_flight.insert(key, state);
        }
        Ok(RoundSummary { writes: reports.len() as u64, operations: operations.iter().sum() })
    }

    /// Compares a store of so many entries, in which `get` looks a key up, with the ledger, and enters
    /// which of the in-flight writes took effect.
    pub fn verify<V: AsRef<[u8]>>(
        &mut self,
        entries: u64,
        get: impl Fn(&[u8]) -> Result<Option<V>, lapis::Error>,
    ) -> Result<Verification, Failure> {
        let mut verification = Verification::default();
        let mut present = 0;
        for index in 0..self.keys.len() {
            let found = get(self.keys.key(index))?;
            let found = found.as_ref().map(V::as_ref);
            present += u64::from(found.is_some());
            verification.checked += 1;
            let acknowledged = self.states[index];
            let is_acknowledged = self.matches(index, acknowledged, found);
            match self.in_flight.get(&index).copied() {
                Some(other) if self.matches(index, other, found) => {
                    // A delete of a key that is not there leaves what was there.
                    verification.in_flight_done += u64::from(!is_acknowledged);
                    verification.in_flight_undone += u64::from(is_acknowledged);
                    self.states[index] = other;
                    continue;
                }
                Some(_) if is_acknowledged => verification.in_flight_undone += 1,
                _ => {}
            }
            if is_acknowledged {
                continue;
            }
            verification.lost += 1;
            if verification.examples.len() < MOST_EXAMPLES {
                verification.examples.push(format!(
                    "the key `{}` must be {}, and is {}",
                    shown(self.keys.key(index)),
                    describe(acknowledged),
                    found.map_or("absent".to_owned(), |value| format!("`{}`", shown(value)))
                ));
            }
        }
        verification.unexpected = entries.abs_diff(present);
        self.in_flight.clear();
        Ok(verification)
    }

    fn matches(&self, index: usize, state: State, found: Option<&[u8]>) -> bool {
        match state {
            State::Absent => found.is_none(),
            State::Loaded => found == Some(self.keys.text(index)),
            State::Put(stamp) => found == Some(self.keys.value(index, stamp).as_slice()),
        }
    }
}

/// The next write of a thread and what it leaves. `number` is the number it must have, if known.
fn next_write(
    actions: &mut Actions,
    round: u32,
    thread: usize,
    number: Option<u64>,
) -> Result<(usize, State), Failure> {
    for (found, action) in actions {
        let Some(key) = action.written_key() else { continue };
        if number.is_some_and(|number| number != found) {
            break;
        }
        let stamp = Stamp { round, thread: thread as u32, number: found };
        let is_delete = matches!(action, Action::Delete { .. });
        return Ok((key, if is_delete { State::Absent } else { State::Put(stamp) }));
    }
    Err(out_of_step())
}

fn out_of_step() -> Failure {
    Failure::refused(
        "the killed process reported a write that was not its next; run the demo again",
    )
}

fn describe(state: State) -> String {
    match state {
        State::Absent => "absent".to_owned(),
        State::Loaded => "as it was loaded".to_owned(),
        State::Put(Stamp { round, thread, number }) => {
            format!("what round {round}, thread {thread}, operation {number} put")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::commands::demo::worker::report;

    const SEED: u64 = 5;
    const LOADED: usize = 20;

    fn keys() -> Keys {
        Keys::of((0..LOADED).map(|i| (format!("k{i}").into_bytes(), format!("t{i}").into_bytes())))
    }

    type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

    fn loaded(keys: &Keys) -> Contents {
        (0..LOADED).map(|index| (keys.key(index).to_vec(), keys.text(index).to_vec())).collect()
    }

    /// Does the first `writes` writes of the only thread; its reports, with the keys written.
    fn work(keys: &Keys, table: &mut Contents, writes: usize) -> Vec<(u64, usize)> {
        let mut reports = Vec::new();
        for (number, action) in Actions::new(SEED, 1, 0, 1, keys.len()) {
            if reports.len() == writes {
                break;
            }
            match action {
                Action::Put { key } => {
                    let stamp = Stamp { round: 1, thread: 0, number };
                    table.insert(keys.key(key).to_vec(), keys.value(key, stamp));
                    reports.push((report(0, number), key));
                }
                Action::Delete { key } => {
                    table.remove(keys.key(key));
                    reports.push((report(0, number), key));
                }
                _ => {}
            }
        }
        reports
    }

    /// What the ledger finds if the first `acknowledged` of `done` writes were reported and
    /// `damage` happened to the table afterwards.
    fn verify(
        done: usize,
        acknowledged: usize,
        damage: impl Fn(&mut Contents, &Keys, usize),
    ) -> Verification {
        let keys = keys();
        let mut table = loaded(&keys);
        let work = work(&keys, &mut table, done);
        let reports: Vec<_> = work.iter().take(acknowledged).map(|(report, _)| *report).collect();
        let mut ledger = Ledger::new(&keys, LOADED);
        let summary = ledger.enter_round(SEED, 1, 1, &reports).unwrap();
        assert_eq!(summary.writes, acknowledged as u64);
        assert!(summary.operations >= summary.writes);
        damage(&mut table, &keys, work[acknowledged - 1].1);
        ledger.verify(table.len() as u64, |key| Ok(table.get(key))).unwrap()
    }

    #[test]
    fn a_table_that_holds_what_was_acknowledged_is_right() {
        let verification = verify(10, 10, |_, _, _| ());
        assert_eq!((verification.lost, verification.unexpected), (0, 0), "{verification:?}");
        assert_eq!(verification.checked, keys().len() as u64);
        assert_eq!(verification.in_flight_undone, 1);
    }

    #[test]
    fn a_write_in_flight_may_have_taken_effect() {
        let verification = verify(11, 10, |_, _, _| ());
        assert_eq!((verification.lost, verification.unexpected), (0, 0), "{verification:?}");
        assert_eq!(verification.in_flight_done + verification.in_flight_undone, 1);
    }

    #[test]
    fn two_writes_beyond_the_acknowledged_are_not_both_in_flight() {
        let verification = verify(13, 10, |_, _, _| ());
        assert!(verification.lost > 0, "{verification:?}");
    }

    #[test]
    fn a_changed_value_is_a_loss() {
        let verification = verify(10, 10, |table, keys, key| {
            table.insert(keys.key(key).to_vec(), b"something else".to_vec());
        });
        assert_eq!(verification.lost, 1, "{verification:?}");
        assert!(verification.examples[0].contains("something else"));
    }

    #[test]
    fn a_missing_or_resurrected_key_is_a_loss() {
        let verification = verify(10, 10, |table, keys, key| {
            if table.remove(keys.key(key)).is_none() {
                table.insert(keys.key(key).to_vec(), keys.text(key).to_vec());
            }
        });
        assert_eq!(verification.lost, 1, "{verification:?}");
    }

    #[test]
    fn an_entry_that_nobody_wrote_is_unexpected() {
        let verification = verify(10, 10, |table, _, _| {
            table.insert(b"ghost".to_vec(), Vec::new());
        });
        assert_eq!((verification.lost, verification.unexpected), (0, 1), "{verification:?}");
    }

    #[test]
    fn a_report_that_cannot_be_is_refused() {
        let keys = keys();
        let mut ledger = Ledger::new(&keys, LOADED);
        let reports: Vec<_> = work(&keys, &mut loaded(&keys), 2).iter().map(|(r, _)| *r).collect();
        assert!(ledger.enter_round(SEED, 1, 1, &[reports[1], reports[0]]).is_err());
        assert!(ledger.enter_round(SEED, 1, 1, &[report(7, 0)]).is_err());
    }
}
