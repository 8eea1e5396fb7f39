//! Reading what can be read of a store that cannot be opened.

use std::path::Path;
use std::sync::Arc;

use lapis_engine::{Lost, SalvageReport, TellEntry};
use lapis_pmem::{BlockDevice, BlockOpenError, DirectTransfers, FileDevice, Hardware};

use crate::directory::{LOG_FILE, MEMORY_FILE, PAGES_FILE};
use crate::error::Error;

fn of_store(why: String) -> Lost {
    Lost { table: None, keys: None, page: None, why }
}

/// Reads everything that can be read of the store in a directory, whatever is wrong with it, table by table and keys in
/// order, and lists what cannot be read. It writes nothing, and may not be able to. `tell` is given table, key and value, and says whether
/// to go on. What lies in persistent memory is not looked at, which is listed.
///
/// # Errors
/// [`Error::NoStore`], [`Error::File`] if its pages cannot be had at all or somebody has it open.
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
    let (pages, log) = (open(PAGES_FILE)?, open(LOG_FILE)?);
    if pages.is_none() && log.is_none() {
        return Err(Error::NoStore { path: directory.to_owned() });
    }
    if directory.join(MEMORY_FILE).symlink_metadata().is_ok() {
        lost.push(of_store("what lies in persistent memory is not looked at".to_owned()));
    }
    let nothing = || -> Result<Arc<dyn BlockDevice>, Error> {
        let device = FileDevice::in_memory(1);
        let device = device.map_err(|source| Error::File { path: "memory".into(), source })?;
        Ok(Arc::new(device))
    };
    let [pages, log] = [pages, log].map(|device| device.map_or_else(nothing, Ok));
    let mut report = lapis_engine::salvage(Hardware::detect(), pages?, log?, tell);
    report.lost.splice(0..0, lost);
    Ok(report)
}
