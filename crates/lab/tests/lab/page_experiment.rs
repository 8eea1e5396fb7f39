//! The page experiment, small.

use lapis_blocks::page::PageScheme;
use lapis_lab::experiment::table::markdown;
use lapis_lab::experiment::{Findings, Sides};
use lapis_lab::page_experiment::{Options, PageResults, calibrate, run};

fn small() -> Options {
    Options {
        dirty_lines: vec![1, 16, 64],
        threads: vec![1, 3],
        page_bytes: 4096,
        measured_pages: 64,
        measured_ms: 2,
        modelled_pages: 64,
        modelled_writes: 10,
        ..Options::default()
    }
}

fn modelled() -> PageResults {
    run(&Options { sides: Sides::modelled_only(), ..small() }, &|_| ()).unwrap()
}

#[test]
fn every_variant_has_a_row_for_every_number_of_lines_and_threads() {
    let results = run(&small(), &|_| ()).unwrap();
    assert_eq!(results.rows.len(), PageScheme::all().len() * 3 * 2);
    for row in &results.rows {
        assert!(row.modelled.as_ref().unwrap().figures.pages_per_s > 0.0, "{row:?}");
        if row.case.threads == 1 {
            assert!(row.measured.unwrap().pages_per_s > 0.0, "{row:?}");
        }
    }
    assert!(results.figure().unwrap().svg().is_ok());
    assert!(markdown(&results.tables()).contains("| 64 |"));
}

#[test]
fn what_is_modelled_is_the_same_every_time() {
    assert_eq!(modelled(), modelled());
}

#[test]
fn rows_say_how_many_fences_there_were() {
    for row in modelled().rows {
        let fences = row.modelled.as_ref().unwrap().counts.fences;
        assert_eq!((row.case.barriers + row.case.ordering_fences) as f64, fences, "{row:?}");
    }
}

#[test]
fn a_hybrid_is_never_much_slower_than_the_better_of_the_two() {
    let options = Options { page_bytes: 16384, dirty_lines: vec![1, 256], ..small() };
    let results = run(&Options { sides: Sides::modelled_only(), ..options }, &|_| ()).unwrap();
    let ns = |variant, lines, threads| {
        let mut cases = results.rows.iter().map(|row| (&row.case, row.modelled.as_ref().unwrap()));
        let found = cases.find(|(case, _)| {
            (case.variant, case.dirty_lines, case.threads) == (variant, lines, threads)
        });
        found.unwrap().1.figures.ns_per_page
    };
    for threads in [1, 3] {
        for lines in [1, 256] {
            let better = f64::min(
                ns(PageScheme::COPY_ON_WRITE, lines, threads),
                ns(PageScheme::MICRO_LOG, lines, threads),
            );
            assert!(ns(PageScheme::HYBRID, lines, threads) < 1.1 * better, "{lines} {threads}");
        }
    }
}

#[test]
fn a_cost_model_can_be_made_of_it() {
    let model = calibrate(&modelled(), false).unwrap();
    assert_eq!(model.points.len(), 2);
    assert!(model.points.iter().all(|point| point.copy_ns > 0.0 && point.log_line_ns > 0.0));
}
