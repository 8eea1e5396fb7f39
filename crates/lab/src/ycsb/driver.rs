//! What a target must hold, and whether it does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use super::record::{Shape, key};
use super::{Options, WorkloadError};
use crate::experiment::memory::available_bytes;
use crate::key_value::KeyValue;

/// Field writes of one record since it was loaded.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) begun: AtomicU32,
    pub(super) acknowledged: AtomicU32,
}

/// Runs workloads one after another over one target, and knows what the target must hold.
#[derive(Debug)]
pub struct Driver<'t, T> {
    pub(super) target: &'t T,
    pub(super) options: Options,
    pub(super) shape: Shape,
    pub(super) records: u64,
    pub(super) writes: Vec<Writes>,
}

impl<'t, T: KeyValue> Driver<'t, T> {
    /// A driver over an empty target: load comes first.
    ///
    /// # Errors
    /// [`WorkloadError::BadOption`].
    pub fn new(target: &'t T, options: Options) -> Result<Self, WorkloadError<T::Error>> {
        if let Some(what) = options.problem() {
            return Err(WorkloadError::BadOption { what });
        }
        let shape = Shape { fields: options.fields, field_bytes: options.field_bytes };
        Ok(Self { target, options, shape, records: 0, writes: Vec::new() })
    }

    /// A driver over a target that was loaded before, by any number of earlier runs. Reads it whole
    /// and checks it.
    ///
    /// # Errors
    /// [`WorkloadError::Foreign`] if there is anything else in it.
    pub fn attach(target: &'t T, options: Options) -> Result<Self, WorkloadError<T::Error>> {
        let mut driver = Self::new(target, options)?;
        let (shape, mut found, mut foreign) = (driver.shape, BTreeMap::new(), None);
        target.for_each(&mut |record_key, value| match shape.check(value) {
            Ok(contents) if key(contents.number) == record_key => {
                found.insert(contents.number, contents.writes);
            }
            Ok(contents) => {
                foreign = Some(format!("record {} has another key", contents.number));
            }
            Err(what) => foreign = Some(format!("the record {}: {what}", name(record_key))),
        })?;
        let numbered = found.keys().copied().eq(0..found.len() as u64);
        if foreign.is_none() && !numbered {
            foreign = Some("some of its records are missing".into());
        }
        if let Some(what) = foreign {
            return Err(WorkloadError::Foreign { what });
        }
        driver.records = found.len() as u64;
        let of = |&writes: &u64| {
            let writes = writes as u32;
            Writes { begun: AtomicU32::new(writes), acknowledged: AtomicU32::new(writes) }
        };
        driver.writes = found.values().map(of).collect();
        Ok(driver)
    }

    /// Records the target holds.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Reads every record and checks it.
    ///
    /// # Errors
    /// [`WorkloadError::Missing`], [`WorkloadError::Wrong`], [`WorkloadError::Target`].
    pub fn verify(&self) -> Result<(), WorkloadError<T::Error>> {
        for number in 0..self.records {
            let acknowledged = self.acknowledged(number);
            let value = self.target.read(&key(number))?;
            self.check(number, value.as_ref().map(AsRef::as_ref), acknowledged)?;
        }
        Ok(())
    }

    /// Makes room for the field writes of so many records.
    pub(super) fn make_room(&mut self, records: u64) -> Result<(), WorkloadError<T::Error>> {
        let more = records.saturating_sub(self.writes.len() as u64);
        let more_bytes = more.saturating_mul(size_of::<Writes>() as u64);
        let fits = available_bytes().is_none_or(|available| more_bytes <= available);
        if !fits || self.writes.try_reserve(more as usize).is_err() {
            let what = format!(
                "there is no memory to keep account of {records} records; use fewer records and \
                 operations"
            );
            return Err(WorkloadError::BadOption { what });
        }
        self.writes.resize_with(self.writes.len() + more as usize, Writes::default);
        Ok(())
    }

    pub(super) fn acknowledged(&self, number: u64) -> u32 {
        let writes = self.writes.get(number as usize);
        writes.map_or(0, |writes| writes.acknowledged.load(Ordering::Acquire))
    }

    /// Checks what a read of record `number` gave. `acknowledged` was taken before the read began.
    pub(super) fn check(
        &self,
        number: u64,
        value: Option<&[u8]>,
        acknowledged: u32,
    ) -> Result<(), WorkloadError<T::Error>> {
        let record_key = || name(&key(number));
        let value = value.ok_or_else(|| WorkloadError::Missing { key: record_key() })?;
        let wrong = |what| WorkloadError::Wrong { key: record_key(), what };
        let contents = self.shape.check(value).map_err(wrong)?;
        if contents.number != number {
            return Err(wrong(format!("it is record {}", contents.number)));
        }
        let begun = self.writes.get(number as usize);
        let begun = begun.map_or(0, |writes| writes.begun.load(Ordering::Acquire));
        if !(u64::from(acknowledged)..=u64::from(begun)).contains(&contents.writes) {
            return Err(wrong(format!(
                "it shows {} field writes; {acknowledged} were acknowledged before it was read \
                 and {begun} had begun after",
                contents.writes
            )));
        }
        Ok(())
    }
}

/// A key for people.
pub(super) fn name(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
