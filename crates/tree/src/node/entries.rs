//! What entries take of a page.

use lapis_buffer::page::SMALLEST_PAGE_BYTES;

use super::table::TABLE_AT;
use super::{SLOTS_AT, VALUE_BYTES, WORD};

/// How the leaves of a tree find a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeafLayout {
    /// Slots are in order: by binary search.
    #[default]
    Sorted,
    /// Slots are a hash table. A point lookup looks at fewer lines of a leaf, which counts where these are loaded one by one
    /// from persistent memory. Who reads in order sorts each leaf.
    Hashed,
}

/// What the entries of a node are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    /// Records of a leaf.
    Sorted,
    /// Records of a leaf whose slots are a table on its page.
    Hashed,
    /// Keys, and the children behind them.
    Children,
}

impl From<LeafLayout> for Entries {
    fn from(layout: LeafLayout) -> Self {
        match layout {
            LeafLayout::Sorted => Self::Sorted,
            LeafLayout::Hashed => Self::Hashed,
        }
    }
}

impl Entries {
    /// Bytes of a page for entries and fences. What is left of the table of a hashed leaf when its slots are counted is less
    /// than a word ([`least_slots`](super::table::least_slots)).
    pub(crate) const fn room(self, page_bytes: usize) -> usize {
        page_bytes
            - match self {
                Self::Hashed => TABLE_AT + WORD,
                Self::Sorted | Self::Children => SLOTS_AT,
            }
    }

    /// Bytes of an entry with a record of so many.
    pub(crate) const fn bytes(self, record: usize) -> usize {
        record
            + match self {
                Self::Sorted => WORD,
                // A table is at most four fifths full.
                Self::Hashed => WORD * 5 / 4,
                Self::Children => 2 * WORD,
            }
    }
}

/// Bytes of a page that puts leave free (N4).
pub(crate) const fn fence_reserve(page_bytes: usize) -> usize {
    page_bytes / 64
}

/// Bytes that key and value of a record may have together, with pages of `page_bytes`.
///
/// Four entries of as many bytes, slot or reference included, and twice the room that N4 keeps fit into a page.
/// That is enough for every split to succeed, whatever lengths the keys have: with the fences `a` and
/// `b`, entries `T` in all, one of which is to be added, and a separator of a quarter at most, both sides
/// fit if the left one's entries take no more than 3/4 - a and the right one's no more than 3/4 - b.
/// Since T is at most 5/4 - a - b, that leaves a quarter for where to cut, and no entry is larger. A hashed leaf has
/// a few bytes less for entries, by which the two sides have less room, and one page of them has fewer: the second
/// of the two reserves is more than that.
pub const fn largest_record(page_bytes: usize) -> usize {
    let room = Entries::Sorted.room(page_bytes) - 2 * fence_reserve(page_bytes);
    room / 4 - 2 * WORD
}

const _: () = {
    let page_bytes = SMALLEST_PAGE_BYTES;
    assert!(largest_record(page_bytes) > 900);
    let less = Entries::Sorted.room(page_bytes) - Entries::Hashed.room(page_bytes);
    assert!(less <= fence_reserve(page_bytes) && Entries::Hashed.bytes(VALUE_BYTES) <= 2 * WORD);
};
