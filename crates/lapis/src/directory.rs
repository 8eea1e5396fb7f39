//! The files of a store: finding, making and opening them.
//!
//! ```text
//!  pages.lapis    the pages of all tables
//!  log.lapis      the log
//!  *.lapis.new    of a creation under way, or one that was cut short
//! ```
//!
//! F1. Where `pages.lapis` is, there is a store: it gets its name last, and durably, when the engine on
//! both files is whole. What bears another name is nobody's and made anew.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lapis_engine::{Engine, EngineError, Storage};
use lapis_pmem::{BlockOpenError, DirectTransfers, FileDevice, Guarantee, Hardware};

use crate::config::Config;
use crate::error::Error;

/// The file of the pages in a store's directory.
pub const PAGES_FILE: &str = "pages.lapis";
/// The file of the log in a store's directory.
pub const LOG_FILE: &str = "log.lapis";
/// The file of a store of the format that was never released.
const UNRELEASED_FILE: &str = "store.lapis";

/// Blocks of pages that a store begins with: its file grows.
const FIRST_BLOCKS: u64 = 1;

/// The open files of a store.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) pages: Arc<FileDevice>,
    pub(crate) log: Arc<FileDevice>,
    /// None if they have no names.
    pub(crate) directory: Option<PathBuf>,
}

impl Files {
    fn storage(&self) -> Storage<Hardware> {
        Storage::ssd(Arc::clone(&self.pages) as _, Arc::clone(&self.log) as _)
    }

    /// Makes an engine on the files.
    fn engine(&self, config: &Config) -> Result<Engine<Hardware>, Error> {
        let identity = uuid::Uuid::new_v4().as_u64_pair().0;
        let options = config.engine_options(identity);
        Ok(Engine::create(Hardware::detect(), self.storage(), &options)?)
    }

    /// What survives what, once a sync has returned.
    pub(crate) fn guarantee(&self) -> Guarantee {
        self.pages.guarantee().min(self.log.guarantee())
    }
}

/// Opens the store that `config` describes, or makes it if that is allowed.
pub(crate) fn open(config: &Config) -> Result<(Files, Engine<Hardware>), Error> {
    let directory = &config.directory;
    if let Some(found) = find(config)? {
        return Ok(found);
    }
    if directory.join(UNRELEASED_FILE).exists() {
        return Err(Error::UnreleasedFormat { path: directory.join(UNRELEASED_FILE) });
    }
    if !config.create {
        return Err(Error::NoStore { path: directory.clone() });
    }
    let failed = |source| Error::Directory { path: directory.clone(), source };
    std::fs::create_dir_all(directory).map_err(failed)?;
    // One creator at a time; whoever waited finds the store of the other one.
    let turn = File::open(directory).map_err(failed)?;
    turn.lock().map_err(failed)?;
    match find(config)? {
        Some(found) => Ok(found),
        None => create(config, &turn),
    }
}

/// Opens what is in the directory; none if nothing is.
fn find(config: &Config) -> Result<Option<(Files, Engine<Hardware>)>, Error> {
    let directory = &config.directory;
    let open = |name| open_file(&directory.join(name));
    let pages = match open(PAGES_FILE) {
        Err(Error::File { source: BlockOpenError::NotFound, .. }) => return Ok(None),
        opened => opened?,
    };
    let files = Files { pages, log: open(LOG_FILE)?, directory: Some(directory.clone()) };
    // The identity is that of the log that is there.
    let options = config.engine_options(0);
    let engine = match Engine::open(Hardware::detect(), files.storage(), &options) {
        // F1: it was whole once.
        Err(EngineError::NotCreated) => {
            let what = format!("{LOG_FILE} holds no log of it");
            return Err(Error::Damaged { what });
        }
        opened => opened?,
    };
    Ok(Some((files, engine)))
}

fn open_file(path: &Path) -> Result<Arc<FileDevice>, Error> {
    let device = FileDevice::open(path, DirectTransfers::IfPossible);
    device.map(Arc::new).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Makes a store. Durable when it returns (F1).
fn create(config: &Config, turn: &File) -> Result<(Files, Engine<Hardware>), Error> {
    let directory = &config.directory;
    let temporary = |name: &str| directory.join(format!("{name}.new"));
    let make = |name, blocks| {
        let path = temporary(name);
        let _ = std::fs::remove_file(&path);
        let device = FileDevice::create(&path, blocks, DirectTransfers::IfPossible);
        device.map(Arc::new).map_err(|source| Error::File { path, source })
    };
    let whole = || {
        let (pages, log) = (make(PAGES_FILE, FIRST_BLOCKS)?, make(LOG_FILE, config.log_blocks())?);
        let files = Files { pages, log, directory: Some(directory.clone()) };
        let engine = files.engine(config)?;
        for name in [LOG_FILE, PAGES_FILE] {
            std::fs::rename(temporary(name), directory.join(name))
                .and_then(|()| turn.sync_all())
                .map_err(|source| Error::Directory { path: directory.clone(), source })?;
        }
        Ok((files, engine))
    };
    whole().inspect_err(|_| {
        for name in [PAGES_FILE, LOG_FILE] {
            let _ = std::fs::remove_file(temporary(name));
        }
    })
}

/// Makes a store in memory, which ends with the process.
pub(crate) fn in_memory(config: &Config) -> Result<(Files, Engine<Hardware>), Error> {
    let make = |blocks| {
        let device = FileDevice::in_memory(blocks);
        device.map(Arc::new).map_err(|source| Error::File { path: "memory".into(), source })
    };
    let (pages, log) = (make(FIRST_BLOCKS)?, make(config.log_blocks())?);
    let files = Files { pages, log, directory: None };
    let engine = files.engine(config)?;
    Ok((files, engine))
}
