//! Block traces in text form.
//!
//! ```text
//! version,time_us,op,size,lbn
//! 1,5633898,2a,512,42932745
//! │ │       │  │   └─ first block, in units of 512 bytes
//! │ │       │  └─ bytes
//! │ │       └─ SCSI operation code, hexadecimal: 28 read, 2a write
//! │ └─ microseconds since some start
//! └─ format version, 1
//! ```
//!
//! The header line may be missing; the time column may also be called `time`. Empty lines are
//! skipped.

use std::io::{self, BufRead};

/// Bytes of a request beyond which a trace is taken for damaged.
pub const MAX_REQUEST_BYTES: u64 = 64 << 20;
/// Bytes of a line beyond which it is not read.
const MAX_LINE_BYTES: u64 = 256;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SCSI operation 28.
    Read,
    /// SCSI operation 2a.
    Write,
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Microseconds since some start.
    pub time_us: u64,
    /// What it does.
    pub operation: Operation,
    /// Bytes read or written.
    pub bytes: u32,
    /// First block, in units of 512 bytes.
    pub block: u64,
}

/// Where a trace is wrong, and how.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the trace: {problem}")]
pub struct TraceError {
    /// Counted from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: TraceProblem,
}

/// What is wrong with a line of a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// It could not be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It never ends.
    #[error("it is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// It is not text.
    #[error("it is not UTF-8 text")]
    NotText,
    /// It has too few or too many fields.
    #[error("it has {found} fields; version,time_us,op,size,lbn are 5")]
    FieldCount {
        /// Fields found.
        found: usize,
    },
    /// The format is another one.
    #[error("its version is `{found}`; only version 1 is known")]
    Version {
        /// The first field.
        found: String,
    },
    /// A field is not a number of its kind.
    #[error("{field} is `{found}`, which is not a decimal number in range")]
    Number {
        /// Which field.
        field: &'static str,
        /// What is there.
        found: String,
    },
    /// The operation is neither read nor write.
    #[error("op is `{found}`; only 28 (read) and 2a (write) are known")]
    Operation {
        /// What is there.
        found: String,
    },
    /// The request is absurdly large.
    #[error("size is {found} bytes, more than the {MAX_REQUEST_BYTES} that a request may have")]
    Size {
        /// What is there.
        found: u64,
    },
}

