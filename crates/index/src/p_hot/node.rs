//! Nodes as they lie in the pool: reading them, and making linear what is to become one.

use lapis_pmem::{Domain, LINE_BYTES, Link, PCell, Pool, persistent};

use super::bits::{Bits, byte_at, window_at};
use super::contents::{Contents, FANOUT};
use super::entry::Entry;
use super::search::{Instructions, MaskedWord, Width};
use crate::key::IndexKey;
use crate::radix::{Place, damaged_word};

persistent! {
    /// What every node begins with. Masks, partial keys and entries follow.
    pub struct NodeHead: 16 {
        pub lock: PCell<u64>,
        pub shape: PCell<u64>,
    }
}

/// Bytes of masks and partial keys at most.
const BODY_BYTES: usize = 4 * FANOUT + 4 * FANOUT;
/// Bytes behind the head at most.
pub const TAIL_BYTES: usize = BODY_BYTES + 8 * FANOUT;

/// How a node says which bits it looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masks {
    /// One mask over eight bytes that follow each other.
    Single,
    /// A byte's number and a mask over it, eight times, sixteen or thirty-two.
    Bytes8,
    Bytes16,
    Bytes32,
}

impl Masks {
    const ALL: [Self; 4] = [Self::Single, Self::Bytes8, Self::Bytes16, Self::Bytes32];

    /// How many bytes have masks of their own.
    fn slots(self) -> usize {
        [0, 8, 16, 32][self as usize]
    }

    /// Bytes of the masks.
    fn bytes(self) -> usize {
        [8, 32, 64, 128][self as usize]
    }
}

/// What a node's second word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    pub count: usize,
    pub masks: Masks,
    pub width: Width,
    /// Of a single mask, the first byte that it is over.
    window: u32,
}

impl Shape {
    pub fn bits(self) -> u64 {
        self.count as u64
            | (self.masks as u64) << 8
            | (self.width as u64) << 16
            | u64::from(self.window) << 32
    }

    /// None of a word that is no shape.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let count = bits as u8 as usize;
        let masks = *Masks::ALL.get((bits >> 8) as u8 as usize)?;
        let width = *Width::ALL.get((bits >> 16) as u8 as usize)?;
        let window = (bits >> 32) as u32;
        let shape = Self { count, masks, width, window };
        ((2..=FANOUT).contains(&count) && shape.bits() == bits).then_some(shape)
    }

    /// Bytes of masks and partial keys; entries follow.
    #[inline(always)]
    fn body_bytes(self) -> usize {
        self.masks.bytes() + (self.count * self.width.bytes()).next_multiple_of(8)
    }

    /// Bytes of the node's block: whole lines, so that it begins on one.
    #[inline(always)]
    pub fn block_bytes(self) -> usize {
        (size_of::<NodeHead>() + self.body_bytes() + 8 * self.count).next_multiple_of(LINE_BYTES)
    }
}

/// A node that lies inside the pool. All but its lock and its entries stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct Node<'t> {
    pub link: Link<NodeHead>,
    pub shape: Shape,
    body: &'t [u8],
}

impl<'t> Node<'t> {
    /// The node of an entry; none if there cannot be one.
    #[inline(always)]
    pub fn try_at<D: Domain>(pool: &'t Pool<D>, entry: Entry) -> Option<Self> {
        let link = entry.as_node();
        let shape = Shape::from_bits(pool.try_at(link)?.shape.load(pool.domain()))?;
        let body = pool.try_tail(link, shape.body_bytes())?;
        Some(Self { link, shape, body })
    }

    /// The node of an entry.
    ///
    /// # Panics
    /// If there cannot be one: the pool is damaged.
    #[inline(always)]
    pub fn at<D: Domain>(pool: &'t Pool<D>, entry: Entry) -> Self {
        match Self::try_at(pool, entry) {
            Some(node) => node,
            None => damaged_word(entry.0),
        }
    }

    /// Where the word of an entry is.
    #[inline(always)]
    pub fn place(&self, index: usize) -> Place {
        let before = size_of::<NodeHead>() + self.body.len() + 8 * index;
        Link::from_bits(self.link.offset() + before as u64)
    }

