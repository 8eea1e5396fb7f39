//! On this machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lapis_blocks::page::{CostModel, PageScheme, PageStore};
use lapis_pmem::{Hardware, Pool};

use super::writer::{Writer, full_store, pool_bytes};
use super::{Case, ExperimentError, Options, Rate, wrong_contents};

/// A store on which the rows of one scheme are run, one after the other.
pub(super) struct Bench {
    store: PageStore<Hardware>,
    pub(super) variant: PageScheme,
}

impl Bench {
    pub(super) fn new(options: &Options, variant: PageScheme) -> Result<Self, ExperimentError> {
        let pages = options.measured_pages;
        let pool = Pool::create_anonymous(pool_bytes(options, pages))?;
        Ok(Self { store: full_store(pool, options, variant, pages)?, variant })
    }

    pub(super) fn run(
        &self,
        options: &Options,
        case: &Case,
        cost_model: &CostModel,
    ) -> Result<Rate, ExperimentError> {
        self.store.set_cost_model(cost_model, case.threads)?;
        let (barrier, stop) = (Barrier::new(case.threads + 1), AtomicBool::new(false));
        let mut seconds = 0.0;
        let outcomes: Vec<Result<u64, ExperimentError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..case.threads)
                .map(|number| {
                    let (barrier, stop) = (&barrier, &stop);
                    scope.spawn(move || {
                        let pages = options.measured_pages;
                        let mut writer =
                            Writer::with_cold_source(options, pages, case.dirty_lines, number);
                        barrier.wait();
                        let outcome = self.write_until(stop, &mut writer);
                        // One that has failed comes here too: the others wait for it.
                        barrier.wait();
                        let (written, last) = outcome?;
                        // With several threads another may have written the page since.
                        if let (Some(id), 1) = (last, case.threads)
                            && !writer.wrote(&self.store, id)?
                        {
                            return Err(wrong_contents(self.variant, id));
                        }
                        Ok(written)
                    })
                })
                .collect();
            barrier.wait();
            let started = Instant::now();
            std::thread::sleep(Duration::from_millis(options.measured_ms));
            stop.store(true, Ordering::Relaxed);
            barrier.wait();
            seconds = started.elapsed().as_secs_f64();
            threads
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(outcome) => outcome,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        let written: u64 = outcomes.into_iter().sum::<Result<u64, _>>()?;
        let pages_per_s = written as f64 / seconds;
        Ok(Rate { pages_per_s, ns_per_page: 1e9 * case.threads as f64 / pages_per_s })
    }

    /// Writes pages until it is told to stop: how many, and the last.
    fn write_until(
        &self,
        stop: &AtomicBool,
        writer: &mut Writer,
    ) -> Result<(u64, Option<u64>), ExperimentError> {
        let (mut written, mut last) = (0, None);
        while !stop.load(Ordering::Relaxed) {
            last = Some(writer.write(&self.store)?);
            written += 1;
        }
        Ok((written, last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_writer_that_fails_ends_the_run() {
        let options = Options { measured_pages: 16, measured_ms: 5, ..Options::default() };
        let bench = Bench::new(&options, PageScheme::COPY_ON_WRITE).unwrap();
        // The store has none of these pages but the first 16.
        let options = Options { measured_pages: 1 << 20, ..options };
        let case = Case {
            variant: PageScheme::COPY_ON_WRITE,
            dirty_lines: 1,
            threads: 2,
            page_bytes: options.page_bytes,
            barriers: 0,
            ordering_fences: 0,
        };
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            done.send(bench.run(&options, &case, &CostModel::default())).unwrap();
        });
        let outcome = ended.recv_timeout(Duration::from_secs(60)).expect("the run ends");
        assert!(matches!(outcome, Err(ExperimentError::Page(_))), "{outcome:?}");
    }
}
