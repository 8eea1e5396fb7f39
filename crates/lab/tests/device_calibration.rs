//! The modelled machine against the published one.

use std::sync::LazyLock;

use lapis_device::Profile;
use lapis_lab::device_experiment::{COMMAND, DeviceResults, Row, calibrate, calibration_table};
use lapis_lab::generated::section;

static OPTANE_100: LazyLock<DeviceResults> =
    LazyLock::new(|| calibrate(&Profile::named("optane-100").unwrap(), &|_| ()).unwrap());

fn row(id: &str) -> &'static Row {
    OPTANE_100.rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

/// Figures whose names begin so are all within so many percent of what was published.
fn within(percent: f64, figures: &str, count: usize) {
    let rows: Vec<_> = OPTANE_100.rows.iter().filter(|row| row.id.starts_with(figures)).collect();
    assert_eq!(rows.len(), count, "{figures}");
    for row in rows {
        let error = row.error_percent.unwrap();
        assert!(error.abs() <= percent, "{}: {error:+.1} %, {row:?}", row.quantity);
    }
}

#[test]
fn read_latencies_are_within_ten_percent() {
    within(10.0, "read/", 2);
}

#[test]
fn best_case_write_latencies_are_within_ten_percent() {
    within(10.0, "best/", 2);
}

#[test]
fn write_latencies_by_size_are_within_ten_percent() {
    within(10.0, "size/ntstore/", 7);
    within(10.0, "size/clwb/", 7);
}

#[test]
fn pointer_chases_beyond_the_buffer_are_within_ten_percent() {
    for figure in ["chase/4M", "chase/32M", "chase/256M"] {
        within(10.0, figure, 1);
    }
}

#[test]
fn bandwidths_of_one_module_are_within_ten_percent() {
    within(10.0, "module/", 12);
}

#[test]
fn peaks_of_all_modules_are_within_fifteen_percent() {
    for peak in ["peak/read/22", "peak/ntstore/8", "peak/clwb/4"] {
        within(15.0, peak, 1);
    }
}

#[test]
fn many_workers_write_back_less_than_few() {
    let (few, many) = (row("peak/clwb/4").modelled, row("peak/clwb/24").modelled);
    assert!(many < 0.8 * few, "{many} of {few}");
}

#[test]
fn readers_and_writers_together_are_within_twenty_percent() {
    within(20.0, "mixed/", 9);
}

#[test]
fn write_amplification_of_halves_is_within_ten_percent_at_every_region() {
    within(10.0, "halves/", 20);
}

#[test]
fn write_amplification_of_random_nontemporal_stores_is_within_five_percent() {
    within(5.0, "random/", 4);
}

#[test]
fn stores_that_trickle_out_by_eviction_are_amplified_fourfold_at_any_size() {
    within(5.0, "evicted/", 3);
}

#[test]
fn figures_that_nobody_published_say_so() {
    let row = row("same/clwb");
    assert_eq!((row.published, row.error_percent, row.trust), (None, None, None));
    assert!(calibration_table(&OPTANE_100).contains("| not measured |"));
}

#[test]
fn the_figures_are_the_same_on_every_run() {
    let again = calibrate(&Profile::named("optane-100").unwrap(), &|_| ()).unwrap();
    assert_eq!(again, *OPTANE_100);
}

#[test]
fn memory_without_an_xpline_writes_what_it_is_given() {
    let results = calibrate(&Profile::named("dram").unwrap(), &|_| ()).unwrap();
    assert_eq!(results.rows.len(), OPTANE_100.rows.len());
    assert!(results.rows.iter().all(|row| row.modelled.is_finite()));
    let amplified = results.rows.iter().filter(|row| row.unit == "media/written");
    assert!(amplified.map(|row| row.modelled).all(|units| units == 1.0));
}

#[test]
fn the_document_has_the_generated_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/calibration.md");
    let Ok(document) = std::fs::read_to_string(path) else {
        eprintln!("skipped: {path} is not there");
        return;
    };
    assert_eq!(
        section(&document, COMMAND),
        Some(calibration_table(&OPTANE_100).as_str()),
        "`{COMMAND} --write docs/calibration.md` renews it"
    );
}
