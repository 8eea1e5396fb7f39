//! The workloads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::peer::{Peer, PeerError, Reads};
use super::records::{Key, Keys, Value, check, value};
use crate::named::named;
use crate::report::Latencies;
use crate::zipfian::Zipfian;

/// Puts of one commit of a load, and of [`Workload::PutBatch`].
pub(super) const BATCH: u64 = 1000;
/// Gets for which a store may keep a state open.
const GETS_AT_A_TIME: u64 = 64;
/// Entries of a scan.
const SCANNED: usize = 100;
/// Of operations that take less than a clock does, so many are measured together.
const OPERATIONS_PER_SAMPLE: u64 = 16;

named! {
    /// What is done, in this order.
    pub enum Workload {
        /// Puts all records in the order of their keys, 1,000 a commit.
        LoadSorted = "load-sorted",
        /// Puts all records in random order, 1,000 a commit. The other workloads find what this leaves.
        LoadRandom = "load-random",
        /// Gets of random keys, all data in the cache.
        Get = "get",
        /// Gets of random keys, four times as much data as cache.
        GetBeyondCache = "get-4x-cache",
        /// Scans of 100 entries from random keys on.
        Scan = "scan-100",
        /// Half gets, half puts, of zipfian keys: YCSB's A.
        YcsbA = "ycsb-a",
        /// Durable puts of random keys, one a commit.
        Put = "put",
        /// Durable puts of random keys, 1,000 a commit.
        PutBatch = "put-1000",
        /// Durable puts, 1,000 a commit, until the process is killed.
        UntilKilled = "until-killed",
        /// Opening what a killed process has left, and reading a first value.
        FirstRead = "first-read-after-kill",
    }
}

impl Workload {
    /// Those that are rows of a result.
    pub fn rows() -> Vec<Self> {
        Self::ALL.into_iter().filter(|&it| it != Self::UntilKilled).collect()
    }

    /// By how many threads it is done.
    pub fn threads(self) -> &'static [usize] {
        match self {
            Self::YcsbA => &[1, 2],
            Self::Put => &[1, 8],
            Self::UntilKilled => &[],
            _ => &[1],
        }
    }

    /// Whether each commit is durable when it returns.
    pub(super) fn is_durable(self) -> bool {
        matches!(self, Self::Put | Self::PutBatch | Self::UntilKilled | Self::FirstRead)
    }

    /// Whether it is one for stores whose commits are what is asked about: those, and the load that they need.
    pub(super) fn commits_often(self) -> bool {
        matches!(self, Self::LoadRandom | Self::YcsbA | Self::Put | Self::PutBatch)
    }

    pub(super) fn keys(self) -> Keys {
        if self == Self::LoadSorted { Keys::Sorted } else { Keys::Random }
    }
}

/// What a workload came to.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
    pub(super) latencies: Latencies,
}

/// Puts records `from..to` in one commit, in random versions.
fn put_numbers(
    peer: &dyn Peer,
    keys: Keys,
    numbers: impl Iterator<Item = u64>,
    version: u16,
) -> Result<(), PeerError> {
    let records: Vec<(Key, Value)> =
        numbers.map(|number| (keys.key(number), value(number, version))).collect();
    peer.put(&mut records.iter().map(|(key, value)| (&key[..], &value[..])))
}

/// Puts all records.
pub(super) fn load(peer: &dyn Peer, keys: Keys, records: u64) -> Result<Done, PeerError> {
    let (mut latencies, begun) = (Latencies::new(), Instant::now());
    for first in (0..records).step_by(BATCH as usize) {
        let before = Instant::now();
        put_numbers(peer, keys, first..(first + BATCH).min(records), 0)?;
        latencies.record(before.elapsed());
    }
    peer.sync()?;
    Ok(Done { operations: records, elapsed: begun.elapsed(), latencies })
}

/// Gets records and checks their values.
pub(super) fn get_numbers(
    peer: &dyn Peer,
    keys: Keys,
    numbers: &mut dyn Iterator<Item = u64>,
) -> Result<(), PeerError> {
    peer.read(&mut |reads| {
        let mut value = Vec::new();
        for number in &mut *numbers {
            get_one(reads, keys, number, &mut value)?;
        }
        Ok(())
    })
}

fn get_one(
    reads: &mut dyn Reads,
    keys: Keys,
    number: u64,
    value: &mut Vec<u8>,
) -> Result<(), PeerError> {
    match reads.get(&keys.key(number), value)? {
        true => check(number, value),
        false => Err(format!("record {number} is gone").into()),
    }
}

/// One step of a workload that goes on for a time: so many operations.
type Step<'s> = &'s (dyn Fn(&mut SmallRng) -> Result<u64, PeerError> + Sync);

/// Repeats a step on so many threads.
fn repeat(threads: usize, time: Duration, seed: u64, step: Step<'_>) -> Result<Done, PeerError> {
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    let work = |thread: u64| {
        let mut random = SmallRng::seed_from_u64(seed ^ thread);
        let (mut operations, mut latencies) = (0, Latencies::new());
        while !stop.load(Ordering::Relaxed) {
            let before = Instant::now();
            let done = step(&mut random).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            let now = Instant::now();
            latencies.record((now - before) / done as u32);
            operations += done;
            if now - begun >= time {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Ok::<_, PeerError>((operations, latencies))
    };
    let (mut operations, mut latencies) = (0, Latencies::new());
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in threads {
            let done = thread.join().map_err(|_| "a thread has panicked")?;
            let (did, took) = done?;
            operations += did;
            latencies.merge(&took);
        }
        Ok::<_, PeerError>(())
    })?;
    Ok(Done { operations, elapsed: begun.elapsed(), latencies })
}

