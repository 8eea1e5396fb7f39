//! Tab-separated records: key, tab, value to the end of the line.

use std::io::BufRead;

use super::lines::Lines;
use super::{KeyColumns, Layout, Position, ReadError, Record};

/// Reads tab-separated records.
pub struct TsvRecords {
    lines: Lines,
    key: KeyColumns,
}

impl TsvRecords {
    pub fn new(
        input: Box<dyn BufRead>,
        start: Position,
        layout: &Layout,
    ) -> Result<Self, ReadError> {
        let mut lines = Lines::new(input, start);
        if let Some(found) = &layout.found {
            return Ok(Self { lines, key: found.clone() });
        }
        let (mut header, mut line) = (None, 1);
        if layout.header
            && let Some((first, number)) = lines.next()?
        {
            let first = first.strip_suffix(b"\r").unwrap_or(first);
            (header, line) = (Some(first.to_vec()), number);
        }
        let names = header.as_deref().map(|line| line.split(|&byte| byte == b'\t'));
        let key =
            KeyColumns::find(&layout.key, names).map_err(|what| ReadError::bad(line, what))?;
        Ok(Self { lines, key })
    }

    pub fn position(&self) -> Position {
        self.lines.position()
    }

    pub fn key(&self) -> &KeyColumns {
        &self.key
    }

    pub fn next(&mut self) -> Result<Option<(Record, u64)>, ReadError> {
        let Some((line, number)) = self.lines.next()? else { return Ok(None) };
        match split(line, &self.key) {
            Ok(record) => Ok(Some((record, number))),
            Err(what) => Err(ReadError::bad(number, what)),
        }
    }
}

/// Takes the key's fields as the key and the rest, tabs kept, as the value.
fn split(line: &[u8], key: &KeyColumns) -> Result<Record, String> {
    if !line.contains(&b'\t') {
        return Err("there is no tab between key and value".into());
    }
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
    let (key, others) = key.split(&fields)?;
    Ok(Record { key, value: others.join(&b'\t') })
}

#[cfg(test)]
mod tests {
    use super::super::KeyPart;
    use super::*;

    fn read(text: &[u8], layout: &Layout) -> Result<Vec<(Record, u64)>, ReadError> {
        let input = Box::new(std::io::Cursor::new(text.to_vec()));
        let mut records = TsvRecords::new(input, Position::default(), layout)?;
        let mut all = Vec::new();
        while let Some(record) = records.next()? {
            all.push(record);
        }
        assert_eq!(records.position().byte_offset, text.len() as u64);
        Ok(all)
    }

    fn record(key: &[u8], value: &[u8]) -> Record {
        Record { key: key.to_vec(), value: value.to_vec() }
    }

    #[test]
    fn the_value_keeps_its_tabs_and_carriage_returns() {
        let all = read(b"a\t1\t2\r\n\nb\t\n", &Layout::default()).unwrap();
        assert_eq!(all, [(record(b"a", b"1\t2\r"), 1), (record(b"b", b""), 3)]);
    }

    #[test]
    fn the_last_line_needs_no_line_feed() {
        let all = read(b"a\tb", &Layout::default()).unwrap();
        assert_eq!(all, [(record(b"a", b"b"), 1)]);
    }

    #[test]
    fn another_column_can_be_the_key() {
        let key = vec![KeyPart::Number(2)];
        let layout = Layout { key, header: true, ..Layout::default() };
        let all = read(b"x\ty\nv\tk\tw\nv\tk\n", &layout).unwrap();
        assert_eq!(all, [(record(b"k", b"v\tw"), 2), (record(b"k", b"v"), 3)]);
    }

    #[test]
    fn a_line_without_a_tab_is_named() {
        let error = read(b"a\tb\nc\n", &Layout::default()).unwrap_err();
        assert_eq!(error.to_string(), "line 2: there is no tab between key and value");
    }

    #[test]
    fn a_line_with_too_few_fields_is_named() {
        let layout = Layout { key: vec![KeyPart::Number(3)], ..Layout::default() };
        let error = read(b"a\tb\n", &layout).unwrap_err();
        assert_eq!(error.to_string(), "line 1: there are 2 fields, and the key is to be field 3");
    }
}
