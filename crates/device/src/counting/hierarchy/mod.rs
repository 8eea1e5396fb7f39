//! The caches of the machine: L1 and L2 of each worker, L3 of all of them, written back.
//!
//! L2 holds all that its L1 holds. L3 takes what the L2s cast out, dirty or clean, and gives it up
//! when a core takes it back (as on Xeon Scalable, L3 is no copy of the L2s). A dirty line reaches
//! the memory controller when it is flushed, or when L3 needs its place: the least recently used of
//! a set goes first, so dirty lines leave roughly in the order in which they fell out of use. The
//! sets of L3 are chosen by a hash, so neighbours leave at different times: lines that are never
//! flushed reach the media one by one, at fourfold amplification, however long the run that was
//! stored.
//!
//! ```text
//!  worker 0: L1 ⊂ L2 ─┐ cast out            ┌─ dirty, least recently used: WPQ
//!  worker 1: L1 ⊂ L2 ─┼──────────▶ L3 ──────┤
//!  …                  │ ◀───────── taken    └─ clean: gone
//! ```
//!
//! # Coherence
//!
//! `holders` says for each line whose private caches may hold it: nobody's, one worker's, or
//! several workers' (then all private copies are clean). A read of a line that another worker holds
//! leaves both with clean copies, and a dirty one's contents in L3; a write takes the line away from
//! everybody else. Neither inserts into the WPQ: moves between caches cost time and no traffic.
//!
//! As long as one worker alone has appeared, what its L2 holds is all that `holders` could say, so
//! nothing is noted there; the second worker's first access makes up for it.

mod private;

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use self::private::Private;
use crate::counting::cache::{Cache, CacheShape, Tag};

/// The first of the line numbers that stand for ordinary memory, beyond all that is modelled of a region
/// ([`MODELLED_BYTES_LIMIT`](crate::MODELLED_BYTES_LIMIT)).
pub(crate) const DRAM_FIRST_LINE: u32 = 1 << 30;

/// The caches of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HierarchyShape {
    /// Each worker's first level.
    pub l1: CacheShape,
    /// Each worker's second level, no smaller than the first.
    pub l2: CacheShape,
    /// Everybody's last level.
    pub l3: CacheShape,
    /// Whether a flushed line stays, clean, or leaves all caches.
    pub flush_keeps_line: bool,
}

/// Where an access found the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    L1,
    L2,
    L3,
    /// Private caches of another worker.
    OtherCore,
    Memory,
}

/// How far an access of the only worker goes.
#[derive(Debug)]
pub(crate) enum Reach {
    /// A private cache has answered.
    Private(Level),
    /// The line is not there, and another has to leave for it.
    Beyond(Tag),
}

/// What became of an access beyond the private caches.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Where the line was.
    pub(crate) level: Level,
    /// Whether it was dirty there.
    pub(crate) dirty: bool,
    /// What left the caches for want of room.
    pub(crate) leaves: Tag,
}

/// Dirty lines that left the caches for want of room.
#[derive(Debug, Default)]
pub(crate) struct Evicted {
    lines: [u32; 4],
    count: usize,
}

impl Evicted {
    #[inline]
    fn push(&mut self, leaves: Tag) {
        if let (Some(line), true) = (leaves.line(), leaves.is_dirty()) {
            self.lines[self.count] = line;
            self.count += 1;
        }
    }

    #[inline]
    pub(crate) fn lines(&self) -> &[u32] {
        &self.lines[..self.count]
    }
}

const NOBODY: u16 = 0;
const SEVERAL: u16 = u16::MAX;

fn holder_of(worker: u8) -> u16 {
    u16::from(worker) + 1
}

/// The caches.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    shape: HierarchyShape,
    appeared: Appeared,
    /// By worker, made when a worker first appears.
    privates: Vec<Option<Private>>,
    l3: Cache<true>,
    /// By line, once several workers have appeared; grows with the highest line touched.
    holders: Vec<u16>,
    /// The same for lines of ordinary memory, from [`DRAM_FIRST_LINE`] on.
    dram_holders: Vec<u16>,
}

/// Workers that have accessed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appeared {
    Nobody,
    One(u8),
    Several,
}

