//! Tables, and the table of them.
//!
//! The catalog is a tree like the others, with table number 0, whose root is the first page there is:
//!
//! ```text
//!  key                value
//!  0                  number of the next table (4)
//!  1, name            number (4) │ place (12) │ what it has, or had (1) │ time to live of its entries (8), or nothing
//!  2, number (4), place (12)
//!                     whether it had long values (1): a table that was dropped and whose room is still in use
//!  3                  root page (8) of the chunks of long values, table 1
//!  4, number (8)      chunks that are to go (`value.rs`)
//!  5, number (4), root page (8)
//!                     nothing: a table that is being loaded (`load.rs`)
//!  6                  nothing: a backup is being restored (`backup/`)
//!
//!  what it has        bit 0: long values, bit 1: entries that expire; from before the first of them on;
//!                     bit 2: its tree's leaves are hashed
//!  time to live       in milliseconds, of entries that are not given one
//!  place              kind (4): 0 a tree, else the number of an index's kind │ root page, or offset in the pool (8)
//! ```
//!
//! Numbers are big-endian in keys and little-endian in values. No number is used twice, so records of the log that
//! are older than a table cannot be taken for its own (E6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapis_buffer::PageNumber;
use lapis_index::IndexKind;
use lapis_pmem::Domain;
use lapis_tree::LeafLayout;

use crate::contents::{Contents, Place};
use crate::error::EngineError;
use crate::index_table::IndexTable;
use crate::versions::Versions;

/// The number of a table.
pub(crate) type TableId = u32;

/// The table of tables.
pub(crate) const CATALOG: TableId = 0;
/// The chunks of long values.
pub(crate) const CHUNKS: TableId = 1;
/// The first number that is given out.
pub(crate) const FIRST_TABLE: TableId = 2;

/// The key of the number of the next table.
pub(crate) const NEXT_KEY: &[u8] = &[0];
const NAME: u8 = 1;
const DROPPED: u8 = 2;
/// The key of the root of the chunks.
pub(crate) const CHUNKS_ROOT_KEY: &[u8] = &[3];
const UNWANTED: u8 = 4;
const LOADING: u8 = 5;
/// The key that is there while a backup is restored.
pub(crate) const RESTORING_KEY: &[u8] = &[6];
const PLACE_BYTES: usize = 12;
const HAS_LONG_VALUES: u8 = 1;
const HAS_EXPIRING: u8 = 2;
const IS_HASHED: u8 = 4;

/// The longest name of a table.
pub const MAX_TABLE_NAME_BYTES: usize = 255;

/// Whether a table may be called so.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_TABLE_NAME_BYTES).contains(&name.len()) && !name.contains('\0')
}

/// What the catalog says of a table besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Whether it has, or had, long values.
    pub(crate) has_long_values: bool,
    /// Whether it has, or had, entries that expire.
    pub(crate) has_expiring: bool,
    /// What the leaves of its tree are, if it is in one.
    pub(crate) leaves: LeafLayout,
    /// How long entries live that are not given a time, in milliseconds.
    pub(crate) time_to_live_ms: Option<u64>,
}

impl Properties {
    /// Of a table that may have long values.
    pub(crate) const WITH_LONG_VALUES: Self = Self {
        has_long_values: true,
        has_expiring: false,
        leaves: LeafLayout::Sorted,
        time_to_live_ms: None,
    };

    fn bits(self) -> u8 {
        let bit = |has, bit| if has { bit } else { 0 };
        bit(self.has_long_values, HAS_LONG_VALUES)
            | bit(self.has_expiring, HAS_EXPIRING)
            | bit(self.leaves == LeafLayout::Hashed, IS_HASHED)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&bits, time_to_live) = bytes.split_first()?;
        let time_to_live_ms = match time_to_live {
            [] => None,
            bytes => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
        };
        Some(Self {
            has_long_values: bits & HAS_LONG_VALUES != 0,
            has_expiring: bits & HAS_EXPIRING != 0,
            leaves: if bits & IS_HASHED != 0 { LeafLayout::Hashed } else { LeafLayout::Sorted },
            time_to_live_ms,
        })
    }
}

/// The key of a table's entry.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [&[NAME], name.as_bytes()].concat()
}

/// The key of what is left of a dropped table.
pub(crate) fn dropped_key(id: TableId, place: Place) -> Vec<u8> {
    [&[DROPPED][..], &id.to_be_bytes(), &encode_place(place)].concat()
}

/// The key of a table that is being loaded.
pub(crate) fn loading_key(id: TableId, root: PageNumber) -> Vec<u8> {
    [&[LOADING][..], &id.to_be_bytes(), &root.get().to_be_bytes()].concat()
}

/// Number and root of the table that is being loaded, by what comes behind the first byte of its key.
fn loading_of(id: &[u8]) -> Option<(TableId, PageNumber)> {
    let (id, root) = id.split_first_chunk()?;
    let root = PageNumber::new(u64::from_be_bytes(root.try_into().ok()?))?;
    Some((TableId::from_be_bytes(*id), root))
}

