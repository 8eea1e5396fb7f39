//! Programs of operations and damaged bytes for this index (`lapis_fuzz::ordered`).

#![no_main]

use lapis_index::WbTreeSlot;
use lapis_pmem::Hardware;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    lapis_fuzz::ordered::<WbTreeSlot<Hardware, u64>, WbTreeSlot<Hardware, [u8]>>(input);
});
