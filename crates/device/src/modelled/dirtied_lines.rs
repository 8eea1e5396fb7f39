//! The set of lines that a program has dirtied, with what they held before.

use lapis_pmem::LINE_BYTES;

/// Lines dirtied since the last [`DirtiedLines::clear`].
#[derive(Debug, Default)]
pub(crate) struct DirtiedLines {
    /// One bit per line; grows with the highest line touched.
    bitmap: Vec<u64>,
    touched: Vec<u32>,
    /// What each of `touched` held before, in the same order.
    before: Vec<[u8; LINE_BYTES]>,
}

impl DirtiedLines {
    /// Notes that the line is about to be written.
    ///
    /// # Safety
    /// `memory` is the start of the line and readable for its 64 bytes, and nobody writes them
    /// during the call.
    #[inline(always)]
    pub(crate) unsafe fn touch(&mut self, line: u32, memory: *const u8) {
        let (word, bit) = ((line / 64) as usize, 1u64 << (line % 64));
        if self.bitmap.get(word).is_some_and(|bits| bits & bit != 0) {
            return;
        }
        // SAFETY: as the caller vouches.
        self.first_touch(line, unsafe { memory.cast::<[u8; LINE_BYTES]>().read() });
    }

    #[inline(never)]
    fn first_touch(&mut self, line: u32, before: [u8; LINE_BYTES]) {
        let word = (line / 64) as usize;
        if word >= self.bitmap.len() {
            self.bitmap.resize((word + 1).next_power_of_two(), 0);
        }
        self.bitmap[word] |= 1 << (line % 64);
        self.touched.push(line);
        self.before.push(before);
    }

    /// The lines touched, in the order of their first touch, with what they held before.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, &[u8; LINE_BYTES])> {
        self.touched.iter().copied().zip(&self.before)
    }

    pub(crate) fn len(&self) -> usize {
        self.touched.len()
    }

    /// Forgets everything. Takes time in proportion to the lines touched.
    pub(crate) fn clear(&mut self) {
        for &line in &self.touched {
            self.bitmap[(line / 64) as usize] = 0;
        }
        self.touched.clear();
        self.before.clear();
    }
}
