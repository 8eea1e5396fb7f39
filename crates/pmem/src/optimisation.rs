//! The four optimisations of the study of write amplification (IEEE Access 2021, section IV), as
//! switches.
//!
//! Lapis is built with the first two, on every machine, and a user chooses the others. That the first
//! two can be switched off, on a modelled machine alone, is for showing what they save.

use std::fmt;
use std::str::FromStr;

/// One of the study's optimisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimisation {
    /// Layouts have no padding that nobody intended ([`Observed::padding_bytes`](crate::Observed::padding_bytes)).
    RemovalOfBloat,
    /// What is stored in one line, one word after the other, is flushed once
    /// ([`Domain::order_in_line`](crate::Domain::order_in_line)).
    FlushCoalescing,
    /// A lock's line is written back when it is given back
    /// ([`Domain::lock_released`](crate::Domain::lock_released)).
    EarlyEviction,
    /// Nodes or buckets have 256 bytes, the unit in which media are written.
    XplineUnits,
}

impl Optimisation {
    /// All of them, in the order of the study.
    pub const ALL: [Self; 4] =
        [Self::RemovalOfBloat, Self::FlushCoalescing, Self::EarlyEviction, Self::XplineUnits];

    /// The name used on the command line, in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::RemovalOfBloat => "removal-of-bloat",
            Self::FlushCoalescing => "flush-coalescing",
            Self::EarlyEviction => "early-eviction",
            Self::XplineUnits => "xpline-units",
        }
    }
}

/// Some of the study's optimisations. The default is what structures are built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Optimisations(u8);

impl Optimisations {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// What structures are built with.
    pub const AS_BUILT: Self =
        Self::of(&[Optimisation::RemovalOfBloat, Optimisation::FlushCoalescing]);

    /// These.
    pub const fn of(optimisations: &[Optimisation]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < optimisations.len() {
            bits |= 1 << optimisations[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether this is one of them.
    pub const fn has(self, optimisation: Optimisation) -> bool {
        self.0 & (1 << optimisation as u8) != 0
    }

    /// Those that are also among `others`.
    pub const fn among(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// The same without this one.
    pub const fn without(self, optimisation: Optimisation) -> Self {
        Self(self.0 & !(1 << optimisation as u8))
    }

    /// What is worth comparing of a structure that these concern: none of them, all, those it is built
    /// with, and those with each one switched over. Each once, fewer before more.
    pub fn to_compare(self) -> Vec<Self> {
        let built = Self::AS_BUILT.among(self);
        let over = self.each().map(|one| Self(built.0 ^ Self::of(&[one]).0));
        let mut sets: Vec<_> = [Self::NONE, built, self].into_iter().chain(over).collect();
        sets.sort_by_key(|set| (set.0.count_ones(), set.0));
        sets.dedup();
        sets
    }

    /// One after the other.
    pub fn each(self) -> impl Iterator<Item = Optimisation> {
        Optimisation::ALL.into_iter().filter(move |&one| self.has(one))
    }
}

impl Default for Optimisations {
    fn default() -> Self {
        Self::AS_BUILT
    }
}

impl fmt::Display for Optimisations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.each().map(Optimisation::name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join("+") }.as_str())
    }
}

/// It is none of the study's optimisations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no optimisation: there are removal-of-bloat, flush-coalescing, early-eviction and \
     xpline-units, several of them joined by +, none and all"
)]
pub struct UnknownOptimisation(pub String);

impl FromStr for Optimisations {
    type Err = UnknownOptimisation;

    fn from_str(names: &str) -> Result<Self, Self::Err> {
        let one = |name: &str| {
            let found = Optimisation::ALL.into_iter().find(|one| one.name() == name);
            found.ok_or_else(|| UnknownOptimisation(name.to_owned()))
        };
        match names {
            "none" => Ok(Self::NONE),
            "all" => Ok(Self::of(&Optimisation::ALL)),
            _ => Ok(Self::of(&names.split('+').map(one).collect::<Result<Vec<_>, _>>()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_as_they_are_written() {
        for bits in 0..16 {
            let set = Optimisations(bits);
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert_eq!("all".parse(), Ok(Optimisations(15)));
        assert!("early-eviction+bloat".parse::<Optimisations>().is_err());
        assert!("".parse::<Optimisations>().is_err());
    }

    #[test]
    fn what_is_compared_differs_from_what_is_built_in_one_or_is_none_or_all() {
        let sets = |names: &str| -> Vec<String> {
            let concerned: Optimisations = names.parse().unwrap();
            concerned.to_compare().iter().map(ToString::to_string).collect()
        };
        assert_eq!(sets("none"), ["none"]);
        assert_eq!(sets("early-eviction"), ["none", "early-eviction"]);
        assert_eq!(
            sets("flush-coalescing+early-eviction+xpline-units"),
            [
                "none",
                "flush-coalescing",
                "flush-coalescing+early-eviction",
                "flush-coalescing+xpline-units",
                "flush-coalescing+early-eviction+xpline-units"
            ]
        );
    }
}
