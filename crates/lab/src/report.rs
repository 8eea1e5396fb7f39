//! What a workload reports: throughput, latency quantiles, counts.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use lapis_pmem::BlockCounts;
use serde::Serialize;

use crate::experiment::Findings;
use crate::experiment::meter::CountsPerOperation;
use crate::experiment::table::{Table, decimals, grouped};
use crate::plot::{Axis, Panel, Plot, Source};

/// The longest latency a histogram tells from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;

/// Latencies, to three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self { histogram: histogram.expect("1 ns to 60 s at three digits is a valid histogram") }
    }

    /// Adds one.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("histograms of the same bounds add up");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The quantiles that are reported. All zero if nothing was recorded.
    pub fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Quantiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), p9999: at(0.9999) }
    }
}

/// Latencies in nanoseconds that 50 %, 99 %, 99.9 % and 99.99 % of operations did not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Half of them.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// 99.99 %.
    pub p9999: u64,
}

/// Counts per operation as far as the machine under the store knows them: the modelled machine
/// does, hardware does not. Media counts are in units of 64 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PerOperation {
    /// The device profile that was modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Records of the modelled run, which has fewer of them than the measured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Counts, of which a run of no operations has none.
    #[serde(flatten)]
    pub counts: Option<CountsPerOperation>,
    /// What the SSDs did.
    #[serde(flatten)]
    pub ssd: Option<SsdPerOperation>,
}

/// What SSDs did per operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SsdPerOperation {
    /// Flushes of their caches: what a commit waits for.
    pub ssd_flushes: f64,
    /// Bytes written.
    pub ssd_written_bytes: f64,
    /// Bytes read.
    pub ssd_read_bytes: f64,
}

impl SsdPerOperation {
    /// What came between two readings of their counters, for each of so many operations.
    pub(crate) fn of(
        before: impl IntoIterator<Item = BlockCounts>,
        after: impl IntoIterator<Item = BlockCounts>,
        operations: u64,
    ) -> Self {
        let mut sum = Self::default();
        let each = |after: u64, before: u64| (after - before) as f64 / operations.max(1) as f64;
        for (before, after) in before.into_iter().zip(after) {
            sum.ssd_flushes += each(after.flushes, before.flushes);
            sum.ssd_written_bytes += each(after.written_bytes, before.written_bytes);
            sum.ssd_read_bytes += each(after.read_bytes, before.read_bytes);
        }
        sum
    }
}

/// One kind of operation within a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// How many were done.
    pub operations: u64,
    /// Their latencies.
    pub latency_ns: Quantiles,
}

/// What a workload did and how fast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Its name.
    pub workload: String,
    /// Records in the table when it began (after it, for a load).
    pub records: u64,
    /// Operations done.
    pub operations: u64,
    /// Threads that did them.
    pub threads: usize,
    /// Operations per second of all threads together, measured here.
    pub ops_per_s: f64,
    /// Latencies over all operations, measured here.
    pub latency_ns: Quantiles,
    /// Counts per operation where known.
    pub per_op: PerOperation,
    /// The same by kind of operation.
    pub by_kind: BTreeMap<&'static str, KindReport>,
    /// Seconds it took.
    pub seconds: f64,
}

impl Report {
    /// A report from what was recorded for each kind of operation.
    pub(crate) fn new(
        workload: impl Into<String>,
        records: u64,
        threads: usize,
        elapsed: Duration,
        kinds: &BTreeMap<&'static str, Latencies>,
    ) -> Self {
        let mut all = Latencies::new();
        for latencies in kinds.values() {
            all.merge(latencies);
        }
        let seconds = elapsed.as_secs_f64();
        let by_kind = kinds
            .iter()
            .map(|(&kind, latencies)| {
                let latency_ns = latencies.quantiles();
                (kind, KindReport { operations: latencies.count(), latency_ns })
            })
            .collect();
        Self {
            workload: workload.into(),
            records,
            operations: all.count(),
            threads,
            ops_per_s: if seconds > 0.0 { all.count() as f64 / seconds } else { 0.0 },
            latency_ns: all.quantiles(),
            per_op: PerOperation::default(),
            by_kind,
            seconds,
        }
    }
}

