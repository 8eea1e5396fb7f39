//! Values as streams of bytes, for those that are not to be in memory whole.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use lapis_pmem::Hardware;

use crate::error::Error;
use crate::kept::Kept;
use crate::store::Inner;

/// Reads a value: [`Table::reader`](crate::Table::reader), [`Snapshot::reader`](crate::Snapshot::reader). It reads one state and keeps it, as
/// a snapshot does; in memory it has one page of it at a time. What cannot be read is an [`io::Error`] with the
/// [`Error`] in it.
#[derive(Debug)]
pub struct ValueReader {
    reader: Kept<lapis_engine::ValueReader<Hardware>>,
    /// Keeps the store open.
    _inner: Arc<Inner>,
}

impl ValueReader {
    pub(crate) fn new(inner: &Arc<Inner>, reader: lapis_engine::ValueReader<Hardware>) -> Self {
        Self { reader: Kept::new(reader), _inner: Arc::clone(inner) }
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        self.reader.bytes()
    }

    /// Whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Read for ValueReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into).map_err(|error| io::Error::other(Error::from(error)))
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.reader.position().checked_add_signed(by),
        };
        let to = to.ok_or(io::ErrorKind::InvalidInput)?;
        self.reader.set_position(to);
        Ok(to)
    }
}

/// Writes a value: [`Table::writer`](crate::Table::writer). In memory it has 64 KiB of it at a time. Nobody sees anything of it before
/// [`ValueWriter::finish`]; dropping it leaves no trace.
#[derive(Debug)]
pub struct ValueWriter {
    writer: Kept<lapis_engine::ValueWriter<Hardware>>,
    inner: Arc<Inner>,
}

impl ValueWriter {
    pub(crate) fn new(inner: &Arc<Inner>, writer: lapis_engine::ValueWriter<Hardware>) -> Self {
        Self { writer: Kept::new(writer), inner: Arc::clone(inner) }
    }

    /// Bytes that were written so far.
    pub fn len(&self) -> u64 {
        self.writer.bytes()
    }

    /// Whether none were.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the key the value, in a transaction of its own, as durable as the store's configuration says.
    ///
    /// # Errors
    /// [`Error`]; the key is then as it was, unless [`crate::Transaction::commit`] says otherwise.
    pub fn finish(self) -> Result<(), Error> {
        let durability = self.inner.durability;
        self.writer.into_inner().finish(durability)?;
        self.inner.has_committed(durability);
        Ok(())
    }
}

impl Write for ValueWriter {
    /// Takes what there is room for in memory, of more than that not all. An error, an [`Error`] in it, means that nothing was
    /// taken: after [`Error::Full`], the same bytes may be written again once there is room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.append_some(bytes).map_err(|error| io::Error::other(Error::from(error)))
    }

    /// Nothing is to be seen before the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Error {
    /// The error of a store in an error of a stream, if it is one.
    ///
    /// # Errors
    /// The error as it was.
    pub fn from_io(error: io::Error) -> Result<Self, io::Error> {
        error.downcast()
    }
}
