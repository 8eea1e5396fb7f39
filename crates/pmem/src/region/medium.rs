//! What a region lies on, and what that makes a persist worth.

/// What a region's bytes lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Medium {
    /// Memory of this process alone.
    Anonymous,
    /// An ordinary file, through the page cache.
    File,
    /// An ordinary file on a file system that itself lives in memory (tmpfs).
    MemoryFile,
    /// A file on a DAX file system, mapped with `MAP_SYNC`.
    Dax,
    /// A device-DAX character device.
    DeviceDax,
}

impl Medium {
    /// The name users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous memory",
            Self::File => "file",
            Self::MemoryFile => "file in memory (tmpfs)",
            Self::Dax => "DAX file (MAP_SYNC)",
            Self::DeviceDax => "device-DAX",
        }
    }
}

/// What the user asks of a persist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// What the medium gives at memory speed: on an ordinary file, survival of a process crash but
    /// not of a power cut; on DAX, survival of both.
    #[default]
    Medium,
    /// Survival of a power cut, whatever it costs: on an ordinary file, `msync`/`fdatasync` at each
    /// persist point. Refused where the medium cannot give it.
    PowerFail,
}

/// Whether a persist writes back the processor's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Caches {
    /// As the platform says: not where it keeps them when the power fails (eADR), and on persistent memory alone.
    #[default]
    Detect,
    /// It does, whatever the platform says; on media that are no persistent memory too, which survive no more by that, but cost
    /// what it would.
    Volatile,
    /// It does not: whoever says so knows that they are kept.
    PowerFailSafe,
}

/// What survives what, once a persist has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Nothing outlives the process.
    Nothing,
    /// Persisted data survives the death of the process, not of the machine.
    ProcessCrash,
    /// Persisted data survives a power cut.
    PowerFail,
}

impl Guarantee {
    /// The name users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::ProcessCrash => "process-crash",
            Self::PowerFail => "power-fail",
        }
    }
}