/// A number of something, by name.
type Named<T, N> = (&'static str, fn(T) -> N);

impl Findings for [Report] {
    fn tables(&self) -> Vec<Table> {
        let mut measured = Table::new(
            1,
            "measured here | operations | threads | ops/s | p50 ns | p99 ns | p99.9 ns | p99.99 ns",
        );
        for run in self {
            let mut push = |name: String, operations: u64, rate: String, of: Quantiles| {
                let latencies = [of.p50, of.p99, of.p999, of.p9999].map(grouped);
                let counts = [name, grouped(operations), run.threads.to_string(), rate];
                measured.push(counts.into_iter().chain(latencies));
            };
            let rate = grouped(run.ops_per_s as u64);
            push(run.workload.clone(), run.operations, rate, run.latency_ns);
            for (kind, part) in run.by_kind.iter().filter(|_| run.by_kind.len() > 1) {
                push(format!("  {kind}"), part.operations, String::new(), part.latency_ns);
            }
        }
        let Some(profile) = profile(self) else { return vec![measured] };
        let headings = "records | flushes | fences | WPQ inserts | media writes | media reads | \
                        LLC misses | SSD flushes | SSD bytes written | SSD bytes read";
        let mut modelled = Table::new(1, &format!("modelled for {profile} | {headings}"));
        for run in self {
            let counts = run.per_op.counts;
            let cell = |of: fn(CountsPerOperation) -> f64| decimals(counts.map(of), 2);
            let ssd = |of: fn(SsdPerOperation) -> f64| decimals(run.per_op.ssd.map(of), 2);
            modelled.push([
                run.workload.clone(),
                grouped(run.per_op.records.unwrap_or_default()),
                cell(|of| of.flushes),
                cell(|of| of.fences),
                cell(|of| of.wpq_inserts),
                cell(|of| of.media_writes),
                cell(|of| of.media_reads),
                cell(|of| of.llc_misses),
                ssd(|of| of.ssd_flushes),
                ssd(|of| of.ssd_written_bytes),
                ssd(|of| of.ssd_read_bytes),
            ]);
        }
        vec![measured, modelled]
    }

    fn figure(&self) -> Option<Plot> {
        let places = || Axis::categories("workload", self.iter().map(|run| &run.workload));
        let of_each = |value: &dyn Fn(&Report) -> f64| {
            self.iter().enumerate().map(|(at, run)| (at as f64, value(run))).collect::<Vec<_>>()
        };
        let mut rates = Panel::new("throughput", places(), Axis::linear("operations/s"));
        rates.bars("all threads", Source::Measured, of_each(&|run| run.ops_per_s));
        let mut latencies = Panel::new("latency", places(), Axis::log10("ns"));
        let quantiles: [Named<Quantiles, u64>; 4] = [
            ("p50", |of| of.p50),
            ("p99", |of| of.p99),
            ("p99.9", |of| of.p999),
            ("p99.99", |of| of.p9999),
        ];
        for (name, quantile) in quantiles {
            let points = of_each(&|run| quantile(run.latency_ns) as f64);
            latencies.line(name, Source::Measured, points);
        }
        let mut panels = vec![rates, latencies];
        if let Some(profile) = profile(self) {
            let mut counts = Panel::new("counts", places(), Axis::linear("per operation"));
            let of_counts: [Named<CountsPerOperation, f64>; 4] = [
                ("flushes", |of| of.flushes),
                ("fences", |of| of.fences),
                ("WPQ inserts", |of| of.wpq_inserts),
                ("media writes", |of| of.media_writes),
            ];
            for (name, count) in of_counts {
                let counted = |run: &Report| run.per_op.counts.map_or(0.0, count);
                counts.bars(name, Source::modelled(profile), of_each(&counted));
            }
            panels.push(counts);
        }
        Some(Plot::new("Workloads", "Media writes are in units of 64 bytes.", panels))
    }

    fn notes(&self) -> Vec<String> {
        let note = profile(self).map(|_| "per operation; media in units of 64 bytes".to_owned());
        note.into_iter().collect()
    }
}

/// The profile that the counts were modelled for, if anything was counted.
fn profile(runs: &[Report]) -> Option<&str> {
    runs.iter().find_map(|run| run.per_op.profile.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_digits() {
        let mut latencies = Latencies::new();
        for nanoseconds in 1..=100_000u64 {
            latencies.record(Duration::from_nanos(nanoseconds));
        }
        let quantiles = latencies.quantiles();
        for (found, expected) in
            [(quantiles.p50, 50_000.0), (quantiles.p99, 99_000.0), (quantiles.p9999, 99_990.0)]
        {
            assert!((found as f64 - expected).abs() < expected * 0.002, "{found} {expected}");
        }
    }

    #[test]
    fn an_hour_counts_as_the_longest_latency() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(3600));
        assert!(latencies.quantiles().p50 >= LONGEST_NS);
    }

    #[test]
    fn a_report_has_the_fields_that_are_promised() {
        let mut reads = Latencies::new();
        reads.record(Duration::from_nanos(100));
        let kinds = BTreeMap::from([("read", reads)]);
        let report = Report::new("ycsb-c", 10, 1, Duration::from_millis(1), &kinds);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["workload"], "ycsb-c");
        assert_eq!(json["records"], 10);
        assert_eq!(json["operations"], 1);
        assert_eq!(json["threads"], 1);
        assert_eq!(json["ops_per_s"], 1000.0);
        assert_eq!(json["per_op"], serde_json::json!({}));
        for quantile in ["p50", "p99", "p999", "p9999"] {
            assert_eq!(json["latency_ns"][quantile], 100);
        }
    }
}
