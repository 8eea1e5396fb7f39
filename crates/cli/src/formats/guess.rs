//! What the first lines of a file say about how to read it.

/// Lines that are looked at.
const LOOKED_AT: usize = 50;

/// What is known of a file before it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// The first line has names in it, not values.
    pub has_header: bool,
    /// What seems to be wrong with reading it as asked for.
    pub warnings: Vec<String>,
}

/// Guesses from the beginning of a file whose fields are separated by `delimiter`.
pub fn guess(beginning: &[u8], delimiter: u8) -> Guess {
    let whole = beginning.iter().rposition(|&byte| byte == b'\n').map(|end| &beginning[..end]);
    let lines = whole.unwrap_or(beginning).split(|&byte| byte == b'\n');
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).take(LOOKED_AT).collect();
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
    Guess { has_header: has_header(&lines, delimiter), warnings }
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
fn has_header(lines: &[&[u8]], delimiter: u8) -> bool {
    let is_number = |field: &[u8]| {
        let text = std::str::from_utf8(field).unwrap_or("").trim().trim_matches('"');
        text.parse::<f64>().is_ok()
    };
    let fields_of = |line: &[u8]| -> Vec<Vec<u8>> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.split(|&byte| byte == delimiter).map(<[u8]>::to_vec).collect()
    };
    let mut lines = lines.iter().map(|line| fields_of(line));
    let Some(first) = lines.next() else { return false };
    let rest: Vec<_> = lines.collect();
    let distinct: std::collections::BTreeSet<_> = first.iter().collect();
    let could_be_names = first.len() > 1
        && distinct.len() == first.len()
        && first.iter().all(|field| !field.is_empty() && !is_number(field));
    let has_numbers = |column: usize| {
        rest.iter().all(|fields| fields.get(column).is_some_and(|field| is_number(field)))
    };
    could_be_names && !rest.is_empty() && (0..first.len()).any(has_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_above_numbers_are_a_header() {
        assert!(guess(b"version,time_us,op\n1,10,2a\n1,11,28\n", b',').has_header);
        assert!(guess(b"name\tage\r\nada\t36\r\n", b'\t').has_header);
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
    fn what_looks_wrong_is_said() {
        let warnings = |text: &[u8], delimiter| guess(text, delimiter).warnings;
        assert!(warnings(b"a;b\nc;d\n", b',')[0].contains("--delimiter semicolon"));
        assert!(warnings(b"a,1\nc,2\n", b'\t')[0].contains("--delimiter comma"));
        assert!(warnings(b"a\tb\r\n", b'\t')[0].contains("carriage returns"));
        assert!(warnings(b"a,b\r\nc,d;e\r\n", b',').is_empty());
        assert!(warnings(b"a\nb\n", b',').is_empty());
    }
}
