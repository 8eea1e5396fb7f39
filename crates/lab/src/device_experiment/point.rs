//! One point of a characterisation, and how it is found on a machine.

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use super::arena::{Arena, Pattern};
use super::machine::{Effort, Machine, Method, Progress};
use super::program::{Access, Program, Task};

use crate::named::named;

named! {
    /// Which experiment a point belongs to.
    pub enum Experiment {
        /// How long a dependent load takes.
        ReadLatency = "read-latency",
        /// How long it takes to persist a line.
        PersistLatency = "persist-latency",
        /// Bandwidth by the bytes accessed together.
        BandwidthByGranularity = "bandwidth-by-granularity",
        /// Bandwidth by the number of threads.
        BandwidthByThreads = "bandwidth-by-threads",
        /// What one task loses to another beside it.
        Interference = "interference",
    }
}

impl Experiment {
    /// The figure of the publication that it repeats: van Renen, Vogel, Leis, Neumann, Kemper,
    /// "Building blocks for persistent memory", The VLDB Journal 29, 2020, section 2.
    pub fn figure(self) -> &'static str {
        match self {
            Self::ReadLatency => "Fig. 1",
            Self::PersistLatency => "Fig. 2",
            Self::BandwidthByGranularity => "Fig. 3",
            Self::BandwidthByThreads => "Fig. 4",
            Self::Interference => "Fig. 5",
        }
    }

    fn is_latency(self) -> bool {
        matches!(self, Self::ReadLatency | Self::PersistLatency)
    }
}

/// Other workers, running beside those of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Beside {
    /// The name of what they do.
    pub name: &'static str,
    /// What they do.
    pub task: Task,
    /// How they write.
    pub method: Method,
    /// How many they are.
    pub threads: usize,
}

/// One point: tasks, and what is to be found out about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// The experiment.
    pub experiment: Experiment,
    /// The name of the task, where the method does not say it.
    pub task_name: Option<&'static str>,
    /// What each worker does.
    pub task: Task,
    /// How it writes.
    pub method: Method,
    /// How many workers there are.
    pub threads: usize,
    /// Who else is at work.
    pub beside: Option<Beside>,
}

/// What was found at a point. Fields that an experiment does not ask for are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Time of one operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Bandwidth of all workers of the point, in 10^9 bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// Bandwidth of those beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_gb_s: Option<f64>,
    /// Bandwidth lost to those beside, in percent of that without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown_percent: Option<f64>,
}

impl Point {
    /// Workers at a time.
    pub fn workers(&self) -> usize {
        self.threads + self.beside.map_or(0, |beside| beside.threads)
    }

    /// What this point is to be compared with: itself, alone.
    pub fn alone(&self) -> Self {
        Self { beside: None, ..*self }
    }

    /// Finds out. `None` if `machine` lacks the cores or an instruction.
    pub fn find<M: Machine>(
        &self,
        machine: &M,
        arena: &mut Arena,
        effort: Effort,
        seed: u64,
    ) -> Option<Figures> {
        if self.workers() > machine.most_workers() {
            return None;
        }
        let domain = machine.domain(self.method, arena.region())?;
        let manner = machine.manner();
        let partitions = arena.deal(self.workers());
        let programs = partitions.into_iter().enumerate().map(|(worker, partition)| {
            let task = match self.beside {
                Some(beside) if worker >= self.threads => beside.task,
                _ => self.task,
            };
            let seed = seed.wrapping_add(worker as u64);
            Program::new(domain.clone(), partition, task, manner, seed)
        });
        let progress = machine.run(&domain, programs.collect(), effort);
        let (own, others) = progress.split_at(self.threads);
        let gb_s = |workers: &[Progress]| workers.iter().map(Progress::gb_s).sum();
        Some(if self.experiment.is_latency() {
            Figures { latency_ns: Some(own[0].step_ns), ..Figures::default() }
        } else {
            Figures {
                gb_s: Some(gb_s(own)),
                beside_gb_s: self.beside.map(|_| gb_s(others)),
                ..Figures::default()
            }
        })
    }
}

/// The tasks that the experiments are made of.
impl Task {
    pub(super) fn chase(pattern: Pattern) -> Self {
        Self { access: Access::Chase, pattern, chunk_bytes: LINE_BYTES, fenced: false }
    }

    /// Persists one line at a time.
    pub(super) fn persist(pattern: Pattern, method: Method) -> Self {
        Self { access: method.access(), pattern, chunk_bytes: LINE_BYTES, fenced: true }
    }

    /// Reads or writes chunks at random places, none waiting for another.
    pub(super) fn chunks(method: Method, chunk_bytes: usize) -> Self {
        Self { access: method.access(), pattern: Pattern::Random, chunk_bytes, fenced: false }
    }
}

impl Method {
    fn access(self) -> Access {
        match self {
            Self::Load => Access::Load,
            Self::Store => Access::Store,
            Self::Streaming => Access::Stream,
            Self::Clflush | Self::ClflushOpt | Self::Clwb | Self::DcCvap => Access::StoreFlush,
        }
    }
}
