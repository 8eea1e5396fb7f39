//! The depth that keys alone give a radix tree.
//!
//! A radix tree with path compression has a node wherever keys begin to differ, whatever the order in
//! which they came. So its depth follows from its keys in ascending order, in one pass that keeps
//! nothing but the nodes above the key at hand: at sizes that no memory here would hold.

use crate::keys::{Distribution, for_each_ascending};

/// A node above the key at hand.
#[derive(Clone, Copy)]
struct Open {
    /// The digit by which the keys below are the first to differ.
    position: u32,
    /// Keys below so far.
    keys: u64,
}

/// Adds up the depths of keys that come in ascending order.
pub(super) struct RadixDepth {
    /// Bits of a digit.
    bits: u32,
    before: Option<u64>,
    /// From the root down; positions ascend.
    open: Vec<Open>,
    /// The number of keys, and that of nodes above them, added up.
    keys: u64,
    nodes: u64,
}

impl RadixDepth {
    /// Of a tree whose nodes branch by so many bits.
    pub(super) fn new(bits: u32) -> Self {
        Self { bits, before: None, open: Vec::new(), keys: 0, nodes: 0 }
    }

    /// The next key, greater than all before.
    pub(super) fn push(&mut self, key: u64) {
        self.keys += 1;
        let Some(before) = self.before.replace(key) else { return };
        let position = (key ^ before).leading_zeros() / self.bits;
        // What branches later is complete: the outermost of it, or the key before alone.
        let mut below = 1;
        while let Some(node) = self.open.pop_if(|node| node.position > position) {
            below = node.keys;
        }
        if self.open.last().is_none_or(|node| node.position < position) {
            // A new node above that; it holds no key that the nodes above do not know of.
            self.nodes += below;
            self.open.push(Open { position, keys: below });
        }
        for node in &mut self.open {
            node.keys += 1;
        }
        self.nodes += self.open.len() as u64;
    }

    /// The mean number of nodes above a key.
    pub(super) fn mean(&self) -> f64 {
        if self.keys == 0 { 0.0 } else { self.nodes as f64 / self.keys as f64 }
    }
}

/// Mean depths of radix trees over the keys that are loaded with this seed: for each number of bits in
/// a digit. None for distributions whose keys come in no order.
pub(super) fn mean_depths<const N: usize>(
    distribution: Distribution,
    keys: usize,
    seed: u64,
    bits: [u32; N],
) -> Option<[f64; N]> {
    let mut depths = bits.map(RadixDepth::new);
    for_each_ascending(distribution, keys, seed, |key| {
        depths.iter_mut().for_each(|depth| depth.push(key));
    })?;
    Some(depths.map(|depth| depth.mean()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(bits: u32, ascending: impl IntoIterator<Item = u64>) -> f64 {
        let mut depth = RadixDepth::new(bits);
        ascending.into_iter().for_each(|key| depth.push(key));
        depth.mean()
    }

    #[test]
    fn a_key_alone_has_nothing_above_it_and_two_have_a_node() {
        assert_eq!(mean(4, []), 0.0);
        assert_eq!(mean(4, [77]), 0.0);
        assert_eq!(mean(4, [1, 1 << 60]), 1.0);
    }

    #[test]
    fn dense_keys_are_as_deep_as_they_have_digits() {
        assert_eq!(mean(4, 1..=15), 1.0);
        assert_eq!(mean(4, 1..=0xFFF), 3.0);
        assert_eq!(mean(8, 1..=0xFFFF), 2.0);
    }

    #[test]
    fn a_node_that_comes_late_is_above_all_that_came_before() {
        // Under the root by the first digit: 0x10, 0x11 and 0x20 share a node that 0x10 and 0x11 have
        // another below.
        assert_eq!(mean(4, [0x10, 0x11, 0x20, 1 << 60]), f64::from(3 + 3 + 2 + 1) / 4.0);
    }
}