/// Reads a trace request by request. After an error it goes on with the next line, except after an
/// input error, which ends it.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    line: u64,
    text: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// A reader of `input`.
    pub fn new(input: R) -> Self {
        Self { input, line: 0, text: Vec::new(), ended: false }
    }

    /// Reads one line into `self.text`; false at the end.
    fn read_line(&mut self) -> Result<bool, TraceProblem> {
        self.text.clear();
        let mut limited = io::Read::take(&mut self.input, MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut self.text);
        let read = read.inspect_err(|_| self.ended = true)?;
        if read == 0 {
            self.ended = true;
            return Ok(false);
        }
        let complete = self.text.last() == Some(&b'\n');
        if !complete && read as u64 == MAX_LINE_BYTES {
            self.skip_line()?;
            return Err(TraceProblem::TooLong);
        }
        Ok(true)
    }

    /// Skips to the end of the line without keeping it.
    fn skip_line(&mut self) -> Result<(), TraceProblem> {
        loop {
            let chunk = self.input.fill_buf().inspect_err(|_| self.ended = true)?;
            if chunk.is_empty() {
                return Ok(());
            }
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let used = end.map_or(chunk.len(), |at| at + 1);
            self.input.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }

    fn next_request(&mut self) -> Result<Option<Request>, TraceProblem> {
        loop {
            self.line += 1;
            if !self.read_line()? {
                return Ok(None);
            }
            let text = std::str::from_utf8(&self.text).map_err(|_| TraceProblem::NotText)?.trim();
            let is_header = self.line == 1 && text.starts_with("version,time");
            if !text.is_empty() && !is_header {
                return parse(text).map(Some);
            }
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let result = self.next_request();
        let line = self.line;
        result.map_err(|problem| TraceError { line, problem }).transpose()
    }
}

fn parse(text: &str) -> Result<Request, TraceProblem> {
    let found = text.split(',').count();
    let mut fields = text.split(',').map(str::trim);
    let (Some(version), Some(time), Some(operation), Some(size), Some(block), 5) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next(), found)
    else {
        return Err(TraceProblem::FieldCount { found });
    };
    if version != "1" {
        return Err(TraceProblem::Version { found: version.into() });
    }
    let number = |field, text: &str| {
        // `parse` alone would accept a sign.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { text.parse::<u64>().ok() } else { None };
        value.ok_or_else(|| TraceProblem::Number { field, found: text.into() })
    };
    let time_us = number("time_us", time)?;
    let bytes = number("size", size)?;
    let block = number("lbn", block)?;
    if bytes > MAX_REQUEST_BYTES {
        return Err(TraceProblem::Size { found: bytes });
    }
    let operation = match operation {
        "28" => Operation::Read,
        "2a" | "2A" => Operation::Write,
        other => return Err(TraceProblem::Operation { found: other.into() }),
    };
    Ok(Request { time_us, operation, bytes: bytes as u32, block })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<Request, TraceError>> {
        TraceReader::new(text.as_bytes()).collect()
    }

    fn problem(text: &str) -> (u64, TraceProblem) {
        let error = read(text).into_iter().find_map(Result::err).expect("an error");
        (error.line, error.problem)
    }

    #[test]
    fn a_line_is_a_request() {
        let expected =
            Request { time_us: 5, operation: Operation::Write, bytes: 512, block: 42_932_745 };
        assert_eq!(read("1,5,2a,512,42932745\n")[0].as_ref().unwrap(), &expected);
    }

    #[test]
    fn header_empty_lines_and_carriage_returns_are_skipped() {
        for header in ["version,time_us,op,size,lbn\r\n", "version,time,op,size,lbn\n", ""] {
            let requests = read(&format!("{header}\n1,1,28,0,0\r\n\n1,2,2A,1,1"));
            assert_eq!(requests.len(), 2);
            assert!(requests.iter().all(Result::is_ok), "{requests:?}");
        }
    }

    type IsExpected = fn(&TraceProblem) -> bool;

    #[test]
    fn errors_name_the_line_and_what_is_wrong() {
        let good = "version,time,op,size,lbn\n1,1,28,512,7\n";
        let cases: [(&str, IsExpected); 9] = [
            ("1,1,28,512", |p| matches!(p, TraceProblem::FieldCount { found: 4 })),
            ("1,1,28,512,7,8", |p| matches!(p, TraceProblem::FieldCount { found: 6 })),
            ("2,1,28,512,7", |p| matches!(p, TraceProblem::Version { .. })),
            ("1,x,28,512,7", |p| matches!(p, TraceProblem::Number { field: "time_us", .. })),
            ("1,1,28,+5,7", |p| matches!(p, TraceProblem::Number { field: "size", .. })),
            ("1,1,28,512,", |p| matches!(p, TraceProblem::Number { field: "lbn", .. })),
            ("1,1,35,512,7", |p| matches!(p, TraceProblem::Operation { .. })),
            ("1,1,28,999999999999,7", |p| matches!(p, TraceProblem::Size { .. })),
            ("1,1,28,512,99999999999999999999", |p| {
                matches!(p, TraceProblem::Number { field: "lbn", .. })
            }),
        ];
        for (line, expected) in cases {
            let (number, problem) = problem(&format!("{good}{line}\n"));
            assert_eq!(number, 3, "{line}");
            assert!(expected(&problem), "{line}: {problem}");
        }
    }

    #[test]
    fn after_a_bad_line_reading_goes_on() {
        let long = "9".repeat(10_000);
        let requests = read(&format!("1,1,28,512,7\n{long}\nnonsense\n1,2,28,512,8\n"));
        let lines: Vec<_> = requests.iter().map(|r| r.as_ref().map_err(|e| e.line)).collect();
        assert!(matches!(lines[..], [Ok(_), Err(2), Err(3), Ok(_)]), "{lines:?}");
        assert!(matches!(problem(&long), (1, TraceProblem::TooLong)));
    }

    #[test]
    fn a_second_header_is_an_error() {
        let header = "version,time,op,size,lbn\n";
        assert!(matches!(problem(&header.repeat(2)), (2, TraceProblem::Version { .. })));
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error() {
        let mut reader = TraceReader::new(&b"1,1,28,\xff,7\n"[..]);
        let error = reader.next().and_then(Result::err).expect("an error");
        assert!(matches!(error.problem, TraceProblem::NotText));
    }
}
