//! One thread of a run: draws operations, times them and checks each answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::driver::{Driver, name};
use super::record::key;
use super::{Kind, Mix, RequestDistribution, Workload, WorkloadError};
use crate::key_value::KeyValue;
use crate::keys::scatter;
use crate::progress::{OnProgress, Progress};
use crate::report::Latencies;
use crate::zipfian::{Latest, ScrambledZipfian};

/// Operations between two reports of progress of one thread.
const PROGRESS_STEP: u64 = 512;

/// Numbers given to inserts. Those below `limit` are all acknowledged.
#[derive(Debug, Default)]
pub(super) struct Inserts {
    next: AtomicU64,
    pub(super) limit: AtomicU64,
    /// Acknowledged numbers at or above `limit`.
    early: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    pub(super) fn starting_at(records: u64) -> Self {
        let (next, limit) = (AtomicU64::new(records), AtomicU64::new(records));
        Self { next, limit, early: Mutex::default() }
    }

    fn acknowledge(&self, number: u64) {
        let mut early = self.early.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        early.insert(number);
        let mut limit = self.limit.load(Ordering::Relaxed);
        while early.remove(&limit) {
            limit += 1;
        }
        // Whoever sees the limit sees that the inserts below it have returned.
        self.limit.store(limit, Ordering::Release);
    }
}

/// What one thread shares with the others.
pub(super) struct Shared<'a> {
    pub(super) mix: Mix,
    pub(super) inserts: Inserts,
    pub(super) done: AtomicU64,
    pub(super) total: u64,
    pub(super) stop: AtomicBool,
    pub(super) progress: OnProgress<'a>,
}

pub(super) type Measured = BTreeMap<&'static str, Latencies>;

/// Draws record numbers.
enum Chooser {
    Uniform,
    Zipfian(ScrambledZipfian),
    Latest(Latest),
}

impl Chooser {
    fn next(&mut self, random: &mut SmallRng, limit: u64) -> u64 {
        match self {
            Self::Uniform => random.random_range(0..limit),
            // It draws from the records to come as well, so that popular records stay the same
            // while the table grows.
            Self::Zipfian(zipfian) => loop {
                let number = zipfian.next(random);
                if number < limit {
                    return number;
                }
            },
            Self::Latest(latest) => latest.next(random, limit),
        }
    }
}

/// One thread of a run.
pub(super) struct Worker<'a, 't, T> {
    driver: &'a Driver<'t, T>,
    shared: &'a Shared<'a>,
    random: SmallRng,
    chooser: Chooser,
    latencies: BTreeMap<Kind, Latencies>,
    record: Vec<u8>,
}

impl<'a, 't, T: KeyValue> Worker<'a, 't, T> {
    pub(super) fn new(
        driver: &'a Driver<'t, T>,
        shared: &'a Shared<'a>,
        workload: Workload,
        thread: u64,
    ) -> Self {
        let records = driver.records;
        let chooser = match shared.mix.requests {
            RequestDistribution::Uniform => Chooser::Uniform,
            RequestDistribution::Zipfian => {
                // Twice the inserts that are to be expected, as YCSB has it.
                let to_come = shared.total * u64::from(shared.mix.insert) / 50;
                let to_come = if workload == Workload::Load { 0 } else { to_come };
                Chooser::Zipfian(ScrambledZipfian::new(records + to_come))
            }
            RequestDistribution::Latest => Chooser::Latest(Latest::new(records)),
        };
        let seed = scatter(driver.options.seed ^ scatter(thread) ^ (workload as u64) << 56);
        Self {
            driver,
            shared,
            random: SmallRng::seed_from_u64(seed),
            chooser,
            latencies: BTreeMap::new(),
            record: Vec::new(),
        }
    }

    pub(super) fn measured(self) -> Measured {
        self.latencies.into_iter().map(|(kind, latencies)| (kind.name(), latencies)).collect()
    }

    pub(super) fn run(&mut self, operations: u64) -> Result<(), WorkloadError<T::Error>> {
        let mut unreported = 0;
        for _ in 0..operations {
            let kind = self.shared.mix.kind(self.random.random_range(0..100));
            match kind {
                Kind::Insert => self.insert()?,
                Kind::Read => self.read(kind)?,
                Kind::Update => self.update(kind)?,
                Kind::Scan => self.scan()?,
                Kind::ReadModifyWrite => self.read_modify_write()?,
            }
            unreported += 1;
            if unreported == PROGRESS_STEP {
                if self.shared.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let done = self.shared.done.fetch_add(unreported, Ordering::Relaxed) + unreported;
                (self.shared.progress)(Progress { done, total: self.shared.total });
                unreported = 0;
            }
        }
        Ok(())
    }

