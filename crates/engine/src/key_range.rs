//! Ranges of keys.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::scan::Direction;

/// Bounds on keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub(crate) lower: Bound<Box<[u8]>>,
    pub(crate) upper: Bound<Box<[u8]>>,
}

fn borrowed(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl KeyRange {
    /// All keys.
    pub fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// The keys in a range of anything that is bytes.
    pub fn new<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| Box::from(key.as_ref()));
        Self { lower: owned(range.start_bound()), upper: owned(range.end_bound()) }
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        // The next key of the same length or shorter: drop trailing 0xFF, add one to the last.
        while end.pop_if(|last| *last == 0xFF).is_some() {}
        let upper = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end.into())
            }
            None => Bound::Unbounded,
        };
        Self { lower: Bound::Included(prefix.into()), upper }
    }

    /// The bound below.
    pub fn lower(&self) -> Bound<&[u8]> {
        borrowed(&self.lower)
    }

    /// The bound above.
    pub fn upper(&self) -> Bound<&[u8]> {
        borrowed(&self.upper)
    }

    pub(crate) fn is_after_start(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= &**lower,
            Bound::Excluded(lower) => key > &**lower,
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= &**upper,
            Bound::Excluded(upper) => key < &**upper,
            Bound::Unbounded => true,
        }
    }

    /// Whether the key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_after_start(key) && self.is_before_end(key)
    }

    /// Whether no key can lie in it. Some bounds that leave none are not noticed, which does no harm.
    pub(crate) fn is_empty(&self) -> bool {
        let (lower, upper) = match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => return lower > upper,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => return false,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => (lower, upper),
        };
        lower >= upper
    }

    /// The part up to `key`, that included.
    pub(crate) fn up_to(&self, key: &[u8], direction: Direction) -> Self {
        match direction {
            Direction::Forward => {
                Self { lower: self.lower.clone(), upper: Bound::Included(key.into()) }
            }
            Direction::Backward => {
                Self { lower: Bound::Included(key.into()), upper: self.upper.clone() }
            }
        }
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lower(), self.upper()) {
            (Bound::Unbounded, Bound::Unbounded) => return f.write_str("all keys"),
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => {
                return write!(f, "key {}", lower.escape_ascii());
            }
            _ => f.write_str("keys")?,
        }
        match self.lower() {
            Bound::Included(key) => write!(f, " from {}", key.escape_ascii())?,
            Bound::Excluded(key) => write!(f, " behind {}", key.escape_ascii())?,
            Bound::Unbounded => {}
        }
        match self.upper() {
            Bound::Included(key) => write!(f, " up to {}", key.escape_ascii()),
            Bound::Excluded(key) => write!(f, " before {}", key.escape_ascii()),
            Bound::Unbounded => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_before_the_next_prefix() {
        let range = KeyRange::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xFF\xFF"));
        assert!(!range.contains(b"aa\xFF") && !range.contains(b"ac"));
        let range = KeyRange::prefix(b"a\xFF\xFF");
        assert!(range.contains(b"a\xFF\xFFz") && !range.contains(b"b"));
        assert!(KeyRange::prefix(b"\xFF").contains(b"\xFF\xFF\xFF"));
        assert!(KeyRange::prefix(b"").contains(b"anything"));
    }

    #[test]
    fn a_range_is_told_by_its_ends() {
        let told = |range: KeyRange| range.to_string();
        assert_eq!(told(KeyRange::all()), "all keys");
        assert_eq!(told(KeyRange::new(&("a"..="a"))), "key a");
        assert_eq!(told(KeyRange::new(&("a".."b"))), "keys from a before b");
        assert_eq!(told(KeyRange::new(&(..="b"))), "keys up to b");
        assert_eq!(told(KeyRange::new(&("\n"..))), "keys from \\n");
    }
}