    /// An entry.
    #[inline(always)]
    pub fn entry<D: Domain>(&self, pool: &Pool<D>, index: usize) -> Entry {
        Entry(pool.at(self.place(index)).load_acquire(pool.domain()))
    }

    fn masks(&self) -> (&'t [u8], &'t [u8]) {
        self.body.split_at(self.shape.masks.bytes())
    }

    /// The mask of a single one.
    #[inline(always)]
    fn single_mask(masks: &[u8]) -> u64 {
        masks.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
    }

    /// The bytes that have masks, and these.
    #[inline(always)]
    fn byte_masks(masks: &[u8]) -> impl DoubleEndedIterator<Item = (u32, u8)> {
        let (slots, _) = masks.as_chunks();
        slots.iter().map(|&slot| {
            let slot = u32::from_le_bytes(slot);
            (slot >> 8, slot as u8)
        })
    }

    /// The entry to which the bits of `key` lead.
    #[inline(always)]
    pub fn index_of<K: IndexKey + ?Sized>(
        &self,
        key: &Bits<'_, K>,
        instructions: Instructions,
    ) -> usize {
        let Shape { count, width, .. } = self.shape;
        let (masks, partials) = self.masks();
        if self.shape.masks == Masks::Single {
            let word = window_at(key, self.shape.window as usize);
            return instructions.last_match(
                &[(word, Self::single_mask(masks))],
                partials,
                width,
                count,
            );
        }
        let mut words: [MaskedWord; FANOUT / 8] = Default::default();
        for (number, (byte, mask)) in Self::byte_masks(masks).enumerate() {
            let (word, masks) = &mut words[number / 8];
            *word = *word << 8 | u64::from(byte_at(key, byte as usize));
            *masks = *masks << 8 | u64::from(mask);
        }
        instructions.last_match(&words[..self.shape.masks.slots() / 8], partials, width, count)
    }

    /// The positions that it looks at, ascending, as far as there is room for them.
    fn positions(&self, space: &mut [u32; FANOUT]) -> usize {
        let mut count = 0;
        let mut add = |position| {
            if let Some(room) = space.get_mut(count) {
                *room = position;
                count += 1;
            }
        };
        let (masks, _) = self.masks();
        if self.shape.masks == Masks::Single {
            let mut mask = Self::single_mask(masks);
            while mask != 0 {
                let bit = mask.leading_zeros();
                add(self.shape.window.wrapping_mul(8).wrapping_add(bit));
                mask &= !(1 << 63 >> bit);
            }
        } else {
            for (byte, mut mask) in Self::byte_masks(masks) {
                while mask != 0 {
                    let bit = mask.leading_zeros();
                    add(8 * byte + bit);
                    mask &= !(1 << 7 >> bit);
                }
            }
        }
        count
    }

    /// The position of the root of its trie: no other is before it.
    #[inline]
    pub fn root_position(&self) -> u32 {
        let (masks, _) = self.masks();
        if self.shape.masks == Masks::Single {
            let bit = Self::single_mask(masks).leading_zeros();
            return self.shape.window.wrapping_mul(8).wrapping_add(bit);
        }
        Self::byte_masks(masks).next().map_or(0, |(byte, mask)| 8 * byte + mask.leading_zeros())
    }

    fn partial(partials: &[u8], width: Width, index: usize) -> u32 {
        let bytes = &partials[index * width.bytes()..][..width.bytes()];
        bytes.iter().rev().fold(0, |partial, &byte| partial << 8 | u32::from(byte))
    }

