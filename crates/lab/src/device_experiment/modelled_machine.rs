//! Programs on the modelled machine of a profile: logical workers that take turns by virtual time.
//!
//! Caches are empty at the start of each point, so that what is read at random is not there.
//!
//! Two methods are not modelled. Stores without a flush reach the media when caches evict them, and
//! evictions are counted by the model but delay nobody: a bandwidth of them would be one of caches.
//! And what orders `clflush` more strictly than `clflushopt` costs time that nobody has published
//! apart.

use std::ops::ControlFlow;

use lapis_device::{Config, MachineShape, Modelled, Profile, interleave};
use lapis_pmem::{LINE_BYTES, Region};

use super::machine::{Effort, Machine, Method, Progress};
use super::point::Point;
use super::program::{Access, Manner, Program};

/// The machine of a profile.
#[derive(Clone, Copy, Debug)]
pub struct ModelledMachine {
    shape: MachineShape,
}

/// Workers that the modelled machine can tell apart.
const MOST_WORKERS: usize = 256;

impl ModelledMachine {
    /// The machine of `profile`.
    pub fn of(profile: &Profile) -> Self {
        Self { shape: profile.machine() }
    }

    /// How long a point has to run to say something, in virtual time.
    pub fn effort(point: &Point) -> Effort {
        // To warm up, what the buffers of the media hold, many times over.
        let warm_up_bytes = if point.task.access == Access::Chase { 0 } else { 2 << 20 };
        let duration_ns = if point.workers() == 1 { 500_000 } else { 200_000 };
        Effort { warm_up_bytes, duration_ns }
    }
}

impl Machine for ModelledMachine {
    type Domain = Modelled;

    fn domain(&self, method: Method, region: &Region) -> Option<Modelled> {
        let mut shape = self.shape;
        match method {
            Method::Store | Method::Clflush | Method::DcCvap => return None,
            // The profile says of `clwb` whether it keeps the line.
            Method::ClflushOpt => shape.caches.flush_keeps_line = false,
            Method::Load | Method::Clwb | Method::Streaming => {}
        }
        Some(Modelled::over(region, Config { counting: Some(shape), ..Config::default() }))
    }

    fn most_workers(&self) -> usize {
        MOST_WORKERS
    }

    fn manner(&self) -> Manner {
        Manner { slice_bytes: LINE_BYTES, loads_under_way: self.shape.timing.line_fill_buffers }
    }

