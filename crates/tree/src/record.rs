//! Records of structure modifications: what becomes of each page concerned.
//!
//! ```text
//!  record   format 1 (1) │ change │ change │ …
//!  change   kind (1) │ page (8) │
//!           1 make       contents        a page that was allocated
//!           2 replace    contents        a page that was there
//!           3 cut        key             keys from it on are gone: it is the upper fence
//!           4 hang       key, child (8)  an inner node has a child from the key on
//!           5 unhang     key             an inner node has no key, and no child behind it
//!           6 free                       a page that is nobody's
//!  key      bytes (2) │ …
//!  contents bytes of header and slots (2), of the heap (2) │ header and slots │ heap
//! ```
//!
//! The same changes are made to pages when they are logged and when they are redone, by one function.

use lapis_buffer::{ExclusivePage, PageNumber};
use lapis_pmem::Domain;

use crate::error::TreeError;
use crate::node::{
    Builder, Contents, Node, Overfull, Source, insert_child, put_in_order, remove_child,
};

const FORMAT: u8 = 1;

/// What becomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Make(Contents<'a>),
    Replace(Contents<'a>),
    Cut(&'a [u8]),
    /// The same by whoever knows what becomes of it.
    CutTo {
        key: &'a [u8],
        contents: Contents<'a>,
    },
    Hang {
        key: &'a [u8],
        child: PageNumber,
    },
    Unhang(&'a [u8]),
    Free,
}

/// A record in the making.
#[derive(Debug)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    pub(crate) fn new() -> Self {
        Self(vec![FORMAT])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn add(&mut self, page: PageNumber, change: Change<'_>) {
        let kind = match change {
            Change::Make(_) => 1,
            Change::Replace(_) => 2,
            Change::Cut(_) | Change::CutTo { .. } => 3,
            Change::Hang { .. } => 4,
            Change::Unhang(_) => 5,
            Change::Free => 6,
        };
        self.0.push(kind);
        self.0.extend_from_slice(&page.get().to_le_bytes());
        match change {
            Change::Make(contents) | Change::Replace(contents) => {
                self.add_length(contents.slots);
                self.add_length(contents.heap);
                self.0.extend_from_slice(contents.slots);
                self.0.extend_from_slice(contents.heap);
            }
            Change::Cut(key) | Change::CutTo { key, .. } | Change::Unhang(key) => self.add_key(key),
            Change::Hang { key, child } => {
                self.add_key(key);
                self.0.extend_from_slice(&child.get().to_le_bytes());
            }
            Change::Free => {}
        }
    }

    fn add_length(&mut self, of: &[u8]) {
        self.0.extend_from_slice(&(of.len() as u16).to_le_bytes());
    }

    fn add_key(&mut self, key: &[u8]) {
        self.add_length(key);
        self.0.extend_from_slice(key);
    }
}

const BAD: TreeError = TreeError::BadRecord { what: "it ends too early, or is something else" };

/// The changes of a record that was read.
pub(crate) struct Changes<'a> {
    rest: &'a [u8],
    page_bytes: usize,
}

impl<'a> Changes<'a> {
    pub(crate) fn of(record: &'a [u8], page_bytes: usize) -> Result<Self, TreeError> {
        match record {
            [FORMAT, rest @ ..] => Ok(Self { rest, page_bytes }),
            [] => Err(BAD),
            [..] => Err(TreeError::BadRecord {
                what: "it is of a format that this build does not know",
            }),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], TreeError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(BAD)?;
        self.rest = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<usize, TreeError> {
        let bytes = self.take(2)?.first_chunk().ok_or(BAD)?;
        Ok(u16::from_le_bytes(*bytes).into())
    }

    fn page(&mut self) -> Result<PageNumber, TreeError> {
        let bytes = self.take(8)?.first_chunk().ok_or(BAD)?;
        PageNumber::new(u64::from_le_bytes(*bytes)).ok_or(BAD)
    }

    fn key(&mut self) -> Result<&'a [u8], TreeError> {
        let bytes = self.length()?;
        self.take(bytes)
    }

    fn contents(&mut self) -> Result<Contents<'a>, TreeError> {
        let (slots, heap) = (self.length()?, self.length()?);
        let contents = Contents { slots: self.take(slots)?, heap: self.take(heap)? };
        contents.checked(self.page_bytes).ok_or(BAD)
    }

    fn change(&mut self) -> Result<(PageNumber, Change<'a>), TreeError> {
        let kind = self.take(1)?[0];
        let page = self.page()?;
        let change = match kind {
            1 => Change::Make(self.contents()?),
            2 => Change::Replace(self.contents()?),
            3 => Change::Cut(self.key()?),
            4 => Change::Hang { key: self.key()?, child: self.page()? },
            5 => Change::Unhang(self.key()?),
            6 => Change::Free,
            _ => return Err(BAD),
        };
        Ok((page, change))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<(PageNumber, Change<'a>), TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| {
            let change = self.change();
            if change.is_err() {
                self.rest = &[];
            }
            change
        })
    }
}

