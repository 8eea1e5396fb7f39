//! B+-trees on pages.
//!
//! A [`Tree`] is an ordered map of byte strings on the pages of a
//! [`BufferManager`](lapis_buffer::BufferManager): in DRAM while they are used, on an SSD otherwise.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lapis_buffer::{BufferManager, BufferOptions};
//! use lapis_pmem::Hardware;
//! use lapis_tree::{NoStructureLog, Tree};
//!
//! # fn main() -> Result<(), lapis_tree::TreeError> {
//! let options = BufferOptions { frames: 64, ..BufferOptions::default() };
//! let manager = Arc::new(BufferManager::in_memory(Hardware::detect(), &options)?);
//! let tree = Tree::create(manager, NoStructureLog)?;
//! tree.put(b"lapis", b"lazuli", 0, None)?;
//! let mut value = Vec::new();
//! assert!(tree.get(b"lapis", &mut value)?);
//! assert_eq!(value, b"lazuli");
//! # Ok(()) }
//! ```
//!
//! # Readers and writers
//!
//! After V. Leis, M. Haubenschild, T. Neumann, *Optimistic lock coupling*, IEEE Data Eng. Bull. 42 (2019).
//! Who goes down has a page's version, finds the child there, has the child's version, and validates the page
//! once more. So at some moment the page referred to the child, and the child was as its version says. What
//! keys a page is for changes only while its parent is latched too. Hence:
//!
//! * C1. At the moment when a child's version was taken, the child had the keys of its parent's entry.
//! * C2. Who reads a leaf and validates it has read it as it was at one moment, when it was the key's. Who
//!   latches it at this version has the key's leaf, and holds nothing else: a put or a removal latches one page.
//! * C3. A change of structure latches all pages concerned, from the parent down, each at the version at which
//!   it was seen; if one has changed, it lets go and begins again. Nobody waits for a latch while holding
//!   one but for [`unswizzle`](lapis_buffer::ExclusivePage::unswizzle), from parent to child (B6).
//! * C4. A root keeps its page number: it grows by moving its contents to a child, and shrinks by taking them
//!   back. So descents begin without asking where.
//! * C5. What is read may be nonsense until it is validated, so every search is bounded by what a page has room
//!   for, every descent by the level, which is one less each time, and reads beyond a page are zero. Nonsense
//!   that is valid is [`TreeError::Damaged`].
//!
//! A page that is moved (compaction) is a split that leaves nothing behind. A split that finds no room in the parent lets go of everything, splits the parent, and begins again; in between
//! the tree is whole. Merges are lazy: a leaf that becomes sparse looks for a neighbour a few times.
//!
//! # Leaves
//!
//! The leaves of a tree are sorted or hashed ([`LeafLayout`]); `node/table.rs` has the second. Each says which it is, so a
//! tree is opened without saying so. A hashed leaf differs on its page alone: whoever copies one has it in order, and so has the
//! log. So all of this holds for both.
//!
//! # The log
//!
//! Two kinds of records change pages. Puts and removals are *logical*: the store has them in its own records,
//! has an LSN when it applies them, and applies several at the same time, so a page may see 20 before 10.
//! Changes of structure are *physical* ([`StructureLog`]): one record names all pages it touches and what
//! becomes of each.
//!
//! * L1. A page's LSN is the highest of what was applied to it; what holds back the log's end (`changed_since`) is
//!   the lowest that the device does not have.
//! * L2. A structure record is appended while all of its pages are latched, so its LSN is higher than any that
//!   these have, and a page has it exactly if its LSN is as high.
//! * L3. The log is durable up to a page's LSN before the page is written, and up to the record that freed it
//!   before its place is given out again. A freed page that is given out again is not on the device before it
//!   is written in its new life.
//! * L4. The log is cut only before all of: the lowest `changed_since`; the first record that freed a page which is
//!   not free on the device yet ([`oldest_change`](lapis_buffer::BufferManager::oldest_change) is the lowest of both); what was appended and is not applied yet; and,
//!   in recovery, the records that are not replayed yet. Before it is cut, it is durable up to where it
//!   ended when this was found out.
//!
//! # Recovery
//!
//! *Pass 1* ([`Redo`]) redoes all structure records in order, for each page by itself: skipped if the page has it
//! (L2); skipped if the page is not there and the record did not make it, for then it was freed later (L3); a
//! page that the record made is made. What a damaged page held is not asked for if a record has all of it, or frees it, also
//! further on; any other ends the pass in an error. *Pass 2* is the store's: it replays all logical records of the log, in
//! order, by ordinary puts and removals.
//!
//! * R1. After the first n structure records in pass 1, each page that is in use then has the fences, the level and
//!   the references that it had when record n was appended, or those of a later one. By induction: of a page that
//!   has the record nothing changes. One that has not was, by L2, written between two structure records
//!   of its own, so it has the fences from before the record, which says what comes of them. A record names a
//!   page once.
//! * R2. Inner nodes are changed by structure records alone, so one that has not got a record is exactly as it was
//!   then, and what had room then has room now.
//! * R3. A leaf on the device may be older by many puts than it was when it was split. What pass 1 leaves of it are the
//!   records that it had then, before the key at which it was cut. That is what is wanted: puts that it lacks are
//!   behind its `changed_since`, so the log has them and pass 2 replays them; so are removals of what it has and
//!   should not have. What moved is in the image of the right page, as it was at the moment of the split, which
//!   includes every put that was applied before: those need not be in the log any more. Images hold puts
//!   that pass 2 replays all the same; the last record of a key comes last, whatever the page had.
//! * R4. The cut has room though the leaf is older. What stays behind it took no more than it did (the prefix only
//!   grows); only the upper fence may be longer, by no more than every leaf keeps free (N4). If it is, the record
//!   has an image of the left page as well. Merges always have an image of what becomes of both.
//! * R5. So after pass 1, as at the log's end, all trees are well-formed, and each key's leaf has what the key had at some
//!   moment since the log's beginning or before. After pass 2 it has what the last record says, or, if there is none,
//!   what it had at the log's beginning.
//! * R6. A crash in recovery changes nothing: pass 2 appends structure records of its own behind all others, so
//!   R1 holds for the longer log, and the logical records are all still there (L4).

mod bulk_load;
mod check;
mod cursor;
mod drop;
mod error;
mod leaf_copy;
mod log;
pub mod mutants;
mod node;
mod record;
mod redo;
mod room;
mod salvage;
mod tree;

pub use bulk_load::BulkLoad;
pub use check::{Finding, TreeReport};
pub use cursor::{Cursor, Entry};
pub use error::TreeError;
pub use leaf_copy::LeafCopy;
pub use log::{NoStructureLog, StructureLog};
pub use node::{LeafLayout, largest_record};
pub use redo::{Redo, redo_damaged};
pub use room::{Puts, most_new_pages};
pub use salvage::{LonePage, mark_of_tree};
pub use tree::{CompactionPlace, Put, ShowOld, Tree, TreeStatistics};
