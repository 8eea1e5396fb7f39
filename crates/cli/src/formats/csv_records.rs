//! Comma-separated records as in RFC 4180.

use std::cell::RefCell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, WriterBuilder};
use lapis::MAX_VALUE_BYTES;

use super::{KeyColumns, Layout, Position, ReadError, Record};

/// More than this much text for one record is refused instead of filling the memory.
const MAX_RECORD_BYTES: usize = 2 * MAX_VALUE_BYTES + (1 << 20);

/// Reads comma-separated records.
pub struct CsvRecords {
    reader: Reader<Watched>,
    unread: Rc<RefCell<Unread>>,
    start_offset: u64,
    /// Line feeds up to the end of the last record.
    lines: u64,
    key: KeyColumns,
    record: ByteRecord,
}

/// The bytes that the reader underneath has taken from the file since the end of the last record.
/// It is lenient about quotes: that a record's quotes are balanced is seen here.
#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
    start_offset: u64,
}

impl Unread {
    /// Removes the bytes of the record that ends at `end_offset`, with what separates it from the
    /// one before.
    fn take_until(&mut self, end_offset: u64) -> Taken {
        let length = usize::try_from(end_offset - self.start_offset).unwrap_or(usize::MAX);
        let length = length.min(self.bytes.len());
        self.start_offset = end_offset;
        let mut taken = Taken::default();
        let (mut before_record, mut quotes) = (true, 0usize);
        for byte in self.bytes.drain(..length) {
            before_record &= matches!(byte, b'\r' | b'\n');
            taken.lines += u64::from(byte == b'\n');
            taken.lines_before += u64::from(byte == b'\n' && before_record);
            quotes += usize::from(byte == b'"');
        }
        taken.is_balanced = quotes.is_multiple_of(2);
        taken
    }
}

/// What was seen of a record's bytes.
#[derive(Default)]
struct Taken {
    /// Line feeds, and those of them that are not part of the record.
    lines: u64,
    lines_before: u64,
    /// Whether every quotation mark that opens is closed.
    is_balanced: bool,
}

impl CsvRecords {
    pub fn new(
        input: Box<dyn BufRead>,
        start: Position,
        layout: &Layout,
    ) -> Result<Self, ReadError> {
        let unread = Rc::new(RefCell::new(Unread::default()));
        let watched = Watched { input, unread: unread.clone() };
        let mut records = Self {
            reader: ReaderBuilder::new()
                .has_headers(false)
                .delimiter(layout.delimiter)
                .from_reader(watched),
            unread,
            start_offset: start.byte_offset,
            lines: start.lines,
            key: KeyColumns::default(),
            record: ByteRecord::new(),
        };
        if let Some(found) = &layout.found {
            records.key = found.clone();
            return Ok(records);
        }
        let line = if layout.header { records.read()? } else { None };
        let header = layout.header.then(|| records.record.iter());
        records.key = KeyColumns::find(&layout.key, header)
            .map_err(|what| ReadError::bad(line.unwrap_or(1), what))?;
        Ok(records)
    }

    pub fn position(&self) -> Position {
        Position {
            byte_offset: self.start_offset + self.reader.position().byte(),
            lines: self.lines,
        }
    }

    pub fn key(&self) -> &KeyColumns {
        &self.key
    }

    pub fn next(&mut self) -> Result<Option<(Record, u64)>, ReadError> {
        let Some(line) = self.read()? else { return Ok(None) };
        let fields: Vec<&[u8]> = self.record.iter().collect();
        let (key, others) = self.key.split(&fields).map_err(|what| ReadError::bad(line, what))?;
        let value = match &others[..] {
            [] => Vec::new(),
            [other] => other.to_vec(),
            _ => encode(others.into_iter())
                .map_err(|error| ReadError::bad(line, error.to_string()))?,
        };
        Ok(Some((Record { key, value }, line)))
    }

    /// Reads the next record into `self.record`; its line, or none at the end.
    fn read(&mut self) -> Result<Option<u64>, ReadError> {
        let read = self.reader.read_byte_record(&mut self.record);
        let taken = self.unread.borrow_mut().take_until(self.reader.position().byte());
        let line = self.lines + taken.lines_before + 1;
        self.lines += taken.lines;
        match read {
            Ok(false) => Ok(None),
            Ok(true) if taken.is_balanced => Ok(Some(line)),
            Ok(true) => Err(ReadError::bad(
                line,
                "a quotation mark is missing; put the field in quotes and double those in it",
            )),
            Err(error) => Err(read_error(error, line)),
        }
    }
}

