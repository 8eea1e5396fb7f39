//! Migration by chance: which way a page takes between DRAM, persistent memory and the SSD.
//!
//! After X. Zhou, J. Arulraj, A. Pavlo, D. Cohen, *Spitfire: A three-tier buffer manager for volatile and
//! non-volatile memory*, SIGMOD 2021, as section 1.3.3 of the thesis has it: pages are used in persistent memory as well as in
//! DRAM, and each of four decisions has a chance of its own.
//!
//! | chance | decided when | if it comes so | otherwise |
//! |---|---|---|---|
//! | `D_r`, [`Migration::dram_reads`] | a page in PM is fixed | it comes to DRAM, line by line | it is read in PM |
//! | `D_w`, [`Migration::dram_writes`] | it is to be changed there | it comes to DRAM first | it is changed in PM |
//! | `N_r`, [`Migration::memory_reads`] | a page is read from the SSD | it enters PM, and is used from there | it comes to DRAM alone |
//! | `N_w`, [`Migration::memory_writes`] | a page is written back or leaves DRAM, and is not in PM | it enters PM | it goes to the SSD |
//!
//! Whoever changes a page fixes it first, so it has both chances to come to DRAM.
//!
//! Chances are fixed, or tuned while pages are used ([`Migration::tuned_each`], `annealing.rs`). Tuning looks at counts that there
//! are anyway, from time to time: whoever uses a page loads the chance, and no more, either way.
//!
//! # Chance that comes the same again
//!
//! A decision is a number made from a seed and a count of decisions before it. Pages share the counts with some others,
//! by their numbers, so that threads which use different pages seldom share a line of the cache. The same run on the modelled machine
//! decides the same.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::annealing::Annealing;
use crate::page::PageNumber;

/// How many chances there are.
pub(crate) const CHANCES: usize = Decision::ALL.len();

/// A chance, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chance(u16);

impl Chance {
    const WHOLE: u16 = 1000;
    /// It never comes so.
    pub const NEVER: Self = Self(0);
    /// It always does.
    pub const ALWAYS: Self = Self(Self::WHOLE);

    /// So many thousandths; [`Chance::ALWAYS`] at most.
    pub const fn thousandths(thousandths: u16) -> Self {
        if thousandths < Self::WHOLE { Self(thousandths) } else { Self::ALWAYS }
    }

    /// In thousandths.
    pub fn in_thousandths(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(Self::WHOLE)).fmt(f)
    }
}

/// What is no chance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no chance; give a number from 0 to 1")]
pub struct NotAChance(pub String);

impl FromStr for Chance {
    type Err = NotAChance;

    fn from_str(text: &str) -> Result<Self, NotAChance> {
        let chance: Option<f64> = text.trim().parse().ok();
        let chance = chance.filter(|chance| (0.0..=1.0).contains(chance));
        let chance = chance.ok_or_else(|| NotAChance(text.to_owned()))?;
        Ok(Self((chance * f64::from(Self::WHOLE)).round() as u16))
    }
}

/// The four chances. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Migration {
    /// `D_r`: a page in persistent memory that is read comes to DRAM.
    pub dram_reads: Chance,
    /// `D_w`: a page in persistent memory that is to be changed comes to DRAM.
    pub dram_writes: Chance,
    /// `N_r`: a page that is read from the SSD enters persistent memory.
    pub memory_reads: Chance,
    /// `N_w`: a page that is written back, or leaves DRAM, enters persistent memory.
    pub memory_writes: Chance,
    /// After so many operations, again and again, a round of tuning ends ([`BufferManager::tune`](crate::BufferManager::tune)),
    /// which begins at these chances. None if they are fixed.
    pub tuned_each: Option<NonZeroU32>,
}

impl Migration {
    /// Operations in a round of tuning, if nothing else is said.
    pub const ROUND_OPERATIONS: NonZeroU32 = NonZeroU32::new(16_384).unwrap();

