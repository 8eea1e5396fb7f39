//! Programs of operations and damaged bytes for any index (`lapis_fuzz::index`).

#![cfg_attr(fuzzing, no_main)]

lapis_fuzz::fuzz_target!(|input: &[u8]| lapis_fuzz::index(input));
