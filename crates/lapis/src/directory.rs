//! The files of a store: finding, making and opening them.
//!
//! ```text
//!  pages.lapis    the pages of all tables
//!  log.lapis      the log, if it does not lie in persistent memory
//!  memory.lapis   the pool in persistent memory, if there is any, or a link to it
//!  *.lapis.new    of a creation under way, or one that was cut short
//! ```
//!
//! F1. Where `pages.lapis` is, there is a store: it gets its name last, and durably, when the engine on
//! all files is whole. What bears another name is nobody's and made anew.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lapis_engine::{Engine, EngineError, Storage};
use lapis_pmem::{
    BlockDevice, BlockOpenError, DirectTransfers, FileDevice, Guarantee, Hardware, Pool, PoolError,
    RegionError, RegionOptions,
};

use crate::config::{Config, Memory};
use crate::error::Error;

/// The file of the pages in a store's directory.
pub const PAGES_FILE: &str = "pages.lapis";
/// The file of the log in a store's directory.
pub const LOG_FILE: &str = "log.lapis";
/// The file of persistent memory, or a link to it.
pub const MEMORY_FILE: &str = "memory.lapis";
/// The file of a store of the format that was never released.
const UNRELEASED_FILE: &str = "store.lapis";

/// The log is written once and read when the store is opened.
const TRANSFERS_OF_LOG: DirectTransfers = DirectTransfers::IfPossible;
/// Blocks of pages that a store begins with: its file grows.
const FIRST_BLOCKS: u64 = 1;

/// The open files of a store.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) pages: Arc<FileDevice>,
    /// None if the log lies in persistent memory.
    pub(crate) log: Option<Arc<FileDevice>>,
    pub(crate) memory: Option<Arc<Pool<Hardware>>>,
    /// None if they have no names.
    pub(crate) directory: Option<PathBuf>,
}

impl Files {
    fn storage(&self) -> Storage<Hardware> {
        Storage {
            pages: Some(Arc::clone(&self.pages) as Arc<dyn BlockDevice>),
            log: self.log.clone().map(|log| log as Arc<dyn BlockDevice>),
            pool: self.memory.clone(),
        }
    }

    fn domain(&self) -> Hardware {
        let memory = self.memory.as_ref();
        memory.map_or_else(Hardware::detect, |pool| pool.domain().clone())
    }

    /// Makes an engine on the files.
    fn create(&self, config: &Config) -> Result<Engine<Hardware>, Error> {
        let identity = uuid::Uuid::new_v4().as_u64_pair().0;
        let options = config.engine_options(identity, self.memory.is_some())?;
        Ok(Engine::create(self.domain(), self.storage(), &options)?)
    }

    /// Opens the engine on the files.
    fn open(&self, config: &Config) -> Result<Engine<Hardware>, Error> {
        // The identity is that of the log that is there.
        let mut options = config.engine_options(0, self.memory.is_some())?;
        options.read_only = config.read_only;
        let tell = &mut |progress| config.tell_of_recovery(progress);
        match Engine::open_telling(self.domain(), self.storage(), &options, tell) {
            // F1: it was whole once.
            Err(EngineError::NotCreated) => {
                Err(Error::Damaged { what: "there is no log of it any more".to_owned() })
            }
            opened => Ok(opened?),
        }
    }

    /// What survives what, once a commit has been acknowledged: what the worst of the media gives.
    pub(crate) fn guarantee(&self) -> Guarantee {
        let log = self.log.as_ref().map(|log| log.guarantee());
        let memory = self.memory.as_ref().map(|pool| pool.region().guarantee());
        let others = log.into_iter().chain(memory);
        others.fold(self.pages.guarantee(), Guarantee::min)
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
    if !config.create || config.read_only {
        return Err(Error::NoStore { path: directory.clone() });
    }
    let turn = turn_of(directory)?;
    match find(config)? {
        Some(found) => Ok(found),
        None => create(config, &turn, |_| Ok(())),
    }
}

/// Makes the store that `config` describes, of which nobody knows before `fill` has filled it.
pub(crate) fn make(
    config: &Config,
    fill: impl FnOnce(&Engine<Hardware>) -> Result<(), Error>,
) -> Result<(Files, Engine<Hardware>), Error> {
    if config.read_only {
        return Err(Error::ReadOnly);
    }
    let turn = turn_of(&config.directory)?;
    for name in [PAGES_FILE, UNRELEASED_FILE] {
        let path = config.directory.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(Error::StoreExists { path });
        }
    }
    create(config, &turn, fill)
}

