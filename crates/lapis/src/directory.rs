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
//! all files is whole. What bears another name is nobody's and made anew. But persistent memory outside of the directory may
//! be another store's: where a crash has left some under its name or with `.new` behind that, before there was a store, it has
//! to be removed by hand.
//!
//! F2. A log, or persistent memory, that has its name stands beside `pages.lapis` or `pages.lapis.new`. Where it stands
//! beside neither, the pages of a store were lost, and nothing is made over what is left.
//!
//! F3. Whoever makes a store has a lock on its directory, and on that of its persistent memory, until there is a store; and
//! no file takes the place of another there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lapis_engine::{Engine, EngineError, Storage};
use lapis_index::INDEXES_HERE;
use lapis_pmem::{
    BlockDevice, BlockOpenError, DirectTransfers, FileDevice, Guarantee, Hardware, Pool, PoolError,
    RegionError, RegionOptions,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

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
            indexes: &INDEXES_HERE,
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
    check_pages_are_not_lost(directory)?;
    if !config.create || config.read_only {
        return Err(Error::NoStore { path: directory.clone() });
    }
    let turn = Turn::take(config)?;
    match find(config)? {
        Some(found) => Ok(found),
        None => create(config, turn, |_| Ok(())),
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
    let turn = Turn::take(config)?;
    for name in [PAGES_FILE, UNRELEASED_FILE] {
        let path = config.directory.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(Error::StoreExists { path });
        }
    }
    check_pages_are_not_lost(&config.directory)?;
    create(config, turn, fill)
}

/// Refuses a directory in which there was a store once that has lost its pages (F2).
fn check_pages_are_not_lost(directory: &Path) -> Result<(), Error> {
    let is_there = |path: PathBuf| path.symlink_metadata().is_ok_and(|about| !about.is_dir());
    let remains = [LOG_FILE, MEMORY_FILE].map(|name| is_there(directory.join(name)));
    let pages = directory.join(PAGES_FILE);
    // In this order: whoever makes the store meanwhile gives the one name for the other.
    if remains.contains(&true) && !is_there(unfinished(&pages)) && !is_there(pages) {
        return Err(Error::PagesMissing { path: directory.to_owned() });
    }
    Ok(())
}

/// The turn to make a store (F3). The directory is made if it is not there.
struct Turn {
    directory: File,
    memory: Option<MemoryPlace>,
}

/// Where persistent memory of a store is to be.
struct MemoryPlace {
    /// Its file, or the device.
    path: PathBuf,
    bytes: usize,
    /// None of a device.
    parent: Option<File>,
    /// Whether that is the store's directory, and its file is called as a store calls it.
    is_own: bool,
}