    fn record_latency(&mut self, kind: Kind, begin: Instant) {
        let elapsed = begin.elapsed();
        self.latencies.entry(kind).or_default().record(elapsed);
    }

    fn choose(&mut self) -> u64 {
        let limit = self.shared.inserts.limit.load(Ordering::Acquire);
        self.chooser.next(&mut self.random, limit)
    }

    fn insert(&mut self) -> Result<(), WorkloadError<T::Error>> {
        let number = self.shared.inserts.next.fetch_add(1, Ordering::Relaxed);
        let record_key = key(number);
        self.driver.shape.fill(&mut self.record, number);
        let begin = Instant::now();
        self.driver.target.write(&record_key, &self.record)?;
        self.record_latency(Kind::Insert, begin);
        self.shared.inserts.acknowledge(number);
        Ok(())
    }

    fn read(&mut self, kind: Kind) -> Result<(), WorkloadError<T::Error>> {
        let number = self.choose();
        let record_key = key(number);
        let acknowledged = self.driver.acknowledged(number);
        let begin = Instant::now();
        let value = self.driver.target.read(&record_key)?;
        self.record_latency(kind, begin);
        self.driver.check(number, value.as_ref().map(AsRef::as_ref), acknowledged)
    }

    fn update(&mut self, kind: Kind) -> Result<(), WorkloadError<T::Error>> {
        let number = self.choose();
        let begin = Instant::now();
        self.write_fields(number)?;
        self.record_latency(kind, begin);
        Ok(())
    }

    /// Writes one field or all of record `number`.
    fn write_fields(&mut self, number: u64) -> Result<(), WorkloadError<T::Error>> {
        let (shape, driver) = (self.driver.shape, self.driver);
        let fields = if driver.options.update_all_fields {
            0..shape.fields
        } else {
            let field = self.random.random_range(0..shape.fields);
            field..field + 1
        };
        let count = fields.len() as u32;
        let writes = &driver.writes[number as usize];
        let record_key = key(number);
        writes.begun.fetch_add(count, Ordering::Release);
        let found = driver.target.modify(&record_key, &mut |record| {
            fields.clone().for_each(|field| shape.bump(record, field));
        })?;
        if !found {
            return Err(WorkloadError::Missing { key: name(&record_key) });
        }
        writes.acknowledged.fetch_add(count, Ordering::Release);
        Ok(())
    }

    fn read_modify_write(&mut self) -> Result<(), WorkloadError<T::Error>> {
        let number = self.choose();
        let record_key = key(number);
        let acknowledged = self.driver.acknowledged(number);
        let begin = Instant::now();
        let value = self.driver.target.read(&record_key)?;
        self.write_fields(number)?;
        self.record_latency(Kind::ReadModifyWrite, begin);
        self.driver.check(number, value.as_ref().map(AsRef::as_ref), acknowledged)
    }

    fn scan(&mut self) -> Result<(), WorkloadError<T::Error>> {
        let number = self.choose();
        let from = key(number);
        let limit = self.random.random_range(1..=self.driver.options.longest_scan);
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(limit);
        let acknowledged = self.driver.acknowledged(number);
        let begin = Instant::now();
        self.driver.target.scan(&from, limit, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
        })?;
        self.record_latency(Kind::Scan, begin);
        let first = found.first().filter(|(first, _)| *first == from);
        self.driver.check(number, first.map(|(_, value)| &value[..]), acknowledged)?;
        let wrong = |at: &[u8], what: String| WorkloadError::Wrong { key: name(at), what };
        if found.len() > limit {
            return Err(wrong(&from, format!("a scan of {limit} gave {} entries", found.len())));
        }
        for pair in found.windows(2) {
            let ((before, _), (after, value)) = (&pair[0], &pair[1]);
            if before >= after {
                return Err(wrong(after, "a scan gave it out of order".into()));
            }
            let contents = self.driver.shape.check(value).map_err(|what| wrong(after, what))?;
            let begun = self.shared.inserts.next.load(Ordering::Acquire);
            if key(contents.number) != *after || contents.number >= begun {
                return Err(wrong(after, format!("it is record {}", contents.number)));
            }
        }
        Ok(())
    }
}
