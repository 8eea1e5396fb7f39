//! The core workloads of YCSB (Cooper, Silberstein, Tam, Ramakrishnan and Sears, *Benchmarking Cloud
//! Serving Systems with YCSB*, SoCC 2010) over a table.
//!
//! | workload | operations | requests |
//! |---|---|---|
//! | load | insert every record | in order of number, so in random order of key |
//! | A | 50 % read, 50 % update | zipfian |
//! | B | 95 % read, 5 % update | zipfian |
//! | C | read | zipfian |
//! | D | 95 % read, 5 % insert | latest |
//! | E | 95 % scan of 1 to 100 records, 5 % insert | zipfian |
//! | F | 50 % read, 50 % read-modify-write | zipfian |
//!
//! A record has 10 fields of 100 bytes and the key "user" with the hash of its number. An update
//! writes one field, as YCSB's default is; the store replaces the record, so the update reads it
//! within the same transaction.
//!
//! Every read is checked outside of the measured time: the record must be whole, and must show every
//! field write that had been acknowledged when the read began and none that had not begun when it
//! ended. A wrong answer ends the run with an error.

mod driver;
mod record;
mod run;
mod worker;

use serde::Serialize;

use crate::named::named;

pub use driver::Driver;
pub use record::{MIN_FIELD_BYTES, key};

named! {
    /// A workload.
    pub enum Workload {
        /// Inserts every record.
        Load = "load",
        /// Update heavy.
        A = "a",
        /// Read mostly.
        B = "b",
        /// Read only.
        C = "c",
        /// Read latest.
        D = "d",
        /// Short ranges.
        E = "e",
        /// Read-modify-write.
        F = "f",
    }
}

impl Workload {
    /// The workload called `name`, in either case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name().eq_ignore_ascii_case(name))
    }

    /// The mix of operations, and the distribution of requests by YCSB's definition.
    pub fn mix(self) -> Mix {
        let none = Mix {
            read: 0,
            update: 0,
            insert: 0,
            scan: 0,
            read_modify_write: 0,
            requests: RequestDistribution::Zipfian,
        };
        match self {
            Self::Load => Mix { insert: 100, ..none },
            Self::A => Mix { read: 50, update: 50, ..none },
            Self::B => Mix { read: 95, update: 5, ..none },
            Self::C => Mix { read: 100, ..none },
            Self::D => Mix { read: 95, insert: 5, requests: RequestDistribution::Latest, ..none },
            Self::E => Mix { scan: 95, insert: 5, ..none },
            Self::F => Mix { read: 50, read_modify_write: 50, ..none },
        }
    }
}

/// How often each operation occurs, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Reads of one record.
    pub read: u32,
    /// Updates of one record.
    pub update: u32,
    /// Inserts of a new record.
    pub insert: u32,
    /// Scans.
    pub scan: u32,
    /// A read followed by an update of the same record.
    pub read_modify_write: u32,
    /// Which records.
    pub requests: RequestDistribution,
}

named! {
    /// One operation of a workload.
    pub enum Kind {
        /// Read of one record.
        Read = "read",
        /// Update of one record.
        Update = "update",
        /// Insert of a new record.
        Insert = "insert",
        /// Scan.
        Scan = "scan",
        /// Read, then update of the same record.
        ReadModifyWrite = "read-modify-write",
    }
}

impl Mix {
    /// The operation that a number below 100, drawn uniformly, stands for.
    #[inline]
    pub fn kind(&self, mut percent: u32) -> Kind {
        for (share, kind) in [
            (self.read, Kind::Read),
            (self.update, Kind::Update),
            (self.insert, Kind::Insert),
            (self.scan, Kind::Scan),
        ] {
            if percent < share {
                return kind;
            }
            percent -= share;
        }
        Kind::ReadModifyWrite
    }
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestDistribution {
    /// A few much more often than the others, scattered over all.
    Zipfian,
    /// Each as often as any other.
    Uniform,
    /// Those inserted last much more often than the others.
    Latest,
}

impl RequestDistribution {
    /// The distribution called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "zipfian" | "zipf" => Some(Self::Zipfian),
            "uniform" => Some(Self::Uniform),
            "latest" => Some(Self::Latest),
            _ => None,
        }
    }
}

/// What can be chosen about a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Records to load.
    pub records: u64,
    /// Operations of a run (not of the load).
    pub operations: u64,
    /// Threads.
    pub threads: usize,
    /// Fields in a record.
    pub fields: usize,
    /// Bytes in a field, at least [`MIN_FIELD_BYTES`].
    pub field_bytes: usize,
    /// Whether an update writes all fields instead of one.
    pub update_all_fields: bool,
    /// Most records in a scan.
    pub longest_scan: usize,
    /// Which records are asked for; none: as the workload defines.
    pub requests: Option<RequestDistribution>,
    /// What the random numbers start from. With one thread it determines everything.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            records: 100_000,
            operations: 100_000,
            threads: 1,
            fields: 10,
            field_bytes: 100,
            update_all_fields: false,
            longest_scan: 100,
            requests: None,
            seed: 42,
        }
    }
}

/// The most threads.
const MOST_THREADS: usize = 1024;

impl Options {
    fn problem(&self) -> Option<String> {
        if self.records == 0 {
            Some("a workload takes at least one record".into())
        } else if !(1..=MOST_THREADS).contains(&self.threads) {
            Some(format!("a workload takes 1 to {MOST_THREADS} threads, not {}", self.threads))
        } else if self.fields == 0 {
            Some("a record has at least one field".into())
        } else if self.field_bytes < MIN_FIELD_BYTES {
            Some(format!("a field has at least {MIN_FIELD_BYTES} bytes, so that it can be checked"))
        } else if self.longest_scan == 0 {
            Some("a scan is of at least one record".into())
        } else {
            None
        }
    }
}

/// Why a workload ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError<E: std::error::Error + 'static> {
    /// The store failed.
    #[error(transparent)]
    Target(#[from] E),
    /// An option has a value that makes no sense.
    #[error("{what}")]
    BadOption {
        /// What is wrong.
        what: String,
    },
    /// A record that was acknowledged is not there.
    #[error("the record {key} was acknowledged and is missing")]
    Missing {
        /// Its key.
        key: String,
    },
    /// The store gave a wrong answer.
    #[error("the record {key} is wrong: {what}")]
    Wrong {
        /// Its key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// A table that is not as a load of this workload leaves it.
    #[error("the table was not loaded by this workload with these options: {what}")]
    Foreign {
        /// What says so.
        what: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_adds_up_to_everything() {
        for workload in Workload::ALL {
            let mix = workload.mix();
            let sum = mix.read + mix.update + mix.insert + mix.scan + mix.read_modify_write;
            assert_eq!(sum, 100, "{workload}");
        }
    }

    #[test]
    fn percent_numbers_stand_for_operations_in_proportion() {
        let kinds: Vec<Kind> = (0..100).map(|percent| Workload::F.mix().kind(percent)).collect();
        assert_eq!(kinds.iter().filter(|&&kind| kind == Kind::Read).count(), 50);
        assert_eq!(kinds.iter().filter(|&&kind| kind == Kind::ReadModifyWrite).count(), 50);
        assert_eq!(Workload::E.mix().kind(94), Kind::Scan);
        assert_eq!(Workload::E.mix().kind(0), Kind::Insert);
    }

    #[test]
    fn names_round_trip() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()), Some(workload));
        }
        assert_eq!(Workload::from_name("A"), Some(Workload::A));
        assert_eq!(Workload::from_name("g"), None);
    }
}
