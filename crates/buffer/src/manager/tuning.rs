//! What the ways that pages take cost, and tuning the chances by it.

use lapis_blocks::page::CostModel;
use lapis_pmem::Domain;

use super::{BufferManager, Statistics};

/// Of one of several lines of a page, on the modelled machine of the profile `optane-100`.
const LINE_READ_NS: f64 = 175.0;
/// Lines of a leaf that a search loads where it lies: of the six or seven that it touches, others are in the caches. On that
/// machine, by what gets take that bring lines to DRAM and those that do not.
const LINES_OF_A_READ: f64 = 3.5;
/// The processor's time for a page's way to DRAM and out again: what that took more than to read it where it is.
const LOAD_NS: f64 = 500.0;
/// Of an ordinary SSD. Writes are in the background, in batches.
const SSD_READ_NS: f64 = 85_000.0;
const SSD_WRITE_NS: f64 = 20_000.0;

impl Statistics {
    /// What pages of this size have cost that were not used in DRAM alone, about: counts by what each takes. That is
    /// modelled and assumed, not measured: persistent memory as in the profile `optane-100`, an ordinary SSD.
    pub fn cost_ns(&self, page_bytes: usize) -> u64 {
        let model = CostModel::default();
        let Some(writes) = model.points.first() else { return 0 };
        let copy_ns = writes.copy_ns * page_bytes as f64 / model.page_bytes as f64;
        let tier = &self.tier;
        let in_place = tier.migration.map_or(0, |it| it.dram_reads.otherwise);
        let copies = (tier.admissions + tier.loads_from_ssd) as f64;
        // Whichever is cheaper is how a page is written.
        let changed = tier.pages_written.saturating_sub(tier.admissions) as f64;
        let logged_ns = changed * writes.log_ns + tier.lines_written as f64 * writes.log_line_ns;
        let cost = (tier.lines_loaded as f64 + in_place as f64 * LINES_OF_A_READ) * LINE_READ_NS
            + tier.loads as f64 * LOAD_NS
            + copies * copy_ns
            + logged_ns.min(changed * copy_ns)
            + self.loads as f64 * SSD_READ_NS
            + (self.pages_written + tier.pages_to_ssd) as f64 * SSD_WRITE_NS;
        cost as u64
    }
}

impl<D: Domain> BufferManager<D> {
    /// Ends a round of tuning ([`Migration::tuned_each`](crate::Migration::tuned_each)), if there were enough operations in
    /// it. These are all so far, whatever they are: what a round has cost is divided by them ([`Statistics::cost_ns`]). Whoever counts
    /// them calls this now and then, from one thread or several. Returns whether a round has ended.
    pub fn tune(&self, operations: u64) -> bool {
        let Some(migrations) = self.migrations.as_ref().filter(|it| it.is_due(operations)) else {
            return false;
        };
        migrations.tune(operations, self.statistics().cost_ns(self.page_bytes))
    }
}
