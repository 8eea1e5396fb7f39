//! Splits, and the growth of the root.

use lapis_buffer::{ExclusivePage, OptimisticPage};
use lapis_pmem::Domain;

use super::{Target, Tree, contents_of, count, damaged, sound};
use crate::error::{Stop, TreeError};
use crate::log::StructureLog;
use crate::mutants::LONG_FENCE_CUT;
use crate::node::{
    Builder, Entries, LEAF, Node, Overfull, VALUE_BYTES, fence_reserve, mark_of, separator,
};
use crate::record::{Change, copy_of, cut};

/// No tree is as high.
const HIGHEST_LEVEL: u8 = 60;

/// What room is wanted for.
pub(crate) enum Wanted<'w> {
    /// A key in the node of a level; in a leaf with a value of so many bytes.
    Key { key: &'w [u8], value_bytes: usize },
    /// A leaf at the end of the tree, which has the keys from its fence on.
    Leaf { fence: &'w [u8], leaf: &'w [u8] },
}

/// What an attempt to split came to.
enum Split {
    /// There is room, or was split.
    Done,
    /// It takes a new page. It is allocated while nothing is latched: of a node that is, no child can
    /// make room for it.
    NeedsPage,
    /// The tree has grown by a level: again.
    Grown,
    /// The node above has no room for this key.
    Above(Vec<u8>),
}

/// Where a node is cut.
struct Cut {
    /// The new page has the keys from it on.
    separator: Vec<u8>,
    /// The new page has the entries from it on.
    moved: usize,
}

impl<D: Domain, L: StructureLog> Tree<D, L> {
    /// Makes room in a level, by a split if there is none.
    pub(crate) fn make_room(&self, level: u8, wanted: &Wanted<'_>) -> Result<(), TreeError> {
        let mut spare = None;
        let outcome = loop {
            match self.retry(|| self.try_split(level, wanted, &mut spare)) {
                Ok(Split::Done) => break Ok(()),
                Ok(Split::Grown) => {}
                Ok(Split::NeedsPage) => spare = Some(self.manager.reserve_page(LEAF)?),
                Ok(Split::Above(separator)) => {
                    self.give_back(spare.take())?;
                    self.make_room(level + 1, &Wanted::Key { key: &separator, value_bytes: 0 })?;
                }
                Err(error) => break Err(error),
            }
        };
        self.give_back(spare)?;
        outcome
    }

    pub(super) fn give_back(&self, spare: Option<ExclusivePage<'_, D>>) -> Result<(), TreeError> {
        match spare {
            Some(spare) => Ok(self.manager.unreserve_page(spare)?),
            None => Ok(()),
        }
    }

    fn try_split<'m>(
        &'m self,
        level: u8,
        wanted: &Wanted<'_>,
        spare: &mut Option<ExclusivePage<'m, D>>,
    ) -> Result<Split, Stop> {
        let (Wanted::Key { key, .. } | Wanted::Leaf { fence: key, .. }) = *wanted;
        let Some(place) = self.descend(Target::Key(key), level)? else { return Ok(Split::Done) };
        let Some((parent, _)) = place.parent else {
            return self.try_grow(place.page, spare);
        };
        let mut parent = parent.exclusive()?;
        let mut left = place.page.exclusive()?;
        let (above, node) = (sound(&parent)?, sound(&left)?);
        let copy = copy_of(&left);
        let cut_at = match *wanted {
            Wanted::Leaf { fence, .. } => {
                Some(Cut { separator: fence.to_vec(), moved: node.count() })
            }
            Wanted::Key { key, value_bytes } => {
                let suffix = node.suffix_of(key).map_or(0, <[u8]>::len);
                let needed = node.entries().bytes(match level {
                    0 => VALUE_BYTES + suffix + value_bytes,
                    _ => key.len(),
                });
                if node.free() >= needed {
                    return Ok(Split::Done);
                }
                let node = Node::new(&copy[..]);
                match level {
                    0 => cut_leaf(&node, key, needed),
                    _ => cut_inner(&node, key),
                }
            }
        };
        let Cut { separator, moved } = cut_at.ok_or_else(|| damaged(&left, CANNOT))?;
        if above.free() < above.entries().bytes(separator.len()) {
            return Ok(Split::Above(separator));
        }
        let Some(right) = spare else { return Ok(Split::NeedsPage) };
        let copy = match level {
            0 => copy,
            _ => {
                left.unswizzle_all();
                copy_of(&left)
            }
        };
        let node = Node::new(&copy[..]);
        let overfull = |Overfull| damaged(&left, CANNOT);
        let (bytes, upper) = (copy.len(), node.upper());
        let made = match (wanted, level) {
            (Wanted::Leaf { leaf, .. }, _) => leaf.to_vec(),
            (_, 0) => {
                let of = (node.tree(), node.entries());
                let mut made = Builder::leaf(bytes, of, &separator, upper);
                made.push_all(&node, moved..node.count()).map_err(overfull)?;
                made.finish()
            }
            _ => {
                let fences = (&separator[..], upper);
                let mut made =
                    Builder::inner(bytes, (node.tree(), level), fences, node.child(moved));
                made.push_all(&node, moved..node.count()).map_err(overfull)?;
                made.finish()
            }
        };
        // See the crate's header: why a cut can be redone on a page that is older.
        let fits_always = level > 0
            || separator.len() <= node.upper_bytes() + fence_reserve(bytes)
            || self.manager.domain().commits(LONG_FENCE_CUT);
        let kept = cut(&copy, &separator).map_err(overfull)?;
        let contents = contents_of(&kept, left.number())?;
        let of_left = match fits_always {
            true => Change::CutTo { key: &separator, contents },
            false => Change::Replace(contents),
        };
        let of_right = Change::Make(contents_of(&made, right.number())?);
        let of_parent = Change::Hang { key: &separator, child: right.number() };
        let changes =
            &mut [(&mut *right, of_right), (&mut left, of_left), (&mut parent, of_parent)];
        self.modify(changes, &[])?;
        count(&self.counters.splits);
        if node.entries() == Entries::Hashed {
            count(&self.counters.hashed_splits);
        }
        *spare = None;
        Ok(Split::Done)
    }

    /// The root's contents move to a page of their own, and it refers to that.
    fn try_grow<'m>(
        &'m self,
        root: OptimisticPage<'m, D>,
        spare: &mut Option<ExclusivePage<'m, D>>,
    ) -> Result<Split, Stop> {
        let Some(child) = spare else { return Ok(Split::NeedsPage) };
        let mut root = root.exclusive()?;
        let level = sound(&root)?.level();
        if level >= HIGHEST_LEVEL {
            return Err(damaged(&root, "it is higher than any tree").into());
        }
        root.unswizzle_all();
        let copy = copy_of(&root);
        let (of, fences) = ((mark_of(self.root), level + 1), (&[][..], None));
        let above = Builder::inner(copy.len(), of, fences, child.number().get()).finish();
        let of_child = Change::Make(contents_of(&copy, root.number())?);
        let of_root = Change::Replace(contents_of(&above, root.number())?);
        self.modify(&mut [(&mut *child, of_child), (&mut root, of_root)], &[])?;
        count(&self.counters.growths);
        *spare = None;
        Ok(Split::Grown)
    }
}

