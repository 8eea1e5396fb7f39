//! Judging a structure whose operations concern all of it.

use std::fmt::Debug;

use super::history::Call;
use super::linearizability::{Specification, is_linearizable};
use super::subject::Offence;

/// Whether the calls explain `found`; names the latest call whose answer, had nobody been told it,
/// would leave nothing to explain.
///
/// # Errors
/// [`Offence`]: none does.
pub fn judge_whole<S: Specification>(
    specification: &S,
    initial: &S::State,
    calls: &[Call<S::Operation, S::Returned>],
    found: &S::State,
) -> Result<(), Offence>
where
    S::State: Debug,
    S::Operation: Debug + Clone,
    S::Returned: Debug + Clone,
{
    let explained = |calls: &[Call<_, _>]| {
        is_linearizable(specification, calls, initial, found)
            .map_err(|error| Offence { operation: None, what: error.to_string() })
    };
    if explained(calls)? {
        return Ok(());
    }
    let mut offender = None;
    for at in (0..calls.len()).rev() {
        let mut others = calls.to_vec();
        if others[at].completed.take().is_some() && explained(&others)? {
            offender = Some(format!("{}: {:?}", calls[at].number, calls[at].operation));
            break;
        }
    }
    let told: Vec<String> = calls
        .iter()
        .map(|call| {
            let Call { worker, number, operation, begin, completed } = call;
            let result = match completed {
                Some((end, answer)) => format!("{end}] = {answer:?}"),
                None => "pending]".to_owned(),
            };
            format!("call {number} of worker {worker} {operation:?} [{begin}, {result}")
        })
        .collect();
    let what = format!(
        "{initial:?} became {found:?}, which no order of these calls explains: {}",
        told.join("; ")
    );
    Err(Offence { operation: offender, what })
}
