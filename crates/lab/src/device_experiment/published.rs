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
const VENDOR: &str = "vendor and secondary figures, middle of the range";
const EMULATOR: &str = "HyMem, software emulation platform";

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    pub(super) value: f64,
    pub(super) trust: Trust,
    pub(super) source: &'static str,
}

type Entry = (&'static str, f64, Trust, &'static str);

const OPTANE_100: &[Entry] = &[
    ("read/sequential", 169.0, Trust::M, FAST),
    ("read/random", 305.0, Trust::M, FAST),
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
];

const DRAM: &[Entry] = &[
    ("read/sequential", 81.0, Trust::M, FAST),
    ("read/random", 101.0, Trust::M, FAST),
    ("best/ntstore", 87.0, Trust::M, FAST),
    ("best/clwb", 57.0, Trust::M, FAST),
    ("peak/read/17", 113.8, Trust::M, THESIS),
];

const OPTANE_200: &[Entry] = &[
    ("module/read/64", 1.945, Trust::A, VENDOR),
    ("module/read/256", 7.775, Trust::A, VENDOR),
    ("module/ntstore/64", 0.675, Trust::A, VENDOR),
    ("module/ntstore/256", 2.70, Trust::A, VENDOR),
];

const CXL_NVDIMM: &[Entry] =
    &[("read/random", 200.0, Trust::A, "vendor"), ("peak/read/22", 32.0, Trust::A, "vendor")];

const HYMEM_SEP: &[Entry] = &[("read/random", 500.0, Trust::A, EMULATOR)];

/// What was published of `figure` on the machine that `profile` stands for.
pub(super) fn published(profile: &str, figure: &str) -> Option<Published> {
    let entries = match profile {
        "optane-100" => OPTANE_100,
        "dram" => DRAM,
        "optane-200" => OPTANE_200,
        "cxl-nvdimm" => CXL_NVDIMM,
        "hymem-sep" => HYMEM_SEP,
        _ => return None,
    };
    let &(_, value, trust, source) = entries.iter().find(|entry| entry.0 == figure)?;
    Some(Published { value, trust, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_is_published_twice_and_none_is_zero() {
        for entries in [OPTANE_100, DRAM, OPTANE_200, CXL_NVDIMM, HYMEM_SEP] {
            for (at, entry) in entries.iter().enumerate() {
                assert!(entry.1 > 0.0, "{}", entry.0);
                assert!(entries[at + 1..].iter().all(|other| other.0 != entry.0), "{}", entry.0);
            }
        }
    }
}
