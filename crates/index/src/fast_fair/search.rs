//! Searches without locks: one node ([`FastFair::probe`]), and the way down the tree.

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, LINE_BYTES, Link, persist_before_answer};

use super::FastFair;
use super::mutants;
use super::node::{Admits, ENTRY_BYTES, Found, LEFTWARD, Node, NodeHeader, SiblingWord};
use crate::key::IndexKey;

/// What a lock-free look at a node gave.
pub(super) struct Probe {
    /// The sibling word at that time.
    pub(super) sibling: SiblingWord,
    /// The key belongs to the sibling or beyond: `found` means nothing.
    pub(super) go_right: bool,
    /// The last entry that the caller admits.
    pub(super) found: Option<Found>,
    /// Somebody held the lock: what was seen may not be durable.
    pub(super) disturbed: bool,
}

/// The way down: where it ended, and the last node that was reached over a sibling link, hence
/// perhaps missing from its parent.
pub(super) struct Arrival<'p> {
    pub(super) node: Node<'p>,
    pub(super) probe: Probe,
    pub(super) hop: Option<Link<NodeHeader>>,
    /// The last node above, and which of its children the way took: 0 is its leftmost child, others are
    /// those of the slots.
    pub(super) above: Option<(Node<'p>, usize)>,
}

/// A way down: the node that it has come to.
struct Way<'p> {
    node: Node<'p>,
    hop: Option<Link<NodeHeader>>,
    above: Option<(Node<'p>, usize)>,
    steps: u32,
}

impl<'p> Way<'p> {
    /// Goes on where another begins. The steps count on.
    #[inline(always)]
    fn begin_again(&mut self, other: Self) {
        *self = Self { steps: self.steps, ..other };
    }
}

/// What came of looking at a node on the way.
enum Passed {
    /// The way has gone on to another, most of which is on its way to the cache.
    On,
    /// It is no longer part of the tree: the way begins again.
    Deleted,
    /// It is the one.
    Arrived(Probe),
}

/// Nodes looked at on one way down before it must be a circle: each step beyond the height of the
/// tree stands for a split or a removal that somebody has finished meanwhile.
pub(super) const MOST_STEPS: u32 = 1 << 18;

/// Tries of one look at a node before its lock must be damaged: each stands for a change that
/// somebody has finished meanwhile.
pub(super) const MOST_TRIES: u32 = 1 << 20;

