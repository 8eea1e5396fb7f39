//! Reading what can be read of a store that cannot be opened.

use std::path::Path;
use std::sync::Arc;

use lapis_engine::{Lost, SalvageReport, Storage, TellEntry};
use lapis_index::INDEXES_HERE;
use lapis_pmem::{
    Access, BlockDevice, BlockOpenError, DirectTransfers, FileDevice, Hardware, Pool, PoolError,
    RegionError, RegionOptions,
};

use crate::directory::{LOG_FILE, MEMORY_FILE, PAGES_FILE};
use crate::error::Error;

fn of_store(why: String) -> Lost {
    Lost { table: None, keys: None, page: None, why }
}

/// Reads everything that can be read of the store in a directory, whatever is wrong with it, table by table and keys in
/// order, and lists what cannot be read. It writes nothing, and may not be able to. `tell` is given table, key and value, and
/// says whether to go on. Persistent memory is mapped copy on write; what is lost of it is not taken for zeroes.
///
/// # Errors
/// [`Error::NoStore`], [`Error::File`], [`Error::Memory`] if there is nothing that could be read or somebody has it open.
pub fn salvage(directory: &Path, tell: TellEntry<'_>) -> Result<SalvageReport, Error> {
    let mut lost = Vec::new();
    let mut open = |name| -> Result<Option<Arc<dyn BlockDevice>>, Error> {
        let path = directory.join(name);
        match FileDevice::open_to_read(&path, DirectTransfers::Never) {
            Ok(device) => Ok(Some(Arc::new(device))),
            Err(source @ (BlockOpenError::AlreadyOpen(_) | BlockOpenError::Os { .. })) => {
                Err(Error::File { path, source })
            }
            Err(error) => {
                lost.push(of_store(format!("{name}: {error}")));
                Ok(None)
            }
        }
    };
    let path = directory.join(MEMORY_FILE);
    let has_memory = path.symlink_metadata().is_ok();
    let pages = open(PAGES_FILE)?;
    // Where there is persistent memory, it has the log.
    let log = if has_memory { None } else { open(LOG_FILE)? };
    if pages.is_none() && log.is_none() && !has_memory {
        return Err(Error::NoStore { path: directory.to_owned() });
    }
    let options =
        RegionOptions { access: Access::Read, contain_faults: true, ..RegionOptions::default() };
    let pool = match has_memory.then(|| Pool::open_file(&path, &options)).transpose() {
        Ok(pool) => pool.map(Arc::new),
        Err(source @ PoolError::Region(RegionError::AlreadyOpen(_))) => {
            return Err(Error::Memory { path, source });
        }
        Err(error) => {
            lost.push(of_store(format!("{MEMORY_FILE}: {error}")));
            None
        }
    };
    let domain = pool.as_ref().map_or_else(Hardware::detect, |pool| pool.domain().clone());
    let storage = Storage { pages, log, pool, indexes: &INDEXES_HERE };
    let mut report = lapis_engine::salvage(domain, &storage, tell);
    report.lost.splice(0..0, lost);
    Ok(report)
}