    /// The gaps between its entries, into `gaps`; none if its partial keys are not those of a trie.
    pub fn gaps<'g>(&self, gaps: &'g mut [u32; FANOUT]) -> Option<&'g [u32]> {
        let mut positions = [0; FANOUT];
        let count = self.positions(&mut positions);
        let (_, partials) = self.masks();
        let partial = |index| Self::partial(partials, self.shape.width, index);
        let mut before = partial(0);
        for (index, gap) in gaps.iter_mut().enumerate().take(self.shape.count - 1) {
            let next = partial(index + 1);
            let rank = (before ^ next).checked_ilog2()? as usize;
            *gap = *positions[..count].get(count.checked_sub(rank + 1)?)?;
            before = next;
        }
        Some(&gaps[..self.shape.count - 1])
    }

    /// Everything in it. The caller holds its lock, or has pinned the pool.
    ///
    /// # Panics
    /// If it cannot be a node: the pool is damaged.
    pub fn contents<D: Domain>(&self, pool: &Pool<D>) -> Contents {
        let mut entries = [Entry::NONE; FANOUT];
        let entries = &mut entries[..self.shape.count];
        for (index, entry) in entries.iter_mut().enumerate() {
            *entry = self.entry(pool, index);
        }
        let mut gaps = [0; FANOUT];
        match self.gaps(&mut gaps) {
            Some(gaps) => Contents::of(entries, gaps),
            None => damaged_word(self.shape.bits()),
        }
    }

    /// Whether its masks and partial keys are just what is made of these gaps.
    pub fn is_made_of(&self, gaps: &[u32]) -> bool {
        let mut tail = [0; TAIL_BYTES];
        let shape = linearise(gaps, &mut tail);
        shape == self.shape && self.body == &tail[..self.body.len()]
    }
}

/// Writes masks and partial keys of a node with these gaps, the rest of `tail` stays.
fn linearise(gaps: &[u32], tail: &mut [u8; TAIL_BYTES]) -> Shape {
    let mut sorted = [0; FANOUT];
    let positions = &mut sorted[..gaps.len()];
    positions.copy_from_slice(gaps);
    positions.sort_unstable();
    let mut distinct = 0;
    for index in 0..positions.len() {
        if index == 0 || positions[index] != positions[distinct - 1] {
            positions[distinct] = positions[index];
            distinct += 1;
        }
    }
    let positions = &positions[..distinct];
    let (first, last) = (positions[0] / 8, positions[distinct - 1] / 8);
    let masks = if last - first < 8 {
        let mask = positions.iter().fold(0u64, |mask, at| mask | 1 << 63 >> (at - 8 * first));
        tail[..8].copy_from_slice(&mask.to_le_bytes());
        Masks::Single
    } else {
        let mut used = 0;
        let mut slots = [0u32; FANOUT];
        for &at in positions {
            if used == 0 || slots[used - 1] >> 8 != at / 8 {
                slots[used] = (at / 8) << 8;
                used += 1;
            }
            slots[used - 1] |= 1 << 7 >> (at % 8);
        }
        let fitting = Masks::ALL.into_iter().find(|masks| masks.slots() >= used);
        let masks = fitting.unwrap_or(Masks::Bytes32);
        for (room, slot) in tail.as_chunks_mut().0.iter_mut().zip(&slots[..masks.slots()]) {
            *room = slot.to_le_bytes();
        }
        masks
    };
    let width = match distinct {
        ..=8 => Width::One,
        9..=16 => Width::Two,
        _ => Width::Four,
    };
    let window = if masks == Masks::Single { first } else { 0 };
    let partials = &mut tail[masks.bytes()..][..(gaps.len() + 1) * width.bytes()];
    let mut partial = 0u32;
    // The first is zero. The next one goes to the other side where the trie branches between the two, and
    // from there on to the left.
    for (gap, room) in gaps.iter().zip(partials.chunks_exact_mut(width.bytes()).skip(1)) {
        let branch = 1u32 << (distinct - 1 - positions.partition_point(|at| at < gap));
        partial = partial & !(branch | (branch - 1)) | branch;
        room.copy_from_slice(&partial.to_le_bytes()[..room.len()]);
    }
    Shape { count: gaps.len() + 1, masks, width, window }
}

/// What follows the head of a node with these contents: into `tail`, of which so many bytes count.
pub fn make_linear(contents: &Contents, tail: &mut [u8; TAIL_BYTES]) -> (Shape, usize) {
    let shape = linearise(contents.gaps(), tail);
    let body_bytes = shape.body_bytes();
    let (entries, _) = tail[body_bytes..].as_chunks_mut();
    for (room, entry) in entries.iter_mut().zip(contents.entries()) {
        *room = entry.0.to_le_bytes();
    }
    (shape, body_bytes + 8 * shape.count)
}