    /// Pages change their place when they are used often, and few of those that leave DRAM enter persistent memory. Of the
    /// fixed chances in `docs/engine.md` these cost least where not all pages fit there, and hardly more than others where
    /// they do.
    pub const DEFAULT: Self = Self {
        dram_reads: Chance::thousandths(50),
        dram_writes: Chance::thousandths(50),
        memory_reads: Chance::thousandths(50),
        memory_writes: Chance::thousandths(200),
        tuned_each: None,
    };

    fn of(&self, decision: Decision) -> Chance {
        match decision {
            Decision::ReadToDram => self.dram_reads,
            Decision::WriteToDram => self.dram_writes,
            Decision::LoadToMemory => self.memory_reads,
            Decision::LeaveToMemory => self.memory_writes,
        }
    }
}

impl Default for Migration {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth] = Decision::ALL.map(|decision| self.of(decision));
        write!(f, "{first},{second},{third},{fourth}")?;
        match self.tuned_each {
            None => Ok(()),
            Some(Self::ROUND_OPERATIONS) => write!(f, ",{TUNED}"),
            Some(operations) => write!(f, ",{TUNED}={operations}"),
        }
    }
}

/// Behind chances, or instead of them; perhaps with the operations in a round.
const TUNED: &str = "tuned";

/// What says no chances of migration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} says no chances; give four numbers from 0 to 1, `tuned`, or both, as in 0.1,0.9,0.2,1,tuned; `tuned=5000` makes \
     rounds of 5000 operations"
)]
pub struct NotAMigration(pub String);

impl FromStr for Migration {
    type Err = NotAMigration;

    fn from_str(text: &str) -> Result<Self, NotAMigration> {
        let wrong = || NotAMigration(text.to_owned());
        let mut parts: Vec<_> = text.split(',').map(str::trim).collect();
        let last = parts.last().and_then(|last| last.strip_prefix(TUNED));
        let tuned_each = match last.map(|last| last.strip_prefix('=').ok_or(last)) {
            None => None,
            Some(Err("")) => Some(Self::ROUND_OPERATIONS),
            Some(operations) => Some(operations.unwrap_or("").parse().map_err(|_| wrong())?),
        };
        parts.truncate(parts.len() - usize::from(tuned_each.is_some()));
        let chances: Result<Vec<Chance>, _> = parts.into_iter().map(str::parse).collect();
        match chances.map_err(|_| wrong())?[..] {
            [] => Ok(Self { tuned_each, ..Self::DEFAULT }),
            [dram_reads, dram_writes, memory_reads, memory_writes] => {
                Ok(Self { dram_reads, dram_writes, memory_reads, memory_writes, tuned_each })
            }
            _ => Err(wrong()),
        }
    }
}

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    ReadToDram,
    WriteToDram,
    LoadToMemory,
    LeaveToMemory,
}

impl Decision {
    const ALL: [Self; 4] =
        [Self::ReadToDram, Self::WriteToDram, Self::LoadToMemory, Self::LeaveToMemory];
}

/// How often it was decided one way and the other. What was decided and then overtaken is decided again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The way that has the chance.
    pub so: u64,
    /// The other.
    pub otherwise: u64,
}

/// What the four chances came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationStatistics {
    /// The chances now.
    pub chances: Migration,
    /// Fixes of pages in persistent memory: they come to DRAM, or are read there.
    pub dram_reads: Decided,
    /// Changes of pages in persistent memory: they come to DRAM, or are changed there.
    pub dram_writes: Decided,
    /// Loads from the SSD: into persistent memory, or past it.
    pub memory_reads: Decided,
    /// Pages from DRAM: into persistent memory, or past it.
    pub memory_writes: Decided,
    /// Rounds of tuning that have ended.
    pub rounds: u64,
}

/// Counts that few threads share.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    decided: [AtomicU64; Decision::ALL.len()],
    so: [AtomicU64; Decision::ALL.len()],
}

