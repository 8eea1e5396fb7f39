//! Which nodes and words of the arenas are free.

use super::separators::FreeWords;

/// What of the arenas is free. The holder of the lock alone changes the tree.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Numbers of nodes that are not in the tree.
    pub(super) free: Vec<u32>,
    /// All numbers from here on have never been used.
    pub(super) fresh: u32,
    /// Numbers below this have memory.
    pub(super) provided: u32,
    /// Free nodes that splits under way have been promised.
    pub(super) promised: usize,
    pub(super) words: FreeWords,
}

impl State {
    pub(super) fn free_nodes(&self) -> usize {
        self.free.len() + (self.provided - self.fresh) as usize
    }
}