impl Hierarchy {
    pub(crate) fn new(shape: HierarchyShape) -> Self {
        let l2_bytes = shape.l2.capacity_bytes.max(shape.l1.capacity_bytes).max(LINE_BYTES);
        let l2 = CacheShape { capacity_bytes: l2_bytes, ..shape.l2 };
        let shape = HierarchyShape { l2, ..shape };
        Self {
            shape,
            appeared: Appeared::Nobody,
            privates: Vec::new(),
            l3: Cache::new(shape.l3),
            holders: Vec::new(),
            dram_holders: Vec::new(),
        }
    }

    /// Notes that a worker accesses something that is not the only one that did before.
    #[cold]
    fn appear(&mut self, worker: u8) {
        match self.appeared {
            Appeared::Nobody => {
                self.private(worker);
                self.appeared = Appeared::One(worker);
            }
            Appeared::One(first) => {
                for line in self.private(first).l2.lines() {
                    self.set_holder(line, holder_of(first));
                }
                self.appeared = Appeared::Several;
            }
            Appeared::Several => {}
        }
    }

    #[inline]
    fn holder(&self, line: u32) -> u16 {
        let holder = if line < DRAM_FIRST_LINE {
            self.holders.get(line as usize)
        } else {
            self.dram_holders.get((line - DRAM_FIRST_LINE) as usize)
        };
        holder.copied().unwrap_or(NOBODY)
    }

    #[inline]
    fn set_holder(&mut self, line: u32, holder: u16) {
        let (holders, at) = if line < DRAM_FIRST_LINE {
            (&mut self.holders, line as usize)
        } else {
            (&mut self.dram_holders, (line - DRAM_FIRST_LINE) as usize)
        };
        if at >= holders.len() {
            holders.resize((at + 1).next_power_of_two(), NOBODY);
        }
        holders[at] = holder;
    }

    #[inline]
    fn private(&mut self, worker: u8) -> &mut Private {
        let at = usize::from(worker);
        if at >= self.privates.len() {
            self.privates.resize(at + 1, None);
        }
        let shape = self.shape;
        self.privates[at].get_or_insert_with(|| Private::new(&shape))
    }

    /// A worker reads or writes a line, which is in its L1 afterwards.
    #[inline]
    pub(crate) fn access(
        &mut self,
        worker: u8,
        line: u32,
        write: bool,
        evicted: &mut Evicted,
    ) -> Level {
        match self.access_near(worker, line, write) {
            Some(level) => level,
            None => self.access_far(worker, line, write, evicted),
        }
    }

    /// The same if the line is in the worker's private caches and nobody else's; else nothing
    /// happens.
    #[inline]
    pub(crate) fn access_near(&mut self, worker: u8, line: u32, write: bool) -> Option<Level> {
        if !self.may_be_near(worker, line) {
            return None;
        }
        self.privates.get_mut(usize::from(worker))?.as_mut()?.touch(line, write)
    }

    /// Whether [`Hierarchy::access_near`] would find the line now.
    #[inline]
    pub(crate) fn is_near(&self, worker: u8, line: u32) -> bool {
        let private = self.privates.get(usize::from(worker)).and_then(Option::as_ref);
        self.may_be_near(worker, line) && private.is_some_and(|private| private.l2.contains(line))
    }

    /// Whether nobody else's private caches hold the line.
    #[inline]
    fn may_be_near(&self, worker: u8, line: u32) -> bool {
        match self.appeared {
            Appeared::Nobody => false,
            Appeared::One(one) => one == worker,
            Appeared::Several => self.holder(line) == holder_of(worker),
        }
    }

    /// Lets the host fetch what it will need for a line that is not near. The sets of L3, of the line
    /// and of the one that has to leave L2 for it, are far apart in the host's memory.
    #[inline]
    pub(crate) fn prefetch(&self, line: u32, cast_out: Tag) {
        self.l3.prefetch(line);
        if let Some(line) = cast_out.line() {
            self.l3.prefetch(line);
        }
    }

    /// What has to leave the worker's L2 for a line, as far as that is cheaply known.
    #[inline]
    pub(crate) fn next_victim(&self, worker: u8, line: u32) -> Tag {
        let private = self.privates.get(usize::from(worker)).and_then(Option::as_ref);
        private.map_or(Tag::NONE, |private| private.l2.next_victim(line))
    }

