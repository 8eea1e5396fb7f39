//! What waits in a store buffer.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::trace::{Marker, Source};

/// What an entry of a store buffer does.
#[derive(Debug)]
pub(crate) enum Effect {
    Word {
        at: *const (),
        bytes: u8,
        value: u64,
        order: Ordering,
    },
    Copy {
        destination: *mut u8,
        source: OwnedSource,
    },
    NonTemporal {
        destination: *mut u8,
        source: OwnedSource,
        at: &'static Location<'static>,
    },
    Flush(&'static Location<'static>),
    Fence(&'static Location<'static>),
    /// A store to a word of ordinary memory.
    Dram {
        word: Arc<AtomicU64>,
        value: u64,
    },
    Mark(Marker),
}

// SAFETY: the pointers are into the region; whoever takes the effect holds the baton, and the worker
// that made it vouched that the memory stays mapped.
unsafe impl Send for Effect {}

#[derive(Debug)]
pub(crate) enum OwnedSource {
    Bytes(Vec<u8>),
    Zeroes(usize),
}

impl OwnedSource {
    pub(crate) fn of(source: Source<'_>) -> Self {
        match source {
            Source::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Source::Zeroes(bytes) => Self::Zeroes(bytes),
        }
    }

    pub(crate) fn as_source(&self) -> Source<'_> {
        match self {
            Self::Bytes(bytes) => Source::Bytes(bytes),
            Self::Zeroes(bytes) => Source::Zeroes(*bytes),
        }
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        match self {
            Self::Bytes(bytes) => bytes[at],
            Self::Zeroes(_) => 0,
        }
    }
}
