//! Readers and writers of one memory at the same time, done to a modelled machine.
//!
//! The figures are of Figure 6 of the FAST 2020 study (`graphs/06-bandwidth_thmix.csv` of
//! github.com/NVSL/OptaneStudy, column PM-Optane). That the accesses are of 64 bytes at random is
//! inferred from the ends of the series; the study's programs have no fence.

use lapis_device::Profile;

use super::experiments::{Figures, figure};
use super::patterns::{Bench, Persist, scattered};

const LINE: usize = 64;
const WORKERS: usize = 16;
const MIB: usize = 1 << 20;
/// Each worker has so much for itself.
const BYTES_OF_A_WORKER: usize = 16 * MIB;
/// How long the workers take to fill the queues, and how long they are then looked at.
const WARM_UP_NS: u64 = 50_000;
const DURATION_NS: u64 = 200_000;

/// Bandwidth of sixteen workers, of which more and more read and the others write.
pub(super) fn mixed_bandwidth(profile: &Profile) -> Figures {
    let slots = BYTES_OF_A_WORKER / LINE;
    let mut figures = Vec::new();
    for readers in (0..=WORKERS).step_by(2) {
        let bench = Bench::new(profile.machine(), WORKERS * BYTES_OF_A_WORKER)?;
        let value = bench.bandwidth_for(WORKERS, WARM_UP_NS, DURATION_NS, |worker, step| {
            // So that no two workers go from module to module in the same order.
            let place = scattered(step + worker * 4099, slots) * LINE;
            let line = worker * BYTES_OF_A_WORKER + place;
            if worker < readers {
                bench.prefetch(line);
            } else {
                bench.write(line, LINE, Persist::NonTemporal);
            }
            LINE
        });
        let writers = WORKERS - readers;
        figures.push(figure(
            format!("mixed/{readers}-{writers}"),
            format!("all modules, {readers} workers read, {writers} write"),
            "GB/s",
            value,
            "random lines; reads not waiting for one another, ntstores without a fence",
        ));
    }
    Ok(figures)
}
