//! Programs of operations and damaged bytes for this index (`lapis_fuzz::ordered`).

#![no_main]

use lapis_index::Woart;
use lapis_pmem::Hardware;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| lapis_fuzz::ordered::<Woart<Hardware, u64>, Woart<Hardware, [u8]>>(
    input
));
