//! The tree: descending, reading and changing leaves. Structure is changed in `split.rs`, `merge.rs` and `compact.rs`;
//! the protocol is argued in the [crate](crate)'s header.

mod compact;
mod merge;
mod put;
mod split;

use core::iter::Peekable;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use lapis_buffer::{
    BufferError, BufferManager, ExclusivePage, Interruption, OptimisticPage, PageNumber, Restart,
};
use lapis_pmem::Domain;

pub use compact::CompactionPlace;
pub use put::ShowOld;
use put::{put_in, show};

use crate::error::{Stop, TreeError};
use crate::log::StructureLog;
use crate::mutants::{CUT_NOT_LOGGED, HOLE_LEFT_OPEN, MOVED_RECORDS_NOT_LOGGED, UNVALIDATED_READ};
use crate::node::{
    Builder, Contents, LEAF, LeafLayout, Node, Source, fill_hole, largest_record, mark_of,
    remove_record,
};
use crate::record::{Change, Record, apply, check};

pub(crate) use split::Wanted;

/// Where a descent goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'k> {
    /// To where this key is or would be.
    Key(&'k [u8]),
    /// To where the last key before this one is or would be.
    Before(&'k [u8]),
    /// To the last of all.
    Last,
}

/// A key, the value that it is given, and by which change of the log (0 if there is none).
pub type Put<'r> = (&'r [u8], &'r [u8], u64);

/// Where a descent came to.
pub(crate) struct Place<'m, D: Domain> {
    /// The node above, and which of its children it is; none of the root.
    pub(crate) parent: Option<(OptimisticPage<'m, D>, usize)>,
    pub(crate) page: OptimisticPage<'m, D>,
}

/// What was done to a tree's structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStatistics {
    /// Nodes that became two.
    pub splits: u64,
    /// Levels added.
    pub growths: u64,
    /// Pairs of nodes that became one.
    pub merges: u64,
    /// Levels gone.
    pub shrinkages: u64,
    /// Pages that went to another place.
    pub moves: u64,
    /// The splits of hashed leaves.
    pub hashed_splits: u64,
    /// The merges of hashed leaves.
    pub hashed_merges: u64,
}

