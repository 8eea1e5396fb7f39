//! The published measurements, done to a modelled machine.

use lapis_device::{CacheShape, HierarchyShape, MachineShape, Profile};

use super::patterns::{Bench, Persist, scattered};
use crate::experiment::ExperimentError;

const LINE: usize = 64;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes at which write latency was published.
const LATENCY_SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
/// Regions whose write amplification was published, in bytes.
pub(super) const REGIONS: [usize; 19] = [
    256, 512, 1024, 2048, 4096, 8192, 16384, 18432, 20480, 22528, 24576, 26624, 28672, 30720,
    32768, 34816, 36864, 40960, 65536,
];
/// Stands for a region without end.
pub(super) const ENDLESS: usize = 4 * MIB;

/// One figure of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// What [`super::published`] knows it by.
    pub(super) id: String,
    pub(super) quantity: String,
    pub(super) unit: &'static str,
    pub(super) value: f64,
    /// What was done.
    pub(super) how: &'static str,
}

pub(super) type Figures = Result<Vec<Figure>, ExperimentError>;

pub(super) fn figure(
    id: impl Into<String>,
    quantity: impl Into<String>,
    unit: &'static str,
    value: f64,
    how: &'static str,
) -> Figure {
    Figure { id: id.into(), quantity: quantity.into(), unit, value, how }
}

/// A machine on which every access goes to memory.
fn without_caches(machine: MachineShape) -> MachineShape {
    let none = CacheShape { capacity_bytes: LINE, ways: 1 };
    let caches = HierarchyShape { l1: none, l2: none, l3: none, ..machine.caches };
    MachineShape { caches, ..machine }
}

/// Latency of reads.
pub(super) fn read_latency(profile: &Profile) -> Figures {
    const STEPS: usize = 16_384;
    let bench = Bench::new(profile.machine(), 16 * MIB)?;
    let sequential = bench.latency_ns(STEPS, |step| bench.read(step * LINE, 8));
    let bench = Bench::new(profile.machine(), 16 * MIB)?;
    // So that the modules know where everything lies, as after any warm-up.
    (0..16 * MIB).step_by(4 * KIB).for_each(|page| bench.read(page + 4 * KIB - LINE, 8));
    let random =
        bench.latency_ns(STEPS, |step| bench.read(scattered(step, 16 * MIB / LINE) * LINE, 8));
    let mut figures = vec![
        figure(
            "read/sequential",
            "read latency, sequential",
            "ns",
            sequential,
            "one load after another, each of the next line",
        ),
        figure(
            "read/random",
            "read latency, random",
            "ns",
            random,
            "one load after another, of lines in 16 MiB",
        ),
    ];
    // Beyond what the modules' translations reach, six times 16 MiB.
    let far = 1024 * MIB;
    let bench = Bench::new(profile.machine(), far)?;
    (0..2 * STEPS).for_each(|step| bench.read(scattered(step, far / LINE) * LINE, 8));
    let value = bench.latency_ns(STEPS, |step| {
        bench.read(scattered(2 * STEPS + step, far / LINE) * LINE, 8);
    });
    figures.push(figure(
        "read/far",
        "read latency, random, of much more memory",
        "ns",
        value,
        "one load after another, of lines in 1 GiB",
    ));
    for (id, title, bytes) in [
        ("chase/16K", "pointer chase, 16 KiB", 16 * KIB),
        ("chase/4M", "pointer chase, 4 MiB", 4 * MIB),
        ("chase/32M", "pointer chase, 32 MiB", 32 * MIB),
        ("chase/256M", "pointer chase, 256 MiB", 256 * MIB),
    ] {
        let bench = Bench::new(without_caches(profile.machine_of_one_module()), bytes)?;
        let slots = bytes / LINE;
        // Whole walks, so that what is near in time is not near in place.
        let visit = |step: usize| bench.read(scattered(step, slots) * LINE, 8);
        (0..slots.min(65_536)).for_each(visit);
        let steps = 32_768;
        let skip = slots.min(65_536);
        let value = bench.latency_ns(steps, |step| visit(skip + step));
        figures.push(figure(id, title, "ns", value, "one module, loads past the caches"));
    }
    Ok(figures)
}

