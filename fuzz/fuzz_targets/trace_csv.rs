//! The parser of block traces: it ends, and names lines that exist.

#![cfg_attr(fuzzing, no_main)]

use lapis_lab::block_trace::TraceReader;

lapis_fuzz::fuzz_target!(|input: &[u8]| {
    let lines = input.split(|&byte| byte == b'\n').count() as u64;
    for request in TraceReader::new(input).take(input.len() + 2) {
        if let Err(error) = request {
            assert!((1..=lines).contains(&error.line), "{error}");
        }
    }
});
