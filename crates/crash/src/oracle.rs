//! The oracle: what must hold after a recovery.

use std::fmt;

/// What a recovered structure failed to do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// The pool or the structure could not be opened.
    Open {
        /// What was said.
        what: String,
    },
    /// The structure is gone although its creation was acknowledged.
    Gone,
    /// The contents are neither those before nor those after the operation in flight.
    Contents {
        /// How they differ.
        what: String,
    },
    /// The structure's own check found something.
    Invariant {
        /// What.
        what: String,
    },
    /// Allocated and reachable differ.
    Space {
        /// How.
        what: String,
    },
    /// A second recovery changed the contents.
    NotIdempotent {
        /// How.
        what: String,
    },
    /// The structure no longer does what it should after the recovery.
    Broken {
        /// What happened.
        what: String,
    },
    /// A crash during the recovery or the operations after it was not survived.
    DuringRecovery {
        /// The failure after the second crash.
        what: String,
    },
    /// Recovery or a later operation panicked.
    Panic {
        /// With which message.
        what: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { what } => write!(f, "it cannot be opened: {what}"),
            Self::Gone => f.write_str("it is gone although its creation was acknowledged"),
            Self::Contents { what } => write!(f, "its contents are wrong: {what}"),
            Self::Invariant { what } => write!(f, "an invariant is broken: {what}"),
            Self::Space { what } => write!(f, "allocated and reachable differ: {what}"),
            Self::NotIdempotent { what } => write!(f, "a second recovery changed it: {what}"),
            Self::Broken { what } => write!(f, "it no longer works: {what}"),
            Self::DuringRecovery { what } => write!(f, "after a crash in recovery {what}"),
            Self::Panic { what } => write!(f, "it panicked: {what}"),
        }
    }
}

/// How two states differ, briefly: both from shortly before the first difference on.
pub(crate) fn difference<S: fmt::Debug>(found: &S, expected: &[&S]) -> String {
    const BEFORE: usize = 30;
    const MOST: usize = 160;
    let found = format!("{found:?}");
    let from_difference = |text: &str, other: &str| {
        let same = text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let excerpt: String = text.chars().skip(same.saturating_sub(BEFORE)).take(MOST).collect();
        format!("…{excerpt}…")
    };
    let pairs: Vec<_> = expected
        .iter()
        .map(|state| {
            let state = format!("{state:?}");
            let (here, there) = (from_difference(&found, &state), from_difference(&state, &found));
            format!("found {here}, expected {there}")
        })
        .collect();
    if pairs.is_empty() {
        "found something before its creation".to_owned()
    } else {
        pairs.join("; or ")
    }
}
