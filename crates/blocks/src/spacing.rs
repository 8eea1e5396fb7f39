//! Where the entry after an entry begins.

use lapis_pmem::LINE_BYTES;

use crate::log::Placement;

const LINE: u64 = LINE_BYTES as u64;

/// What is left free behind an entry: what its [`Placement`] comes to in the format that its log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Nothing: the next begins where it ends.
    None,
    /// What is left of the line.
    Lines,
    /// What is left of the line, if another entry as long would not fit into it. So no entry takes a
    /// line more than it has to, and where all are of one length, a line is persisted again only for
    /// entries that share it whole. Whether a line is left can be told from the entry before, with
    /// no look at what follows: a reader has to know where to look.
    ///
    /// ```text
    ///  entries of 24 bytes    |  a   |  b   |    |  c   |  d   |    |
    ///  of 40                  |  a       |       |  b       |       |
    ///  of 72                  |  a              ¦  |            |  b              ¦  |            |
    /// ```
    SharedLines,
}

impl Spacing {
    /// Bytes that stay free behind what ends at `end` and is `bytes` bytes long.
    #[inline]
    pub(crate) fn free_behind(self, end: u64, bytes: u64) -> u64 {
        let left = end.next_multiple_of(LINE) - end;
        match self {
            Self::None => 0,
            Self::Lines => left,
            Self::SharedLines if left < bytes => left,
            Self::SharedLines => 0,
        }
    }

    /// Where what follows `bytes` bytes from `at` on begins.
    #[inline]
    pub(crate) fn after(self, at: u64, bytes: u64) -> u64 {
        let end = at + bytes;
        end + self.free_behind(end, bytes)
    }

    /// What every entry begins on a multiple of.
    pub(crate) fn unit_bytes(self) -> usize {
        match self {
            Self::Lines => LINE_BYTES,
            Self::None | Self::SharedLines => 8,
        }
    }
}

/// How a [`Placement`] is noted in a root.
pub(crate) fn placement_word(placement: Placement) -> u64 {
    match placement {
        Placement::Dense => 0,
        Placement::Padded => 1,
        Placement::Streamed => 2,
    }
}

/// The [`Placement`] that a root notes.
pub(crate) fn placement_of(word: u64) -> Option<Placement> {
    Placement::ALL.into_iter().find(|placement| placement_word(*placement) == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where entries of `bytes` bytes begin, from 0 on.
    fn begins(spacing: Spacing, bytes: u64) -> Vec<u64> {
        let next = |at: &u64| Some(spacing.after(*at, bytes));
        std::iter::successors(Some(0), next).take(5).collect()
    }

    #[test]
    fn entries_share_a_line_only_whole() {
        assert_eq!(begins(Spacing::SharedLines, 24), [0, 24, 64, 88, 128]);
        assert_eq!(begins(Spacing::SharedLines, 32), [0, 32, 64, 96, 128]);
        assert_eq!(begins(Spacing::SharedLines, 40), [0, 64, 128, 192, 256]);
        assert_eq!(begins(Spacing::SharedLines, 72), [0, 128, 256, 384, 512]);
        assert_eq!(begins(Spacing::None, 72), [0, 72, 144, 216, 288]);
        assert_eq!(begins(Spacing::Lines, 24), [0, 64, 128, 192, 256]);
    }

    #[test]
    fn an_entry_of_any_length_behind_another_of_its_length_takes_no_line_more_than_it_has_to() {
        for bytes in (8..2000).step_by(8) {
            for begin in begins(Spacing::SharedLines, bytes) {
                let lines = (begin + bytes).div_ceil(LINE) - begin / LINE;
                assert_eq!(lines, bytes.div_ceil(LINE), "{bytes} bytes at {begin}");
            }
        }
    }
}
