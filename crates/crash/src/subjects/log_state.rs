//! What a log holds, as the checker remembers it, and what is put into one.

use lapis_blocks::log::Position;

/// What a log holds: the number of entries ever dropped, and the retained ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogState {
    dropped: u64,
    /// Length and hash.
    entries: Vec<(usize, u64)>,
}

impl LogState {
    pub(super) fn new(dropped: u64, entries: Vec<(usize, u64)>) -> Self {
        Self { dropped, entries }
    }

    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().map(|(length, _)| *length)
    }

    /// The position that the next entry will have.
    pub(crate) fn end(&self) -> u64 {
        Position::FIRST.number() + self.dropped + self.entries.len() as u64
    }

    pub(crate) fn append(&mut self, contents: &[u8]) {
        self.entries.push(digest(contents));
    }

    pub(crate) fn keep_newest(&mut self, count: usize) {
        let drop = self.entries.len().saturating_sub(count);
        self.entries.drain(..drop);
        self.dropped += drop as u64;
    }
}

/// Contents of every shape: dense, sparse, all zero, all ones.
pub(super) fn payload(bytes: usize, number: u8) -> Vec<u8> {
    match number % 4 {
        0 => vec![0; bytes],
        1 => vec![0xFF; bytes],
        2 => (0..bytes).map(|at| if at % 64 == 40 { number | 1 } else { 0 }).collect(),
        _ => (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ number).collect(),
    }
}

pub(super) fn digest(contents: &[u8]) -> (usize, u64) {
    (contents.len(), xxhash_rust::xxh3::xxh3_64(contents))
}
