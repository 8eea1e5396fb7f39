//! Whatever bytes a trace file holds, reading it ends and does not panic.

use std::io::BufReader;

use lapis_lab::block_trace::{MAX_REQUEST_BYTES, TraceReader};
use proptest::prelude::*;

/// Lines that are nearly right.
fn line() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        Just("1".to_owned()),
        Just("2a".to_owned()),
        Just("28".to_owned()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<i32>().prop_map(|number| number.to_string()),
        "[0-9a-f .,+-]{0,12}",
        Just("9".repeat(400)),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\0\n"), Just("")];
    (prop::collection::vec(field, 0..8), end)
        .prop_map(|(fields, end)| format!("{}{end}", fields.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_read_to_the_end(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let newlines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        prop_assert!(TraceReader::new(&bytes[..]).count() <= newlines + 1);
    }

    #[test]
    fn near_misses_are_read_to_the_end(
        lines in prop::collection::vec(line(), 0..40),
        buffer_bytes in 1usize..64,
    ) {
        let text = lines.concat();
        let whole: Vec<_> = TraceReader::new(text.as_bytes()).collect();
        // However the input is cut into buffers, the outcome is the same.
        let cut = BufReader::with_capacity(buffer_bytes, text.as_bytes());
        let cut: Vec<_> = TraceReader::new(cut).collect();
        prop_assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
        for request in whole.iter().flatten() {
            prop_assert!(u64::from(request.bytes) <= MAX_REQUEST_BYTES);
        }
        for error in whole.iter().filter_map(|result| result.as_ref().err()) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count() as u64 + 1);
        }
    }

    #[test]
    fn well_formed_lines_are_read_as_they_are(
        time in any::<u64>(),
        write in any::<bool>(),
        size in 0..=MAX_REQUEST_BYTES,
        block in any::<u64>(),
    ) {
        let operation = if write { "2a" } else { "28" };
        let text = format!("1,{time},{operation},{size},{block}\n");
        let request = TraceReader::new(text.as_bytes()).next().unwrap().unwrap();
        prop_assert_eq!((request.time_us, request.block), (time, block));
        prop_assert_eq!(u64::from(request.bytes), size);
    }
}
