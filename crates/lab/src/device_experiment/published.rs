//! What was published about real machines, by profile and figure.

use lapis_device::profile::Trust;

use crate::named::named;

/// Where figures come from.
const FAST: &str = "FAST 2020";
const THESIS: &str = "HyMem thesis, chapter 3";
/// Medians over the runs that the study published, by pattern, modules, operation, access size and
/// threads: the programs are in `src/kernel/memaccess.c` of github.com/NVSL/OptaneStudy.
const RUNS: &str = "FAST 2020, raw runs";
const CHASE: &str = "microarchitectural study of the DIMM";
/// The same authors' data, published with their simulator (`tests/precision` of
/// github.com/TheNetAdmin/VANS): `overwrite/LPMEM-Overwrite-256.csv`, of 262,144 persists of the same
/// 256 B those beyond 44 µs, 16,024 apart on average; `ptr_chasing/RaW-Interleaved-NT.csv`, the time of
/// writing in its first row, 64 B again and again.
const CHASE_DATA: &str = "microarchitectural study of the DIMM, data of its simulator";
/// Figure 3 of the first study (`graphs/03-tail_latency.csv` of its repository).
const FAST_TAIL: &str = "FAST 2020, data of Fig. 3";
const VENDOR: &str = "vendor and secondary figures";
const DRAM_LIKE: &str = "DRAM latencies, as vendors state; those of FAST 2020";
const EMULATOR: &str = "HyMem, software emulation platform";

named! {
    /// What a published figure is to the model.
    pub enum Role {
        /// Nothing was made from it.
        Independent = "independent",
        /// A field of the profile was computed from it.
        Derived = "derived",
        /// A field of the profile was chosen so that the model comes near it.
        Fitted = "fitted",
    }
}

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    /// Of a range the middle.
    pub(super) value: f64,
    pub(super) range: Option<[f64; 2]>,
    pub(super) trust: Trust,
    pub(super) source: &'static str,
    pub(super) role: Role,
}

type Entry = (&'static str, f64, Trust, &'static str);
/// The least and the most.
type RangeEntry = (&'static str, [f64; 2], Trust, &'static str);

/// What fields of the profile were computed from.
const OPTANE_100_DERIVED: &[Entry] = &[
    ("read/sequential", 169.0, Trust::M, FAST),
    ("read/random", 305.0, Trust::M, FAST),
    ("chase/16K", 181.0, Trust::M, CHASE),
    ("chase/4M", 311.0, Trust::M, CHASE),
    ("chase/256M", 377.0, Trust::M, CHASE),
    ("same/ntstore", 192.7, Trust::M, CHASE_DATA),
    ("delays/256", 62.4, Trust::M, CHASE_DATA),
    ("tail/256", 52_738.0, Trust::M, FAST_TAIL),
    ("tail/32K", 48_436.0, Trust::M, FAST_TAIL),
    ("runs/random/1/load/256/4/gb_s", 6.63, Trust::M, RUNS),
    ("runs/random/1/ntstore/256/1/gb_s", 2.26, Trust::M, RUNS),
    ("runs/random/1/ntstore/256/1/ratio", 0.98, Trust::M, RUNS),
];