#[cold]
#[inline(never)]
pub(super) fn goes_in_circles() -> ! {
    panic!("the index is damaged: the way through the tree does not end")
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    /// Whether the right neighbour that `sibling` names takes keys that `admits` accepts.
    #[inline(always)]
    pub(super) fn belongs_right(&self, sibling: SiblingWord, admits: impl Admits) -> bool {
        let link = sibling.link();
        if self.domain().commits(mutants::SIBLING_BEFORE_ROOT)
            && sibling.level() == self.top().level(self.domain())
        {
            return false;
        }
        !link.is_null() && admits(self.node(link).low(self.domain()))
    }

    /// Finds the last entry of `node` whose key `admits` accepts; `admits` accepts a prefix of all
    /// keys. Never waits: it tries again only if meanwhile a writer has finished.
    #[inline(always)]
    pub(super) fn probe(&self, node: Node<'_>, admits: impl Admits) -> Probe {
        let (domain, generation) = (self.domain(), self.generation);
        let mut tries = 0u32;
        loop {
            tries += 1;
            if tries > MOST_TRIES {
                goes_in_circles();
            }
            let before = node.header.lock.read(domain);
            if before.is_locked(generation) {
                match self.probe_locked(node, admits) {
                    Some(probe) => return probe,
                    None => continue,
                }
            }
            let sibling = node.sibling(domain);
            // I5: only a node that has been repaired has no entries that belong to the sibling.
            let unrepaired = !before.is_current(generation);
            if unrepaired && self.belongs_right(sibling, admits) {
                return Probe { sibling, go_right: true, found: None, disturbed: false };
            }
            let (found, greater) = node.floor(domain, sibling.is_hidden(), K::INLINE, admits);
            if node.header.lock.reread(domain) == before {
                let go_right = !greater && self.belongs_right(sibling, admits);
                return Probe { sibling, go_right, found, disturbed: false };
            }
        }
    }

    /// As [`FastFair::probe`], of a node that somebody else may be changing: slot by slot, against
    /// the direction in which entries cannot slip past. None if that went wrong.
    #[cold]
    fn probe_locked(&self, node: Node<'_>, admits: impl Admits) -> Option<Probe> {
        let domain = self.domain();
        let before = node.header.lock.read(domain);
        let sibling = node.sibling(domain);
        if self.belongs_right(sibling, admits) {
            return Some(Probe { sibling, go_right: true, found: None, disturbed: true });
        }
        let found = if before.payload() == LEFTWARD {
            self.floor_leftward(node, admits)?
        } else {
            self.floor_rightward(node, admits)
        };
        let sibling_after = node.sibling(domain);
        let after = node.header.lock.reread(domain);
        let same_node = sibling.link() == sibling_after.link()
            && sibling.is_deleted() == sibling_after.is_deleted();
        (before.is_same_section(after) && same_node).then_some(Probe {
            sibling,
            go_right: false,
            found,
            disturbed: true,
        })
    }

    /// Slot 0 first, while entries may be moving away from it: an entry is copied before it is
    /// overwritten, so a reader meets it at least once.
    fn floor_rightward(&self, node: Node<'_>, admits: impl Admits) -> Option<Found> {
        let domain = self.domain();
        let mut best: Option<Found> = None;
        for slot in 0..node.slots.len() {
            let key = node.key(domain, slot);
            if node.ends_before(domain, slot, key) {
                break;
            }
            if best.is_some_and(|best| best.key == key) {
                continue;
            }
            if let Some(value) = self.counted(node, slot, key, admits) {
                best = Some(Found { slot, key, value });
            } else if slot > 0 && !admits(key) {
                // Not by slot 0: hidden, it may hold what a crash left of a key.
                break;
            }
        }
        best
    }

    /// The value of `slot` if, after reading it, the slot still has `key`, counts and is admitted.
    /// A slot that no longer has the key has been copied to its neighbour in whole.
    #[inline(always)]
    pub(super) fn counted(
        &self,
        node: Node<'_>,
        slot: usize,
        key: u64,
        admits: impl Admits,
    ) -> Option<u64> {
        let domain = self.domain();
        let value = node.value(domain, slot);
        // `hidden` before the key: `hidden` goes up before the value changes and down after the
        // key has changed, so an old key with `hidden` down vouches for the value.
        let hidden = slot == 0 && node.sibling(domain).is_hidden();
        (!hidden && node.key(domain, slot) == key && admits(key)).then_some(value)
    }

    /// The last slot first, while entries may be moving towards slot 0. None if an entry was
    /// overwritten while it was read.
    fn floor_leftward(&self, node: Node<'_>, admits: impl Admits) -> Option<Option<Found>> {
        let domain = self.domain();
        for slot in (1..node.slots.len()).rev() {
            let key = node.key(domain, slot);
            if key == 0 || !admits(key) {
                continue;
            }
            let value = node.value(domain, slot);
            if self.repeats_left(node, slot, key) {
                continue;
            }
            if node.key(domain, slot) != key {
                return None;
            }
            return Some(Some(Found { slot, key, value }));
        }
        let key = node.key(domain, 0);
        match self.counted(node, 0, key, admits) {
            Some(value) => Some(Some(Found { slot: 0, key, value })),
            None if node.key(domain, 0) == key => Some(None),
            None => None,
        }
    }

    /// Whether the entry in `slot`, seen with `key`, is now (also) in the slot to its left. If not,
    /// a value read from `slot` before is not yet overwritten by a shift to the left.
    #[inline(always)]
    pub(super) fn repeats_left(&self, node: Node<'_>, slot: usize, key: u64) -> bool {
        let domain = self.domain();
        node.key(domain, slot - 1) == key && !(slot == 1 && node.sibling(domain).is_hidden())
    }

    /// Goes down to `level` along the last entries that `admits` accepts. None if the tree is not
    /// that high. Inlined into each kind of search, which knows `admits`.
    #[inline(always)]
    pub(super) fn descend(&self, level: u8, admits: impl Admits) -> Option<Arrival<'_>> {
        self.descend_for::<false>(level, admits)
    }

    /// As [`FastFair::descend`], for writers. I5: a node that is left for its sibling is repaired,
    /// so that the sibling does not change as long as there are stale copies of its entries.
    #[inline(always)]
    pub(super) fn descend_to_write(&self, level: u8, admits: impl Admits) -> Option<Arrival<'_>> {
        self.descend_for::<true>(level, admits)
    }

    #[inline(always)]
    fn descend_for<const WRITES: bool>(
        &self,
        level: u8,
        admits: impl Admits,
    ) -> Option<Arrival<'_>> {
        let mut way = self.begin(level)?;
        loop {
            match self.pass::<WRITES>(&mut way, level, admits) {
                Passed::On => {}
                Passed::Deleted => way.begin_again(self.begin(level)?),
                Passed::Arrived(probe) => {
                    return Some(Arrival { node: way.node, probe, hop: way.hop, above: way.above });
                }
            }
        }
    }

    /// At the root. None if the tree does not have that level.
    #[inline(always)]
    fn begin(&self, level: u8) -> Option<Way<'_>> {
        let node = self.top();
        (node.level(self.domain()) >= level).then_some(Way {
            node,
            hop: None,
            above: None,
            steps: 0,
        })
    }

    /// Looks at the node that a way has come to, and goes on to the next.
    #[inline(always)]
    fn pass<'t, const WRITES: bool>(
        &'t self,
        way: &mut Way<'t>,
        level: u8,
        admits: impl Admits,
    ) -> Passed {
        let (domain, node) = (self.domain(), way.node);
        way.steps += 1;
        if way.steps > MOST_STEPS {
            goes_in_circles();
        }
        let probe = self.probe(node, admits);
        if probe.sibling.is_deleted() {
            return Passed::Deleted;
        }
        let stays = WRITES && domain.commits(mutants::WRONG_NODE_AFTER_SPLIT);
        if probe.go_right && !(stays && probe.sibling.level() <= level) {
            if WRITES && !node.header.lock.read(domain).is_current(self.generation) {
                self.lock(node);
                self.release(node);
            }
            way.hop = Some(probe.sibling.link());
            way.node = self.arrive(probe.sibling.link());
            return Passed::On;
        }
        if probe.sibling.level() <= level {
            return Passed::Arrived(probe);
        }
        let (child, link) = match probe.found {
            Some(found) => (found.slot + 1, Link::from_bits(found.value)),
            None => (0, node.leftmost(domain)),
        };
        way.above = Some((node, child));
        way.node = self.arrive(link);
        Passed::On
    }

    /// The node at `link`, with all of its lines on their way to the cache at once.
    #[inline(always)]
    pub(super) fn arrive(&self, link: Link<NodeHeader>) -> Node<'_> {
        let node = self.node(link);
        // Slots 0 and 1 are in the header's line.
        let rest = node.slots[2..].as_ptr().cast::<u8>();
        for line in 0..(node.slots.len() - 2).div_ceil(LINE_BYTES / ENTRY_BYTES) {
            self.domain().prefetch(rest.wrapping_add(line * LINE_BYTES));
        }
        node
    }

    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Option<u64> {
        let _guard = self.pool.pin();
        let arrival = self.descend(0, self.up_to(key))?;
        self.answer(key, arrival.node, arrival.probe)
    }

    /// As [`FastFair::lookup`], in turns with others. The caller has pinned the pool.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let mut way = self.begin(0)?;
        loop {
            match self.pass::<false>(&mut way, 0, self.up_to(key)) {
                Passed::On => turn.prefetch((&raw const *way.node.header).cast()).await,
                Passed::Deleted => way.begin_again(self.begin(0)?),
                Passed::Arrived(probe) => return self.answer(key, way.node, probe),
            }
        }
    }

    /// The value of `key` by what was seen of its leaf, made durable.
    #[inline(always)]
    fn answer(&self, key: &K, leaf: Node<'_>, probe: Probe) -> Option<u64> {
        let Probe { found, disturbed, .. } = probe;
        let found = found.filter(|found| key.eq_word(&self.pool, self.tag_of(key), found.key));
        if disturbed {
            let slots = leaf.slots;
            // A hit rests on its entry alone; a miss on the whole node, from which the key may
            // just have been removed.
            let seen = found.map_or(slots, |found| &slots[found.slot..=found.slot]);
            persist_before_answer(self.domain(), [seen]);
        }
        found.map(|found| found.value)
    }

    #[inline(always)]
    fn tag_of(&self, key: &K) -> u64 {
        if K::INLINE { 0 } else { key.tag() }
    }
}
