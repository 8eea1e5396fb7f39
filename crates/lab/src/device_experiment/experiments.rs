//! The published measurements, done to a modelled machine.

use lapis_device::{CacheShape, HierarchyShape, MachineShape, Profile};

use super::patterns::{Bench, Persist, scattered};
use crate::experiment::ExperimentError;

const LINE: usize = 64;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes at which write latency was published.
const LATENCY_SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
/// Access sizes at which the bandwidth of one module was published; the last stands for all larger.
const BANDWIDTH_SIZES: [usize; 4] = [64, 128, 256, 512];
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
            // Lines that the first-level cache holds.
            Persist::StoreAndFlush => {
                (0..resident).for_each(|line| bench.read(line * LINE, 8));
                bench.latency_ns(STEPS, |step| {
                    bench.persist(step % resident * LINE, LINE, persist);
                })
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

/// Bandwidth of one module by access size.
pub(super) fn module_bandwidth(profile: &Profile) -> Figures {
    const BYTES: usize = 64 * MIB;
    const READERS: usize = 16;
    const WRITERS: usize = 4;
    let mut figures = Vec::new();
    for bytes in BANDWIDTH_SIZES {
        let slots = BYTES / bytes;
        let bench = Bench::new(profile.machine_of_one_module(), BYTES)?;
        let steps = 1024;
        let value = bench.bandwidth_gb_s(READERS, steps, bytes, |worker, step| {
            bench.read(scattered(worker * steps + step, slots) * bytes, bytes);
        });
        figures.push(figure(
            format!("module/read/{bytes}"),
            format!("one module, read, {bytes} B"),
            "GB/s",
            value,
            "16 workers, random places in 64 MiB",
        ));
    }
    let mut busiest = 0.0;
    for (name, title, persist) in PERSISTS {
        for bytes in BANDWIDTH_SIZES {
            let slots = BYTES / bytes;
            let bench = Bench::new(profile.machine_of_one_module(), BYTES)?;
            let steps = 2048;
            let mut value = 0.0;
            let counts = bench.counts(|| {
                value = bench.bandwidth_gb_s(WRITERS, steps, bytes, |worker, step| {
                    bench.persist(scattered(worker * steps + step, slots) * bytes, bytes, persist);
                });
            });
            // Media writes are counted in lines, and of them in a nanosecond:
            let lines = counts.media_writes as f64 * value / (WRITERS * steps * bytes) as f64;
            busiest = f64::max(busiest, lines);
            figures.push(figure(
                format!("module/{name}/{bytes}"),
                format!("one module, {title}, {bytes} B"),
                "GB/s",
                value,
                "4 workers, random places in 64 MiB, a fence after each",
            ));
        }
    }
    let lines_per_unit = f64::from(profile.machine().xp_buffer.lines_per_unit);
    figures.push(figure(
        "service/write",
        "media write, time for each, the module's own too",
        "ns",
        lines_per_unit / busiest,
        "the most media writes in the rows of one module above",
    ));
    Ok(figures)
}

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
    for (name, title, persist, workers) in [
        ("ntstore", "ntstore", Persist::NonTemporal, 8),
        ("clwb", "store+clwb", Persist::StoreAndFlush, 3),
        ("clwb", "store+clwb", Persist::StoreAndFlush, 4),
        ("clwb", "store+clwb", Persist::StoreAndFlush, 24),
    ] {
        let bench = Bench::new(profile.machine(), (workers + 1) * stream)?;
        let fenced = persist == Persist::NonTemporal;
        let value = bench.bandwidth_gb_s(workers, 16_384, LINE, |worker, step| {
            bench.write(start(worker) + step * LINE, LINE, persist);
            if fenced && step % 4 == 3 {
                bench.fence();
            }
        });
        let how = if fenced {
            "each writes its own stretch in order, a fence after every 256 B"
        } else {
            "each writes its own stretch in order, no fence until the end"
        };
        figures.push(figure(
            format!("peak/{name}/{workers}"),
            format!("all modules, {title}, {workers} workers"),
            "GB/s",
            value,
            how,
        ));
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
    for bytes in [64, 128, 256, 1024] {
        let bench = Bench::new(profile.machine_of_one_module(), 64 * MIB)?;
        let slots = 64 * MIB / bytes;
        let counts = bench.counts(|| {
            for step in 0..8192 {
                bench.persist(scattered(step, slots) * bytes, bytes, Persist::NonTemporal);
            }
            bench.machine.drain();
        });
        figures.push(figure(
            format!("random/{bytes}"),
            format!("write amplification, random ntstores of {bytes} B"),
            "media/written",
            counts.media_writes as f64 / counts.wpq_inserts() as f64,
            "one module, random places in 64 MiB",
        ));
    }
    for bytes in [64, 256, 1024] {
        // Smaller caches of the same shape, so that they overflow soon.
        let machine = profile.machine_of_one_module();
        let level = |capacity_bytes, ways| CacheShape { capacity_bytes, ways };
        let caches = HierarchyShape {
            l1: level(8 * KIB, 8),
            l2: level(128 * KIB, 16),
            l3: level(5632 * KIB, 11),
            ..machine.caches
        };
        let bench = Bench::new(MachineShape { caches, ..machine }, 64 * MIB)?;
        let slots = 64 * MIB / bytes;
        let steps = 16 * MIB / bytes;
        (0..steps / 2).for_each(|step| bench.store(scattered(step, slots) * bytes, bytes));
        let counts = bench.counts(|| {
            (steps / 2..steps).for_each(|step| bench.store(scattered(step, slots) * bytes, bytes));
        });
        figures.push(figure(
            format!("evicted/{bytes}"),
            format!("write amplification, stores of {bytes} B evicted"),
            "media/written",
            counts.media_writes as f64 / counts.wpq_inserts() as f64,
            "random places in 64 MiB, never flushed, caches of 5.6 MiB in all",
        ));
    }
    Ok(figures)
}