    fn run(
        &self,
        domain: &Modelled,
        mut programs: Vec<Program<'_, Modelled>>,
        effort: Effort,
    ) -> Vec<Progress> {
        let workers = programs.len();
        let share = effort.warm_up_bytes / workers.max(1);
        let mut warm = vec![0; workers];
        interleave(domain, workers, |worker| {
            let worker = usize::from(worker);
            if warm[worker] >= share {
                programs[worker].finish();
                return ControlFlow::Break(());
            }
            warm[worker] += programs[worker].step();
            ControlFlow::Continue(())
        });
        let start_ns = domain.align_clocks(workers).0 / 1000;
        let mut progress = vec![Progress::default(); workers];
        interleave(domain, workers, |worker| {
            let elapsed_ns = domain.now_ns(worker) - start_ns;
            let worker_index = usize::from(worker);
            let (program, found) = (&mut programs[worker_index], &mut progress[worker_index]);
            if elapsed_ns < effort.duration_ns {
                found.bytes += program.step() as u64;
                found.steps += 1;
                return ControlFlow::Continue(());
            }
            program.finish();
            found.elapsed_ns = domain.now_ns(worker) - start_ns;
            found.step_ns = found.elapsed_ns as f64 / found.steps.max(1) as f64;
            ControlFlow::Break(())
        });
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::{Arena, Pattern};
    use super::super::point::{Experiment, Figures};
    use super::super::program::Task;
    use super::super::{bandwidth, interference};
    use super::*;

    fn find(point: Point) -> Figures {
        let machine = ModelledMachine::of(&Profile::named("optane-100").unwrap());
        let mut arena = Arena::anonymous(64 << 20).unwrap();
        point.find(&machine, &mut arena, ModelledMachine::effort(&point), 42).unwrap()
    }

    fn persist(pattern: Pattern, method: Method) -> f64 {
        let point = Point {
            experiment: Experiment::PersistLatency,
            task_name: None,
            task: Task::persist(pattern, method),
            method,
            threads: 1,
            beside: None,
        };
        find(point).latency_ns.unwrap()
    }

    fn chase(pattern: Pattern) -> f64 {
        let point = Point {
            experiment: Experiment::ReadLatency,
            task_name: None,
            task: Task::chase(pattern),
            method: Method::Load,
            threads: 1,
            beside: None,
        };
        find(point).latency_ns.unwrap()
    }

    #[test]
    fn random_reads_take_longer_than_sequential_ones_and_cached_ones() {
        let [same, sequential, random] =
            [Pattern::Same, Pattern::Sequential, Pattern::Random].map(chase);
        assert!(
            same < 10.0 && same < sequential && sequential < random,
            "{same} {sequential} {random}"
        );
        assert!(random > 250.0, "{random}");
    }

    #[test]
    fn persisting_one_line_again_and_again_is_slower_than_persisting_others() {
        for method in [Method::Clwb, Method::Streaming] {
            let (same, sequential) =
                (persist(Pattern::Same, method), persist(Pattern::Sequential, method));
            assert!(same > sequential, "{}: {same} {sequential}", method.name());
        }
    }

    #[test]
    fn bandwidth_is_best_at_whole_media_blocks() {
        let at = |bytes| {
            let points = bandwidth::granularity_points(&[24]);
            let point = points
                .into_iter()
                .find(|point| point.method == Method::Load && point.task.chunk_bytes == bytes);
            find(point.unwrap()).gb_s.unwrap()
        };
        let (one, four, five) = (at(64), at(256), at(320));
        assert!(one * 2.0 < four, "{one} {four}");
        assert!(five < four, "{five} {four}");
    }

    /// `task` on 14 workers, alone or beside others.
    fn beside(task: &str, other: Option<(&str, usize)>) -> Figures {
        let points = interference::points(14, &[1, 5, 10]);
        let point = points.iter().find(|point| {
            let found = point.beside.map(|beside| (beside.name, beside.threads));
            point.task_name == Some(task) && found == other
        });
        find(*point.unwrap())
    }

    #[test]
    fn scans_lose_bandwidth_to_other_scans_beside_them() {
        let (alone, beside) = (beside("scan", None), beside("scan", Some(("scan", 10))));
        let (own, others) = (beside.gb_s.unwrap(), beside.beside_gb_s.unwrap());
        assert!(own < 0.8 * alone.gb_s.unwrap(), "{own}");
        assert!(
            (0.5..1.5).contains(&(others / 10.0 / (own / 14.0))),
            "shares alike: {own} {others}"
        );
        assert_eq!(alone.beside_gb_s, None);
    }

    #[test]
    fn page_propagation_costs_scans_and_lookups_a_quarter_and_more_and_gets_its_share() {
        for task in ["scan", "lookup"] {
            let alone = beside(task, None).gb_s.unwrap();
            for writers in [5, 10] {
                let figures = beside(task, Some(("page", writers)));
                let lost = 1.0 - figures.gb_s.unwrap() / alone;
                assert!((0.25..0.75).contains(&lost), "{task} beside {writers}: {lost}");
                // Beside lookups the model gives five writers 2.0 GB/s.
                let written = figures.beside_gb_s.unwrap();
                assert!(written > 1.9, "{task} beside {writers}: {written} GB/s");
            }
        }
    }

    #[test]
    fn the_same_point_gives_the_same_figures() {
        let point = bandwidth::thread_points(&[4])[0];
        assert_eq!(find(point), find(point));
    }

    #[test]
    fn instructions_that_the_model_does_not_know_are_not_modelled() {
        let machine = ModelledMachine::of(&Profile::named("dram").unwrap());
        let arena = Arena::anonymous(1 << 20).unwrap();
        assert!(machine.domain(Method::DcCvap, arena.region()).is_none());
        assert!(machine.domain(Method::Store, arena.region()).is_none());
        assert!(machine.domain(Method::ClflushOpt, arena.region()).is_some());
    }
}
