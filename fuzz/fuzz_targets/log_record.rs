//! The parser of the records of transactions.

#![cfg_attr(fuzzing, no_main)]

lapis_fuzz::fuzz_target!(|input: &[u8]| {
    let _ = lapis_engine::is_record(input);
});