impl std::ops::AddAssign for TreeStatistics {
    fn add_assign(&mut self, other: Self) {
        self.splits += other.splits;
        self.growths += other.growths;
        self.merges += other.merges;
        self.shrinkages += other.shrinkages;
        self.moves += other.moves;
        self.hashed_splits += other.hashed_splits;
        self.hashed_merges += other.hashed_merges;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    splits: AtomicU64,
    growths: AtomicU64,
    merges: AtomicU64,
    shrinkages: AtomicU64,
    moves: AtomicU64,
    hashed_splits: AtomicU64,
    hashed_merges: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A B+-tree on the pages of a buffer manager. See the [crate](crate) documentation.
#[derive(Debug)]
pub struct Tree<D: Domain, L> {
    pub(crate) manager: Arc<BufferManager<D>>,
    pub(crate) log: L,
    pub(crate) root: PageNumber,
    pub(crate) counters: Arc<Counters>,
}

impl<D: Domain, L: Clone> Clone for Tree<D, L> {
    fn clone(&self) -> Self {
        let (manager, counters) = (Arc::clone(&self.manager), Arc::clone(&self.counters));
        Self { manager, log: self.log.clone(), root: self.root, counters }
    }
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Makes an empty tree, and says so in the log.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn create(manager: Arc<BufferManager<D>>, log: L) -> Result<Self, TreeError> {
        Self::create_with(manager, log, LeafLayout::Sorted)
    }

    /// The same, with leaves of this kind: each says itself of which, so nobody has to know it again.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn create_with(
        manager: Arc<BufferManager<D>>,
        log: L,
        leaves: LeafLayout,
    ) -> Result<Self, TreeError> {
        manager.relieve()?;
        let mut page = manager.reserve_page(LEAF)?;
        let root = page.number();
        let of = (mark_of(root), leaves.into());
        let made = Builder::leaf(manager.page_bytes(), of, &[], None).finish();
        let contents = contents_of(&made, root)?;
        let tree = Self::open(Arc::clone(&manager), log, root);
        match tree.modify(&mut [(&mut page, Change::Make(contents))], &[]) {
            Ok(_) => Ok(tree),
            Err(error) => {
                manager.unreserve_page(page)?;
                Err(error)
            }
        }
    }

    /// The tree with this root.
    pub fn open(manager: Arc<BufferManager<D>>, log: L, root: PageNumber) -> Self {
        Self { manager, log, root, counters: Arc::default() }
    }

    /// What was done to the tree's structure since it was opened, by this and all of its clones.
    pub fn statistics(&self) -> TreeStatistics {
        let Counters { splits, growths, merges, shrinkages, moves, .. } = &*self.counters;
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TreeStatistics {
            splits: now(splits),
            growths: now(growths),
            merges: now(merges),
            shrinkages: now(shrinkages),
            moves: now(moves),
            hashed_splits: now(&self.counters.hashed_splits),
            hashed_merges: now(&self.counters.hashed_merges),
        }
    }

    /// The page that the tree begins with, for as long as it exists.
    pub fn root(&self) -> PageNumber {
        self.root
    }

    /// Bytes that key and value of a record may have together.
    pub fn largest_record(&self) -> usize {
        largest_record(self.manager.page_bytes())
    }

    /// Makes `value` the value of a key. False if there is none; `value` then has nothing to say.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TreeError> {
        self.retry(|| {
            let page = self.leaf(Target::Key(key))?;
            let node = Node::new(page.read());
            let suffix = node.suffix_of(key).ok_or_else(|| self.suspect(&page, BELONGS))?;
            let (at, found) = node.search(suffix);
            if found {
                let range = node.value_range(at).ok_or_else(|| self.suspect(&page, OUTSIDE))?;
                value.resize(range.len(), 0);
                page.read().copy_to(range.start, value);
            }
            if !self.manager.domain().commits(UNVALIDATED_READ) {
                page.validate()?;
            }
            Ok(found)
        })
    }

