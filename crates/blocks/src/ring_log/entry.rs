//! The header of an entry, the same for all ring logs.

use crate::log::{LARGEST_ENTRY_BYTES, Position};

/// Bytes of the header of an entry.
pub const ENTRY_HEADER_BYTES: usize = 16;

const LENGTH_MASK: u64 = (1 << 30) - 1;
const JOINED: u64 = 1 << 30;
const MORE: u64 = 1 << 31;
const _: () = assert!((LARGEST_ENTRY_BYTES as u64) < LENGTH_MASK);

/// The header of an entry.
///
/// ```text
///         63                  32  31    30    29                             0
/// word 0 +----------------------+------+------+-------------------------------+
///        | position, low half   | more |joined| length of the payload, bytes  |
/// word 1 +----------------------+------+------+-------------------------------+
///        | CRC-32C of the payload | CRC-32C of position and word 0, never zero |
///        +------------------------+--------------------------------------------+
/// ```
///
/// In the pop log the number of bits set in the payload takes the place of the position, which the
/// checksum covers anyway. Neither word is ever zero, so over zeroes a torn header shows: one of them is zero. `joined`:
/// when this entry was written, the one before it was not yet known to be durable. `more`: it is
/// there if the next one is, and if there are footers, that of the next is also its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) joined: bool,
    pub(crate) more: bool,
    pub(crate) payload_crc: u32,
}

/// What two words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Whole(Head),
    /// Both zero.
    Nothing,
    /// One is zero.
    Torn,
    Damaged(&'static str),
}

impl Head {
    pub(crate) fn words(self, position: Position) -> [u64; 2] {
        self.words_with(position, position.number() as u32)
    }

    /// The two words, with something else in the place of the position.
    pub(crate) fn words_with(self, position: Position, upper: u32) -> [u64; 2] {
        let flags = if self.joined { JOINED } else { 0 } | if self.more { MORE } else { 0 };
        let first = u64::from(upper) << 32 | flags | self.length as u64;
        [first, u64::from(self.payload_crc) << 32 | u64::from(check(position, first))]
    }

    /// What two words are where the header of the entry at `position` would be.
    pub(crate) fn parse(words: [u64; 2], position: Position) -> Parsed {
        let is_other = (words[0] >> 32) as u32 != position.number() as u32;
        match Self::parse_any(words, position) {
            Parsed::Damaged(_) if is_other => Parsed::Damaged("an entry of another position"),
            Parsed::Whole(_) if is_other => Parsed::Damaged("an entry of another position"),
            parsed => parsed,
        }
    }

    /// The same, with anything in the place of the position.
    pub(crate) fn parse_any([first, second]: [u64; 2], position: Position) -> Parsed {
        if first == 0 || second == 0 {
            let nothing = first == 0 && second == 0;
            return if nothing { Parsed::Nothing } else { Parsed::Torn };
        }
        if second as u32 != check(position, first) {
            return Parsed::Damaged("a header with a wrong checksum");
        }
        let length = (first & LENGTH_MASK) as usize;
        if length == 0 || length > LARGEST_ENTRY_BYTES {
            return Parsed::Damaged("an entry with an impossible length");
        }
        Parsed::Whole(Self {
            length,
            joined: first & JOINED != 0,
            more: first & MORE != 0,
            payload_crc: (second >> 32) as u32,
        })
    }
}

fn check(position: Position, first: u64) -> u32 {
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&position.number().to_le_bytes());
    seed[8..].copy_from_slice(&first.to_le_bytes());
    crc32c::crc32c(&seed) | 1
}

/// The CRC of a payload in parts.
#[inline]
pub(crate) fn payload_crc(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { length: 77, joined: true, more: false, payload_crc: 0xABCD_1234 };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for more in [false, true] {
            let head = Head { more, joined: !more, ..HEAD };
            let position = Position::from_number(1 << 40 | 5);
            assert_eq!(Head::parse(head.words(position), position), Parsed::Whole(head));
        }
    }

    #[test]
    fn a_flipped_bit_in_a_header_is_not_taken_for_another_header() {
        let position = Position::from_number(9);
        let words = HEAD.words(position);
        for bit in 0..96 {
            let mut flipped = words;
            flipped[bit / 64] ^= 1 << (bit % 64);
            // Bit 64 of the check is always set, and so are words of it.
            assert!(matches!(Head::parse(flipped, position), Parsed::Damaged(_)), "bit {bit}");
        }
    }

    #[test]
    fn a_header_with_one_word_missing_is_torn() {
        let words = HEAD.words(Position::FIRST);
        assert_eq!(Head::parse([0, words[1]], Position::FIRST), Parsed::Torn);
        assert_eq!(Head::parse([words[0], 0], Position::FIRST), Parsed::Torn);
        assert_eq!(Head::parse([0, 0], Position::FIRST), Parsed::Nothing);
    }
}
