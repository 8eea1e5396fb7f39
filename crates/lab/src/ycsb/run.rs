//! Runs workloads, measures them and checks every answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::driver::Driver;
use super::worker::{Inserts, Measured, Shared, Worker};
use super::{Workload, WorkloadError};
use crate::key_value::KeyValue;
use crate::progress::{OnProgress, Progress};
use crate::report::Report;

impl<T: KeyValue> Driver<'_, T> {
    /// Runs a workload. [`Workload::Load`] inserts records until there are as many as the options
    /// say.
    ///
    /// # Errors
    /// [`WorkloadError`]: the first wrong answer or failure; what was done before it is done.
    pub fn run(
        &mut self,
        workload: Workload,
        progress: OnProgress<'_>,
    ) -> Result<Report, WorkloadError<T::Error>> {
        let total = match workload {
            Workload::Load => self.options.records.saturating_sub(self.records),
            _ if self.records == 0 => {
                let what = format!("workload {workload} needs a loaded table: load it first");
                return Err(WorkloadError::BadOption { what });
            }
            _ => self.options.operations,
        };
        let mut mix = workload.mix();
        mix.requests = self.options.requests.unwrap_or(mix.requests);
        if mix.insert > 0 {
            self.make_room(self.records.saturating_add(total))?;
        }
        let before = self.records;
        let shared = Shared {
            mix,
            inserts: Inserts::starting_at(before),
            done: AtomicU64::new(0),
            total,
            stop: AtomicBool::new(false),
            progress,
        };
        let threads = self.options.threads;
        let share = |thread: u64| {
            let threads = threads as u64;
            total / threads + u64::from(thread < total % threads)
        };
        let begin = Instant::now();
        let results: Vec<Result<Measured, WorkloadError<T::Error>>> = std::thread::scope(|scope| {
            let (driver, shared) = (&*self, &shared);
            let worker = |thread: u64| {
                let operations = share(thread);
                scope.spawn(move || {
                    let mut worker = Worker::new(driver, shared, workload, thread);
                    let result = worker.run(operations);
                    shared.stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    result.map(|()| worker.measured())
                })
            };
            let workers: Vec<_> = (0..threads as u64).map(worker).collect();
            let joined = workers.into_iter().map(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
        });
        let elapsed = begin.elapsed();
        self.records = shared.inserts.limit.load(Ordering::Acquire);
        let mut measured = Measured::new();
        for result in results {
            for (kind, latencies) in result? {
                measured.entry(kind).or_default().merge(&latencies);
            }
        }
        progress(Progress { done: total, total });
        let (name, records) = match workload {
            Workload::Load => ("ycsb-load".into(), self.records),
            other => (format!("ycsb-{other}"), before),
        };
        Ok(Report::new(name, records, threads, elapsed, &measured))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::key_value::volatile::Volatile;
    use crate::ycsb::record::key;
    use crate::ycsb::{Kind, Options};

    fn options() -> Options {
        Options { records: 2000, operations: 10_000, ..Options::default() }
    }

    fn loaded(target: &Volatile, options: Options) -> Driver<'_, Volatile> {
        let mut driver = Driver::new(target, options).unwrap();
        let report = driver.run(Workload::Load, &|_| ()).unwrap();
        assert_eq!((report.operations, report.records), (2000, 2000));
        driver
    }

    #[test]
    fn each_workload_has_its_mix_of_operations() {
        let target = Volatile::default();
        let mut driver = loaded(&target, options());
        for workload in &Workload::ALL[1..] {
            let report = driver.run(*workload, &|_| ()).unwrap();
            assert_eq!(report.operations, 10_000);
            let mix = workload.mix();
            for (share, kind) in [
                (mix.read, Kind::Read),
                (mix.update, Kind::Update),
                (mix.insert, Kind::Insert),
                (mix.scan, Kind::Scan),
                (mix.read_modify_write, Kind::ReadModifyWrite),
            ] {
                let found = report.by_kind.get(kind.name()).map_or(0, |kind| kind.operations);
                let expected = u64::from(share) * 100;
                assert!(found.abs_diff(expected) <= 250, "{workload}: {kind:?} {found}");
                assert_eq!(found == 0, share == 0, "{workload}: {kind:?}");
            }
        }
        driver.verify().unwrap();
    }

    #[test]
    fn with_one_thread_the_seed_determines_everything() {
        let contents = |seed| {
            let target = Volatile::default();
            let mut driver = loaded(&target, Options { seed, ..options() });
            driver.run(Workload::A, &|_| ()).unwrap();
            driver.run(Workload::D, &|_| ()).unwrap();
            target.entries.into_inner().unwrap()
        };
        assert_eq!(contents(1), contents(1));
        assert_ne!(contents(1), contents(2));
    }

    #[test]
    fn threads_share_the_operations_and_lose_no_update() {
        let target = Volatile::default();
        let mut driver = loaded(&target, Options { threads: 3, ..options() });
        for workload in [Workload::A, Workload::F, Workload::D, Workload::E] {
            let report = driver.run(workload, &|_| ()).unwrap();
            assert_eq!((report.operations, report.threads), (10_000, 3));
        }
        driver.verify().unwrap();
        let entries = target.entries.lock().unwrap().len() as u64;
        assert!(driver.records() > 2800);
        assert_eq!(driver.records(), entries);
    }

    #[test]
    fn a_lost_update_is_found() {
        let mut target = Volatile::default();
        drop(loaded(&target, options()));
        target.loses_every = Some(1000);
        let mut driver = Driver::attach(&target, options()).unwrap();
        let error = driver.run(Workload::A, &|_| ()).and_then(|_| driver.verify()).unwrap_err();
        assert!(matches!(error, WorkloadError::Wrong { .. }), "{error}");
    }

    #[test]
    fn a_lost_insert_is_found() {
        let mut target = Volatile::default();
        drop(loaded(&target, options()));
        target.loses_every = Some(100);
        let mut driver = Driver::attach(&target, options()).unwrap();
        let error = driver.run(Workload::D, &|_| ()).unwrap_err();
        assert!(matches!(error, WorkloadError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_later_driver_takes_up_where_an_earlier_one_left() {
        let target = Volatile::default();
        let mut driver = loaded(&target, options());
        driver.run(Workload::A, &|_| ()).unwrap();
        driver.run(Workload::D, &|_| ()).unwrap();
        let records = driver.records();
        let mut later = Driver::attach(&target, Options { seed: 9, ..options() }).unwrap();
        assert_eq!(later.records(), records);
        later.run(Workload::F, &|_| ()).unwrap();
        later.verify().unwrap();
    }

    #[test]
    fn a_foreign_table_is_refused() {
        let target = Volatile::default();
        drop(loaded(&target, options()));
        target.write(b"else", b"what").unwrap();
        let error = Driver::attach(&target, options()).unwrap_err();
        assert!(matches!(error, WorkloadError::Foreign { .. }), "{error}");
    }

    #[test]
    fn a_table_with_a_missing_record_is_refused() {
        let target = Volatile::default();
        drop(loaded(&target, options()));
        target.entries.lock().unwrap().remove(&key(7));
        assert!(matches!(Driver::attach(&target, options()), Err(WorkloadError::Foreign { .. })));
    }

    #[test]
    fn running_before_loading_is_refused() {
        let target = Volatile::default();
        let mut driver = Driver::new(&target, options()).unwrap();
        let error = driver.run(Workload::C, &|_| ()).unwrap_err();
        assert!(matches!(error, WorkloadError::BadOption { .. }));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let target = Volatile::default();
        for wrong in [
            Options { threads: 0, ..options() },
            Options { threads: 100_000, ..options() },
            Options { records: 0, ..options() },
            Options { fields: 0, ..options() },
            Options { field_bytes: 15, ..options() },
            Options { longest_scan: 0, ..options() },
        ] {
            assert!(matches!(Driver::new(&target, wrong), Err(WorkloadError::BadOption { .. })));
        }
    }

    #[test]
    fn records_that_there_is_no_memory_for_are_refused() {
        let target = Volatile::default();
        let mut driver = Driver::new(&target, Options { records: u64::MAX, ..options() }).unwrap();
        let error = driver.run(Workload::Load, &|_| ()).unwrap_err();
        assert!(matches!(error, WorkloadError::BadOption { .. }), "{error}");
    }

    #[test]
    fn operations_that_may_insert_more_than_there_is_memory_for_are_refused() {
        let target = Volatile::default();
        let mut driver = loaded(&target, Options { operations: u64::MAX, ..options() });
        for workload in [Workload::D, Workload::E] {
            let error = driver.run(workload, &|_| ()).unwrap_err();
            assert!(matches!(error, WorkloadError::BadOption { .. }), "{error}");
        }
    }

    #[test]
    fn progress_ends_with_everything_done() {
        let target = Volatile::default();
        let mut driver = Driver::new(&target, options()).unwrap();
        let seen = Mutex::new(Vec::new());
        driver.run(Workload::Load, &|progress| seen.lock().unwrap().push(progress)).unwrap();
        let seen = seen.into_inner().unwrap();
        assert!(seen.len() > 2);
        assert_eq!(seen.last(), Some(&Progress { done: 2000, total: 2000 }));
    }
}
