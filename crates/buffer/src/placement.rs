//! Where pages may be: which tiers there are, as one policy of one manager.

use core::fmt;
use core::str::FromStr;

use crate::migration::Migration;

/// Which tiers hold pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// DRAM alone: nothing is evicted, and nothing is durable.
    MainMemory,
    /// DRAM is a cache over an SSD.
    Ssd,
    /// DRAM and persistent memory are caches over an SSD: hot pages in one, warm ones in the other.
    BasicNvm,
    /// The same, and between DRAM and persistent memory lines move instead of pages.
    ThreeTier,
    /// The same, and pages are used in persistent memory, too: chance decides which way they take.
    Spitfire(Migration),
}

impl Placement {
    /// All of them, the last with [`Migration::DEFAULT`].
    pub const ALL: [Self; 5] = [
        Self::MainMemory,
        Self::Ssd,
        Self::BasicNvm,
        Self::ThreeTier,
        Self::Spitfire(Migration::DEFAULT),
    ];

    /// Whether persistent memory holds pages.
    pub fn has_persistent_memory(self) -> bool {
        matches!(self, Self::BasicNvm | Self::ThreeTier | Self::Spitfire(_))
    }

    /// Whether a page that is in persistent memory comes to DRAM line by line, as it is read.
    pub fn moves_lines(self) -> bool {
        matches!(self, Self::ThreeTier | Self::Spitfire(_))
    }

    /// The chances by which pages move; none if it is not chance that decides.
    pub fn migration(self) -> Option<Migration> {
        match self {
            Self::Spitfire(migration) => Some(migration),
            _ => None,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::MainMemory => "main-memory",
            Self::Ssd => "ssd",
            Self::BasicNvm => "basic-nvm",
            Self::ThreeTier => "three-tier",
            Self::Spitfire(_) => "spitfire",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What names no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no placement {0:?}; choose main-memory, ssd, basic-nvm, three-tier or spitfire, the last with four chances \
     from 0 to 1 if they are to be others than its own, as in spitfire:0.1,0.9,0.2,1, and with `tuned` if they are to be \
     tuned, as in spitfire:tuned or spitfire:0.1,0.9,0.2,1,tuned"
)]
pub struct UnknownPlacement(pub String);

impl FromStr for Placement {
    type Err = UnknownPlacement;

    /// A name, and of `spitfire` perhaps what [`Migration`] is read from behind a colon: `D_r`, `D_w`, `N_r` and `N_w`, or
    /// `tuned`, or both.
    fn from_str(text: &str) -> Result<Self, UnknownPlacement> {
        let unknown = || UnknownPlacement(text.to_owned());
        let (name, chances) = text.split_once(':').map_or((text, None), |(it, of)| (it, Some(of)));
        let found = Self::ALL.into_iter().find(|placement| placement.name() == name);
        match (found.ok_or_else(unknown)?, chances) {
            (Self::Spitfire(_), Some(chances)) => {
                chances.parse().map(Self::Spitfire).map_err(|_| unknown())
            }
            (placement, None) => Ok(placement),
            (_, Some(_)) => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::Chance;

    #[test]
    fn placements_are_found_by_their_names() {
        for placement in Placement::ALL {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        let expected = Migration { dram_writes: Chance::NEVER, ..Migration::DEFAULT };
        let text = format!("spitfire:{expected}");
        assert_eq!(text.parse(), Ok(Placement::Spitfire(expected)));
        let tuned =
            Migration { tuned_each: Some(Migration::ROUND_OPERATIONS), ..Migration::DEFAULT };
        assert_eq!("spitfire:tuned".parse(), Ok(Placement::Spitfire(tuned)));
        for wrong in
            ["tape", "spitfire:", "spitfire:tuned=0", "spitfire:1,1,1", "three-tier:1,1,1,1"]
        {
            assert!(wrong.parse::<Placement>().is_err(), "{wrong}");
        }
    }
}
