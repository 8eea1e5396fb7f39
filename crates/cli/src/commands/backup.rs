//! `lapis backup` and `lapis restore`.

use std::fs::{File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lapis::{BackupReport, Store, verify_backup};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, closed, grouped, human_bytes};
use crate::store_arguments::{StoreArguments, StoreOptions};

/// Write one state of all tables to a file, while others go on
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis backup --dir /tmp/store store.backup
  lapis backup --dir /tmp/store - | ssh elsewhere 'cat > store.backup'

The file appears when it is whole, and is durable then. `lapis restore` reads it.")]
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
overwritten. Tables in persistent indexes become tables on pages where no --pmem is given.")]
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

impl BackupArguments {
    /// Runs `lapis backup`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        let store = self.store.open_to_read()?;
        let path = &self.file;
        if path == Path::new("-") {
            let mut sink = BufWriter::new(io::stdout().lock());
            store.backup(&mut sink)?;
            sink.flush().map_err(|error| closed(&error))?;
            return Ok(Verdict::Good);
        }
        let failed = |error: io::Error| Failure::file("write", path, &error);
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new();
        let file = file.permissions(Permissions::from_mode(0o666)).tempfile_in(parent);
        let mut sink = BufWriter::new(file.map_err(failed)?);
        let found = store.backup(&mut sink)?;
        let file = sink.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        say("wrote", path, found, output)
    }
}

impl RestoreArguments {
    /// Runs `lapis restore`.
    pub fn run(&self, output: &mut Output) -> Result<Verdict, Failure> {
        let input: Box<dyn Read> = if self.file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            let failed = |error: io::Error| Failure::file("read", &self.file, &error);
            Box::new(BufReader::with_capacity(1 << 20, File::open(&self.file).map_err(failed)?))
        };
        match &self.dir {
            Some(dir) => {
                let store = StoreArguments { dir: dir.clone(), options: self.options.clone() };
                let (restored, found) = Store::restore(store.config(), input)?;
                restored.close()?;
                say("restored", &self.file, found, output)
            }
            None => {
                let found = verify_backup(input).map_err(lapis::Error::from)?;
                say("read", &self.file, found, output)
            }
        }
    }
}