const CANNOT: &str = "it is full and cannot be cut in two";

/// Where to cut a leaf so that a record of `key`, with slot, has room on its side: in the middle of the
/// bytes, fences included ([`largest_record`](crate::largest_record)). At the end of the last leaf it is cut behind
/// all records, or all but one, so that keys that come in order leave full leaves.
fn cut_leaf(node: &Node<&[u8]>, key: &[u8], needed: usize) -> Option<Cut> {
    let suffix = node.suffix_of(key)?;
    let (at, found) = node.search(suffix);
    let count = node.count();
    // The entries as they will be: that of the key at `at`, in place of its old one or between two.
    let entries = if found { count } else { count + 1 };
    let bytes = |entry: usize| {
        let old = if found || entry < at { entry } else { entry.wrapping_sub(1) };
        match entry == at {
            true => Some(needed),
            false => node.record_bytes(old).map(|bytes| node.entries().bytes(bytes)),
        }
    };
    if entries < 2 {
        return None;
    }
    let is_append = at == count && !node.has_upper();
    // What the left page has with these, the separator aside.
    let fits = |left: usize, separator: usize| {
        let page_bytes = node.source().len();
        let room = node.entries().room(page_bytes);
        node.lower_bytes() + left + separator + fence_reserve(page_bytes) <= room
    };
    let key_of = |entry: usize| -> Option<Vec<u8>> {
        match entry {
            _ if entry == at => Some(key.to_vec()),
            _ if found || entry < at => node.key(entry),
            _ => node.key(entry - 1),
        }
    };
    let cut_before = |entry: usize| -> Option<Cut> {
        let (last, first) = (key_of(entry - 1)?, key_of(entry)?);
        let moved = if found || entry <= at { entry } else { entry - 1 };
        (last < first).then(|| Cut { separator: separator(&last, &first).to_vec(), moved })
    };
    if is_append {
        let cut = cut_before(count)?;
        if fits(node.entry_bytes(), cut.separator.len()) {
            return Some(cut);
        }
        // The separator is what does not fit.
        let without_last = node.entry_bytes().saturating_sub(bytes(count - 1)?);
        if let Some(cut) = (count > 1).then(|| cut_before(count - 1)).flatten()
            && fits(without_last, cut.separator.len())
        {
            return Some(cut);
        }
    }
    let replaced = if found { node.entries().bytes(node.record_bytes(at)?) } else { 0 };
    let total = (node.entry_bytes() + needed).saturating_sub(replaced);
    let (mut left, mut best) = (0, (usize::MAX, 1));
    for entry in 0..entries - 1 {
        left += bytes(entry)?;
        let (one, other) =
            (left + node.lower_bytes(), total.saturating_sub(left) + node.upper_bytes());
        let distance = one.abs_diff(other);
        // From here on it only grows.
        if distance >= best.0 {
            break;
        }
        best = (distance, entry + 1);
    }
    cut_before(best.1)
}

/// Where to cut an inner node: the key in the middle of the bytes goes up. At the end of its level, the last
/// one does.
fn cut_inner(node: &Node<&[u8]>, key: &[u8]) -> Option<Cut> {
    let count = node.count();
    if count < 2 {
        return None;
    }
    let is_append = !node.has_upper() && node.search(node.suffix_of(key)?).0 == count;
    let mut best = (usize::MAX, count - 1);
    if !is_append {
        let bytes = |at: usize| node.record_bytes(at).map(|bytes| node.entries().bytes(bytes));
        let (mut left, mut right) = (node.lower_bytes(), node.upper_bytes());
        for at in 1..count {
            right += bytes(at)?;
        }
        for at in 0..count {
            best = best.min((left.abs_diff(right), at));
            left += bytes(at)?;
            right -= if at + 1 < count { bytes(at + 1)? } else { 0 };
        }
    }
    Some(Cut { separator: node.key(best.1)?, moved: best.1 + 1 })
}
