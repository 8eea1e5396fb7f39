//! What was published about real machines, by profile and figure.

use lapis_device::profile::Trust;

/// Where figures come from.
const FAST: &str = "FAST 2020";
const THESIS: &str = "HyMem thesis, chapter 3";
/// Figure 6 of the same study, whose data are published with it (`graphs/06-bandwidth_thmix.csv` of
/// github.com/NVSL/OptaneStudy, column PM-Optane). That the accesses are of 64 bytes at random is
/// inferred from its ends.
const FAST_MIX: &str = "FAST 2020, data of Fig. 6";
const CHASE: &str = "microarchitectural study of the DIMM";
/// The same authors' data, published with their simulator (`tests/precision` of
/// github.com/TheNetAdmin/VANS): `overwrite/LPMEM-Overwrite-256.csv`, of 262,144 persists of the same
/// 256 B those beyond 44 µs, 16,024 apart on average; `ptr_chasing/RaW-Interleaved-NT.csv`, the time of
/// writing in its first row, 64 B again and again.
const CHASE_DATA: &str = "microarchitectural study of the DIMM, data of its simulator";
/// Figure 3 of the first study (`graphs/03-tail_latency.csv` of its repository).
const FAST_TAIL: &str = "FAST 2020, data of Fig. 3";
const WRITES: &str = "paper 004";
const VENDOR: &str = "vendor and secondary figures";
const DRAM_LIKE: &str = "DRAM latencies, as vendors state; those of FAST 2020";
const EMULATOR: &str = "HyMem, software emulation platform";

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    /// Of a range the middle.
    pub(super) value: f64,
    pub(super) range: Option<[f64; 2]>,
    pub(super) trust: Trust,
    pub(super) source: &'static str,
}

type Entry = (&'static str, f64, Trust, &'static str);
/// The least and the most.
type RangeEntry = (&'static str, [f64; 2], Trust, &'static str);

const OPTANE_100: &[Entry] = &[
    ("read/sequential", 169.0, Trust::M, FAST),
    ("read/random", 305.0, Trust::M, FAST),
    ("read/far", 403.0, Trust::M, THESIS),
    ("chase/16K", 181.0, Trust::M, CHASE),
    ("chase/4M", 311.0, Trust::M, CHASE),
    ("chase/32M", 344.0, Trust::M, CHASE),
    ("chase/256M", 377.0, Trust::M, CHASE),
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
    ("same/ntstore", 192.7, Trust::M, CHASE_DATA),
    ("delays/256", 62.4, Trust::M, CHASE_DATA),
    ("tail/256", 52_738.0, Trust::M, FAST_TAIL),
    ("tail/32K", 48_436.0, Trust::M, FAST_TAIL),
    ("module/read/64", 1.68, Trust::M, FAST),
    ("module/read/128", 3.34, Trust::M, FAST),
    ("module/read/256", 6.50, Trust::M, FAST),
    ("module/read/512", 6.5, Trust::M, FAST),
    ("module/ntstore/64", 0.55, Trust::M, FAST),
    ("module/ntstore/128", 1.10, Trust::M, FAST),
    ("module/ntstore/256", 2.21, Trust::M, FAST),
    ("module/ntstore/512", 2.2, Trust::M, FAST),
    ("module/clwb/64", 0.51, Trust::M, FAST),
    ("module/clwb/128", 0.93, Trust::M, FAST),
    ("module/clwb/256", 1.75, Trust::M, FAST),
    ("module/clwb/512", 1.77, Trust::M, FAST),
    ("service/write", 110.0, Trust::D, FAST),
    ("peak/read/17", 39.1, Trust::M, THESIS),
    ("peak/read/22", 37.6, Trust::M, FAST),
    ("peak/ntstore/8", 10.0, Trust::M, FAST),
    ("peak/clwb/3", 12.5, Trust::M, THESIS),
    ("peak/clwb/4", 12.5, Trust::M, FAST),
    ("peak/clwb/24", 7.5, Trust::M, FAST),
    ("mixed/0-16", 3.89, Trust::M, FAST_MIX),
    ("mixed/2-14", 4.70, Trust::M, FAST_MIX),
    ("mixed/4-12", 5.71, Trust::M, FAST_MIX),
    ("mixed/6-10", 7.01, Trust::M, FAST_MIX),
    ("mixed/8-8", 7.74, Trust::M, FAST_MIX),
    ("mixed/10-6", 7.86, Trust::M, FAST_MIX),
    ("mixed/12-4", 8.30, Trust::M, FAST_MIX),
    ("mixed/14-2", 8.33, Trust::M, FAST_MIX),
    ("mixed/16-0", 10.71, Trust::M, FAST_MIX),
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
    ("random/64", 4.0, Trust::D, FAST),
    ("random/128", 2.0, Trust::D, FAST),
    ("random/256", 1.0, Trust::D, FAST),
    ("random/1024", 1.0, Trust::D, FAST),
    ("evicted/64", 4.0, Trust::D, FAST),
    ("evicted/256", 4.0, Trust::D, FAST),
    ("evicted/1024", 4.0, Trust::D, FAST),
    // Three, for value, key and lock, less the 30.8 % that go with the flush of the value.
    ("p-clht/wpq", 2.08, Trust::D, WRITES),
    ("p-clht/eviction", 1.0, Trust::D, WRITES),
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
    ("module/read/64", [1.86, 2.03], Trust::A, VENDOR),
    ("module/read/256", [7.45, 8.10], Trust::A, VENDOR),
    ("module/ntstore/64", [0.56, 0.79], Trust::A, VENDOR),
    ("module/ntstore/256", [2.25, 3.15], Trust::A, VENDOR),
];

