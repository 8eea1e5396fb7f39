//! Lines of a file with their places.

use std::io::{BufRead, Read};

use super::{Position, ReadError};

/// Longer lines are refused instead of filling the memory: the greatest value fits even if each of
/// its bytes is written as `\u00xx`.
const MAX_LINE_BYTES: u64 = 6 * (1 << 30) + (1 << 20);

/// Reads lines and skips blank ones.
pub struct Lines {
    input: Box<dyn BufRead>,
    position: Position,
    line: Vec<u8>,
}

impl Lines {
    pub fn new(input: Box<dyn BufRead>, start: Position) -> Self {
        Self { input, position: start, line: Vec::new() }
    }

    pub fn position(&self) -> Position {
        self.position
    }

    /// The next line without its line feed, and its number; none at the end.
    pub fn next(&mut self) -> Result<Option<(&[u8], u64)>, ReadError> {
        loop {
            self.line.clear();
            let read = (&mut self.input).take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            let number = self.position.lines + 1;
            if read as u64 == MAX_LINE_BYTES && self.line.last() != Some(&b'\n') {
                return Err(ReadError::bad(number, "the line is longer than any record can be"));
            }
            self.position =
                Position { byte_offset: self.position.byte_offset + read as u64, lines: number };
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
            }
            if !self.line.is_empty() && self.line != b"\r" {
                return Ok(Some((&self.line, number)));
            }
        }
    }
}
