//! What the first lines of a file say about how to read it.

use std::collections::BTreeSet;

/// Lines that are looked at.
const LOOKED_AT: usize = 50;

/// What is known of a file before it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// The first line has names in it, not values.
    pub has_header: bool,
    /// It looks so, and may be a record.
    pub may_be_header: bool,
    /// What seems to be wrong with reading it as asked for.
    pub warnings: Vec<String>,
}

/// Whether a guess is the same whatever follows.
pub fn is_enough(beginning: &[u8]) -> bool {
    let line_feeds = beginning.iter().filter(|&&byte| byte == b'\n').count();
    line_feeds >= LOOKED_AT && whole_lines(beginning).nth(LOOKED_AT - 1).is_some()
}

/// Whether the first line is whole and a record, whatever follows.
pub fn begins_with_a_record(beginning: &[u8], delimiter: u8) -> bool {
    let first = beginning.contains(&b'\n').then(|| whole_lines(beginning).next()).flatten();
    first.is_some_and(|line| {
        let fields = fields_of(line, delimiter);
        !could_be_names(&fields) || !could_be_more_than_a_record(&fields)
    })
}

/// Guesses from the beginning of a file whose fields are separated by `delimiter`.
pub fn guess(beginning: &[u8], delimiter: u8) -> Guess {
    let lines: Vec<&[u8]> = whole_lines(beginning).take(LOOKED_AT).collect();
    let mut warnings = Vec::new();
    if delimiter == b'\t' && lines.iter().any(|line| line.ends_with(b"\r")) {
        warnings.push(
            "lines end in carriage returns, which become part of the values; remove them, or read the file with --format csv --delimiter tab".to_owned(),
        );
    }
    if let Some(other) = other_delimiter(&lines, delimiter) {
        let [name, other] = [delimiter, other].map(name_of);
        warnings.push(format!(
            "no line has a {name} in it, and each has {other}s: is that what separates fields? Then give --format csv --delimiter {other}"
        ));
    }
    let looks_like_names = looks_like_names(&lines, delimiter);
    let has_header =
        looks_like_names && could_be_more_than_a_record(&fields_of(lines[0], delimiter));
    Guess { has_header, may_be_header: looks_like_names && !has_header, warnings }
}

/// The lines that are not blank, of the whole ones if there is one.
fn whole_lines(beginning: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = beginning.iter().rposition(|&byte| byte == b'\n').map(|end| &beginning[..end]);
    let lines = whole.unwrap_or(beginning).split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

/// The name that `--delimiter` knows it by.
pub fn name_of(delimiter: u8) -> &'static str {
    match delimiter {
        b'\t' => "tab",
        b';' => "semicolon",
        b'|' => "pipe",
        b' ' => "space",
        _ => "comma",
    }
}

/// A delimiter that each of the lines has equally often, where none has the one that is asked for.
fn other_delimiter(lines: &[&[u8]], asked: u8) -> Option<u8> {
    let count = |line: &[u8], of: u8| line.iter().filter(|&&byte| byte == of).count();
    if lines.len() < 2 || lines.iter().any(|line| count(line, asked) > 0) {
        return None;
    }
    let mut others = [b'\t', b';', b'|', b','].into_iter().filter(|&other| other != asked);
    others.find(|&other| {
        let first = count(lines[0], other);
        first > 0 && lines.iter().all(|line| count(line, other) == first)
    })
}

/// Whether the first line has no number in it, no field twice and none empty, while some column has nothing but
/// numbers from the second line on.
fn looks_like_names(lines: &[&[u8]], delimiter: u8) -> bool {
    let mut lines = lines.iter().map(|line| fields_of(line, delimiter));
    let Some(first) = lines.next() else { return false };
    let rest: Vec<_> = lines.collect();
    let has_numbers = |column: usize| {
        rest.iter().all(|fields| fields.get(column).is_some_and(|field| is_number(field)))
    };
    could_be_names(&first) && !rest.is_empty() && (0..first.len()).any(has_numbers)
}

fn could_be_names(fields: &[&[u8]]) -> bool {
    let distinct: BTreeSet<_> = fields.iter().collect();
    fields.len() > 1
        && distinct.len() == fields.len()
        && fields.iter().all(|field| !field.is_empty() && !is_number(field))
}

/// Two fields are a key and its value, as `export` writes them: what it wrote comes back whole.
fn could_be_more_than_a_record(fields: &[&[u8]]) -> bool {
    fields.len() > 2
}

fn is_number(field: &[u8]) -> bool {
    let text = std::str::from_utf8(field).unwrap_or("").trim().trim_matches('"');
    text.parse::<f64>().is_ok()
}

fn fields_of(line: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.split(|&byte| byte == delimiter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_above_numbers_are_a_header() {
        assert!(guess(b"version,time_us,op\n1,10,2a\n1,11,28\n", b',').has_header);
        assert!(guess(b"name\tage\tx\r\nada\t36\t1\r\n", b'\t').has_header);
        for no_header in [
            &b"ada,36\nbob,40\n"[..],
            b"ada,lovelace\nbob,smith\n",
            b"a,b\n",
            b"",
            b"n,n\n1,2\n",
            b"n,\n1,2\n",
            b"n\n1\n",
        ] {
            assert!(!guess(no_header, b',').has_header, "{}", no_header.escape_ascii());
        }
    }

    #[test]
    fn a_key_and_its_value_may_be_a_header_and_are_none() {
        let guess = guess(b"a\tnone\nb\t1\nc\t2\n", b'\t');
        assert!(!guess.has_header && guess.may_be_header, "{guess:?}");
    }

    #[test]
    fn a_guess_needs_lines_that_are_whole_and_not_blank() {
        assert!(!is_enough(&b"a,1\n\n".repeat(LOOKED_AT - 1)));
        assert!(is_enough(&b"a,1\n\n".repeat(LOOKED_AT)));
        for settled in [&b"a,b\n"[..], b"a,b,1\n", b"\na,b,\nc"] {
            assert!(begins_with_a_record(settled, b','), "{}", settled.escape_ascii());
        }
        for open in [&b"a,b,c\n"[..], b"a,b", b"\na,b", b"\n", b""] {
            assert!(!begins_with_a_record(open, b','), "{}", open.escape_ascii());
        }
    }

    #[test]
    fn what_looks_wrong_is_said() {
        let warnings = |text: &[u8], delimiter| guess(text, delimiter).warnings;
        assert!(warnings(b"a;b\nc;d\n", b',')[0].contains("--delimiter semicolon"));
        assert!(warnings(b"a,1\nc,2\n", b'\t')[0].contains("--delimiter comma"));
        assert!(warnings(b"a\tb\r\n", b'\t')[0].contains("carriage returns"));
        assert!(warnings(b"a,b\r\nc,d;e\r\n", b',').is_empty());
        assert!(warnings(b"a\nb\n", b',').is_empty());
    }
}
