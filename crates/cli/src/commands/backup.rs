//! `lapis backup` and `lapis restore`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lapis::{BackupError, BackupReport, Error, Store, verify_backup};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, human_bytes};
use crate::store_arguments::{StoreArguments, StoreOptions};
use crate::whole_file;

/// Write one state of all tables to a file, while others go on
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis backup --dir /tmp/store store.backup
  lapis backup --dir /tmp/store - | ssh elsewhere 'cat > store.backup'

The file appears when it is whole, and is durable then. A pipe or a device is written to directly.
`lapis restore` reads it.")]
pub struct BackupArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The file to write, or - for standard output
    file: PathBuf,
}

/// Make a store out of a backup
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis restore --dir /tmp/other store.backup
  lapis restore --verify store.backup

There is no store before the whole backup has been read and is durable. A store that is there is not
overwritten. Tables in persistent indexes become tables on pages where no --pmem is given; their
keys have 1,970 bytes at most then.")]
pub struct RestoreArguments {
    /// The directory of the store that is made
    #[arg(long, value_name = "DIR", required_unless_present = "verify")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    options: StoreOptions,
    /// Read the backup and say what it holds; make nothing
    #[arg(long, conflicts_with = "dir")]
    verify: bool,
    /// The backup, or - for standard input
    file: PathBuf,
}

#[derive(Serialize)]
struct Report {
    file: String,
    tables: u64,
    entries: u64,
    bytes: u64,
}

fn say(
    did: &str,
    file: &Path,
    found: BackupReport,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let BackupReport { tables, entries, bytes, .. } = found;
    output.line(format_args!(
        "{did} {}: {} entries of {} tables, {}",
        file.display(),
        grouped(entries),
        grouped(tables),
        human_bytes(bytes)
    ))?;
    output.json(&Report { file: file.display().to_string(), tables, entries, bytes })?;
    Ok(Verdict::Good)
}

/// The sentence for an error of a backup, which names what it lies in if that failed.
fn failed(doing: &str, path: &Path, error: Error) -> Failure {
    match error {
        Error::Backup(BackupError::Stream(error)) => Failure::file(doing, path, &error),
        error => error.into(),
    }
}

impl BackupArguments {
    /// Runs `lapis backup`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        let store = self.store.open_to_read()?;
        let path = &self.file;
        if path == Path::new("-") {
            let mut sink = BufWriter::new(io::stdout().lock());
            let (doing, name) = ("write the backup to", Path::new("standard output"));
            store.backup(&mut sink).map_err(|error| failed(doing, name, error))?;
            // Who stops reading has no backup: that is an error here.
            sink.flush().map_err(|error| Failure::file(doing, name, &error))?;
            return Ok(Verdict::Good);
        }
        let found = whole_file::write(path, |sink| {
            store.backup(sink).map_err(|error| failed("write", path, error))
        })?;
        say("wrote", path, found, output)
    }
}

impl RestoreArguments {
    /// Runs `lapis restore`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        let (name, input): (&Path, Box<dyn Read>) = if self.file == Path::new("-") {
            (Path::new("standard input"), Box::new(io::stdin().lock()))
        } else {
            let failed = |error: io::Error| Failure::file("read", &self.file, &error);
            let file = File::open(&self.file).map_err(failed)?;
            (&self.file, Box::new(BufReader::with_capacity(1 << 20, file)))
        };
        let pmem = &self.options.pmem;
        let failed = |error| match error {
            // Of an index, or of a store with larger pages.
            Error::KeyTooLong { bytes, most } if pmem.is_none() => Failure::refused(format!(
                "a key in {} has {bytes} bytes, and a table on pages takes {most}: if its table was in a persistent \
                 index, restore it into one again with --pmem",
                name.display()
            )),
            error => failed("read", name, error),
        };
        match &self.dir {
            Some(dir) => {
                let store = StoreArguments { dir: dir.clone(), options: self.options.clone() };
                let (restored, found) = Store::restore(store.config(), input).map_err(failed)?;
                restored.close()?;
                say("restored", &self.file, found, output)
            }
            None => {
                let found = verify_backup(input).map_err(|error| failed(error.into()))?;
                say("read", &self.file, found, output)
            }
        }
    }
}
