//! The mapping table: from ids to the newest records of nodes.
//!
//! ```text
//!  Directory (256 bytes): links to chunks; chunk k has 4 << k words, chunk 0 is there always
//!  word of an id:  a link to the newest record of its node
//!                  0, or a generation of the pool << 1 | 1: no node's
//! ```
//!
//! Which ids are free is volatile, as it is of blocks, and found out as they are needed: a word that is no link belongs to
//! nobody, unless it has the present generation: then the id was given back by somebody of this session, and waits for
//! readers that may still have it, or is in the list. Whose word is a link and who is no node is found by whoever visits all.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use lapis_pmem::{
    AllocError, Committed, Domain, InFlight, Link, Owned, PCell, Pool, Resident, Slot, host_lock,
    persistent,
};
use parking_lot::Mutex;

use super::record::Delta;
use crate::error::IndexError;
use crate::radix::{Place, damaged};

/// Ids of the first chunk.
const FIRST_IDS: u64 = 4;
/// Chunks at most: some 2³⁰ ids.
const CHUNKS: usize = 28;
/// Words looked at for an id that was given back in another session, for each one that is needed.
const LOOKED_AT: u64 = 64;

persistent! {
    /// Where the chunks are.
    pub struct Directory: 256 {
        chunks: [Slot<PCell<u64>>; 32],
    }
}

/// A chunk and the place of an id in it; none of an id that there cannot be.
#[inline(always)]
fn locate(id: u64) -> Option<(usize, u64)> {
    let number = id.checked_add(FIRST_IDS)?;
    let chunk = (number.ilog2() - FIRST_IDS.ilog2()) as usize;
    (chunk < CHUNKS).then_some((chunk, number - (FIRST_IDS << chunk)))
}

fn ids_of(chunk: usize) -> u64 {
    FIRST_IDS << chunk
}

/// The first id of a chunk.
fn start_of(chunk: usize) -> u64 {
    ids_of(chunk) - FIRST_IDS
}

/// Bytes of a chunk.
pub fn chunk_bytes(chunk: usize) -> usize {
    8 * ids_of(chunk) as usize
}

/// Who has which ids.
#[derive(Debug)]
struct Ids {
    /// Ids from here on have never been anybody's, or their chunk has been given back since.
    fresh: u64,
    /// Those below were not looked at in this session.
    unseen: u64,
    /// Those below may be nobody's although their words are links: a crash has lost who was about to get them.
    lost: u64,
    /// Of each chunk, how many may be somebody's.
    used: [u64; CHUNKS],
    /// Of each chunk, how often it was given back.
    era: [u32; CHUNKS],
}

/// Ids that were given back and that nobody can still have, with the eras of their chunks. The least is
/// taken first, so that the last chunk is left by all.
type Returned = Arc<Mutex<BTreeSet<(u64, u32)>>>;

/// An id that readers may have; dropped when they have gone.
struct Leaving {
    id: u64,
    era: u32,
    returned: Returned,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.returned.lock().insert((self.id, self.era));
    }
}

/// The mapping table of an open tree.
#[derive(Debug)]
pub struct Mapping<D: Domain> {
    pool: Arc<Pool<D>>,
    link: Link<Directory>,
    directory: Resident<D, Directory>,
    ids: Mutex<Ids>,
    returned: Returned,
}

