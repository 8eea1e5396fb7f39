//! Whether a history of transactions is serializable, told from what they have seen alone.
//!
//! After P. Alvaro, K. Kingsbury, *Elle: inferring isolation anomalies from experimental observations*, VLDB 2020. A
//! value is the list of all that was ever appended to it, so a reader tells which writes it has seen and in
//! which order they came. Three relations follow: who appended before whom, who read what whom had appended,
//! and who read before whom appended. If they have no cycle, there is an order of all transactions.

use std::collections::{BTreeMap, HashMap};

/// What a transaction did to a key.
#[derive(Clone, Debug)]
pub enum Operation {
    /// It read this list.
    Read(u64, Vec<u64>),
    /// It appended this, which nobody else appends anywhere.
    Append(u64, u64),
}

/// What is wrong with a history.
#[derive(Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A transaction read what is no beginning of the last list.
    StrangeRead { transaction: usize, key: u64 },
    /// These transactions come before each other.
    Cycle(Vec<usize>),
}

/// Checks committed transactions against the lists as they are at the end.
pub fn check(history: &[Vec<Operation>], last: &BTreeMap<u64, Vec<u64>>) -> Result<(), Anomaly> {
    let mut appended_by: HashMap<u64, usize> = HashMap::new();
    for (transaction, operations) in history.iter().enumerate() {
        for operation in operations {
            if let Operation::Append(_, item) = operation {
                appended_by.insert(*item, transaction);
            }
        }
    }
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); history.len()];
    let mut order = |first: usize, second: usize| {
        if first != second {
            after[first].push(second);
        }
    };
    for list in last.values() {
        for pair in list.windows(2) {
            order(appended_by[&pair[0]], appended_by[&pair[1]]);
        }
    }
    let empty = Vec::new();
    for (transaction, operations) in history.iter().enumerate() {
        for operation in operations {
            let Operation::Read(key, list) = operation else { continue };
            let all = last.get(key).unwrap_or(&empty);
            if !all.starts_with(list) {
                return Err(Anomaly::StrangeRead { transaction, key: *key });
            }
            if let Some(item) = list.last() {
                order(appended_by[item], transaction);
            }
            if let Some(next) = all.get(list.len()) {
                order(transaction, appended_by[next]);
            }
        }
    }
    find_cycle(&after).map_or(Ok(()), |cycle| Err(Anomaly::Cycle(cycle)))
}

fn find_cycle(after: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; after.len()];
    for start in 0..after.len() {
        let mut path: Vec<(usize, usize)> = Vec::new();
        if marks[start] == Mark::New {
            marks[start] = Mark::OnPath;
            path.push((start, 0));
        }
        while let Some((at, next)) = path.last_mut() {
            let Some(&to) = after[*at].get(*next) else {
                marks[*at] = Mark::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match marks[to] {
                Mark::New => {
                    marks[to] = Mark::OnPath;
                    path.push((to, 0));
                }
                Mark::OnPath => {
                    let first = path.iter().position(|&(at, _)| at == to)?;
                    return Some(path[first..].iter().map(|&(at, _)| at).collect());
                }
                Mark::Done => {}
            }
        }
    }
    None
}

use Operation::{Append, Read};

#[test]
fn a_serial_history_has_no_anomaly() {
    let history = [
        vec![Read(1, vec![]), Append(1, 10)],
        vec![Read(1, vec![10]), Append(2, 20)],
        vec![Read(2, vec![20]), Append(1, 11)],
    ];
    let last = BTreeMap::from([(1, vec![10, 11]), (2, vec![20])]);
    assert_eq!(check(&history, &last), Ok(()));
}

#[test]
fn write_skew_is_a_cycle() {
    let history = [vec![Read(1, vec![]), Append(2, 20)], vec![Read(2, vec![]), Append(1, 10)]];
    let last = BTreeMap::from([(1, vec![10]), (2, vec![20])]);
    assert!(matches!(check(&history, &last), Err(Anomaly::Cycle(_))));
}

#[test]
fn a_lost_update_is_an_anomaly() {
    let history = [vec![Read(1, vec![]), Append(1, 10)], vec![Read(1, vec![]), Append(1, 11)]];
    let last = BTreeMap::from([(1, vec![10, 11])]);
    assert!(matches!(check(&history, &last), Err(Anomaly::Cycle(_))));
    let last = BTreeMap::from([(1, vec![11])]);
    let history = [history[0].clone(), history[1].clone(), vec![Read(1, vec![10])]];
    let strange = Anomaly::StrangeRead { transaction: 2, key: 1 };
    assert_eq!(check(&history, &last), Err(strange));
}

#[test]
fn a_reader_between_two_writes_of_one_transaction_is_a_cycle() {
    let history = [vec![Append(1, 10), Append(2, 20)], vec![Read(1, vec![10]), Read(2, vec![])]];
    let last = BTreeMap::from([(1, vec![10]), (2, vec![20])]);
    assert!(matches!(check(&history, &last), Err(Anomaly::Cycle(_))));
}
