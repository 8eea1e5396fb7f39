//! The slowest persists: what a module does to those who write one place over and over.
//!
//! A module moves a block that is written much more than others, to level the wear of its media, and
//! takes nothing meanwhile. Means do not show it; the slowest of a hundred thousand persists are it.

use lapis_device::Profile;

use super::experiments::{Figures, figure};
use super::patterns::{Bench, Persist};

const KIB: usize = 1 << 10;
const UNIT: usize = 256;
/// Persists of a region that are looked at; the second slowest is their 99.999th percentile.
const STEPS: usize = 131_072;
/// Whatever takes longer was not delayed by lines that went before it.
const DELAYED_NS: f64 = 10_000.0;

const HOW: &str = "one module, 256 B in order by ntstore, over and over, a fence after each";

/// Regions of which the slowest persists were published.
const REGIONS: [(&str, &str, usize); 5] = [
    ("256", "256 B", UNIT),
    ("32K", "32 KiB", 32 * KIB),
    ("64K", "64 KiB", 64 * KIB),
    ("128K", "128 KiB", 128 * KIB),
    ("64M", "64 MiB", 64 * KIB * KIB),
];
/// In larger ones the slowest is no delayed one, neither on the module nor in the model.
const LARGEST_HOT_SPOT: usize = 32 * KIB;

/// The slowest persists by the size of the region that is written.
pub(super) fn slowest_persists(profile: &Profile) -> Figures {
    let mut figures = Vec::new();
    for (id, title, bytes) in REGIONS {
        let bench = Bench::new(profile.machine_of_one_module(), bytes.max(4 * KIB))?;
        let times = bench.latencies_ns(STEPS, |step| {
            bench.persist(step * UNIT % bytes, UNIT, Persist::NonTemporal);
        });
        figures.push(figure(
            format!("delays/{id}"),
            format!("persists in {title} that take above 10 µs"),
            "per million",
            per_million(&times),
            HOW,
        ));
        if bytes <= LARGEST_HOT_SPOT {
            figures.push(figure(
                format!("tail/{id}"),
                format!("persist latency in {title}, 99.999th percentile"),
                "ns",
                percentile(times, 0.99999),
                HOW,
            ));
        }
    }
    Ok(figures)
}

/// How often persists are delayed, from the first one that is to the last.
fn per_million(times_ns: &[f64]) -> f64 {
    let delayed = || times_ns.iter().enumerate().filter(|(_, ns)| **ns > DELAYED_NS);
    match (delayed().next(), delayed().next_back()) {
        (Some((first, _)), Some((last, _))) if last > first => {
            1e6 * (delayed().count() - 1) as f64 / (last - first) as f64
        }
        _ => 0.0,
    }
}

/// The time that such a share of `times_ns` does not exceed.
fn percentile(mut times_ns: Vec<f64>, share: f64) -> f64 {
    let rank = (times_ns.len() as f64 * share).ceil() as usize;
    *times_ns.select_nth_unstable_by(rank - 1, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_delay_in_a_hundred_thousand_is_beyond_the_percentile_and_two_are_not() {
        let mut times = vec![100.0; STEPS];
        times[7] = 50_000.0;
        assert_eq!(percentile(times.clone(), 0.99999), 100.0);
        times[70_000] = 40_000.0;
        assert_eq!(percentile(times, 0.99999), 40_000.0);
    }

    #[test]
    fn the_rate_of_delays_is_that_between_the_first_and_the_last() {
        let mut times = vec![100.0; STEPS];
        assert_eq!(per_million(&times), 0.0);
        times[10_000] = 50_000.0;
        assert_eq!(per_million(&times), 0.0);
        (times[20_000], times[30_000]) = (50_000.0, 50_000.0);
        assert_eq!(per_million(&times), 100.0);
    }
}