    /// Brings the leaf of a key into memory. It may be gone again when this returns.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn touch(&self, key: &[u8]) -> Result<(), TreeError> {
        self.retry(|| Ok(self.leaf(Target::Key(key))?.validate()?))
    }

    /// Gives a key a value, by the change `lsn` of the log (0 if there is none). `old` is shown what was
    /// there, before the change and while nobody else can see the leaf.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn put(
        &self,
        key: &[u8],
        value: &[u8],
        lsn: u64,
        old: Option<ShowOld<'_>>,
    ) -> Result<(), TreeError> {
        self.put_all(core::iter::once((key, value, lsn)), old)
    }

    /// Gives keys their values, as [`Tree::put`] does, each by a change of its own: those by one descent that ascend and
    /// belong to one leaf. Nobody else can see it meanwhile, so they are to be few. After an error some keys have theirs.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn put_all<'r>(
        &self,
        records: impl Iterator<Item = Put<'r>>,
        mut old: Option<ShowOld<'_>>,
    ) -> Result<(), TreeError> {
        let most = self.largest_record();
        let mut records = records.peekable();
        while let Some(&(key, value, _)) = records.peek() {
            let bytes = key.len() + value.len();
            if bytes > most {
                return Err(TreeError::RecordTooLong { bytes, most });
            }
            self.manager.relieve()?;
            if !self.retry(|| self.try_put(&mut records, &mut old))? {
                self.make_room(0, &Wanted::Key { key, value_bytes: value.len() })?;
            }
        }
        Ok(())
    }

    /// Puts records, from the next one on, that belong to its leaf and have room there. False if it has none itself.
    fn try_put<'r>(
        &self,
        records: &mut Peekable<impl Iterator<Item = Put<'r>>>,
        old: &mut Option<ShowOld<'_>>,
    ) -> Result<bool, Stop> {
        let Some(&(mut key, value, lsn)) = records.peek() else { return Ok(true) };
        let mut page = self.leaf(Target::Key(key))?.exclusive()?;
        if !put_in(&mut page, key, value, lsn, old)? {
            return Ok(false);
        }
        // The latch is held, so the leaf's fences are what they were (C2).
        loop {
            records.next();
            let Some(&(next, its_value, lsn)) = records.peek() else { return Ok(true) };
            let belongs = next > key && Node::new(page.read()).is_before_upper(next);
            let fits = next.len() + its_value.len() <= self.largest_record();
            if !belongs || !fits || !put_in(&mut page, next, its_value, lsn, old)? {
                return Ok(true);
            }
            key = next;
        }
    }

    /// Removes a key, by the change `lsn` of the log (0 if there is none). `old` is shown what was there. False
    /// if there is no such key.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn remove(
        &self,
        key: &[u8],
        lsn: u64,
        mut old: Option<ShowOld<'_>>,
    ) -> Result<bool, TreeError> {
        self.manager.relieve()?;
        let (removed, is_sparse) = self.retry(|| self.try_remove(key, lsn, &mut old))?;
        if is_sparse {
            self.merge(0, key)?;
        }
        Ok(removed)
    }

    /// Whether there was such a key, and whether a merge is due.
    fn try_remove(
        &self,
        key: &[u8],
        lsn: u64,
        old: &mut Option<ShowOld<'_>>,
    ) -> Result<(bool, bool), Stop> {
        let page = self.leaf(Target::Key(key))?;
        let node = Node::new(page.read());
        let suffix = node.suffix_of(key).ok_or_else(|| self.suspect(&page, BELONGS))?;
        let (at, found) = node.search(suffix);
        if !found {
            page.validate()?;
            show::<&[u8]>(old, key, || None);
            return Ok((false, false));
        }
        let mut page = page.exclusive()?;
        let node = sound(&page)?;
        let range = node.value_range(at).ok_or_else(|| damaged(&page, OUTSIDE))?;
        let bytes = node.record_bytes(at).ok_or_else(|| damaged(&page, OUTSIDE))?;
        show(old, key, || Some((page.read(), range.clone())));
        let before = node.entry_bytes();
        remove_record(&mut page.write(lsn), at, bytes);
        if !self.manager.domain().commits(HOLE_LEFT_OPEN) {
            fill_hole(&mut page.write(lsn), at);
        }
        let after = Node::new(page.read()).entry_bytes();
        Ok((true, merge::is_due(before, after, self.manager.page_bytes())))
    }

    /// Makes attempts until one is not overtaken.
    pub(crate) fn retry<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Stop>,
    ) -> Result<T, TreeError> {
        self.manager.retry(|| match attempt() {
            Ok(done) => Ok(Ok(done)),
            Err(Stop::Restart) => Err(Interruption::Restart(Restart)),
            Err(Stop::Failed(error)) => Ok(Err(error)),
        })?
    }

    /// The leaf that a target is in.
    #[inline]
    pub(crate) fn leaf(&self, target: Target<'_>) -> Result<OptimisticPage<'_, D>, Stop> {
        match self.descend(target, 0)? {
            Some(place) => Ok(place.page),
            // There is no tree without leaves.
            None => Err(Stop::Restart),
        }
    }

    /// Goes down to a level; none if the tree is not that high.
    #[inline]
    pub(crate) fn descend(
        &self,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<Place<'_, D>>, Stop> {
        let mut page = self.manager.fix(self.root)?;
        let mut node = Node::new(page.read());
        if node.level() < level {
            page.validate()?;
            return Ok(None);
        }
        let mut parent = None;
        while node.level() > level {
            let child = self.child_of(&page, &node, target)?;
            let below = self.child(&mut page, node.child_offset(child))?;
            // The node was validated when its child was had.
            let expected = node.level() - 1;
            node = Node::new(below.read());
            if node.level() != expected {
                return Err(self.suspect(&below, "it is not of the level where it hangs"));
            }
            parent = Some((page, child));
            page = below;
        }
        Ok(Some(Place { parent, page }))
    }

    /// Which child of an inner node a target is in.
    #[inline]
    fn child_of<S: Source>(
        &self,
        page: &OptimisticPage<'_, D>,
        node: &Node<S>,
        target: Target<'_>,
    ) -> Result<usize, Stop> {
        let (key, goes_behind) = match target {
            Target::Key(key) => (key, true),
            Target::Before(key) => (key, false),
            Target::Last => return Ok(node.count()),
        };
        let suffix = node.suffix_of(key).ok_or_else(|| self.suspect(page, BELONGS))?;
        let (at, found) = node.search_in_order(suffix);
        Ok(at + usize::from(found && goes_behind))
    }

    /// The child that a reference leads to.
    #[inline]
    pub(crate) fn child<'m>(
        &'m self,
        parent: &mut OptimisticPage<'m, D>,
        offset: usize,
    ) -> Result<OptimisticPage<'m, D>, Stop> {
        self.manager.fix_child(parent, offset).map_err(|interruption| match interruption {
            Interruption::Failed(error)
                if error.is_not_in_use() || matches!(error, BufferError::BadReference { .. }) =>
            {
                self.suspect(parent, "it refers to no page")
            }
            other => other.into(),
        })
    }

    /// What to do about nonsense in a page: others may be writing it, or it is damaged.
    #[cold]
    pub(crate) fn suspect(&self, page: &OptimisticPage<'_, D>, what: &'static str) -> Stop {
        let page_number = PageNumber::new(page.read().number()).unwrap_or(self.root);
        match page.validate() {
            Ok(()) => TreeError::Damaged { page: page_number, what }.into(),
            Err(Restart) => Stop::Restart,
        }
    }

    /// Changes the structure: logs what becomes of these pages, all of them latched, and does it; each is
    /// named once, for its LSN says whether it has the record. That others are free is logged, and left to
    /// the caller, who gets the LSN for it. If a page cannot be changed so, or logging fails, nothing is changed; once it
    /// is logged, all of it is done.
    pub(crate) fn modify(
        &self,
        changes: &mut [(&mut ExclusivePage<'_, D>, Change<'_>)],
        freed: &[PageNumber],
    ) -> Result<u64, TreeError> {
        let domain = self.manager.domain();
        changes.iter().try_for_each(|(page, change)| check(page, *change))?;
        let mut record = Record::new();
        for (page, change) in changes.iter() {
            match change {
                Change::CutTo { .. } if domain.commits(CUT_NOT_LOGGED) => {}
                Change::Make(contents) if domain.commits(MOVED_RECORDS_NOT_LOGGED) => {
                    let made = without_entries(*contents, self.manager.page_bytes());
                    record.add(page.number(), Change::Make(contents_of(&made, page.number())?));
                }
                change => record.add(page.number(), *change),
            }
        }
        freed.iter().for_each(|freed| record.add(*freed, Change::Free));
        let lsn = self.log.append(&[record.bytes()])?;
        for (page, change) in changes {
            apply(page, *change, lsn)?;
        }
        Ok(lsn)
    }
}

const BELONGS: &str = "its keys belong elsewhere";
const OUTSIDE: &str = "a record lies outside of it";

/// What a mutant logs.
fn without_entries(contents: Contents<'_>, page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0; page_bytes];
    page[page_bytes - contents.heap.len()..].copy_from_slice(contents.heap);
    page[crate::node::COUNTS_AT..][..contents.slots.len()].copy_from_slice(contents.slots);
    let node = Node::new(&page[..]);
    Builder::like(&node, node.upper()).finish()
}

fn contents_of(page: &[u8], number: PageNumber) -> Result<Contents<'_>, TreeError> {
    let what = "its header makes no sense";
    Contents::of(page).ok_or(TreeError::Damaged { page: number, what })
}

fn damaged<D: Domain>(page: &ExclusivePage<'_, D>, what: &'static str) -> TreeError {
    TreeError::Damaged { page: page.number(), what }
}

/// The node in a page, the header of which makes sense.
fn sound<'m, D: Domain>(
    page: &ExclusivePage<'m, D>,
) -> Result<Node<lapis_buffer::PageRead<'m, D>>, TreeError> {
    let node = Node::new(page.read());
    match node.is_sound() {
        true => Ok(node),
        false => Err(damaged(page, "its header makes no sense")),
    }
}
