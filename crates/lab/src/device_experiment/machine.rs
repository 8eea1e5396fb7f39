//! Where programs run, and how long they take: threads of this machine by its clock, or logical
//! workers of the modelled machine by virtual time.

use std::sync::Barrier;
use std::time::Instant;

use lapis_pmem::{Domain, FlushMethod, Hardware, Region};

use super::program::{Manner, Program};

use crate::named::named;

named! {
    /// How lines reach memory: the instructions of a point.
    pub enum Method {
        /// Nothing is written.
        Load = "load",
        /// Ordinary stores, evicted by the caches.
        Store = "store",
        /// Stores flushed by `clflush`.
        Clflush = "store+clflush",
        /// Stores flushed by `clflushopt`.
        ClflushOpt = "store+clflushopt",
        /// Stores flushed by `clwb`.
        Clwb = "store+clwb",
        /// Stores flushed by `dc cvap` (aarch64).
        DcCvap = "store+dc cvap",
        /// Streaming stores.
        Streaming = "streaming",
    }
}

impl Method {
    /// The flush instruction that it needs, if it needs a particular one.
    fn flush_method(self) -> Option<FlushMethod> {
        match self {
            Self::Clflush => Some(FlushMethod::Clflush),
            Self::ClflushOpt => Some(FlushMethod::ClflushOpt),
            Self::Clwb => Some(FlushMethod::Clwb),
            Self::DcCvap => Some(FlushMethod::DcCvap),
            Self::Load | Self::Store | Self::Streaming => None,
        }
    }
}

/// How long to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes that all workers together transfer before the clock starts.
    pub warm_up_bytes: usize,
    /// How long each worker then runs.
    pub duration_ns: u64,
}

/// What a worker did while the clock ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Steps.
    pub steps: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time.
    pub elapsed_ns: u64,
    /// Time of a step: where a clock runs on while others have the core, that of the median look at
    /// it, so that interruptions do not count.
    pub step_ns: f64,
}

impl Progress {
    /// Bandwidth, in 10^9 bytes per second.
    pub fn gb_s(&self) -> f64 {
        self.bytes as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// Something that programs run on.
pub trait Machine {
    /// Its domain.
    type Domain: Domain;

    /// A domain over `region` that writes by `method`; `None` if the machine has no such
    /// instruction.
    fn domain(&self, method: Method, region: &Region) -> Option<Self::Domain>;

    /// Workers that can run at a time without taking turns on a core.
    fn most_workers(&self) -> usize;

    /// How programs are to go about their tasks.
    fn manner(&self) -> Manner;

    /// Runs the programs, which are on clones of `domain`, side by side. The answers are in the same order.
    fn run(
        &self,
        domain: &Self::Domain,
        programs: Vec<Program<'_, Self::Domain>>,
        effort: Effort,
    ) -> Vec<Progress>;
}

/// This machine: a thread per program, and the clock on the wall.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine {
    cores: usize,
}

impl ThisMachine {
    /// With as many workers as the system gives this process cores.
    pub fn detect() -> Self {
        Self { cores: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

impl Machine for ThisMachine {
    type Domain = Hardware;

    fn domain(&self, method: Method, _: &Region) -> Option<Hardware> {
        match method.flush_method() {
            Some(flush) => Hardware::with_method(flush).ok(),
            None => Some(Hardware::detect()),
        }
    }

    fn most_workers(&self) -> usize {
        self.cores
    }

    fn manner(&self) -> Manner {
        Manner { slice_bytes: Manner::MOST_SLICE_BYTES, loads_under_way: 0 }
    }

    fn run(
        &self,
        _: &Hardware,
        programs: Vec<Program<'_, Hardware>>,
        effort: Effort,
    ) -> Vec<Progress> {
        let barrier = Barrier::new(programs.len());
        let warm_up_bytes = effort.warm_up_bytes / programs.len().max(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = programs
                .into_iter()
                .map(|program| scope.spawn(|| clocked(program, warm_up_bytes, effort, &barrier)))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
        })
    }
}

/// Steps between two looks at the clock take about so many bytes, or so many steps of a line.
const BYTES_PER_LOOK: usize = 64 * 1024;

fn clocked(
    mut program: Program<'_, Hardware>,
    warm_up_bytes: usize,
    effort: Effort,
    barrier: &Barrier,
) -> Progress {
    let mut warm = 0;
    while warm < warm_up_bytes {
        warm += program.step();
    }
    program.finish();
    barrier.wait();
    let start = Instant::now();
    let (mut steps, mut bytes, mut looks, mut last_ns) = (0, 0, Vec::new(), 0);
    loop {
        let (mut steps_since, mut bytes_since) = (0, 0);
        while bytes_since < BYTES_PER_LOOK {
            bytes_since += program.step();
            steps_since += 1;
        }
        steps += steps_since;
        bytes += bytes_since as u64;
        let now_ns = start.elapsed().as_nanos() as u64;
        looks.push((now_ns - last_ns) as f64 / steps_since as f64);
        last_ns = now_ns;
        if now_ns >= effort.duration_ns {
            program.finish();
            let elapsed_ns = start.elapsed().as_nanos() as u64;
            let middle = looks.len() / 2;
            let (_, &mut step_ns, _) = looks.select_nth_unstable_by(middle, f64::total_cmp);
            return Progress { steps, bytes, elapsed_ns, step_ns };
        }
    }
}