impl Turn {
    fn take(config: &Config) -> Result<Self, Error> {
        let path = &config.directory;
        let failed = |source| Error::Directory { path: path.clone(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        let directory = File::open(path).map_err(failed)?;
        let memory = config.memory().map(MemoryPlace::find).transpose()?;
        let mut turn = Self { directory, memory };
        let parent = turn.memory.as_ref().and_then(|memory| memory.parent.as_ref());
        let mut locked = Vec::new();
        for directory in [&turn.directory].into_iter().chain(parent) {
            let about = directory.metadata().map_err(failed)?;
            locked.push(((about.dev(), about.ino()), directory));
        }
        let is_beside = matches!(&locked[..], [(one, _), (other, _)] if one == other);
        // In one order, so that no two who make stores in each other's directories wait for each other; and a second lock of
        // one directory would wait for the first.
        locked.sort_by_key(|(place, _)| *place);
        locked.dedup_by_key(|(place, _)| *place);
        // One creator at a time; whoever waited finds the store of the other one.
        locked.iter().try_for_each(|(_, directory)| directory.lock()).map_err(failed)?;
        if let Some(memory) = &mut turn.memory {
            memory.is_own = is_beside && memory.path.file_name() == Some(OsStr::new(MEMORY_FILE));
        }
        Ok(turn)
    }
}

impl MemoryPlace {
    fn find(Memory { mut path, bytes }: Memory) -> Result<Self, Error> {
        let about = path.metadata();
        if about.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            path.push(MEMORY_FILE);
        }
        let parent = match about.is_ok_and(|about| about.file_type().is_char_device()) {
            true => None,
            false => Some(File::open(parent_of(&path)).map_err(|source| match source.kind() {
                ErrorKind::NotFound => Error::of_pool(path.clone(), RegionError::NotFound.into()),
                _ => Error::Directory { path: parent_of(&path).to_owned(), source },
            })?),
        };
        Ok(Self { path, bytes, parent, is_own: false })
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives a file its name, which no other has (F3).
fn rename_into_place(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that does not know how. Whoever makes a store waits for the lock.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if to.symlink_metadata().is_ok() {
                return Err(Errno::EXIST.into());
            }
            std::fs::rename(from, to)
        }
        renamed => Ok(renamed?),
    }
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
    turn: Turn,
    fill: impl FnOnce(&Engine<Hardware>) -> Result<(), Error>,
) -> Result<(Files, Engine<Hardware>), Error> {
    let Turn { directory: turn, memory } = turn;
    let directory = &config.directory;
    let failed = |source| Error::Directory { path: directory.clone(), source };
    let make = |name, blocks, direct| {
        let path = unfinished(&directory.join(name));
        let _ = std::fs::remove_file(&path);
        let device = FileDevice::create(&path, blocks, direct);
        device.map(Arc::new).map_err(|source| Error::File { path, source })
    };
    let name = |name| {
        let path = directory.join(name);
        rename_into_place(&unfinished(&path), &path).map_err(failed)
    };
    // F2: what is left of an earlier creation goes before its pages do.
    let remove_named = || {
        let paths = [LOG_FILE, MEMORY_FILE].map(|name| directory.join(name));
        paths.map(|path| std::fs::remove_file(path).is_ok()).contains(&true)
    };
    if remove_named() {
        turn.sync_all().map_err(failed)?;
    }
    let mut is_named = false;
    let whole = || {
        let memory = memory.map(|place| NewMemory::make(place, config));
        let mut memory = memory.transpose()?;
        let log = match memory {
            Some(_) => None,
            None => Some(make(LOG_FILE, config.first_log_blocks(), TRANSFERS_OF_LOG)?),
        };
        let pool = memory.as_ref().map(|memory| Arc::clone(&memory.pool));
        let pages = make(PAGES_FILE, FIRST_BLOCKS, config.transfers_of_pages())?;
        let files = Files { pages, log, memory: pool, directory: Some(directory.clone()) };
        let engine = files.create(config)?;
        fill(&engine)?;
        match &mut memory {
            Some(memory) => memory.name(&directory.join(MEMORY_FILE))?,
            None => name(LOG_FILE)?,
        }
        is_named = true;
        turn.sync_all().map_err(failed)?;
        name(PAGES_FILE)?;
        // F1: from here on there is a store, even if it is not known whether that is durable.
        if let Some(memory) = memory {
            memory.keep();
        }
        turn.sync_all().map_err(failed)?;
        Ok((files, engine))
    };
    let made = whole();
    if made.is_err() {
        // What has a name and is not of this creation stays.
        if is_named && directory.join(PAGES_FILE).symlink_metadata().is_err() {
            remove_named();
        }
        for name in [PAGES_FILE, LOG_FILE] {
            let _ = std::fs::remove_file(unfinished(&directory.join(name)));
        }
    }
    made
}

/// Persistent memory of a store under creation. Its file goes with this, unless there is a store that has it.
struct NewMemory {
    pool: Arc<Pool<Hardware>>,
    place: MemoryPlace,
    /// Its file as it is called now; none of a device, and none that is to stay.
    remains: Option<PathBuf>,
}

impl NewMemory {
    fn make(place: MemoryPlace, config: &Config) -> Result<Self, Error> {
        let path = place.path.clone();
        let is_device = place.parent.is_none();
        // Remains of a creation of this store are nobody's. What has another name, or lies elsewhere, may be anybody's.
        if !is_device && !place.is_own && path.symlink_metadata().is_ok() {
            return Err(Error::MemoryInUse { path });
        }
        let file = if is_device { path.clone() } else { unfinished(&path) };
        if place.is_own {
            let _ = std::fs::remove_file(&file);
        } else if !is_device && file.symlink_metadata().is_ok() {
            return Err(Error::MemoryUnfinished { path: file });
        }
        let options = RegionOptions { known_as: Some(path), ..config.region_options() };
        let pool = Pool::create_file(&file, place.bytes, &options);
        let pool = pool.map_err(|error| Error::of_pool(file.clone(), error))?;
        Ok(Self { pool: Arc::new(pool), place, remains: (!is_device).then_some(file) })
    }

    /// Gives the file its name, and the store a link to it, durably but for the directory of the store.
    fn name(&mut self, link: &Path) -> Result<(), Error> {
        let path = &self.place.path;
        let failed_at = |path: &Path, source| {
            let path = parent_of(path).to_owned();
            Error::Directory { path, source }
        };
        if let (Some(file), Some(parent)) = (&mut self.remains, &self.place.parent) {
            rename_into_place(file, path).map_err(|source| match source.kind() {
                ErrorKind::AlreadyExists => Error::MemoryInUse { path: path.clone() },
                _ => failed_at(path, source),
            })?;
            file.clone_from(path);
            parent.sync_all().map_err(|source| failed_at(path, source))?;
        }
        if self.place.is_own {
            return Ok(());
        }
        let linked = path.canonicalize().and_then(|path| std::os::unix::fs::symlink(path, link));
        linked.map_err(|source| failed_at(link, source))
    }

    /// There is a store that has it.
    fn keep(mut self) {
        self.remains = None;
    }
}

impl Drop for NewMemory {
    fn drop(&mut self) {
        if let Some(file) = &self.remains {
            let _ = std::fs::remove_file(file);
        }
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
