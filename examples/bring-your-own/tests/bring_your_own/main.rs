//! What is shown of the examples.

mod flat_map;
mod ring;
mod side_by_side;

/// Numbers below others, by chance: a small generator is enough.
fn below(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % end
    }
}
