//! Pages on an SSD behind records of changes in persistent memory.
//!
//! A change is a word in the pool: the record of its page, durable when `put` returns. Writing back
//! puts the page where it belongs and then drops the record. The order, at every step of which one of
//! the two media has the page's newest value:
//!
//! ```text
//!  pool:   record = value, persisted                                  record = 0, persisted
//!  SSD:                               page written     flushed
//! ```

use lapis_crash::{DeviceFault, Storage};
use lapis_device::{Modelled, ModelledSsd};
use lapis_pmem::{AuditReport, BLOCK_BYTES, BlockDevice, Domain, Link, PCell, Pool, SECTOR_BYTES};

/// One block each.
pub(crate) const PAGES: usize = 3;

const ROOT: &str = "records";

/// What is wrong with a page store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A record is dropped before the SSD has flushed its page.
    DropBeforeFlush,
    /// A record is dropped although the SSD could not flush its page.
    IgnoreFailedFlush,
}

type Records = [PCell<u64>; PAGES];

/// Page stores, and what fails beneath them.
pub(crate) struct Pages {
    pub(crate) fault: Fault,
    pub(crate) device_faults: Vec<DeviceFault>,
}

/// A page store, open.
#[derive(Debug)]
pub(crate) struct PageStore {
    pub(crate) pool: Pool<Modelled>,
    records: Link<Records>,
    ssd: ModelledSsd,
    fault: Fault,
}

fn parts(storage: Storage) -> Result<(Pool<Modelled>, ModelledSsd), String> {
    let Storage { pool: Some(pool), mut devices, .. } = storage else {
        return Err("there is no pool".to_owned());
    };
    Ok((pool, devices.pop().ok_or("there is no SSD")?))
}

impl PageStore {
    pub(crate) fn create(storage: Storage, fault: Fault) -> Result<Self, String> {
        let (pool, ssd) = parts(storage)?;
        let node = pool.allocate::<Records>().map_err(text)?;
        node.iter().for_each(|record| record.store(pool.domain(), 0));
        let node = pool.fence(node.flush());
        let records = node.link();
        let _committed = pool.publish_root(ROOT, 0, node).map_err(text)?.persist();
        Ok(Self { pool, records, ssd, fault })
    }

    pub(crate) fn open(storage: Storage, fault: Fault) -> Result<Option<Self>, String> {
        let (pool, ssd) = parts(storage)?;
        let Some(records) = pool.root::<Records>(ROOT) else { return Ok(None) };
        Ok(Some(Self { pool, records, ssd, fault }))
    }

    fn record(&self, page: usize) -> &PCell<u64> {
        &self.pool.at(self.records)[page]
    }

    /// `value` is not zero.
    pub(crate) fn put(&self, page: usize, value: u64) {
        let _committed = self.record(page).publish(self.pool.domain(), value).persist();
    }

    /// What was put last; zero if nothing was.
    pub(crate) fn get(&self, page: usize) -> Result<u64, String> {
        let (record, domain) = (self.record(page), self.pool.domain());
        match record.load(domain) {
            0 => self.read(page),
            value => {
                // Another worker may not have made it durable yet.
                domain.persist(record);
                Ok(value)
            }
        }
    }

    fn read(&self, page: usize) -> Result<u64, String> {
        let mut block = [0; BLOCK_BYTES];
        self.ssd.read_blocks(page as u64, &mut block).map_err(text)?;
        let mut sectors = block
            .chunks_exact(SECTOR_BYTES)
            .map(|sector| sector.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        let value = sectors.next().unwrap_or(0);
        match sectors.all(|other| other == value) {
            true => Ok(value),
            false => Err(format!("page {page} is torn and has no record")),
        }
    }

    /// What is in every page.
    pub(crate) fn values(&self) -> Result<[u64; PAGES], String> {
        let mut values = [0; PAGES];
        for (page, value) in values.iter_mut().enumerate() {
            *value = self.get(page)?;
        }
        Ok(values)
    }

    /// Whether there was something to write back, and it could be.
    pub(crate) fn write_back(&self, page: usize) -> bool {
        let (record, domain) = (self.record(page), self.pool.domain());
        let value = record.load(domain);
        if value == 0 {
            return false;
        }
        // It may be another worker's and not durable yet; while the page is written only it is whole.
        domain.persist(record);
        let mut block = [0; BLOCK_BYTES];
        for sector in block.chunks_exact_mut(SECTOR_BYTES) {
            sector[..8].copy_from_slice(&value.to_le_bytes());
        }
        // Of a page that could not be written, some sectors may be new: the record stays.
        if self.ssd.write_blocks(page as u64, &block).is_err() {
            return false;
        }
        // Unless it has been changed meanwhile.
        let drop_record = || match record.publish_if(domain, value, 0) {
            Ok(visible) => _ = visible.persist(),
            Err(_newer) => {}
        };
        if self.fault == Fault::DropBeforeFlush {
            drop_record();
        }
        let flushed = self.ssd.flush().is_ok();
        if flushed || self.fault == Fault::IgnoreFailedFlush {
            drop_record();
        }
        flushed
    }

    pub(crate) fn audit(&self) -> AuditReport {
        let reachable = self.pool.reachable(|visitor| {
            visitor.visit(self.records, size_of::<Records>());
        });
        self.pool.reclaim_and_audit(&reachable)
    }
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