fn read_error(error: csv::Error, line: u64) -> ReadError {
    match error.into_kind() {
        ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => ReadError::bad(
            line,
            "the record is longer than any record can be; is a quotation mark missing?",
        ),
        ErrorKind::Io(error) => error.into(),
        ErrorKind::UnequalLengths { expected_len, len, .. } => ReadError::bad(
            line,
            format!("there are {len} fields where the lines before have {expected_len}"),
        ),
        _ => ReadError::bad(line, "this is not a CSV record"),
    }
}

fn encode<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, csv::Error> {
    let mut writer = WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(fields)?;
    let mut bytes = writer.into_inner().map_err(|error| error.into_error())?;
    bytes.pop();
    Ok(bytes)
}

/// Keeps what the reader takes, and stops a record that never ends.
struct Watched {
    input: Box<dyn BufRead>,
    unread: Rc<RefCell<Unread>>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let mut unread = self.unread.borrow_mut();
        if unread.bytes.len() + read > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        unread.bytes.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::super::KeyPart;
    use super::*;

    fn read(text: &str, layout: &Layout) -> Result<Vec<(String, String, u64)>, ReadError> {
        let input = Box::new(io::Cursor::new(text.as_bytes().to_vec()));
        let mut records = CsvRecords::new(input, Position::default(), layout)?;
        let mut all = Vec::new();
        while let Some((record, line)) = records.next()? {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            all.push((text(record.key), text(record.value), line));
        }
        Ok(all)
    }

    fn entry(key: &str, value: &str, line: u64) -> (String, String, u64) {
        (key.to_owned(), value.to_owned(), line)
    }

    #[test]
    fn a_single_other_field_is_the_value_without_its_quotes() {
        let all = read("a,\"1,\"\"2\"\"\"\r\n\"b\nc\",\r\nd,x\r\n", &Layout::default()).unwrap();
        assert_eq!(all, [entry("a", "1,\"2\"", 1), entry("b\nc", "", 2), entry("d", "x", 4)]);
    }

    #[test]
    fn several_other_fields_stay_a_csv_record() {
        let all = read("a,1,\"2,3\",\n", &Layout::default()).unwrap();
        assert_eq!(all, [entry("a", "1,\"2,3\",", 1)]);
    }

    #[test]
    fn a_column_can_be_chosen_by_its_name() {
        let key = vec![KeyPart::Name("id".into())];
        let layout = Layout { key, header: true, ..Layout::default() };
        let all = read("n,id\n1,x\n", &layout).unwrap();
        assert_eq!(all, [entry("x", "1", 2)]);
        let error = read("n,key\n1,x\n", &layout).unwrap_err();
        assert_eq!(error.to_string(), "line 1: no column is named `id`");
    }

    #[test]
    fn reading_resumes_at_every_position() {
        let text = b"a,1\r\nb,\"2\n2\"\r\nc,3\r\n";
        let open = |start: Position| {
            let rest = text[start.byte_offset as usize..].to_vec();
            CsvRecords::new(Box::new(io::Cursor::new(rest)), start, &Layout::default()).unwrap()
        };
        let mut first = open(Position::default());
        first.next().unwrap();
        let mut second = open(first.position());
        let (record, line) = second.next().unwrap().unwrap();
        assert_eq!(
            (record.key.as_slice(), record.value.as_slice(), line),
            (&b"b"[..], &b"2\n2"[..], 2)
        );
        let mut third = open(second.position());
        let (record, line) = third.next().unwrap().unwrap();
        assert_eq!((record.key.as_slice(), line), (&b"c"[..], 4));
        assert!(third.next().unwrap().is_none());
    }

    #[test]
    fn bad_records_are_named_by_line() {
        let error = read("a,1\nb\n", &Layout::default()).unwrap_err().to_string();
        assert_eq!(error, "line 2: there are 1 fields where the lines before have 2");
        let error = read("a,1\nb,\"2\n", &Layout::default()).unwrap_err().to_string();
        assert!(error.starts_with("line 2: a quotation mark is missing"), "{error}");
        let layout = Layout { key: vec![KeyPart::Number(3)], ..Layout::default() };
        let error = read("a,1\n", &layout).unwrap_err().to_string();
        assert_eq!(error, "line 1: there are 2 fields, and the key is to be field 3");
    }
}