/// What fields of the profile were fitted to.
const OPTANE_100_FITTED: &[Entry] = &[
    ("best/ntstore", 90.0, Trust::M, FAST),
    ("best/clwb", 62.0, Trust::M, FAST),
    ("size/ntstore/64", 125.0, Trust::M, FAST),
    ("size/ntstore/128", 135.0, Trust::M, FAST),
    ("size/ntstore/256", 212.0, Trust::M, FAST),
    ("size/ntstore/512", 305.0, Trust::M, FAST),
    ("size/ntstore/1024", 484.0, Trust::M, FAST),
    ("size/ntstore/2048", 853.0, Trust::M, FAST),
    ("size/ntstore/4096", 1551.0, Trust::M, FAST),
    ("size/clwb/64", 116.0, Trust::M, FAST),
    ("size/clwb/128", 134.0, Trust::M, FAST),
    ("size/clwb/256", 192.0, Trust::M, FAST),
    ("size/clwb/512", 328.0, Trust::M, FAST),
    ("size/clwb/1024", 601.0, Trust::M, FAST),
    ("size/clwb/2048", 1015.0, Trust::M, FAST),
    ("size/clwb/4096", 1774.0, Trust::M, FAST),
    ("runs/random/1/load/128/12/gb_s", 2.96, Trust::M, RUNS),
    ("runs/random/1/load/256/12/gb_s", 4.76, Trust::M, RUNS),
    ("runs/random/1/load/1024/12/gb_s", 4.15, Trust::M, RUNS),
    ("runs/random/1/store+clwb/256/2/gb_s", 1.79, Trust::M, RUNS),
    ("runs/random/1/store+clwb/256/2/ratio", 0.97, Trust::M, RUNS),
    ("runs/random/6/ntstore/256/1/gb_s", 4.29, Trust::M, RUNS),
    ("runs/random/6/ntstore/256/1/ratio", 0.99, Trust::M, RUNS),
    ("runs/random/6/ntstore/256/4/gb_s", 12.47, Trust::M, RUNS),
    ("runs/random/6/ntstore/256/4/ratio", 0.99, Trust::M, RUNS),
    ("runs/random/6/store+clwb/256/1/gb_s", 1.12, Trust::M, RUNS),
    ("halves/256", 0.80, Trust::M, FAST),
    ("halves/512", 0.91, Trust::M, FAST),
    ("halves/1024", 0.97, Trust::M, FAST),
    ("halves/2048", 1.04, Trust::M, FAST),
    ("halves/4096", 1.04, Trust::M, FAST),
    ("halves/8192", 1.04, Trust::M, FAST),
    ("halves/16384", 1.04, Trust::M, FAST),
    ("halves/18432", 1.04, Trust::M, FAST),
    ("halves/20480", 1.36, Trust::M, FAST),
    ("halves/22528", 1.50, Trust::M, FAST),
    ("halves/24576", 1.61, Trust::M, FAST),
    ("halves/26624", 1.68, Trust::M, FAST),
    ("halves/28672", 1.74, Trust::M, FAST),
    ("halves/30720", 1.79, Trust::M, FAST),
    ("halves/32768", 1.82, Trust::M, FAST),
    ("halves/34816", 1.86, Trust::M, FAST),
    ("halves/36864", 1.88, Trust::M, FAST),
    ("halves/40960", 1.92, Trust::M, FAST),
    ("halves/65536", 2.04, Trust::M, FAST),
    ("halves/4194304", 2.08, Trust::M, FAST),
];

const DRAM: &[Entry] = &[
    ("read/sequential", 81.0, Trust::M, FAST),
    ("read/random", 101.0, Trust::M, FAST),
    ("read/far", 121.0, Trust::M, THESIS),
    ("best/ntstore", 87.0, Trust::M, FAST),
    ("best/clwb", 57.0, Trust::M, FAST),
    ("peak/read/17", 113.8, Trust::M, THESIS),
];

const NVDIMM_N: &[Entry] = &[
    ("read/sequential", 81.0, Trust::A, DRAM_LIKE),
    ("read/random", 101.0, Trust::A, DRAM_LIKE),
    ("best/ntstore", 87.0, Trust::A, DRAM_LIKE),
    ("best/clwb", 57.0, Trust::A, DRAM_LIKE),
];

const CXL_NVDIMM: &[Entry] =
    &[("read/random", 200.0, Trust::A, "vendor"), ("peak/read/22", 32.0, Trust::A, "vendor")];

const HYMEM_SEP: &[Entry] = &[("read/random", 500.0, Trust::A, EMULATOR)];

