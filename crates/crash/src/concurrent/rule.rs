//! What a history does not keep to.

use std::fmt;

use super::history::Call;
use crate::erased::{AnyConcurrentSubject, AnyState, AnyValue};

/// What of durable linearizability, or of what must hold besides, is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BrokenRule {
    /// No worker waits for ever.
    Progress,
    /// No call panics.
    NoPanic,
    /// Without any crash, the structure is whole.
    WithoutCrash,
    /// Without any crash, some order of the calls explains all answers and the contents.
    Linearizable,
    /// A change whose answer was known is there.
    ChangeSurvives,
    /// What a call was told of is there.
    ReadSurvives,
    /// Calls that did not overlap have taken effect in their order.
    RealTimeOrder,
    /// Every answer that was known is explained.
    Answers,
    /// The contents are what calls have made.
    Contents,
    /// A clause of the oracle that is about the recovery as such.
    Recovery(&'static str),
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Progress => "workers do not wait for each other for ever",
            Self::NoPanic => "no call panics",
            Self::WithoutCrash => "without any crash, the structure is whole",
            Self::Linearizable => {
                "without any crash, an order of the calls explains all answers and the contents"
            }
            Self::ChangeSurvives => "a change whose answer was known is there after the crash",
            Self::ReadSurvives => {
                "what a read has answered with is there after the crash, or was replaced"
            }
            Self::RealTimeOrder => "calls that did not overlap take effect in their order",
            Self::Answers => "every answer that was known is explained by calls that took effect",
            Self::Contents => "the recovered contents are what calls have made",
            Self::Recovery(clause) => clause,
        })
    }
}

impl serde::Serialize for BrokenRule {
    fn serialize<T: serde::Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        serializer.collect_str(self)
    }
}

impl BrokenRule {
    /// Whether both say that a history with its crash is not linearizable, or both the same.
    pub(super) fn is_like(self, other: Self) -> bool {
        let durable = |rule| {
            use BrokenRule::{Answers, ChangeSurvives, Contents, ReadSurvives, RealTimeOrder};
            matches!(rule, ChangeSurvives | ReadSurvives | RealTimeOrder | Answers | Contents)
        };
        self == other || durable(self) && durable(other)
    }

    /// Why `calls` do not explain `found`: what has to be given up so that they do.
    pub(super) fn of(
        subject: &dyn AnyConcurrentSubject,
        initial: &AnyState,
        calls: &[Call<AnyValue, AnyValue>],
        found: &AnyState,
    ) -> Self {
        let explain = |calls: &[Call<_, _>]| subject.judge(initial, calls, found).is_ok();
        let with_each = |change: &dyn Fn(&mut Call<_, _>)| {
            let mut calls = calls.to_vec();
            calls.iter_mut().for_each(change);
            calls
        };
        if !explain(&with_each(&|call| call.completed = None)) {
            return Self::Contents;
        }
        for at in (0..calls.len()).rev().filter(|&at| calls[at].completed.is_some()) {
            let mut others = calls.to_vec();
            let lost = others.remove(at);
            if explain(&others) {
                return match subject.changes(&lost.operation) {
                    true => Self::ChangeSurvives,
                    false => Self::ReadSurvives,
                };
            }
        }
        let at_once = with_each(&|call| {
            call.begin = 0;
            call.completed = call.completed.take().map(|(_, answer)| (usize::MAX, answer));
        });
        if explain(&at_once) { Self::RealTimeOrder } else { Self::Answers }
    }
}