/// Latency of persists.
pub(super) fn persist_latency(profile: &Profile) -> Figures {
    const STEPS: usize = 4096;
    let mut figures = Vec::new();
    for (name, title, persist) in PERSISTS {
        let bench = Bench::new(profile.machine(), 16 * MIB)?;
        let resident = 16 * KIB / LINE;
        let value = match persist {
            // Lines that the first-level cache holds, whether or not a flush takes them out of it.
            Persist::StoreAndFlush => {
                let rounds = STEPS / resident;
                let round = |_| {
                    (0..resident).for_each(|line| bench.read(line * LINE, 8));
                    bench.latency_ns(resident, |line| bench.persist(line * LINE, LINE, persist))
                };
                (0..rounds).map(round).sum::<f64>() / rounds as f64
            }
            Persist::NonTemporal => {
                bench.latency_ns(STEPS, |step| bench.persist(step * LINE, LINE, persist))
            }
        };
        figures.push(figure(
            format!("best/{name}"),
            format!("{title} latency, 64 B, best case"),
            "ns",
            value,
            "sequential lines, stores hit L1, a fence after each",
        ));
    }
    for (name, title, persist) in PERSISTS {
        for bytes in LATENCY_SIZES {
            let bench = Bench::new(profile.machine(), 16 * MIB)?;
            // L3 holds the region, L2 does not.
            (0..16 * MIB).step_by(LINE).for_each(|line| bench.read(line, 8));
            let slots = 16 * MIB / bytes;
            let value = bench.latency_ns(1024, |step| {
                bench.persist(scattered(step, slots) * bytes, bytes, persist);
            });
            figures.push(figure(
                format!("size/{name}/{bytes}"),
                format!("{title} latency, {bytes} B"),
                "ns",
                value,
                "random places in 16 MiB that L3 holds, a fence after each",
            ));
        }
        let bench = Bench::new(profile.machine(), MIB)?;
        let value = bench.latency_ns(STEPS, |_| bench.persist(0, LINE, persist));
        figures.push(figure(
            format!("same/{name}"),
            format!("{title} latency, the same line again"),
            "ns",
            value,
            "one line over and over, a fence after each",
        ));
    }
    Ok(figures)
}

const PERSISTS: [(&str, &str, Persist); 2] =
    [("ntstore", "ntstore", Persist::NonTemporal), ("clwb", "store+clwb", Persist::StoreAndFlush)];

/// Bandwidth of all modules together.
pub(super) fn peak_bandwidth(profile: &Profile) -> Figures {
    // A whole number of rounds over the modules, so that streams begin on modules in turn.
    let machine = profile.machine().xp_buffer;
    let stripe = machine.lines_per_stripe as usize * LINE;
    let stream = (2 * MIB / stripe / machine.modules + 1) * machine.modules * stripe;
    let start = |worker: usize| worker * stream + worker % machine.modules * stripe;
    let mut figures = Vec::new();
    for workers in [17, 22] {
        let bench = Bench::new(profile.machine(), (workers + 1) * stream)?;
        let value = bench.bandwidth_gb_s(workers, 16_384, LINE, |worker, step| {
            bench.prefetch(start(worker) + step * LINE);
        });
        figures.push(figure(
            format!("peak/read/{workers}"),
            format!("all modules, read, {workers} workers"),
            "GB/s",
            value,
            "each reads its own stretch in order, loads not waiting for one another",
        ));
    }
    let workers = 3;
    let bench = Bench::new(profile.machine(), (workers + 1) * stream)?;
    let value = bench.bandwidth_gb_s(workers, 16_384, LINE, |worker, step| {
        bench.write(start(worker) + step * LINE, LINE, Persist::NonTemporal);
    });
    figures.push(figure(
        format!("peak/ntstore/{workers}"),
        format!("all modules, ntstore, {workers} workers"),
        "GB/s",
        value,
        "each writes its own stretch in order, no fence until the end",
    ));
    Ok(figures)
}

/// Bytes after which there is a fence.
const FENCES: [usize; 5] = [64, 256, 512, 1024, 4096];

/// What fences cost one worker that writes on and on: lines that no cache holds, of all modules. Nobody published it
/// with its data; the rows show what the model does.
pub(super) fn fenced_bandwidth(profile: &Profile) -> Figures {
    let mut figures = Vec::new();
    for (name, title, persist) in PERSISTS {
        for bytes in FENCES {
            let bench = Bench::new(profile.machine(), MIB)?;
            let value = bench.bandwidth_gb_s(1, MIB / bytes, bytes, |_, step| {
                bench.persist(step * bytes, bytes, persist)
            });
            figures.push(figure(
                format!("fences/{name}/{bytes}"),
                format!("{title}, one worker, a fence after each {bytes} B"),
                "GB/s",
                value,
                "lines in order, in no cache",
            ));
        }
    }
    Ok(figures)
}

/// Media bytes per byte written.
pub(super) fn amplification(profile: &Profile) -> Figures {
    let mut figures = Vec::new();
    for region in REGIONS.into_iter().chain([ENDLESS]) {
        let bench = Bench::new(profile.machine_of_one_module(), region.max(KIB))?;
        let pass = || {
            for half in [0, 128] {
                for unit in (0..region).step_by(256) {
                    bench.persist(unit + half, 128, Persist::NonTemporal);
                }
            }
        };
        let passes = (4 * MIB / region).clamp(2, 1024);
        (0..passes / 2).for_each(|_| pass());
        let counts = bench.counts(|| (0..passes).for_each(|_| pass()));
        let title = match region {
            ENDLESS => "endless".to_owned(),
            512.. if region % KIB == 0 => format!("{} KiB", region / KIB),
            _ => format!("{region} B"),
        };
        figures.push(figure(
            format!("halves/{region}"),
            format!("write amplification, halves of {title}"),
            "media/written",
            counts.media_writes as f64 / counts.wpq_inserts() as f64,
            "one module, half of every XPLine of the region, then the other, ntstore",
        ));
    }
    Ok(figures)
}