const _: () = {
    assert!(size_of::<NodeHead>() == 16 && TAIL_BYTES == 512);
    // Bits of the masks: as many as a node has branches.
    assert!(FANOUT == 32);
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lapis_pmem::Hardware;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::super::bits::{bit_at, first_difference};
    use super::*;

    type Layout = (Masks, Width);

    /// Fills a node with such keys, in their order, and looks for each of them in it by both searches.
    /// Its layout.
    fn layout_of<K: IndexKey + ?Sized>(pool: &Pool<Hardware>, keys: &[Bits<'_, K>]) -> Layout {
        let entries: Vec<Entry> =
            (1..=keys.len() as u64).map(|number| Entry(number << 4)).collect();
        let gaps: Vec<u32> =
            keys.windows(2).map(|two| first_difference(&two[0], &two[1]).unwrap()).collect();
        assert!(keys.windows(2).zip(&gaps).all(|(two, &gap)| bit_at(&two[1], gap)));
        let contents = Contents::of(&entries, &gaps);
        let mut tail = [0; TAIL_BYTES];
        let (shape, tail_bytes) = make_linear(&contents, &mut tail);
        let room = shape.block_bytes() - size_of::<NodeHead>();
        assert!(tail_bytes <= room);
        let mut block = pool.allocate_with_tail::<NodeHead>(room).unwrap();
        block.shape.store(pool.domain(), shape.bits());
        block.write_tail(0, &tail[..tail_bytes]);
        let node = Node::at(pool, Entry::node(block.link(), 1));
        let read = node.contents(pool);
        assert_eq!((read.entries(), read.gaps()), (&entries[..], &gaps[..]));
        assert!(node.is_made_of(&gaps));
        assert_eq!(Some(node.root_position()), gaps.iter().min().copied());
        for (index, key) in keys.iter().enumerate() {
            for instructions in [Instructions::Portable, Instructions::detect()] {
                assert_eq!(node.index_of(key, instructions), index, "of {gaps:?}");
            }
        }
        drop(block);
        (shape.masks, shape.width)
    }

    #[test]
    fn keys_are_found_in_nodes_of_every_layout() {
        let pool = Pool::create_anonymous(4 << 20).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let mut layouts = BTreeMap::<String, u32>::new();
        for round in 0..1500 {
            let count = random.random_range(2..=FANOUT);
            // How far apart the bits are in which keys differ, and how many there are.
            let (bytes, bits) =
                [(8, 64), (20, 7), (40, 40), (700, 31), (60, 12), (12, 30)][round % 6];
            let mut places: Vec<usize> =
                (0..bits).map(|_| random.random_range(0..8 * bytes)).collect();
            places.sort_unstable();
            // Every other time each key branches off further behind than the one before.
            let is_chain = round % 12 < 6;
            let mut keys: Vec<Vec<u8>> = (0..count)
                .map(|number| {
                    let mut key = vec![0u8; bytes - random.random_range(0..4usize)];
                    for (rank, &place) in places.iter().enumerate() {
                        let is_set =
                            if is_chain { rank < number } else { random.random_range(0..3) == 0 };
                        if let Some(byte) = key.get_mut(place / 8).filter(|_| is_set) {
                            *byte |= 0x80 >> (place % 8);
                        }
                    }
                    key
                })
                .collect();
            keys.sort();
            keys.dedup();
            if keys.len() > 1 {
                let keys: Vec<_> = keys.iter().map(|key| Bits::<[u8]>::of_bytes(key)).collect();
                *layouts.entry(format!("{:?}", layout_of(&pool, &keys))).or_default() += 1;
            }
            let mut keys: Vec<u64> = (0..count).map(|_| random.random()).collect();
            keys.sort_unstable();
            let keys: Vec<_> = keys.into_iter().map(Bits::<u64>::of_integer).collect();
            assert_eq!(layout_of(&pool, &keys).0, Masks::Single);
        }
        // Sixteen bytes have more than eight bits, and thirty-two more than sixteen.
        assert_eq!(layouts.len(), 9, "{layouts:?}");
    }

    #[test]
    fn a_word_that_is_no_shape_is_none() {
        let shape = Shape { count: 32, masks: Masks::Bytes8, width: Width::Two, window: 0 };
        assert_eq!(Shape::from_bits(shape.bits()), Some(shape));
        for wrong in [0, 1, 33, 255, 2 | 4 << 8, 2 | 3 << 16, 2 | 1 << 24, u64::MAX] {
            assert_eq!(Shape::from_bits(wrong), None, "{wrong:#x}");
        }
    }
}
