//! What a check finds wrong: listed up to a point, then only counted.

use lapis_pmem::{Domain, Pool};

use crate::key::IndexKey;

/// Problems listed before the rest is only counted.
const LISTED: usize = 100;

/// What a check has found so far.
#[derive(Default)]
pub(crate) struct Problems {
    listed: Vec<String>,
    unlisted: u64,
}

impl Problems {
    pub(crate) fn push(&mut self, what: String) {
        if self.listed.len() < LISTED {
            self.listed.push(what);
        } else {
            self.unlisted += 1;
        }
    }

    /// The key of a key word, if it has one; `place` says whose word it is, after the invariant.
    pub(crate) fn key_of<D: Domain, K: IndexKey + ?Sized>(
        &mut self,
        pool: &Pool<D>,
        word: u64,
        invariant: &str,
        place: impl FnOnce() -> String,
    ) -> Option<K::Buf> {
        let key = K::with_word(pool, word, |key| (key.tag(), key.to_buf()));
        let Some((tag, key)) = key else {
            self.push(format!("{invariant}: the key word {word:#x} in {} has no key", place()));
            return None;
        };
        if !K::INLINE && tag != word & !lapis_pmem::LINK_MASK {
            self.push(format!("{invariant}: the key word {word:#x} has the tag of another key"));
        }
        Some(key)
    }

    /// All that are listed, and how many are not.
    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.unlisted > 0 {
            self.listed.push(format!("and {} more problems", self.unlisted));
        }
        self.listed
    }
}