    /// Whether this is the only worker that has appeared.
    #[inline(always)]
    pub(crate) fn is_alone(&self, worker: u8) -> bool {
        self.appeared == Appeared::One(worker)
    }

    /// Whether several workers have appeared.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.appeared == Appeared::Several
    }

    /// The part of an access of the only worker that concerns its private caches, where the line is
    /// afterwards; as clean, if it is read from beyond, until [`Hierarchy::access_shared`] knows
    /// better.
    #[inline]
    pub(crate) fn access_private(&mut self, worker: u8, line: u32, write: bool) -> Reach {
        let private = self.privates[usize::from(worker)].as_mut();
        private.expect("made when the worker appeared").take_in(line, write)
    }

    /// The other part, if the line came from beyond.
    #[inline]
    pub(crate) fn access_shared(&mut self, line: u32, cast_out: Tag) -> Shared {
        let (level, dirty) = match self.l3.remove(line) {
            Some(dirty) => (Level::L3, dirty),
            None => (Level::Memory, false),
        };
        Shared { level, dirty, leaves: self.l3.insert_tag(cast_out) }
    }

    /// A line that was read from beyond was dirty there.
    pub(crate) fn soil_private(&mut self, worker: u8, line: u32) {
        if let Some(Some(private)) = self.privates.get_mut(usize::from(worker)) {
            private.l2.soil(line);
        }
    }

    /// A worker reads or writes a line of which [`Hierarchy::access_near`] finds that it is not near.
    pub(crate) fn access_far(
        &mut self,
        worker: u8,
        line: u32,
        write: bool,
        evicted: &mut Evicted,
    ) -> Level {
        if self.appeared != Appeared::Several && self.appeared != Appeared::One(worker) {
            self.appear(worker);
        }
        if self.appeared != Appeared::One(worker) {
            return self.beyond(worker, line, write, evicted);
        }
        let private =
            self.privates[usize::from(worker)].as_mut().expect("made when the worker appeared");
        Self::beyond_alone(private, &mut self.l3, line, write, evicted)
    }

    /// The line is not in the private caches of the only worker.
    #[inline]
    fn beyond_alone(
        private: &mut Private,
        l3: &mut Cache<true>,
        line: u32,
        write: bool,
        evicted: &mut Evicted,
    ) -> Level {
        let (level, dirty) = match l3.remove(line) {
            Some(dirty) => (Level::L3, dirty),
            None => (Level::Memory, false),
        };
        evicted.push(l3.insert_tag(private.insert(line, dirty, write)));
        level
    }

    /// The private caches of the only worker that has appeared, if one alone has.
    #[inline]
    fn alone(&mut self) -> Option<&mut Private> {
        match self.appeared {
            Appeared::One(worker) => self.privates[usize::from(worker)].as_mut(),
            Appeared::Nobody | Appeared::Several => None,
        }
    }

    /// The line is not this worker's alone.
    fn beyond(&mut self, worker: u8, line: u32, write: bool, evicted: &mut Evicted) -> Level {
        let own = holder_of(worker);
        let (level, dirty, holder) = match self.holder(line) {
            SEVERAL => return self.shared(worker, line, write, evicted),
            other if other != NOBODY && other != own => {
                let other = (other - 1) as u8;
                if write {
                    let dirty = self.private(other).remove(line).unwrap_or(false);
                    (Level::OtherCore, dirty, own)
                } else {
                    if self.private(other).clean(line) == Some(true) {
                        evicted.push(self.l3.insert(line, true));
                    }
                    (Level::OtherCore, false, SEVERAL)
                }
            }
            _ => match self.l3.remove(line) {
                Some(dirty) => (Level::L3, dirty, own),
                None => (Level::Memory, false, own),
            },
        };
        self.set_holder(line, holder);
        self.fill(worker, line, dirty, write, evicted);
        level
    }

    /// Several workers may hold the line, all of them clean.
    fn shared(&mut self, worker: u8, line: u32, write: bool, evicted: &mut Evicted) -> Level {
        let private = self.private(worker);
        let own = if private.l1.contains(line) {
            Some(Level::L1)
        } else if private.l2.contains(line) {
            Some(Level::L2)
        } else {
            None
        };
        if !write {
            if let Some(level) = own {
                let private = self.private(worker);
                // It has been used in both.
                private.l2.touch(line, false);
                private.touch(line, false);
                return level;
            }
            let level = if self.l3.touch(line, false).is_some() {
                Level::L3
            } else if self.others(worker).any(|private| private.l2.contains(line)) {
                Level::OtherCore
            } else {
                self.set_holder(line, holder_of(worker));
                Level::Memory
            };
            self.fill(worker, line, false, false, evicted);
            return level;
        }
        let mut elsewhere = false;
        for private in self.others(worker) {
            elsewhere |= private.remove(line).is_some();
        }
        let in_l3 = self.l3.remove(line);
        self.set_holder(line, holder_of(worker));
        if own.is_some() {
            let private = self.private(worker);
            private.l2.touch(line, true);
            private.touch(line, true);
        } else {
            self.fill(worker, line, in_l3 == Some(true), true, evicted);
        }
        match (elsewhere, own, in_l3) {
            (true, ..) => Level::OtherCore,
            (_, Some(level), _) => level,
            (_, None, Some(_)) => Level::L3,
            (_, None, None) => Level::Memory,
        }
    }

    fn others(&mut self, worker: u8) -> impl Iterator<Item = &mut Private> {
        let all = self.privates.iter_mut().enumerate();
        all.filter(move |(at, _)| *at != usize::from(worker)).filter_map(|(_, one)| one.as_mut())
    }

    /// Brings a line into a worker's private caches, where it is not.
    fn fill(&mut self, worker: u8, line: u32, dirty: bool, write: bool, evicted: &mut Evicted) {
        let leaves = self.private(worker).insert(line, dirty, write);
        if let Some(cast_out) = leaves.line() {
            if self.holder(cast_out) != SEVERAL {
                self.set_holder(cast_out, NOBODY);
                evicted.push(self.l3.insert_tag(leaves));
            } else if !self.l3.contains(cast_out) {
                evicted.push(self.l3.insert(cast_out, false));
            }
        }
    }

    /// Writes a line back, wherever it is. Whether it was dirty.
    pub(crate) fn flush(&mut self, line: u32) -> bool {
        if !self.shape.flush_keeps_line {
            return self.remove(line);
        }
        if self.alone().is_some() {
            let private = self.flush_private(line);
            return self.flush_shared(line, private);
        }
        match self.holder(line) {
            // Private copies of several workers are clean.
            NOBODY | SEVERAL => self.l3.clean(line),
            holder => self.private((holder - 1) as u8).clean(line).unwrap_or(false),
        }
    }

    /// The part of a flush that concerns the private caches of the only worker: whether the line was
    /// dirty, if it was there.
    #[inline]
    pub(crate) fn flush_private(&mut self, line: u32) -> Option<bool> {
        let keeps = self.shape.flush_keeps_line;
        let private = self.alone()?;
        if keeps { private.clean(line) } else { private.remove(line) }
    }

    /// The other part. Whether the line was dirty.
    #[inline]
    pub(crate) fn flush_shared(&mut self, line: u32, private: Option<bool>) -> bool {
        if !self.shape.flush_keeps_line {
            return self.l3.remove(line).unwrap_or(false) || private == Some(true);
        }
        match private {
            Some(dirty) => dirty,
            None => self.l3.clean(line),
        }
    }

    /// Removes a line from all caches. Whether it was dirty.
    pub(crate) fn remove(&mut self, line: u32) -> bool {
        if let Some(private) = self.alone() {
            let dirty = private.remove(line).unwrap_or(false);
            return dirty | self.l3.remove(line).unwrap_or(false);
        }
        let mut dirty = false;
        match self.holder(line) {
            NOBODY => {}
            SEVERAL => {
                for private in self.privates.iter_mut().flatten() {
                    private.remove(line);
                }
            }
            holder => dirty = self.private((holder - 1) as u8).remove(line).unwrap_or(false),
        }
        if self.holder(line) != NOBODY {
            self.set_holder(line, NOBODY);
        }
        dirty | self.l3.remove(line).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests;