const COUNTS: usize = 16;

/// The four chances, and what comes of them.
#[derive(Debug)]
pub(crate) struct Migrations {
    /// In thousandths.
    chances: [AtomicU16; Decision::ALL.len()],
    counts: [Counts; COUNTS],
    /// None if the chances are fixed.
    tuning: Option<Box<Tuning>>,
}

#[derive(Debug)]
struct Tuning {
    round_operations: NonZeroU32,
    rounds: AtomicU64,
    round: Mutex<Round>,
}

/// The round that has begun.
#[derive(Debug)]
struct Round {
    annealing: Annealing,
    /// All operations until it began.
    operations: u64,
    /// What they had cost.
    cost_ns: u64,
}

impl Tuning {
    fn new(thousandths: [u16; CHANCES], round_operations: NonZeroU32) -> Self {
        let annealing = Annealing::new(thousandths);
        let round = Round { annealing, operations: 0, cost_ns: 0 };
        let (rounds, round) = (AtomicU64::new(0), Mutex::new(round));
        Self { round_operations, rounds, round }
    }

    fn is_over(&self, round: &Round, operations: u64) -> bool {
        operations.saturating_sub(round.operations) >= u64::from(self.round_operations.get())
    }
}

/// The finalizer of SplitMix64 (G. Steele et al., OOPSLA 2014).
pub(crate) fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl Migrations {
    pub(crate) fn new(migration: &Migration) -> Self {
        let thousandths = Decision::ALL.map(|decision| migration.of(decision).0);
        let tuning = |operations| Box::new(Tuning::new(thousandths, operations));
        Self {
            chances: thousandths.map(AtomicU16::new),
            counts: core::array::from_fn(|_| Counts::default()),
            tuning: migration.tuned_each.map(tuning),
        }
    }

    /// Whether a round may end: there were so many operations. Not where somebody is about to end it.
    pub(crate) fn is_due(&self, operations: u64) -> bool {
        self.tuning.as_ref().is_some_and(|tuning| {
            tuning.round.try_lock().is_some_and(|round| tuning.is_over(&round, operations))
        })
    }

    /// Ends a round, if nobody else has: there were so many operations, which have cost so much. Returns whether it
    /// ended.
    pub(crate) fn tune(&self, operations: u64, cost_ns: u64) -> bool {
        let Some(tuning) = &self.tuning else { return false };
        let Some(mut round) = tuning.round.try_lock() else { return false };
        if !tuning.is_over(&round, operations) {
            return false;
        }
        let in_round = operations - round.operations;
        let cost_ns_in_round = cost_ns.saturating_sub(round.cost_ns);
        (round.operations, round.cost_ns) = (operations, cost_ns);
        // Of a thousand operations.
        let next = round.annealing.next(cost_ns_in_round.saturating_mul(1000) / in_round);
        for (chance, next) in self.chances.iter().zip(next) {
            chance.store(next, Relaxed);
        }
        tuning.rounds.fetch_add(1, Relaxed);
        true
    }

    /// Decides for a page: whether it comes as the chance says.
    pub(crate) fn decide(&self, decision: Decision, page: PageNumber) -> bool {
        let (at, of_page) = (decision as usize, page.get() as usize % COUNTS);
        let counts = &self.counts[of_page];
        let before = counts.decided[at].fetch_add(1, Relaxed);
        let seed = ((of_page * Decision::ALL.len() + at) as u64) << 48;
        let drawn = mixed((seed ^ before).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let so = drawn % u64::from(Chance::WHOLE) < self.chances[at].load(Relaxed).into();
        if so {
            counts.so[at].fetch_add(1, Relaxed);
        }
        so
    }

    fn decided(&self, decision: Decision) -> Decided {
        let at = decision as usize;
        let sum = |count: fn(&Counts) -> &[AtomicU64; 4]| -> u64 {
            self.counts.iter().map(|counts| count(counts)[at].load(Relaxed)).sum()
        };
        let so = sum(|counts| &counts.so);
        Decided { so, otherwise: sum(|counts| &counts.decided).saturating_sub(so) }
    }

    fn chance(&self, decision: Decision) -> Chance {
        Chance(self.chances[decision as usize].load(Relaxed))
    }

    pub(crate) fn statistics(&self) -> MigrationStatistics {
        MigrationStatistics {
            chances: Migration {
                dram_reads: self.chance(Decision::ReadToDram),
                dram_writes: self.chance(Decision::WriteToDram),
                memory_reads: self.chance(Decision::LoadToMemory),
                memory_writes: self.chance(Decision::LeaveToMemory),
                tuned_each: self.tuning.as_ref().map(|tuning| tuning.round_operations),
            },
            rounds: self.tuning.as_ref().map_or(0, |tuning| tuning.rounds.load(Relaxed)),
            dram_reads: self.decided(Decision::ReadToDram),
            dram_writes: self.decided(Decision::WriteToDram),
            memory_reads: self.decided(Decision::LoadToMemory),
            memory_writes: self.decided(Decision::LeaveToMemory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_read_as_they_are_written() {
        let migration: Migration = "0,0.25, 0.001,1".parse().unwrap();
        assert_eq!(migration.to_string(), "0,0.25,0.001,1");
        for tuned in ["0,0.25,0.001,1,tuned", "0,0.25,0.001,1,tuned=50"] {
            let tuned_migration: Migration = tuned.parse().unwrap();
            assert_eq!(tuned_migration.to_string(), tuned);
            assert_eq!(Migration { tuned_each: None, ..tuned_migration }, migration);
        }
        let each = |text: &str| text.parse::<Migration>().unwrap().tuned_each.unwrap().get();
        assert_eq!((each("tuned"), each("tuned=7")), (16_384, 7));
        let numbers = ["0.1,0.2,0.3", "0,0,0,0,0", "0,0,0,1.1", "0,0,0,-1", "0,0,0,x", ""];
        for wrong in
            numbers.into_iter().chain(["tuned,0,0,0,0", "0,tuned", "tuned=0", "tuned=", "tuner"])
        {
            assert!(wrong.parse::<Migration>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_comes_as_often_as_the_chance_says_and_the_same_again() {
        let migration: Migration = "0,0.25,0.9,1".parse().unwrap();
        let run = || {
            let migrations = Migrations::new(&migration);
            for page in (1..=50).cycle().take(20_000).filter_map(PageNumber::new) {
                for decision in Decision::ALL {
                    migrations.decide(decision, page);
                }
            }
            migrations.statistics()
        };
        let found = run();
        assert_eq!(found, run());
        assert_eq!(found.chances, migration);
        assert_eq!((found.dram_reads.so, found.memory_writes.otherwise), (0, 0));
        assert!((4700..5300).contains(&found.dram_writes.so), "{found:?}");
        assert!((1700..2300).contains(&found.memory_reads.otherwise), "{found:?}");
    }

    #[test]
    fn a_round_ends_after_its_operations_and_changes_chances_that_are_tuned() {
        let chances = |text: &str| {
            let migrations = Migrations::new(&text.parse().unwrap());
            let ended = [99, 100, 101, 199, 250].map(|operations| {
                migrations.is_due(operations) && migrations.tune(operations, operations * 10)
            });
            let found = migrations.statistics();
            (ended, found.rounds, found.chances.to_string())
        };
        let (ended, rounds, changed) = chances("0,0.5,0.5,1,tuned=100");
        assert_eq!((ended, rounds), ([false, true, false, false, true], 2));
        assert!(changed.ends_with(",tuned=100"), "{changed}");
        assert_eq!(chances("0,0.5,0.5,1"), ([false; 5], 0, "0,0.5,0.5,1".to_owned()));
    }
}
