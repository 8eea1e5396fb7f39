//! Programs of operations and damaged bytes for any index (`lapis_fuzz::index`).

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| lapis_fuzz::index(input));