impl<D: Domain> Mapping<D> {
    /// A table in which id 0 is that of the node at `first`.
    #[track_caller]
    pub fn create<'p>(
        pool: &'p Pool<D>,
        first: Owned<'p, D, super::record::Base, InFlight>,
    ) -> Result<Owned<'p, D, Directory, InFlight>, IndexError> {
        let mut directory = pool.allocate::<Directory>()?;
        directory.zero();
        let mut chunk = pool.allocate_with_tail::<PCell<u64>>(chunk_bytes(0) - 8)?;
        chunk.zero();
        chunk.link_children(|word| word, first, |first| first.link().bits());
        directory.link_child(|directory| &directory.chunks[0], chunk.flush());
        Ok(directory.flush())
    }

    pub fn open(pool: &Arc<Pool<D>>, link: Link<Directory>) -> Result<Self, IndexError> {
        let Some(directory) = pool.try_at(link) else {
            return Err(damaged("its mapping table is outside the pool"));
        };
        let present = |chunk: &usize| !directory.chunks[*chunk].load(pool.domain()).is_null();
        let chunks = (0..CHUNKS).take_while(present).count();
        if chunks == 0 {
            return Err(damaged("its mapping table has no chunk"));
        }
        let mut used = [0; CHUNKS];
        (0..chunks).for_each(|chunk| used[chunk] = ids_of(chunk));
        let fresh = start_of(chunks);
        let ids = Ids { fresh, unseen: fresh, lost: fresh, used, era: [0; CHUNKS] };
        let directory = pool.resident(link);
        let pool = Arc::clone(pool);
        Ok(Self { pool, link, directory, ids: Mutex::new(ids), returned: Returned::default() })
    }

    /// Where the word of an id is; none if it has none.
    #[inline(always)]
    pub fn place(&self, id: u64) -> Option<Place> {
        let (chunk, index) = locate(id)?;
        let chunk = self.directory.chunks[chunk].load(self.pool.domain());
        (!chunk.is_null()).then(|| Link::from_bits(chunk.offset() + 8 * index))
    }

    /// The newest record of the node of an id; none if it is no node's.
    #[inline(always)]
    pub fn head(&self, id: u64) -> Option<Link<Delta>> {
        let word = self.pool.try_at(self.place(id)?)?.load_acquire(self.pool.domain());
        (word != 0 && word & 1 == 0).then(|| Link::from_bits(word))
    }

    /// The word of ids that were given back in this session.
    fn free_word(&self) -> u64 {
        self.pool.generation() << 1 | 1
    }

    /// An id that is nobody's, and the place of its word. The caller has not pinned the pool.
    pub fn take_id(&self) -> Result<(u64, Place), IndexError> {
        let id = self.take()?;
        let place = self.place(id).ok_or_else(|| damaged("an id has no place"))?;
        Ok((id, place))
    }

    fn take(&self) -> Result<u64, IndexError> {
        let domain = self.pool.domain();
        let mut ids = host_lock::lock(domain, &self.ids);
        loop {
            let Some((id, era)) = self.returned.lock().pop_first() else { break };
            let Some((chunk, _)) = locate(id) else { continue };
            if ids.era[chunk] == era {
                ids.used[chunk] += 1;
                return Ok(id);
            }
        }
        for _ in 0..LOOKED_AT.min(ids.unseen) {
            ids.unseen -= 1;
            let id = ids.unseen;
            let word = self.place(id).map(|place| self.pool.at(place).load(domain));
            if word.is_some_and(|word| word == 0 || (word & 1 == 1 && word != self.free_word())) {
                domain.happens("an id that was given back in another session is found");
                return Ok(id);
            }
        }
        let id = ids.fresh;
        let Some((chunk, _)) = locate(id) else {
            return Err(AllocError::TooLarge { asked_bytes: usize::MAX }.into());
        };
        if self.place(id).is_none() {
            domain.happens("the mapping table grows");
            let mut words = self.pool.allocate_with_tail::<PCell<u64>>(chunk_bytes(chunk) - 8)?;
            words.zero();
            let link = words.link();
            // Zeroes that a crash takes back leave words that are no node's, and ids that nobody gets before
            // somebody has visited all nodes: they need not be durable.
            std::mem::forget(words);
            let slot = self.directory.chunks[chunk].word();
            let flushed = slot.publish(domain, link.bits()).flush();
            // Who takes one of its ids next may have a node there before this thread fences.
            let _: Committed = flushed.fence_for_other_threads(domain);
        }
        ids.fresh += 1;
        ids.used[chunk] += 1;
        Ok(id)
    }

    /// Gives back an id that nobody but the caller has seen.
    pub fn give_up(&self, id: u64) {
        self.leave(id, drop);
    }

    /// Gives back the id of a node that can no longer be found, durably: nobody gets it before all
    /// readers have gone. Chunks at the end that are nobody's go with it.
    pub fn give_back(&self, id: u64, _unlinked: Committed) {
        let pinned = self.pool.pin();
        self.leave(id, |leaving| self.pool.retire_value(Box::new(leaving), &pinned));
        let domain = self.pool.domain();
        let mut ids = host_lock::lock(domain, &self.ids);
        loop {
            let Some((chunk, _)) = ids.fresh.checked_sub(1).and_then(locate) else { return };
            if chunk == 0 || ids.used[chunk] > 0 {
                return;
            }
            domain.happens("the mapping table shrinks");
            let slot = &self.directory.chunks[chunk];
            let words = slot.load(domain);
            // Before it is used for something else, which this thread fences for.
            let flushed = slot.redirect(domain, Link::NULL).flush();
            let committed = flushed.fence_for_other_threads(domain);
            self.pool.retire(words, chunk_bytes(chunk), committed, &pinned);
            ids.era[chunk] += 1;
            ids.fresh = start_of(chunk);
            ids.unseen = ids.unseen.min(ids.fresh);
            ids.lost = ids.lost.min(ids.fresh);
        }
    }

    /// Takes back ids that were lost, when somebody has visited all nodes and seen these.
    pub fn take_back_lost(&self, seen: &HashSet<u64>) {
        let domain = self.pool.domain();
        let mut ids = host_lock::lock(domain, &self.ids);
        for id in 0..std::mem::take(&mut ids.lost) {
            let Some(((chunk, _), place)) = locate(id).zip(self.place(id)) else { continue };
            let is_known = || self.pool.at(place).load(domain) == self.free_word();
            if !seen.contains(&id) && !is_known() {
                ids.used[chunk] = ids.used[chunk].saturating_sub(1);
                self.returned.lock().insert((id, ids.era[chunk]));
            }
        }
        ids.unseen = 0;
    }

    fn leave(&self, id: u64, leave: impl FnOnce(Leaving)) {
        let Some((chunk, _)) = locate(id) else { return };
        let domain = self.pool.domain();
        // Nothing leads to it. If the store is lost, the id is not given to anybody: that is all.
        if let Some(place) = self.place(id) {
            self.pool.at(place).store_ordered(domain, self.free_word());
        }
        let mut ids = host_lock::lock(domain, &self.ids);
        ids.used[chunk] = ids.used[chunk].saturating_sub(1);
        let era = ids.era[chunk];
        drop(ids);
        leave(Leaving { id, era, returned: Arc::clone(&self.returned) });
    }

    /// Visits the directory and the chunks, until one is refused.
    pub fn visit(&self, visit: &mut dyn FnMut(Link<PCell<u64>>, usize) -> bool) {
        if !visit(self.link.cast(), size_of::<Directory>()) {
            return;
        }
        for (number, chunk) in self.directory.chunks.iter().enumerate() {
            let chunk = chunk.load(self.pool.domain());
            if !chunk.is_null() && !visit(chunk, chunk_bytes(number.min(CHUNKS))) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lapis_pmem::Hardware;

    use super::*;
    use crate::index::{Index, IndexOptions};
    use crate::p_bwtree::PBwTree;

    /// A tree without keys, of whose mapping table it uses one id: 0, in the chunk of the ids below 4. Whoever takes ids
    /// gets those first, then 4 and 5, of the next chunk.
    fn taken() -> (PBwTree<Hardware, u64>, Vec<u64>) {
        let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
        let tree = PBwTree::create_named(&pool, "tree", &IndexOptions::DEFAULT).unwrap();
        let ids = (0..5).map(|_| tree.mapping.take_id().unwrap().0).collect();
        (tree, ids)
    }

    fn give_back<D: Domain>(mapping: &Mapping<D>, id: u64) {
        let slot = &mapping.directory.chunks[0];
        let domain = mapping.pool.domain();
        let unlinked = slot.redirect(domain, slot.load(domain)).flush();
        mapping.give_back(id, unlinked.fence_for_other_threads(domain));
    }

    #[test]
    fn a_chunk_stays_as_long_as_an_id_of_it_that_was_taken_again_is_somebodys() {
        let (tree, ids) = taken();
        let mapping = &tree.mapping;
        assert_eq!(ids, [3, 2, 1, 4, 5]);
        mapping.give_up(5);
        assert_eq!(mapping.take_id().unwrap().0, 5);
        give_back(mapping, 4);
        assert!(mapping.place(5).is_some());
        give_back(mapping, 5);
        assert_eq!(mapping.place(5), None);
    }

    #[test]
    fn an_id_whose_chunk_has_gone_is_not_given_again_before_the_chunk_is_there() {
        let (tree, _) = taken();
        let mapping = &tree.mapping;
        mapping.give_up(5);
        give_back(mapping, 4);
        assert_eq!((mapping.place(4), mapping.place(5)), (None, None));
        assert_eq!([4, 5, 6].map(|_| mapping.take_id().unwrap().0), [4, 5, 6]);
    }

    #[test]
    fn ids_follow_each_other_through_chunks_that_double() {
        let mut expected = (0, 0);
        for id in 0..10_000 {
            assert_eq!(locate(id), Some(expected), "{id}");
            assert_eq!(start_of(expected.0) + expected.1, id);
            expected.1 += 1;
            if expected.1 == ids_of(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!((locate(u64::MAX), locate(start_of(CHUNKS))), (None, None));
    }
}
