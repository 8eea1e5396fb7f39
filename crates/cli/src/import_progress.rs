//! How far an import has come, kept in the store beside what it imported.
//!
//! The table `.imports` has one entry per file and table. An import writes it in the transaction
//! that stores a batch, so that the entry and the records can never disagree: an import that was
//! killed goes on after the last batch that is durable, and does not import a record twice.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use lapis::{Store, Table, Transaction};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::Failure;
use crate::formats::{KeyColumns, KeyPart, Position};

/// The table that holds the entries.
pub const TABLE: &str = ".imports";

/// Bytes at the start of a file that its identity depends on.
const IDENTITY_BYTES: u64 = 64 * 1024;

/// What makes a file the same file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The canonical path; bytes that are not UTF-8 escaped.
    pub path: String,
    length_bytes: u64,
    modified_ns: u64,
    start_xxh3: u64,
}

impl FileIdentity {
    /// The identity of the file at `path`.
    pub fn of(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file("read", path, &error);
        let canonical = path.canonicalize().map_err(failed)?;
        let file = File::open(&canonical).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            let sentence = format!("{} is a directory; name a file", path.display());
            return Err(Failure::refused(sentence));
        }
        let mut start = Vec::new();
        if metadata.is_file() {
            file.take(IDENTITY_BYTES).read_to_end(&mut start).map_err(failed)?;
        }
        let modified =
            metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            path: match canonical.to_str() {
                Some(text) => text.to_owned(),
                None => canonical.as_os_str().as_encoded_bytes().escape_ascii().to_string(),
            },
            length_bytes: metadata.len(),
            modified_ns: modified.map_or(0, |since| since.as_nanos() as u64),
            start_xxh3: xxh3_64(&start),
        })
    }

    /// The file's size.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }
}

/// How the text was to be read: another reading is another import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub format: String,
    pub key: Vec<KeyPart>,
    pub value_field: Option<String>,
    /// Whether the first line may have names.
    pub header: bool,
    pub delimiter: u8,
}

/// An entry of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub file: FileIdentity,
    pub reading: Reading,
    /// The key's columns as found in the first line.
    pub found_key: Option<KeyColumns>,
    pub byte_offset: u64,
    pub lines: u64,
    pub records: u64,
    pub finished: bool,
}

impl Progress {
    /// The start of an import.
    pub fn start(file: FileIdentity, reading: Reading) -> Self {
        Self {
            file,
            reading,
            found_key: None,
            byte_offset: 0,
            lines: 0,
            records: 0,
            finished: false,
        }
    }

    /// Where the next record starts.
    pub fn position(&self) -> Position {
        Position { byte_offset: self.byte_offset, lines: self.lines }
    }

    /// Whether this is an import of the same file in the same way.
    pub fn continues(&self, file: &FileIdentity, reading: &Reading) -> bool {
        self.file == *file && self.reading == *reading
    }
}

/// The progress of one file's import into one table.
pub struct Journal {
    table: Table,
    key: Vec<u8>,
}

impl Journal {
    /// The journal of importing the file at `path` into `target`.
    pub fn open(store: &Store, target: &str, path: &str) -> Result<Self, Failure> {
        let table = store.table_or_create(TABLE)?;
        Ok(Self { table, key: format!("{target}\n{:016x}", xxh3_64(path.as_bytes())).into_bytes() })
    }

    /// The entry, if there is one that this Lapis understands.
    pub fn load(&self) -> Result<Option<Progress>, Failure> {
        let Some(value) = self.table.get(&self.key)? else { return Ok(None) };
        match serde_json::from_slice(&value) {
            Ok(progress) => Ok(Some(progress)),
            Err(error) => {
                tracing::warn!(%error, "an import's progress is unreadable; it starts anew");
                Ok(None)
            }
        }
    }

    /// Adds the entry to a transaction.
    pub fn save(&self, transaction: &mut Transaction, progress: &Progress) -> Result<(), Failure> {
        let text = serde_json::to_vec(progress)
            .map_err(|error| Failure::refused(format!("cannot write the progress: {error}")))?;
        Ok(transaction.put(&self.table, &self.key, &text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        Reading {
            format: "tsv".into(),
            key: Vec::new(),
            value_field: None,
            header: false,
            delimiter: b',',
        }
    }

    #[test]
    fn a_changed_file_is_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "a\tb\n").unwrap();
        let before = FileIdentity::of(&path).unwrap();
        assert_eq!(FileIdentity::of(&path).unwrap(), before);
        std::fs::write(&path, "a\tc\n").unwrap();
        let after = FileIdentity::of(&path).unwrap();
        assert_ne!(after, before);
        assert!(!Progress::start(before, reading()).continues(&after, &reading()));
    }

    #[test]
    fn another_reading_is_another_import() {
        let file = FileIdentity::of(Path::new("Cargo.toml")).unwrap();
        let progress = Progress::start(file.clone(), reading());
        assert!(progress.continues(&file, &reading()));
        let other = Reading { key: vec![KeyPart::Number(2)], ..reading() };
        assert!(!progress.continues(&file, &other));
    }

    #[test]
    fn missing_files_and_directories_are_refused_with_a_sentence() {
        let sentence =
            |path: &str| FileIdentity::of(Path::new(path)).unwrap_err().sentence().unwrap();
        assert_eq!(sentence("/nonexistent"), "cannot read /nonexistent: no such file or directory");
        assert_eq!(sentence("/"), "/ is a directory; name a file");
    }
}