/// The turn to make a store in a directory, which is made if it is not there.
fn turn_of(directory: &Path) -> Result<File, Error> {
    let failed = |source| Error::Directory { path: directory.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(failed)?;
    // One creator at a time; whoever waited finds the store of the other one.
    let turn = File::open(directory).map_err(failed)?;
    turn.lock().map_err(failed)?;
    Ok(turn)
}

/// Opens what is in the directory; none if nothing is.
fn find(config: &Config) -> Result<Option<(Files, Engine<Hardware>)>, Error> {
    let directory = &config.directory;
    let open_file = |name, direct| open_file(&directory.join(name), direct, config.read_only);
    let pages = match open_file(PAGES_FILE, config.transfers_of_pages()) {
        Err(Error::File { source: BlockOpenError::NotFound, .. }) => return Ok(None),
        opened => opened?,
    };
    let path = directory.join(MEMORY_FILE);
    let memory = match Pool::open_file(&path, &config.region_options()) {
        Err(PoolError::Region(RegionError::NotFound)) if path.symlink_metadata().is_err() => None,
        opened => Some(Arc::new(opened.map_err(|error| Error::of_pool(path, error))?)),
    };
    let log = match memory {
        Some(_) => None,
        None => Some(open_file(LOG_FILE, TRANSFERS_OF_LOG)?),
    };
    let files = Files { pages, log, memory, directory: Some(directory.clone()) };
    let engine = files.open(config)?;
    Ok(Some((files, engine)))
}

fn open_file(
    path: &Path,
    direct: DirectTransfers,
    read_only: bool,
) -> Result<Arc<FileDevice>, Error> {
    let device = match read_only {
        true => FileDevice::open_to_read(path, direct),
        false => FileDevice::open(path, direct),
    };
    device.map(Arc::new).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// A name that a file bears until the store is whole.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Makes a store. Durable when it returns (F1).
fn create(
    config: &Config,
    turn: &File,
    fill: impl FnOnce(&Engine<Hardware>) -> Result<(), Error>,
) -> Result<(Files, Engine<Hardware>), Error> {
    let directory = &config.directory;
    let failed = |source| Error::Directory { path: directory.clone(), source };
    let make = |name, blocks, direct| {
        let path = unfinished(&directory.join(name));
        let _ = std::fs::remove_file(&path);
        let device = FileDevice::create(&path, blocks, direct);
        device.map(Arc::new).map_err(|source| Error::File { path, source })
    };
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to).and_then(|()| turn.sync_all()).map_err(failed)
    };
    let whole = || {
        let memory = config.memory().map(|memory| NewMemory::make(&memory, config));
        let memory = memory.transpose()?;
        let log = match memory {
            Some(_) => None,
            None => Some(make(LOG_FILE, config.first_log_blocks(), TRANSFERS_OF_LOG)?),
        };
        let pool = memory.as_ref().map(|memory| Arc::clone(&memory.pool));
        let pages = make(PAGES_FILE, FIRST_BLOCKS, config.transfers_of_pages())?;
        let files = Files { pages, log, memory: pool, directory: Some(directory.clone()) };
        let engine = files.create(config)?;
        fill(&engine)?;
        match memory {
            Some(memory) => memory.name(&directory.join(MEMORY_FILE)).map_err(failed)?,
            None => {
                // Of a store that was made with it before, and lost its pages.
                let _ = std::fs::remove_file(directory.join(MEMORY_FILE));
                let log = directory.join(LOG_FILE);
                rename(&unfinished(&log), &log)?;
            }
        }
        let pages = directory.join(PAGES_FILE);
        rename(&unfinished(&pages), &pages)?;
        Ok((files, engine))
    };
    whole().inspect_err(|_| {
        for name in [PAGES_FILE, LOG_FILE] {
            let _ = std::fs::remove_file(unfinished(&directory.join(name)));
        }
    })
}

/// Persistent memory of a store under creation.
struct NewMemory {
    pool: Arc<Pool<Hardware>>,
    /// Its file as it is to be called; a device is.
    path: PathBuf,
    is_device: bool,
}

impl NewMemory {
    fn make(memory: &Memory, config: &Config) -> Result<Self, Error> {
        let mut path = memory.path.clone();
        let about = path.metadata();
        if about.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            path.push(MEMORY_FILE);
        }
        let is_device = about.is_ok_and(|about| about.file_type().is_char_device());
        // Remains of a creation of this store are nobody's.
        let is_own = path.parent().is_some_and(|parent| parent == config.directory);
        if !is_device && !is_own && path.symlink_metadata().is_ok() {
            return Err(Error::MemoryInUse { path });
        }
        let file = if is_device { path.clone() } else { unfinished(&path) };
        if !is_device {
            let _ = std::fs::remove_file(&file);
        }
        let options = RegionOptions { known_as: Some(path.clone()), ..config.region_options() };
        let pool = Pool::create_file(&file, memory.bytes, &options);
        let pool = pool.map_err(|error| Error::of_pool(file, error))?;
        Ok(Self { pool: Arc::new(pool), path, is_device })
    }

    /// Gives the file its name, and the store a link to it, durably but for the directory of the store.
    fn name(self, link: &Path) -> std::io::Result<()> {
        if !self.is_device {
            std::fs::rename(unfinished(&self.path), &self.path)?;
            let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        let path = self.path.canonicalize()?;
        if link.canonicalize().is_ok_and(|link| link == path) {
            return Ok(());
        }
        let _ = std::fs::remove_file(link);
        std::os::unix::fs::symlink(path, link)
    }
}

/// Makes a store in memory, which ends with the process.
pub(crate) fn in_memory(config: &Config) -> Result<(Files, Engine<Hardware>), Error> {
    let make = |blocks| {
        let device = FileDevice::in_memory(blocks);
        device.map(Arc::new).map_err(|source| Error::File { path: "memory".into(), source })
    };
    let (pages, log) = (make(FIRST_BLOCKS)?, Some(make(config.first_log_blocks())?));
    let files = Files { pages, log, memory: None, directory: None };
    let engine = files.create(config)?;
    Ok((files, engine))
}
