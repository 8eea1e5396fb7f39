//! What a store has to be able to do to be compared.

use std::error::Error;
use std::path::Path;

use super::workload::Workload;
use crate::named::named;

/// Whatever a store says is wrong.
pub(super) type PeerError = Box<dyn Error + Send + Sync>;

/// How a store is opened, and made if there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenOptions<'p> {
    pub(super) directory: &'p Path,
    /// Bytes that it may keep of its data in memory.
    pub(super) cache_bytes: u64,
    /// Whether a commit is durable when it returns, against power cuts too. If not, after [`Peer::sync`].
    pub(super) durable: bool,
    /// A directory of memory that may pose as persistent memory.
    pub(super) memory: &'p Path,
}

/// Key and value.
pub(super) type Record<'r> = (&'r [u8], &'r [u8]);

/// Who is shown entries.
pub(super) type OnEntry<'f> = &'f mut dyn FnMut(&[u8], &[u8]);

/// A store, used by several threads.
pub(super) trait Peer: Sync {
    /// Reads, all of what `with` reads from one state if the store gains by that.
    fn read(
        &self,
        with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
    ) -> Result<(), PeerError>;

    /// Puts records, all or none of them.
    fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError>;

    /// Makes everything durable.
    fn sync(&self) -> Result<(), PeerError>;

    /// Ends its use in order.
    fn close(self: Box<Self>) -> Result<(), PeerError>;
}

/// Somebody who reads.
pub(super) trait Reads {
    /// Makes `value` the value of a key; whether there is one.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError>;

    /// Shows up to `count` entries from `from` on, in order.
    fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError>;
}

named! {
    /// A store.
    pub enum StoreName {
        /// This one.
        Lapis = "lapis",
        /// This one, with memory that poses as persistent memory: written back and fenced as such, and lost when the power goes.
        LapisWithMemory = "lapis-pm",
        /// LMDB, by `heed`.
        Lmdb = "lmdb",
        /// redb.
        Redb = "redb",
        /// fjall.
        Fjall = "fjall",
        /// RocksDB.
        Rocksdb = "rocksdb",
    }
}

impl StoreName {
    /// Whether this build has it.
    pub const fn is_built(self) -> bool {
        match self {
            Self::Lapis | Self::LapisWithMemory => true,
            Self::Lmdb | Self::Redb | Self::Fjall => cfg!(feature = "peers"),
            Self::Rocksdb => cfg!(feature = "rocksdb"),
        }
    }

    /// Whether it is one of those that Lapis is compared with.
    pub(super) fn is_other(self) -> bool {
        !matches!(self, Self::Lapis | Self::LapisWithMemory)
    }

    /// Why a workload means nothing to the store, if it does not.
    pub(super) fn cannot(self, workload: Workload) -> Option<&'static str> {
        match (self, workload) {
            (Self::Lmdb, Workload::GetBeyondCache) => {
                Some("its cache is the page cache of the kernel, which has no size of its own")
            }
            (Self::LapisWithMemory, workload) if !workload.commits_often() => {
                Some("persistent memory is asked for what commits gain by it")
            }
            _ => None,
        }
    }

    pub(super) fn open(self, options: &OpenOptions<'_>) -> Result<Box<dyn Peer>, PeerError> {
        match self {
            Self::Lapis => super::lapis::open(options, None),
            Self::LapisWithMemory => super::lapis::open(options, Some(options.memory)),
            #[cfg(feature = "peers")]
            Self::Lmdb => super::lmdb::open(options),
            #[cfg(feature = "peers")]
            Self::Redb => super::redb::open(options),
            #[cfg(feature = "peers")]
            Self::Fjall => super::fjall::open(options),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => super::rocksdb::open(options),
            #[cfg(not(feature = "rocksdb"))]
            _ => Err("this build does not have it".into()),
        }
    }
}
