//! Device profiles: data files that say what a machine is, and how far each figure is to be
//! trusted.
//!
//! A profile is a TOML file of sections; every field is a table of three:
//!
//! ```toml
//! [memory]
//! read_media_ns = { value = 305.0, trust = "M", source = "data/optane.md: random read latency" }
//! ```
//!
//! Reading is strict: a field that is missing, unknown, of the wrong kind, without a source or out
//! of bounds is one sentence that names the file and the field ([`ProfileError`]). The bounds keep
//! a bad file from asking for absurd amounts of memory. Two sections are what experiments have found,
//! and may be missing: `interleaving`, the core's share of interleaved operations
//! ([`Interleaving`]), and `page`, what writing pages costs ([`PageCosts`]). The profiles of this
//! crate are compiled in; [`Profile::find`] takes one of their names or the path of a file.

mod fields;
mod machine;
mod page_costs;
mod reading;
mod section;

use std::path::Path;

use serde::Serialize;

pub use fields::{Caches, Core, Dram, Interleaving, Memory, Ssd};
pub use page_costs::{PageCostPoint, PageCosts};

/// How far a figure is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Trust {
    /// Measured on hardware and published with its data.
    M,
    /// Derived from such data.
    D,
    /// Fitted, so that the model as a whole reproduces measurements.
    F,
    /// Stated by a vendor, an abstract or a secondary source.
    A,
    /// Unverified: nobody measured it, and the source says what it was taken from.
    U,
}

impl Trust {
    /// All labels.
    pub const ALL: [Self; 5] = [Self::M, Self::D, Self::F, Self::A, Self::U];

    /// The letter used in files and tables.
    pub fn letter(self) -> &'static str {
        match self {
            Self::M => "M",
            Self::D => "D",
            Self::F => "F",
            Self::A => "A",
            Self::U => "U",
        }
    }

    /// The label in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::M => "measured",
            Self::D => "derived",
            Self::F => "fitted",
            Self::A => "stated",
            Self::U => "unverified",
        }
    }
}

impl std::fmt::Display for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.letter())
    }
}

/// A value with where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sourced<T> {
    /// The value, in the unit that the field's name ends in.
    pub value: T,
    /// How far it is to be trusted.
    pub trust: Trust,
    /// Where it comes from, in words.
    pub source: String,
}

/// One field of a profile, for listings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldListing {
    /// `section.field`.
    pub field: String,
    /// The value in words.
    pub value: String,
    /// How far it is to be trusted.
    pub trust: Trust,
    /// Where it comes from.
    pub source: String,
}

/// A machine with persistent memory: its caches, its cores, its memory and its SSD.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// What the profile is called on the command line.
    pub name: String,
    /// What it stands for, in a sentence.
    pub description: String,
    /// The caches.
    pub caches: Caches,
    /// What a core does by itself.
    pub core: Core,
    /// Ordinary memory beside the persistent one.
    pub dram: Dram,
    /// Persistent memory.
    pub memory: Memory,
    /// The block device below.
    pub ssd: Ssd,
    /// What interleaving was found to cost the core, if it was calibrated.
    pub interleaving: Option<Interleaving>,
    /// What writing pages was found to cost on this machine, if it was calibrated.
    pub page: Option<PageCosts>,
}

/// Why there is no such profile. Each message is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither a built-in profile nor a file.
    #[error(
        "there is no device profile {name}; there is {}, or name a file",
        Profile::NAMES.join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("the profile {file} cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the operating system answered.
        why: std::io::Error,
    },
    /// The file is larger than any profile.
    #[error("{file} is not a profile: it has more than {} bytes", Profile::FILE_BYTES_LIMIT)]
    TooLarge {
        /// The file.
        file: String,
    },
    /// The file is not UTF-8.
    #[error("{file} is not a profile: it is not text in UTF-8")]
    NotText {
        /// The file.
        file: String,
    },
    /// The file is not TOML.
    #[error("{file} is not a profile: {why}")]
    NotToml {
        /// The file.
        file: String,
        /// What the parser says.
        why: String,
    },
    /// A field is missing, unknown or wrong.
    #[error("{file}: {field} {what}")]
    Field {
        /// The file.
        file: String,
        /// `section.field`.
        field: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Profile {
    /// Names of the profiles that are built in.
    pub const NAMES: [&'static str; 8] = [
        "dram",
        "nvdimm-n",
        "optane-100",
        "optane-200",
        "cxl-nvdimm",
        "hymem-sep",
        "wort-study",
        "amplification-study",
    ];

    /// Larger files are not read.
    pub const FILE_BYTES_LIMIT: usize = 1 << 18;

    /// The text of a built-in profile, to start one's own from.
    pub fn text_of(name: &str) -> Option<&'static str> {
        Some(match name {
            "amplification-study" => include_str!("../../profiles/amplification-study.toml"),
            "dram" => include_str!("../../profiles/dram.toml"),
            "nvdimm-n" => include_str!("../../profiles/nvdimm-n.toml"),
            "optane-100" => include_str!("../../profiles/optane-100.toml"),
            "optane-200" => include_str!("../../profiles/optane-200.toml"),
            "cxl-nvdimm" => include_str!("../../profiles/cxl-nvdimm.toml"),
            "hymem-sep" => include_str!("../../profiles/hymem-sep.toml"),
            "wort-study" => include_str!("../../profiles/wort-study.toml"),
            _ => return None,
        })
    }

    /// The built-in profile called `name`.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`].
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let text =
            Self::text_of(name).ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })?;
        Self::parse(name, text.as_bytes())
    }

    /// The profile in the file at `path`.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let file = path.display().to_string();
        let unreadable = |why| ProfileError::Unreadable { file: file.clone(), why };
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(path).map_err(unreadable)?;
        let limit = Self::FILE_BYTES_LIMIT as u64 + 1;
        std::io::Read::read_to_end(&mut std::io::Read::take(opened, limit), &mut bytes)
            .map_err(unreadable)?;
        Self::parse(&file, &bytes)
    }

    /// What a user means by `name`: a built-in profile, or else a file.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn find(name: &str) -> Result<Self, ProfileError> {
        if Self::text_of(name).is_some() {
            return Self::named(name);
        }
        let looks_like_a_path = name.ends_with(".toml") || name.contains(['/', '\\']);
        if looks_like_a_path || Path::new(name).is_file() {
            return Self::load(Path::new(name));
        }
        Self::named(name)
    }

    /// The profile in `bytes`; `file` is for messages.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, ProfileError> {
        reading::parse(file, bytes)
    }

    /// Every field with its trust and source.
    pub fn listing(&self) -> Vec<FieldListing> {
        let mut all = self.caches.listing();
        all.extend(self.core.listing());
        all.extend(self.dram.listing());
        all.extend(self.memory.listing());
        all.extend(self.ssd.listing());
        all.extend(self.interleaving.iter().flat_map(Interleaving::listing));
        all
    }
}
