//! Performance bugs: each kind is found exactly where it was planted, and nowhere else.

use lapis_crash::{PerformanceReport, Structure, Waste, performance_bugs, structure_performance};
use lapis_device::trace_file::RecordedTrace;
use lapis_device::{Config, Marker, Modelled, set_current_worker};
use lapis_index::IndexKind;
use lapis_pmem::{Domain, EXTENT_BYTES, PCell, Region};

/// A counter that is kept twice, in two lines, and a log line, on the modelled machine.
struct Counter {
    domain: Modelled,
    region: Region,
    operations: u32,
}

impl Counter {
    fn new() -> Self {
        let region = Region::anonymous(EXTENT_BYTES, EXTENT_BYTES).unwrap();
        let domain = Modelled::over(&region, Config::tracing());
        set_current_worker(0);
        Self { domain, region, operations: 0 }
    }

    fn cell(&self, line: usize) -> &PCell<u64> {
        assert!(line * 64 < EXTENT_BYTES);
        // SAFETY: inside the mapped region, aligned, and any eight bytes are a cell.
        unsafe { &*self.region.base().add(line * 64).cast::<PCell<u64>>() }
    }

    fn operation(&mut self, body: impl FnOnce(&Self, &Modelled)) {
        self.operations += 1;
        self.domain.mark(Marker::Begin(self.operations));
        body(self, &self.domain);
        self.domain.mark(Marker::End(self.operations));
    }

    fn report(self) -> PerformanceReport {
        let recorded = RecordedTrace::of_run(self.domain.take_trace(), &[0; EXTENT_BYTES]);
        performance_bugs(&recorded, &|number| format!("step {number}"))
    }
}

/// The one finding of a report, with the line of this file that it names.
fn only_finding(report: &PerformanceReport) -> (Waste, u64, u32) {
    let [finding] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    let mut parts = finding.location.split(':');
    assert!(parts.next().unwrap().ends_with("performance.rs"));
    assert_eq!(report.wasted_total(), finding.count);
    assert_eq!(report.wasted_by(finding.waste), finding.count);
    (finding.waste, finding.count, parts.next().unwrap().parse().unwrap())
}

#[test]
fn a_frugal_structure_has_no_finding() {
    let mut counter = Counter::new();
    for round in 0..10 {
        counter.operation(|it, domain| {
            it.cell(0).store(domain, round);
            it.cell(1).store(domain, round);
            domain.flush(it.cell(0));
            domain.flush(it.cell(1));
            domain.fence();
        });
    }
    let report = counter.report();
    assert_eq!(report.findings, []);
    assert_eq!((report.operations, report.flushes, report.fences), (10, 20, 10));
    assert_eq!(report.by_operation.len(), 10);
}

#[test]
fn a_second_flush_before_the_fence_is_found_with_the_first() {
    let mut counter = Counter::new();
    let line = line!() + 4;
    counter.operation(|it, domain| {
        it.cell(0).store(domain, 1);
        domain.flush(it.cell(0));
        domain.flush(it.cell(0));
        domain.fence();
    });
    let report = counter.report();
    assert_eq!(only_finding(&report), (Waste::InFlight, 1, line));
    let cause = report.findings[0].because_of.clone().unwrap();
    assert!(cause.contains(&format!(":{}:", line - 1)), "{cause}");
}

#[test]
fn a_second_flush_after_the_fence_is_found() {
    let mut counter = Counter::new();
    let line = line!() + 4;
    counter.operation(|it, domain| {
        it.cell(0).store(domain, 1);
        domain.persist(it.cell(0));
        domain.flush(it.cell(0));
        it.cell(1).store(domain, 1);
        domain.persist(it.cell(1));
    });
    assert_eq!(only_finding(&counter.report()), (Waste::Durable, 1, line));
}

#[test]
fn a_flush_of_a_line_that_nothing_was_stored_to_is_found() {
    let mut counter = Counter::new();
    let line = line!() + 3;
    counter.operation(|it, domain| {
        it.cell(0).store(domain, 1);
        domain.flush(it.cell(5));
        domain.persist(it.cell(0));
    });
    assert_eq!(only_finding(&counter.report()), (Waste::Clean, 1, line));
}

#[test]
fn a_flush_of_what_was_stored_past_the_caches_is_found() {
    let mut counter = Counter::new();
    let line = line!() + 4;
    counter.operation(|it, domain| {
        // SAFETY: inside the region, and nobody else's.
        unsafe { domain.copy_nontemporal(it.region.base().add(128), &[7; 64]) };
        domain.flush(it.cell(2));
        domain.fence();
    });
    assert_eq!(only_finding(&counter.report()), (Waste::Clean, 1, line));
}

