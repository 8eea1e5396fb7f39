//! The modelled machine against the published one.

use std::sync::LazyLock;

use lapis_device::Profile;
use lapis_lab::device_experiment::{DeviceResults, Row, calibrate};
use lapis_lab::document::section;
use lapis_lab::experiment::Findings;

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

macro_rules! within {
    ($($name:ident: $percent:literal, $($figures:literal $count:literal),*;)*) => {
        $(
            #[test]
            fn $name() {
                $(within($percent, $figures, $count);)*
            }
        )*
    };
}

within! {
    read_latencies_are_within_ten_percent: 10.0, "read/" 3;
    best_case_write_latencies_are_within_ten_percent: 10.0, "best/" 2;
    write_latencies_by_size_are_within_ten_percent: 10.0, "size/ntstore/" 7, "size/clwb/" 7;
    pointer_chases_within_the_buffer_and_beyond_are_within_ten_percent: 10.0, "chase/" 4;
    a_line_persisted_again_by_ntstore_is_within_ten_percent: 10.0, "same/ntstore" 1;
    the_slowest_persists_of_hot_spots_are_within_ten_percent: 10.0, "tail/" 2;
    the_time_of_a_media_write_is_within_ten_percent: 10.0, "service/" 1;
    an_insert_into_p_clht_reaches_the_memory_controller_twice: 10.0, "p-clht/" 2;
    bandwidths_of_one_module_are_within_ten_percent: 10.0, "module/" 12;
    peaks_of_all_modules_are_within_fifteen_percent:
        15.0, "peak/read/17" 1, "peak/read/22" 1, "peak/ntstore/8" 1, "peak/clwb/3" 1, "peak/clwb/4" 1;
    readers_and_writers_together_are_within_twenty_percent: 20.0, "mixed/" 9;
    write_amplification_of_halves_is_within_ten_percent_at_every_region: 10.0, "halves/" 20;
    write_amplification_of_random_nontemporal_stores_is_within_five_percent: 5.0, "random/" 4;
    stores_that_trickle_out_by_eviction_are_amplified_fourfold_at_any_size: 5.0, "evicted/" 3;
}

#[test]
fn persists_are_delayed_as_often_as_published_and_in_large_regions_never() {
    within(10.0, "delays/", 5);
    assert_eq!([row("delays/128K").modelled, row("delays/64M").modelled], [0.0, 0.0]);
}

#[test]
fn many_workers_write_back_less_than_few() {
    let (few, many) = (row("peak/clwb/4").modelled, row("peak/clwb/24").modelled);
    assert!(many < 0.8 * few, "{many} of {few}");
}

#[test]
fn figures_that_nobody_published_say_so() {
    let row = row("same/clwb");
    assert_eq!((row.published, row.error_percent, row.trust), (None, None, None));
    assert!(OPTANE_100.sections()[0].1.contains("| not measured |"));
}

/// The rows of a profile of which something was published.
fn published_rows(profile: &str) -> Vec<Row> {
    let mut rows = calibrate(&Profile::named(profile).unwrap(), &|_| ()).unwrap().rows;
    rows.retain(|row| row.published.is_some());
    rows
}

#[test]
fn figures_of_the_200_series_are_compared_with_the_ranges_that_are_known() {
    let rows = published_rows("optane-200");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let [least, most] = row.published_range.unwrap();
        let within = (least..=most).contains(&row.modelled);
        assert_eq!(row.error_percent == Some(0.0), within, "{row:?}");
        assert_eq!(row.error_in_words() == "within", within, "{row:?}");
        assert!(row.error_percent.unwrap().abs() <= 10.0, "{row:?}");
    }
}

#[test]
fn memory_that_is_stated_to_be_as_fast_as_dram_is_so_within_ten_percent() {
    let rows = published_rows("nvdimm-n");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row.error_percent.unwrap().abs() <= 10.0, "{row:?}");
        assert_eq!(row.trust, Some(lapis_device::profile::Trust::A));
    }
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
    let (name, table) = OPTANE_100.sections().remove(0);
    let there = section(&document, &name);
    assert_eq!(there, Some(&*table), "`{name} --write docs/calibration.md` renews it");
}
