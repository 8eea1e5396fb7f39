//! Records: what lies in the pool of a node, base nodes and the deltas in front of them.

use lapis_pmem::{Domain, Link, PCell, Pool, persistent};

persistent! {
    /// A key and its value, or a separator and the child whose keys begin there.
    #[derive(Debug)]
    pub struct Entry: 16 {
        pub key: PCell<u64>,
        pub value: PCell<u64>,
    }
}

/// Changes that a delta has room for: they fill a line.
pub const MOST_CHANGES: usize = 3;

persistent! {
    /// Changes of a node of one kind, the oldest first, in front of what they change.
    #[derive(Debug)]
    pub struct Delta: 64 {
        pub meta: PCell<u64>,
        pub next: PCell<u64>,
        pub changes: [Entry; MOST_CHANGES],
    }
}

persistent! {
    /// What a node begins with at the end of its chain. Entries follow.
    #[derive(Debug)]
    pub struct Base: 32 {
        pub meta: PCell<u64>,
        pub low: PCell<u64>,
        pub high: PCell<u64>,
        pub right: PCell<u64>,
    }
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Base = 1,
    Put,
    Delete,
    Merging,
    Removed,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Base, Self::Put, Self::Delete, Self::Merging, Self::Removed];

    /// Whether several changes are one record.
    fn is_gathered(self) -> bool {
        matches!(self, Self::Put | Self::Delete)
    }
}

const KIND_MASK: u64 = 7;
const CHANGES_SHIFT: u32 = 3;
const LEVEL_SHIFT: u32 = 8;
const LOW_SHIFT: u32 = 15;
const DEPTH_SHIFT: u32 = 16;
const COUNT_SHIFT: u32 = 32;

/// The first word of a record: what it is, and what the node is with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta(u64);

impl Meta {
    /// Of a base node.
    pub fn base(level: u8, has_low: bool, count: usize) -> Self {
        let (level, has_low) = (u64::from(level) << LEVEL_SHIFT, u64::from(has_low) << LOW_SHIFT);
        Self(Kind::Base as u64 | level | has_low | (count as u64) << COUNT_SHIFT)
    }

    /// Of a record with a change more than the one that has this, with which the node has so many entries. It
    /// is in front of that, or in its place with `gathered` changes of it.
    #[inline(always)]
    pub fn changed(self, kind: Kind, gathered: usize, count: usize) -> Self {
        let kept = self.0 & (((1 << COUNT_SHIFT) - 1) & !0xFF);
        let own = kind as u64 | (gathered as u64 + 1) << CHANGES_SHIFT;
        Self((kept + (1 << DEPTH_SHIFT)) | own | (count as u64) << COUNT_SHIFT)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    /// None of a word that no record has.
    #[inline(always)]
    fn from_bits(bits: u64) -> Option<(Self, Kind)> {
        let kind = *Kind::ALL.get(((bits & KIND_MASK) as usize).wrapping_sub(1))?;
        let meta = Self(bits);
        let (changes, depth) = (meta.changes(), meta.depth());
        let fits = match kind {
            Kind::Base => changes == 0 && depth == 0,
            _ => (1..=MOST_CHANGES.min(depth)).contains(&changes),
        };
        fits.then_some((meta, kind))
    }

    /// How many changes the record has.
    #[inline(always)]
    pub fn changes(self) -> usize {
        (self.0 as u8 >> CHANGES_SHIFT) as usize
    }

    /// How many levels of nodes are below.
    #[inline(always)]
    pub fn level(self) -> u8 {
        (self.0 >> LEVEL_SHIFT) as u8 & 0x7F
    }

    #[inline(always)]
    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }

    /// Whether there are nodes to the left.
    #[inline(always)]
    pub fn has_low(self) -> bool {
        self.0 >> LOW_SHIFT & 1 == 1
    }

    /// How many changes there are up to here.
    #[inline(always)]
    pub fn depth(self) -> usize {
        (self.0 >> DEPTH_SHIFT) as u16 as usize
    }