/// What was published of `figure` on the machine that `profile` stands for.
pub(super) fn published(profile: &str, figure: &str) -> Option<Published> {
    let (values, ranges): (&[Entry], &[RangeEntry]) = match profile {
        "optane-100" => (OPTANE_100, OPTANE_100_RANGES),
        "optane-200" => (&[], OPTANE_200_RANGES),
        "dram" => (DRAM, &[]),
        "nvdimm-n" => (NVDIMM_N, &[]),
        "cxl-nvdimm" => (CXL_NVDIMM, &[]),
        "hymem-sep" => (HYMEM_SEP, &[]),
        _ => return None,
    };
    let value = values.iter().find(|entry| entry.0 == figure);
    let range = ranges.iter().find(|entry| entry.0 == figure);
    let value =
        value.map(|&(_, value, trust, source)| Published { value, range: None, trust, source });
    value.or(range.map(|&(_, range, trust, source)| Published {
        value: range[0].midpoint(range[1]),
        range: Some(range),
        trust,
        source,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_is_published_twice_and_none_is_zero() {
        for entries in [OPTANE_100, DRAM, NVDIMM_N, CXL_NVDIMM, HYMEM_SEP] {
            for (at, entry) in entries.iter().enumerate() {
                assert!(entry.1 > 0.0, "{}", entry.0);
                assert!(entries[at + 1..].iter().all(|other| other.0 != entry.0), "{}", entry.0);
            }
        }
    }

    #[test]
    fn no_figure_is_published_as_a_value_and_as_a_range() {
        let of_100 = |figure: &str| OPTANE_100.iter().any(|entry| entry.0 == figure);
        assert!(OPTANE_100_RANGES.iter().all(|range| !of_100(range.0)));
    }

    #[test]
    fn a_range_is_published_with_its_ends_and_its_middle() {
        let read = published("optane-200", "module/read/256").unwrap();
        assert_eq!((read.value, read.range), (7.775, Some([7.45, 8.10])));
        assert_eq!(published("optane-100", "module/read/256").unwrap().range, None);
        assert_eq!(published("optane-200", "read/random"), None);
    }
}