/// Number and place of the dropped table whose key this is.
pub(crate) fn dropped_of(key: &[u8]) -> Option<(TableId, Place)> {
    let (&DROPPED, id) = key.split_first()? else { return None };
    let (id, place) = id.split_first_chunk()?;
    Some((TableId::from_be_bytes(*id), parse_place(place)?))
}

fn encode_place(place: Place) -> [u8; PLACE_BYTES] {
    let (kind, at) = match place {
        Place::Tree(root) => (0, root.get()),
        Place::Index(kind, root) => (kind as u32, root),
    };
    let mut bytes = [0; PLACE_BYTES];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..].copy_from_slice(&at.to_le_bytes());
    bytes
}

fn parse_place(bytes: &[u8]) -> Option<Place> {
    let (kind, at) = bytes.split_first_chunk()?;
    let at = u64::from_le_bytes(at.try_into().ok()?);
    match u32::from_le_bytes(*kind) {
        0 => PageNumber::new(at).map(Place::Tree),
        kind => IndexKind::from_number(kind).map(|kind| Place::Index(kind, at)),
    }
}

/// The key of chunks that are to go.
pub(crate) fn chunks_key(number: u64) -> Vec<u8> {
    [&[UNWANTED][..], &number.to_be_bytes()].concat()
}

/// What an entry of the catalog says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatalogEntry {
    Next(TableId),
    Table { name: String, id: TableId, place: Place, properties: Properties },
    Chunks { root: PageNumber },
    Unwanted { number: u64 },
    Dropped { id: TableId, place: Place, long_values: bool },
    Loading { id: TableId, root: PageNumber },
    Restoring,
}

impl CatalogEntry {
    pub(crate) fn parse(key: &[u8], value: &[u8]) -> Result<Self, EngineError> {
        let parsed = match key.split_first() {
            Some((0, [])) => number(value).map(Self::Next),
            Some((&NAME, name)) => parse_table(name, value),
            Some((&DROPPED, _)) => dropped_of(key)
                .zip(value.first())
                .map(|((id, place), long)| Self::Dropped { id, place, long_values: *long != 0 }),
            Some((&LOADING, id)) => loading_of(id).map(|(id, root)| Self::Loading { id, root }),
            Some((6, [])) => Some(Self::Restoring),
            Some((3, [])) => page(value).map(|root| Self::Chunks { root }),
            Some((&UNWANTED, number)) => {
                let number = number.try_into().ok().map(u64::from_be_bytes);
                number.map(|number| Self::Unwanted { number })
            }
            _ => None,
        };
        let key = || key.escape_ascii();
        parsed
            .ok_or_else(|| EngineError::Damaged { what: format!("the catalog's entry {}", key()) })
    }
}

fn parse_table(name: &[u8], value: &[u8]) -> Option<CatalogEntry> {
    let name = std::str::from_utf8(name).ok()?.to_owned();
    let (id, rest) = value.split_at_checked(4)?;
    let (place, properties) = rest.split_at_checked(PLACE_BYTES)?;
    Some(CatalogEntry::Table {
        name,
        id: number(id)?,
        place: parse_place(place)?,
        properties: Properties::parse(properties)?,
    })
}

fn number(value: &[u8]) -> Option<TableId> {
    Some(TableId::from_le_bytes(value.try_into().ok()?))
}

fn page(value: &[u8]) -> Option<PageNumber> {
    PageNumber::new(u64::from_le_bytes(value.try_into().ok()?))
}

/// The value of a table's entry.
pub(crate) fn table_value(id: TableId, place: Place, properties: Properties) -> Vec<u8> {
    let time_to_live = properties.time_to_live_ms.map(u64::to_le_bytes);
    let time_to_live: &[u8] = time_to_live.as_ref().map_or(&[], |bytes| bytes);
    [&id.to_le_bytes()[..], &encode_place(place), &[properties.bits()], time_to_live].concat()
}

/// The value of an entry that is a page.
pub(crate) fn page_value(root: PageNumber) -> Vec<u8> {
    root.get().to_le_bytes().to_vec()
}

/// A table.
#[derive(Debug)]
pub struct Table<D: Domain> {
    id: TableId,
    name: String,
    contents: Contents<D>,
    versions: Arc<Versions<D>>,
    dropped: AtomicBool,
    long_values: AtomicBool,
    expiring: AtomicBool,
    leaves: LeafLayout,
    time_to_live_ms: Option<u64>,
}

