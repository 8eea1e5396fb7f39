//! What a crash point allows.

use crate::erased::{AnyLive, AnyState, AnyValue};
use crate::oracle::{Failure, difference};

/// A state that a crash allows.
#[derive(Clone, Copy)]
pub(crate) struct Known<'r> {
    pub(crate) state: &'r AnyState,
    /// Of the state.
    pub(crate) hash: u64,
}

impl<'r> Known<'r> {
    pub(super) fn new(state: &'r AnyState) -> Self {
        Self { state, hash: state.hash() }
    }
}

/// What a recovery came to: the state, or none if there was nothing yet.
pub(crate) type Recovered<'r> = Result<Option<Known<'r>>, Failure>;

/// What a crash point allows.
#[derive(Clone, Copy)]
pub(crate) struct Expectation<'r> {
    /// The state after the last acknowledged operation; none while the creation is in flight.
    pub(crate) acknowledged: Option<Known<'r>>,
    /// The state after the operation in flight, if one is.
    pub(crate) in_flight: Option<Known<'r>>,
    /// The operation in flight, or else the last one: others are tried around it.
    pub(crate) interrupted: Option<&'r AnyValue>,
    /// A clean shutdown has been acknowledged, so that nothing may have to be recovered.
    pub(crate) shut_down: bool,
}

impl<'r> Expectation<'r> {
    /// Which of the states has this hash.
    pub(crate) fn of_hash(&self, hash: u64) -> Option<Known<'r>> {
        self.acknowledged.into_iter().chain(self.in_flight).find(|known| known.hash == hash)
    }

    /// Which of the states is what is there.
    pub(super) fn find(&self, live: &AnyLive, turn: u64) -> Result<Known<'r>, Failure> {
        let contents = |what| Failure::Contents { what };
        let found = match (self.acknowledged, self.in_flight) {
            (Some(one), Some(other)) => {
                let found = live.find(&[one.state, other.state], turn).map_err(contents)?;
                found.map(|number| if number == 0 { one } else { other })
            }
            (one, other) => match one.or(other) {
                Some(only) => live.find(&[only.state], turn).map_err(contents)?.map(|_| only),
                None => None,
            },
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let allowed: Vec<_> =
            self.acknowledged.into_iter().chain(self.in_flight).map(|known| known.state).collect();
        let found = live.observe().map_err(contents)?;
        Err(contents(difference(&found, &allowed)))
    }
}