#[test]
fn a_flush_that_a_later_one_covers_is_found_once_per_line_and_operation() {
    let mut counter = Counter::new();
    let line = line!() + 4;
    for round in 0..3 {
        counter.operation(|it, domain| {
            it.cell(0).store(domain, 2 * round);
            domain.flush(it.cell(0));
            it.cell(0).store(domain, 2 * round + 1);
            domain.flush(it.cell(0));
            domain.fence();
        });
    }
    let report = counter.report();
    assert_eq!(only_finding(&report), (Waste::Coalescable, 3, line));
    let finding = &report.findings[0];
    assert_eq!(finding.passed, 3);
    assert_eq!(finding.by_operation.keys().collect::<Vec<_>>(), ["step 1", "step 2", "step 3"]);
    assert_eq!(finding.first_operation, Some(1));
}

#[test]
fn a_fence_with_nothing_to_order_is_found() {
    let mut counter = Counter::new();
    let line = line!() + 4;
    counter.operation(|it, domain| {
        it.cell(0).store(domain, 1);
        domain.persist(it.cell(0));
        domain.fence();
    });
    let report = counter.report();
    assert_eq!(only_finding(&report), (Waste::IdleFence, 1, line));
    assert_eq!(report.findings[0].passed, 1);
}

#[test]
fn a_fence_after_a_store_past_the_caches_is_not_idle() {
    let mut counter = Counter::new();
    counter.operation(|it, domain| {
        // SAFETY: inside the region, and nobody else's.
        unsafe { domain.copy_nontemporal(it.region.base().add(128), &[7; 64]) };
        domain.fence();
    });
    assert_eq!(counter.report().findings, []);
}

#[test]
fn flushing_what_another_worker_has_flushed_but_not_fenced_is_no_waste() {
    let mut counter = Counter::new();
    counter.operation(|it, domain| {
        it.cell(0).store(domain, 1);
        domain.flush(it.cell(0));
        set_current_worker(1);
        domain.persist(it.cell(0));
        set_current_worker(0);
        domain.fence();
    });
    assert_eq!(counter.report().findings, []);
}

/// What is known of our own structures, and why it stays.
const KNOWN: [(&str, Waste, &str); 11] = [
    // A recovery after a kill makes durable what it read; after a clean close it all is already.
    ("blocks/src/pop_log/recovery.rs", Waste::Durable, "recovery cannot know"),
    ("blocks/src/pop_log/recovery.rs", Waste::IdleFence, "recovery cannot know"),
    // Closing a pool in which nothing was allocated since it was opened.
    ("pmem/src/pool/open.rs", Waste::IdleFence, "one fence per close"),
    // The ordering fence of the paper: it keeps plain stores of one line in order and completes no
    // flush. (The checker needs it; that is in `persist_points`.)
    ("blocks/src/page/copy_on_write.rs", Waste::IdleFence, "orders the stores of a slot's header"),
    // Two small blocks share a line, and each is flushed by whoever made it.
    ("lapis/src/value.rs", Waste::Coalescable, "neighbouring blocks"),
    ("index/src/fast_fair", Waste::Coalescable, "a split, then an insertion into the same line"),
    // A removal leaves the slot array, and an insertion writes the bytes that are there already.
    ("index/src/wb_tree/bitmap.rs", Waste::Durable, "a slot array that comes out as it was"),
    // The new key of a split and the separator are blocks that may share a line.
    ("index/src/wb_tree/restructure.rs", Waste::Coalescable, "neighbouring blocks"),
    // So may a key and the delta that names it.
    ("index/src/p_bwtree/change.rs", Waste::Coalescable, "neighbouring blocks"),
    // The operations of the allocator's test leave the middle of their blocks as it was.
    ("crash/src/subjects/allocator.rs", Waste::Clean, "blocks that are not filled"),
    ("crash/src/subjects/allocator.rs", Waste::Durable, "blocks that are not filled"),
];

#[test]
fn our_own_structures_waste_nothing_but_what_is_known() {
    let mut unknown = Vec::new();
    // What lies on block devices alone has no flushes of lines.
    let on_devices = [Structure::BlockLog, Structure::Store];
    for structure in Structure::all().filter(|it| !on_devices.contains(it)) {
        for report in structure_performance(structure, None, 300, 1).unwrap() {
            assert!(report.flushes + report.fences > 350, "{report:?}");
            println!("{}: {:?}", report.subject, report.wasted);
            for finding in &report.findings {
                println!("  {finding:?}");
                let known = KNOWN.iter().any(|(place, waste, _)| {
                    finding.location.contains(place) && finding.waste == *waste
                });
                if !known {
                    unknown.push(format!("{}: {finding:?}", report.subject));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn wort_wastes_no_flush_and_no_fence() {
    for seed in 1..4 {
        for report in
            structure_performance(Structure::Index(IndexKind::Wort), None, 300, seed).unwrap()
        {
            assert_eq!(report.findings, [], "{}", report.subject);
        }
    }
}

#[test]
fn closing_a_pool_flushes_each_line_of_a_bitmap_once() {
    let reports = structure_performance(Structure::Allocator, None, 200, 2).unwrap();
    let in_slabs =
        |finding: &&lapis_crash::PerformanceFinding| finding.location.contains("slabs.rs");
    assert_eq!(reports[0].findings.iter().find(in_slabs), None);
}
