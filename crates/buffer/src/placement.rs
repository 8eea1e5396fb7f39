//! Where pages may be: which tiers there are, as one policy of one manager.

use core::fmt;
use core::str::FromStr;

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
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::MainMemory, Self::Ssd, Self::BasicNvm, Self::ThreeTier];

    /// Whether persistent memory holds pages.
    pub fn has_persistent_memory(self) -> bool {
        matches!(self, Self::BasicNvm | Self::ThreeTier)
    }

    /// Whether a page that is in persistent memory comes to DRAM line by line, as it is read.
    pub(crate) fn moves_lines(self) -> bool {
        self == Self::ThreeTier
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::MainMemory => "main-memory",
            Self::Ssd => "ssd",
            Self::BasicNvm => "basic-nvm",
            Self::ThreeTier => "three-tier",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name of no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no placement {0:?}; choose main-memory, ssd, basic-nvm or three-tier")]
pub struct UnknownPlacement(pub String);

impl FromStr for Placement {
    type Err = UnknownPlacement;

    fn from_str(name: &str) -> Result<Self, UnknownPlacement> {
        let found = Self::ALL.into_iter().find(|placement| placement.name() == name);
        found.ok_or_else(|| UnknownPlacement(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_found_by_their_names() {
        for placement in Placement::ALL {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        assert!("tape".parse::<Placement>().is_err());
    }
}