impl<D: Domain> Table<D> {
    pub(crate) fn new(
        id: TableId,
        name: &str,
        contents: impl Into<Contents<D>>,
        properties: Properties,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: name.to_owned(),
            contents: contents.into(),
            versions: Arc::new(Versions::new()),
            dropped: AtomicBool::new(false),
            long_values: AtomicBool::new(properties.has_long_values),
            expiring: AtomicBool::new(properties.has_expiring),
            leaves: properties.leaves,
            time_to_live_ms: properties.time_to_live_ms,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    pub(crate) fn contents(&self) -> &Contents<D> {
        &self.contents
    }

    /// The index that it is in; none if it is in a tree.
    pub fn index_kind(&self) -> Option<IndexKind> {
        self.contents.as_index().map(IndexTable::kind)
    }

    /// How the leaves of its tree find a record; none if it is in an index.
    pub fn leaves(&self) -> Option<LeafLayout> {
        self.contents.as_tree().map(|_| self.leaves)
    }

    /// Whether it can be scanned.
    pub fn is_ordered(&self) -> bool {
        self.index_kind().is_none_or(IndexKind::is_ordered)
    }

    pub(crate) fn check_ordered(&self) -> Result<(), EngineError> {
        match self.index_kind().filter(|kind| !kind.is_ordered()) {
            Some(kind) => Err(EngineError::Unordered { name: self.name.clone(), kind }),
            None => Ok(()),
        }
    }

    pub(crate) fn versions(&self) -> &Arc<Versions<D>> {
        &self.versions
    }

    /// The longest key: half of the longest record, so that the record of a long value fits too.
    pub fn largest_key_bytes(&self) -> usize {
        self.contents.largest_record() / 2
    }

    /// The longest record that it has beside such a key.
    pub(crate) fn largest_record_bytes(&self, key: &[u8]) -> usize {
        self.contents.largest_record().saturating_sub(key.len())
    }

    /// Whether a record of it may be that of a long value.
    pub(crate) fn has_long_values(&self) -> bool {
        self.long_values.load(Ordering::Acquire)
    }

    pub(crate) fn set_has_long_values(&self) {
        self.long_values.store(true, Ordering::Release);
    }

    /// Whether a record of it may be one that expires.
    pub(crate) fn has_expiring(&self) -> bool {
        self.expiring.load(Ordering::Acquire)
    }

    pub(crate) fn set_has_expiring(&self) {
        self.expiring.store(true, Ordering::Release);
    }

    /// How long its entries live that are not given a time; none: for ever.
    pub fn time_to_live(&self) -> Option<Duration> {
        self.time_to_live_ms.map(Duration::from_millis)
    }

    pub(crate) fn properties(&self) -> Properties {
        Properties {
            has_long_values: self.has_long_values(),
            has_expiring: self.has_expiring(),
            leaves: self.leaves,
            time_to_live_ms: self.time_to_live_ms,
        }
    }

    pub(crate) fn forget_long_values(&self) {
        self.long_values.store(false, Ordering::Release);
    }

    pub(crate) fn set_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, Ordering::Release);
    }

    pub(crate) fn check_not_dropped(&self) -> Result<(), EngineError> {
        match self.dropped.load(Ordering::Acquire) {
            true => Err(EngineError::Dropped { name: self.name.clone() }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_are_written() {
        let root = PageNumber::new(77).unwrap();
        for place in [Place::Tree(root), Place::Index(IndexKind::Wort, 4096)] {
            for (has_expiring, time_to_live_ms) in [(false, None), (true, Some(7))] {
                let leaves = if has_expiring { LeafLayout::Hashed } else { LeafLayout::Sorted };
                let properties =
                    Properties { has_long_values: true, has_expiring, leaves, time_to_live_ms };
                let value = table_value(3, place, properties);
                let parsed = CatalogEntry::parse(&name_key("people"), &value).unwrap();
                let name = "people".to_owned();
                assert_eq!(parsed, CatalogEntry::Table { name, id: 3, place, properties });
            }
            let parsed = CatalogEntry::parse(&dropped_key(3, place), &[1]).unwrap();
            assert_eq!(parsed, CatalogEntry::Dropped { id: 3, place, long_values: true });
        }
        let parsed = CatalogEntry::parse(&loading_key(3, root), &[]).unwrap();
        assert_eq!(parsed, CatalogEntry::Loading { id: 3, root });
        assert_eq!(CatalogEntry::parse(RESTORING_KEY, &[]).unwrap(), CatalogEntry::Restoring);
        assert_eq!(CatalogEntry::parse(NEXT_KEY, &[9, 0, 0, 0]).unwrap(), CatalogEntry::Next(9));
    }

    #[test]
    fn an_entry_that_says_nothing_is_damage() {
        for (key, value) in [(&b""[..], &b""[..]), (b"\x01a", b"1234"), (b"\x02", b"12345678")] {
            assert!(CatalogEntry::parse(key, value).is_err());
        }
        assert!(CatalogEntry::parse(&name_key("a"), &[0; 17]).is_err(), "page 0 is none");
        let root = Place::Tree(PageNumber::FIRST);
        let value = table_value(3, root, Properties::default());
        assert!(CatalogEntry::parse(&name_key("a"), &[&value[..], &[1]].concat()).is_err());
    }
}
