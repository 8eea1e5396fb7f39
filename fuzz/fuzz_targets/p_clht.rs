//! Programs of operations and damaged bytes for this index (`lapis_fuzz::unordered`).

#![no_main]

use lapis_index::PClht;
use lapis_pmem::Hardware;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| lapis_fuzz::unordered::<PClht<Hardware, u64>, PClht<Hardware, [u8]>>(
    input
));
