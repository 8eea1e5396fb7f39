//! The epochs by which memory is reclaimed, over all schedules of a reader and a writer with store
//! buffers: nothing is freed that somebody reads, and it is the reclaimer's barrier that sees to it.

use std::sync::atomic::{AtomicBool, Ordering};

use lapis_device::{BoundedSearch, Config, Modelled, RunEnd, SchedulePolicy, WorkerProgram};
use lapis_pmem::epoch::mutants::NO_BARRIER;
use lapis_pmem::epoch::{Clock, Reader};
use lapis_pmem::{DramCell, Observed, Region};

type Word = <Modelled as Observed>::DramWord<u64>;

const WHOLE: u64 = 7;
const FREED: u64 = 0;
/// Schedules with at most so many deviations are run: a reader that is overtaken after it has found a
/// block, and comes back when the block is free, takes two.
const DEVIATIONS: usize = 2;

/// Two blocks, and a link to the one that is in use.
struct Setting {
    domain: Modelled,
    clock: Clock<Word>,
    readers: Vec<Reader<Word>>,
    link: DramCell<u64, Modelled>,
    blocks: [DramCell<u64, Modelled>; 2],
    freed: AtomicBool,
    /// Whether a block was read after that.
    broken: AtomicBool,
    _region: Region,
}

impl Setting {
    fn new(config: Config, readers: usize) -> Self {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let domain = Modelled::over(&region, config);
        Self {
            domain,
            clock: Clock::new::<Modelled>(),
            readers: (0..readers).map(|_| Reader::of_worker::<Modelled>()).collect(),
            link: DramCell::new(0),
            blocks: [WHOLE, WHOLE].map(DramCell::new),
            freed: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            _region: region,
        }
    }

    /// Follows the link `times` times, in one pin each.
    fn read(&self, reader: &Reader<Word>, times: usize) {
        let domain = &self.domain;
        for _ in 0..times {
            reader.pin(domain, &self.clock);
            let block = self.link.load_acquire(domain) as usize;
            if self.blocks[block].load_acquire(domain) == FREED {
                self.broken.store(true, Ordering::Relaxed);
            }
            reader.unpin(domain);
        }
    }

    /// Puts the second block in the place of the first, and frees that if it may.
    fn replace(&self) {
        let domain = &self.domain;
        self.link.store_release(domain, 1);
        let stamp = self.clock.stamp(domain);
        if self.clock.oldest(domain, || self.readers.iter()) > stamp {
            self.blocks[0].store_release(domain, FREED);
            self.freed.store(true, Ordering::Relaxed);
        }
    }
}

/// Schedules in which the block was freed and in which it was not, and those in which it was read
/// after that.
#[derive(Debug, Default)]
struct Explored {
    freed: usize,
    kept: usize,
    broken: usize,
}

fn explored(config: Config, readers: usize, times: usize) -> Explored {
    let mut search = BoundedSearch::new(DEVIATIONS, 30_000);
    let mut explored = Explored::default();
    while let Some(policy) = search.next_policy() {
        let setting = Setting::new(config.clone(), readers);
        let run = run(&setting, times, &policy);
        search.ran(&run);
        match setting.freed.load(Ordering::Relaxed) {
            true => explored.freed += 1,
            false => explored.kept += 1,
        }
        assert_eq!(run.end, RunEnd::Completed);
        explored.broken += usize::from(setting.broken.load(Ordering::Relaxed));
    }
    assert!(search.is_complete());
    explored
}

fn run(setting: &Setting, times: usize, policy: &SchedulePolicy) -> lapis_device::InterleavedRun {
    let readers = setting
        .readers
        .iter()
        .map(|reader| -> WorkerProgram<'_> { Box::new(move || setting.read(reader, times)) });
    let writer: WorkerProgram<'_> = Box::new(move || setting.replace());
    setting.domain.run_workers(policy, readers.chain([writer]).collect())
}

#[test]
fn nothing_is_freed_that_a_reader_has_found() {
    for (readers, times) in [(1, 2), (2, 1)] {
        let explored = explored(Config::concurrent(), readers, times);
        assert_eq!(explored.broken, 0);
        assert!(explored.freed > 20 && explored.kept > 20, "{explored:?}");
    }
}

#[test]
fn without_the_reclaimers_barrier_a_reader_finds_a_block_that_is_freed() {
    let explored = explored(Config::concurrent().committing(NO_BARRIER), 1, 1);
    assert!(explored.broken > 0);
}