/// Runs a workload that goes on for a time on a store that holds the records.
pub(super) fn run(
    peer: &dyn Peer,
    workload: Workload,
    threads: usize,
    records: u64,
    time: Duration,
    seed: u64,
) -> Result<Done, PeerError> {
    let keys = workload.keys();
    let popular = Zipfian::new(records);
    let any = |random: &mut SmallRng| random.random_range(0..records);
    let step: Step<'_> = &|random| match workload {
        Workload::Get | Workload::GetBeyondCache => {
            get_numbers(peer, keys, &mut (0..GETS_AT_A_TIME).map(|_| any(random)))?;
            Ok(GETS_AT_A_TIME)
        }
        Workload::Scan => {
            scan(peer, &keys.key(any(random)))?;
            Ok(1)
        }
        Workload::YcsbA => {
            for _ in 0..OPERATIONS_PER_SAMPLE {
                // The popular ones are spread over all keys, which are random.
                let number = popular.next(random).min(records - 1);
                if random.random::<bool>() {
                    get_numbers(peer, keys, &mut [number].into_iter())?;
                } else {
                    put_numbers(peer, keys, [number].into_iter(), random.random())?;
                }
            }
            Ok(OPERATIONS_PER_SAMPLE)
        }
        Workload::Put => {
            put_numbers(peer, keys, [any(random)].into_iter(), random.random())?;
            Ok(1)
        }
        _ => {
            let version = random.random();
            put_numbers(peer, keys, (0..BATCH).map(|_| any(random)), version)?;
            Ok(BATCH)
        }
    };
    repeat(threads, time, seed, step)
}

/// Scans, and checks that keys ascend and what values they have.
fn scan(peer: &dyn Peer, from: &Key) -> Result<(), PeerError> {
    let mut wrong = None;
    peer.read(&mut |reads| {
        let mut last = None;
        reads.scan(from, SCANNED, &mut |key, value| {
            // A value begins with the number it is of.
            let seed = value.first_chunk().map_or(u64::MAX, |seed| u64::from_le_bytes(*seed));
            let number = seed >> 16;
            let key = Key::try_from(key).ok();
            let fits = key == Some(Keys::Random.key(number)) && last < key;
            if let Err(error) = check(number, value) {
                wrong = Some(error);
            } else if !fits {
                wrong = Some(format!("a scan gave record {number} under another key").into());
            }
            last = key;
        })
    })?;
    wrong.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::RwLock;

    use super::super::peer::{OnEntry, Record};
    use super::*;

    /// The least of stores.
    #[derive(Default)]
    struct Map(RwLock<BTreeMap<Vec<u8>, Vec<u8>>>);

    impl Peer for Map {
        fn read(
            &self,
            with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
        ) -> Result<(), PeerError> {
            with(&mut &self.0)
        }

        fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError> {
            let mut map = self.0.write().unwrap();
            map.extend(records.map(|(key, value)| (key.to_vec(), value.to_vec())));
            Ok(())
        }

        fn sync(&self) -> Result<(), PeerError> {
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<(), PeerError> {
            Ok(())
        }
    }

    impl Reads for &RwLock<BTreeMap<Vec<u8>, Vec<u8>>> {
        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError> {
            let map = self.read().unwrap();
            let found = map.get(key);
            value.clear();
            value.extend(found.into_iter().flatten());
            Ok(found.is_some())
        }

        fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError> {
            let map = self.read().unwrap();
            map.range(from.to_vec()..).take(count).for_each(|(key, value)| show(key, value));
            Ok(())
        }
    }

    const RECORDS: u64 = 1500;

    fn loaded() -> Map {
        let map = Map::default();
        assert_eq!(load(&map, Keys::Random, RECORDS).unwrap().operations, RECORDS);
        map
    }

    fn run_on(map: &Map, workload: Workload, threads: usize) -> Result<Done, PeerError> {
        run(map, workload, threads, RECORDS, Duration::from_millis(5), 1)
    }

    #[test]
    fn a_load_puts_every_record_and_all_workloads_find_them() {
        let map = loaded();
        assert_eq!(map.0.read().unwrap().len() as u64, RECORDS);
        let loads = [Workload::LoadSorted, Workload::LoadRandom];
        for workload in Workload::rows().into_iter().filter(|it| !loads.contains(it)) {
            for &threads in workload.threads() {
                let done = run_on(&map, workload, threads).unwrap();
                assert!(done.operations > 0 && done.latencies.count() > 0, "{workload}");
            }
        }
        assert_eq!(map.0.read().unwrap().len() as u64, RECORDS);
    }

    #[test]
    fn a_store_that_loses_or_changes_a_record_is_found_out() {
        let map = loaded();
        map.0.write().unwrap().remove(&Keys::Random.key(7)[..]);
        assert!(get_numbers(&map, Keys::Random, &mut (0..RECORDS)).is_err());
        let map = loaded();
        map.0.write().unwrap().insert(Keys::Random.key(7).to_vec(), value(8, 0).to_vec());
        assert!(get_numbers(&map, Keys::Random, &mut (0..RECORDS)).is_err());
        assert!(scan(&map, &Keys::Random.key(7)).is_err());
    }
}