/// Shares of which the percentiles say between which they are: with 10 and 100 of a million delayed,
/// the 99.999th percentile is a delay and the 99.99th is none.
const OPTANE_100_RANGES: &[RangeEntry] = &[
    ("delays/32K", [10.0, 100.0], Trust::D, FAST_TAIL),
    ("delays/64K", [10.0, 100.0], Trust::D, FAST_TAIL),
    ("delays/128K", [0.0, 10.0], Trust::D, FAST_TAIL),
    ("delays/64M", [0.0, 10.0], Trust::D, FAST_TAIL),
];

/// Nobody says how the written bytes were stored; by ntstore a module takes most.
const OPTANE_200_RANGES: &[RangeEntry] = &[
    ("runs/random/1/load/64/4/gb_s", [1.86, 2.03], Trust::A, VENDOR),
    ("runs/random/1/load/256/4/gb_s", [7.45, 8.10], Trust::A, VENDOR),
    ("runs/random/1/ntstore/64/1/gb_s", [0.56, 0.79], Trust::A, VENDOR),
    ("runs/random/1/ntstore/256/1/gb_s", [2.25, 3.15], Trust::A, VENDOR),
];

/// What was published of `figure` on the machine that `profile` stands for, and the profile was made
/// from.
pub(super) fn published(profile: &str, figure: &str) -> Option<Published> {
    use Role::{Derived, Fitted};
    let (values, ranges): (&[(Role, &[Entry])], &[RangeEntry]) = match profile {
        "optane-100" => {
            (&[(Derived, OPTANE_100_DERIVED), (Fitted, OPTANE_100_FITTED)], OPTANE_100_RANGES)
        }
        "optane-200" => (&[], OPTANE_200_RANGES),
        "dram" => (&[(Fitted, DRAM)], &[]),
        "nvdimm-n" => (&[(Fitted, NVDIMM_N)], &[]),
        "cxl-nvdimm" => (&[(Fitted, CXL_NVDIMM)], &[]),
        "hymem-sep" => (&[(Fitted, HYMEM_SEP)], &[]),
        _ => return None,
    };
    let value = values.iter().find_map(|&(role, entries)| {
        let &(_, value, trust, source) = entries.iter().find(|entry| entry.0 == figure)?;
        Some(Published { value, range: None, trust, source, role })
    });
    let range = ranges.iter().find(|entry| entry.0 == figure);
    value.or(range.map(|&(_, range, trust, source)| Published {
        value: range[0].midpoint(range[1]),
        range: Some(range),
        trust,
        source,
        role: Fitted,
    }))
}

/// The names of the figures that a profile of the machine with a name was made from.
pub(super) fn figures_of(profile: &str) -> Vec<&'static str> {
    match profile {
        "optane-100" => {
            let values = OPTANE_100_DERIVED.iter().chain(OPTANE_100_FITTED);
            values.map(|entry| entry.0).collect()
        }
        _ => OPTANE_200_RANGES.iter().map(|entry| entry.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_is_published_twice_and_none_is_zero() {
        for entries in
            [OPTANE_100_DERIVED, OPTANE_100_FITTED, DRAM, NVDIMM_N, CXL_NVDIMM, HYMEM_SEP]
        {
            for (at, entry) in entries.iter().enumerate() {
                assert!(entry.1 > 0.0, "{}", entry.0);
                assert!(entries[at + 1..].iter().all(|other| other.0 != entry.0), "{}", entry.0);
            }
        }
    }

    #[test]
    fn no_figure_is_published_as_a_value_and_as_a_range() {
        let of_100 = |figure: &str| figures_of("optane-100").contains(&figure);
        assert!(OPTANE_100_RANGES.iter().all(|range| !of_100(range.0)));
    }

    #[test]
    fn a_range_is_published_with_its_ends_and_its_middle() {
        let figure = "runs/random/1/load/256/4/gb_s";
        let read = published("optane-200", figure).unwrap();
        assert_eq!((read.value, read.range), (7.775, Some([7.45, 8.10])));
        assert_eq!(published("optane-100", figure).unwrap().range, None);
        assert_eq!(published("optane-200", "read/random"), None);
    }
}
