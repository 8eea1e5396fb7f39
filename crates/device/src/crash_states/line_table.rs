//! From a line's number to its place in a dense table: open addressing, no deletion.

/// Numbers lines in the order of their first appearance.
#[derive(Clone, Debug)]
pub(crate) struct LineTable {
    /// Line and its number, or [`EMPTY`].
    slots: Vec<(u32, u32)>,
    count: u32,
}

const EMPTY: (u32, u32) = (u32::MAX, u32::MAX);

/// Slots in a line of the host's caches.
const GROUP: u32 = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 3;

impl LineTable {
    pub(crate) fn new() -> Self {
        Self { slots: vec![EMPTY; 64], count: 0 }
    }

    /// The number of `line`; the second is whether it is new.
    #[inline]
    pub(crate) fn number(&mut self, line: u32) -> (u32, bool) {
        let at = self.find(line);
        if self.slots[at].0 == line {
            return (self.slots[at].1, false);
        }
        let number = self.count;
        self.slots[at] = (line, number);
        self.count += 1;
        if self.count as usize * 2 > self.slots.len() {
            self.grow();
        }
        (number, true)
    }

    /// The number of `line`, if it has one.
    pub(crate) fn known(&self, line: u32) -> Option<u32> {
        let (found, number) = self.slots[self.find(line)];
        (found == line).then_some(number)
    }

    #[inline]
    fn find(&self, line: u32) -> usize {
        let mask = self.slots.len() - 1;
        // Lines that follow one another lie side by side, as most are asked for one after the other. Of the product the upper
        // bits: lines that are chunks apart have the same lower ones.
        let group =
            (line / GROUP).wrapping_mul(0x9E37_79B1) >> (32 + GROUP_BITS - mask.count_ones());
        let mut at = ((group << GROUP_BITS) | (line % GROUP)) as usize;
        while self.slots[at].0 != line && self.slots[at] != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 4];
        for entry in std::mem::replace(&mut self.slots, larger) {
            if entry != EMPTY {
                let at = self.find(entry.0);
                self.slots[at] = entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_once_in_order_through_growth() {
        let mut table = LineTable::new();
        for index in 0..10_000u32 {
            assert_eq!(table.number(index * 977), (index, true));
        }
        for index in 0..10_000u32 {
            assert_eq!(table.number(index * 977), (index, false));
        }
    }
}