/// Finds out whether [`apply`] can make a change to a page as it is. Asked before the change is logged: then it has to be made.
pub(crate) fn check<D: Domain>(
    page: &ExclusivePage<'_, D>,
    change: Change<'_>,
) -> Result<(), TreeError> {
    let damaged = |what| TreeError::Damaged { page: page.number(), what };
    let found = match change {
        Change::Hang { key, .. } => match made_anew(page, key.len())? {
            Some(made) => place_of_new(&Node::new(&made[..]), key).map(|_| ()),
            None => place_of_new(&Node::new(page.read()), key).map(|_| ()),
        },
        Change::Unhang(key) => place_of_old(&Node::new(page.read()), key).map(|_| ()),
        Change::Make(_) | Change::Replace(_) | Change::Cut(_) | Change::CutTo { .. } => Ok(()),
        Change::Free => Ok(()),
    };
    found.map_err(damaged)
}

/// Where in an inner node a key is to be, and what of it.
fn place_of_new<'k, S: Source>(
    node: &Node<S>,
    key: &'k [u8],
) -> Result<(usize, &'k [u8]), &'static str> {
    let suffix = node.suffix_of(key).ok_or("a key of it belongs elsewhere")?;
    match node.search(suffix) {
        (at, false) if node.level() > 0 => Ok((at, suffix)),
        _ => Err("it has a child already where one is to be added"),
    }
}

/// Where in an inner node a key is that is to go, and how many bytes it has.
fn place_of_old<S: Source>(node: &Node<S>, key: &[u8]) -> Result<(usize, usize), &'static str> {
    let found = node.suffix_of(key).map(|suffix| node.search(suffix));
    let Some((at, true)) = found.filter(|_| node.is_sound() && node.level() > 0) else {
        return Err("it lacks a child that is to go");
    };
    Ok((at, node.record_bytes(at).ok_or("a key is outside of it")?))
}

/// Changes a page, by the change `lsn` of the log. Its references are page numbers where they move to another
/// page, or go.
pub(crate) fn apply<D: Domain>(
    page: &mut ExclusivePage<'_, D>,
    change: Change<'_>,
    lsn: u64,
) -> Result<(), TreeError> {
    let number = page.number();
    let damaged = |what| TreeError::Damaged { page: number, what };
    match change {
        Change::Make(contents) | Change::Replace(contents) | Change::CutTo { contents, .. } => {
            contents.install(page, lsn, 0)
        }
        Change::Cut(key) => {
            let copy = copy_of(page);
            let made = cut(&copy, key).map_err(|Overfull| damaged("it cannot be cut in two"))?;
            let contents = Contents::of(&made).ok_or(damaged("it cannot be cut in two"))?;
            contents.install(page, lsn, 0);
        }
        Change::Hang { key, child } => {
            make_room(page, key.len(), lsn)?;
            let (at, suffix) = place_of_new(&Node::new(page.read()), key).map_err(damaged)?;
            insert_child(&mut page.write(lsn), at, suffix, child.get());
        }
        Change::Unhang(key) => {
            let node = Node::new(page.read());
            let (at, bytes) = place_of_old(&node, key).map_err(damaged)?;
            page.unswizzle(node.child_offset(at + 1));
            remove_child(&mut page.write(lsn), at, bytes);
        }
        Change::Free => {}
    }
    Ok(())
}

/// A page in a copy of one's own, its slots in order.
pub(crate) fn copy_of<D: Domain>(page: &ExclusivePage<'_, D>) -> Vec<u8> {
    let mut copy = image_of(page);
    put_in_order(&mut copy);
    copy
}

/// The bytes of a page.
pub(crate) fn image_of<D: Domain>(page: &ExclusivePage<'_, D>) -> Vec<u8> {
    let mut image = vec![0; page.read().bytes()];
    page.read().copy_to(0, &mut image);
    image
}

/// The node with the keys before `key`, which is its upper fence.
pub(crate) fn cut(page: &[u8], key: &[u8]) -> Result<Vec<u8>, Overfull> {
    let node = Node::new(page);
    let suffix = node.suffix_of(key).filter(|_| node.is_sound()).ok_or(Overfull)?;
    let (kept, _) = node.search(suffix);
    let mut made = Builder::like(&node, Some(key));
    made.push_all(&node, 0..kept)?;
    Ok(made.finish())
}

/// Sees to it that a node takes an entry with a record of so many bytes, for which it has them free. Whether it was made anew
/// for that.
pub(crate) fn make_room<D: Domain>(
    page: &mut ExclusivePage<'_, D>,
    record: usize,
    lsn: u64,
) -> Result<bool, TreeError> {
    let Some(made) = made_anew(page, record)? else { return Ok(false) };
    let contents = Contents::of(&made).ok_or_else(|| too_full(page))?;
    contents.install(page, lsn, record);
    Ok(true)
}

/// What a node becomes so that it takes such an entry; none if it does as it is.
fn made_anew<D: Domain>(
    page: &ExclusivePage<'_, D>,
    record: usize,
) -> Result<Option<Vec<u8>>, TreeError> {
    let node = Node::new(page.read());
    if !node.is_sound() {
        return Err(TreeError::Damaged { page: page.number(), what: "its header makes no sense" });
    }
    if node.takes(record) {
        return Ok(None);
    }
    let copy = copy_of(page);
    let node = Node::new(&copy[..]);
    let mut made = Builder::like(&node, node.upper());
    made.push_all(&node, 0..node.count()).map_err(|Overfull| too_full(page))?;
    let made = made.finish();
    if Contents::of(&made).is_none() || !Node::new(&made[..]).takes(record) {
        return Err(too_full(page));
    }
    Ok(Some(made))
}

fn too_full<D: Domain>(page: &ExclusivePage<'_, D>) -> TreeError {
    TreeError::Damaged { page: page.number(), what: "its records do not fill what they should" }
}
