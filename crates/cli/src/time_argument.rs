//! Times on the command line.

use std::time::Duration;

/// A hundred years: more than anybody waits for, and less than any clock takes.
const LONGEST_MS: u64 = 36_525 * 86_400_000;

/// Reads a time: a number and its unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let product = number.parse().ok().and_then(|number: u64| number.checked_mul(milliseconds));
    match product {
        Some(product @ 1..=LONGEST_MS) => Ok(Duration::from_millis(product)),
        _ => Err("give a number and ms, s, m, h or d, as in 500ms, 60s or 5m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse("30d"), Ok(Duration::from_secs(2_592_000)));
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in ["", "s", "60", "0s", "-5s", "1.5m", "5 m", "1w", "99999999999999999999s"] {
            assert!(parse(text).unwrap_err().starts_with("give a number"), "{text}");
        }
    }
}
