//! Entries torn by hand: an image before an append is given some of the words that the append
//! changes, and opened.

use std::marker::PhantomData;

use lapis_blocks::log::{Log, Position};
use lapis_device::{Config, Modelled};

use crate::{Entries, contents, memory, reclaim_and_audit, restart};

/// An append to a log, as two images and the words in which they differ.
pub struct Append<L> {
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    pub words: Vec<usize>,
    pub acknowledged: Entries,
    pub appended: (Position, Vec<u8>),
    log: PhantomData<L>,
}

impl<L: Log<Modelled>> Append<L> {
    pub fn new(log: &L, payload: &[u8]) -> Self {
        let (acknowledged, before) = (contents(log), memory(log.pool()));
        let position = log.append(payload).unwrap();
        let after = memory(log.pool());
        let differs = |at: &usize| before[*at..at + 8] != after[*at..at + 8];
        let words = (0..before.len()).step_by(8).filter(differs).collect();
        let appended = (position, payload.to_vec());
        Self { before, after, words, acknowledged, appended, log: PhantomData }
    }

    /// The image in which those words have persisted that `kept` says.
    pub fn image(&self, mut kept: impl FnMut(usize) -> bool) -> Vec<u8> {
        let mut image = self.before.clone();
        for (index, &at) in self.words.iter().enumerate() {
            if kept(index) {
                image[at..at + 8].copy_from_slice(&self.after[at..at + 8]);
            }
        }
        image
    }

    fn open(image: &[u8]) -> L {
        crate::open(&restart(image, Config::default())).unwrap()
    }

    /// Opens an image in which not all words have persisted, and uses the log further.
    pub fn assert_torn(&self, image: &[u8]) {
        let log = Self::open(image);
        assert_eq!(contents(&log), self.acknowledged);
        assert_eq!(log.check(), []);
        reclaim_and_audit(&log);
        let next = log.append(b"next").unwrap();
        assert_eq!(next, self.appended.0);
        let mut entries = self.acknowledged.clone();
        entries.push((next, b"next".to_vec()));
        let log = Self::open(&memory(log.pool()));
        assert_eq!(contents(&log), entries);
        assert_eq!(log.check(), []);
    }

    pub fn assert_whole(&self) {
        let log = Self::open(&self.image(|_| true));
        let mut entries = self.acknowledged.clone();
        entries.push(self.appended.clone());
        assert_eq!(contents(&log), entries);
    }

    pub fn assert_every_subset(&self, words: usize) {
        assert_eq!(self.words.len(), words, "the test is about another entry than it thinks");
        for subset in 0..(1u32 << words) - 1 {
            self.assert_torn(&self.image(|index| subset & 1 << index != 0));
        }
        self.assert_whole();
    }
}