    /// How many entries the node has.
    #[inline(always)]
    pub fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT) as usize
    }
}

/// What follows the first word of a record.
#[derive(Clone, Copy, Debug)]
pub enum Body<'t> {
    Delta(&'t Delta),
    Base(&'t Base, &'t [Entry]),
}

/// A record that was found in its place.
#[derive(Clone, Copy, Debug)]
pub struct Record<'t> {
    pub link: Link<Delta>,
    pub meta: Meta,
    pub kind: Kind,
    pub body: Body<'t>,
}

impl<'t> Record<'t> {
    /// The record at `link`; none if there cannot be one.
    #[inline(always)]
    pub fn at<D: Domain>(pool: &'t Pool<D>, link: Link<Delta>) -> Option<Self> {
        // A base node is at least as long, and begins with the same word.
        let delta = pool.try_at(link)?;
        let (meta, kind) = Meta::from_bits(delta.meta.load(pool.domain()))?;
        let body = match kind {
            Kind::Base => {
                let count = u16::try_from(meta.count()).ok()?;
                let (base, entries) = pool.try_at_with(link.cast::<Base>(), count)?;
                Body::Base(base, entries)
            }
            _ => Body::Delta(delta),
        };
        Some(Self { link, meta, kind, body })
    }

    /// The changes of this delta, the oldest first.
    #[inline(always)]
    pub fn changes_of<'d>(&self, delta: &'d Delta) -> &'d [Entry] {
        &delta.changes[..self.meta.changes().min(MOST_CHANGES)]
    }

    /// Of which delta a change of this kind takes the place, with its changes; none if it comes in front of the record.
    #[inline(always)]
    pub fn gathers(&self, kind: Kind) -> Option<&'t Delta> {
        match self.body {
            Body::Delta(delta)
                if kind == self.kind
                    && kind.is_gathered()
                    && self.meta.changes() < MOST_CHANGES =>
            {
                Some(delta)
            }
            _ => None,
        }
    }

    /// The record behind this delta; none if there cannot be one. Depths decrease, so that a chain ends.
    #[inline(always)]
    pub fn next<D: Domain>(&self, pool: &'t Pool<D>, delta: &Delta) -> Option<Self> {
        let next = Self::at(pool, Link::from_bits(delta.next.load(pool.domain())))?;
        let fits = next.meta.depth() + self.meta.changes() == self.meta.depth()
            && next.meta.level() == self.meta.level()
            && next.meta.has_low() == self.meta.has_low();
        fits.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_keeps_what_it_does_not_change_of_the_node() {
        let base = Meta::base(3, true, 700);
        let delta = base.changed(Kind::Delete, 0, 699).changed(Kind::Put, 0, 70_000);
        assert_eq!(Meta::from_bits(delta.bits()), Some((delta, Kind::Put)));
        assert_eq!((delta.level(), delta.has_low()), (3, true));
        assert_eq!((delta.depth(), delta.changes(), delta.count()), (2, 1, 70_000));
        let gathered = delta.changed(Kind::Put, delta.changes(), 70_001);
        assert_eq!(Meta::from_bits(gathered.bits()), Some((gathered, Kind::Put)));
        assert_eq!((gathered.depth(), gathered.changes(), base.depth()), (3, 2, 0));
    }

    #[test]
    fn words_that_no_record_has_are_refused() {
        let base = Meta::base(0, false, 1);
        let delta = base.changed(Kind::Put, 0, 1);
        let (no_kind, no_change) = (delta.bits() & !KIND_MASK, delta.bits() & !0xF8);
        let more_than_deep = delta.bits() | 2 << CHANGES_SHIFT;
        let of_a_base = base.bits() | 1 << CHANGES_SHIFT;
        for bits in [0, 6, no_kind, no_change, more_than_deep, of_a_base, delta.bits() | 0x80] {
            assert_eq!(Meta::from_bits(bits), None, "{bits:#x}");
        }
    }
}
