//! The checksum in the root of a structure.

/// CRC-32C of the words that never change.
pub(crate) fn root_checksum<const N: usize>(words: [u64; N]) -> u64 {
    words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes())).into()
}
