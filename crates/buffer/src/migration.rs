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
//! # Chance that comes the same again
//!
//! A decision is a number made from a seed and a count of decisions before it. Pages share the counts with some others,
//! by their numbers, so that threads which use different pages seldom share a line of the cache. The same run on the modelled machine
//! decides the same.

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use crate::page::PageNumber;

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
}

impl Migration {
    /// Used pages come to DRAM soon, and most pages enter persistent memory. See `ARCHITECTURE.md` for what others cost.
    pub const DEFAULT: Self = Self {
        dram_reads: Chance::thousandths(200),
        dram_writes: Chance::thousandths(900),
        memory_reads: Chance::thousandths(200),
        memory_writes: Chance::thousandths(500),
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
        write!(f, "{first},{second},{third},{fourth}")
    }
}

impl FromStr for Migration {
    type Err = NotAChance;

    fn from_str(text: &str) -> Result<Self, NotAChance> {
        let chances: Result<Vec<Chance>, _> = text.split(',').map(str::parse).collect();
        match chances?[..] {
            [dram_reads, dram_writes, memory_reads, memory_writes] => {
                Ok(Self { dram_reads, dram_writes, memory_reads, memory_writes })
            }
            _ => Err(NotAChance(text.to_owned())),
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
}

/// The finalizer of SplitMix64 (G. Steele et al., OOPSLA 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl Migrations {
    pub(crate) fn new(migration: &Migration) -> Self {
        let chances = Decision::ALL.map(|decision| AtomicU16::new(migration.of(decision).0));
        Self { chances, counts: core::array::from_fn(|_| Counts::default()) }
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
            },
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
        for wrong in ["0.1,0.2,0.3", "0,0,0,0,0", "0,0,0,1.1", "0,0,0,-1", "0,0,0,x", ""] {
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
}
