//! The modelled machine against the published one.

use std::sync::LazyLock;

use lapis_device::Profile;
use lapis_lab::device_experiment::{DeviceResults, Role, Row, calibrate, fit, sorted_errors};
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
    write_latencies_by_size_are_within_fifteen_percent: 15.0, "size/ntstore/" 7, "size/clwb/" 7;
    pointer_chases_within_the_buffer_and_beyond_are_within_ten_percent: 10.0, "chase/" 4;
    a_line_persisted_again_by_ntstore_is_within_ten_percent: 10.0, "same/ntstore" 1;
    the_slowest_persists_of_hot_spots_are_within_ten_percent: 10.0, "tail/" 2;
    an_insert_into_p_clht_reaches_the_memory_controller_twice: 10.0, "p-clht/" 2;
    peaks_of_all_modules_are_within_fifteen_percent: 15.0, "peak/read/17" 1, "peak/ntstore/3" 1;
    readers_and_writers_together_are_within_thirty_percent: 30.0, "mixed/" 9;
    write_amplification_of_halves_is_within_ten_percent_at_every_region: 10.0, "halves/" 20;
    one_worker_that_stores_and_writes_back_is_within_five_percent:
        5.0, "runs/random/6/store+clwb/256/1/" 1, "runs/sequential/6/store+clwb/64/1/" 2;
    eight_workers_on_one_module_leave_units_half_written_as_often_as_published:
        10.0, "runs/random/1/ntstore/256/8/" 2, "runs/random/1/ntstore/1024/8/" 2;
    however_many_read_one_module_they_are_within_thirty_percent: 30.0, "runs/random/1/load/" 32;
    many_streams_of_ntstores_lose_nothing_up_to_eight: 15.0, "runs/sequential/6/ntstore/64/8/" 2;
}

#[test]
fn persists_are_delayed_as_often_as_published_and_in_large_regions_never() {
    within(10.0, "delays/", 5);
    assert_eq!([row("delays/128K").modelled, row("delays/64M").modelled], [0.0, 0.0]);
}

#[test]
fn independent_figures_are_off_by_a_tenth_in_the_median_and_few_by_more_than_thirty_percent() {
    let errors = sorted_errors(OPTANE_100.of_role(Role::Independent));
    assert!(errors.len() > 400);
    assert!(errors[errors.len() / 2] <= 10.0, "{}", errors[errors.len() / 2]);
    let within = errors.partition_point(|error| *error <= 30.0);
    assert!(within * 100 >= errors.len() * 98, "{within} of {}", errors.len());
}

#[test]
fn every_published_figure_has_a_role() {
    assert!(OPTANE_100.rows.iter().all(|row| row.role.is_some() == row.published.is_some()));
}

#[test]
fn a_step_from_the_profile_does_not_fit_much_better() {
    let fitting = fit(&Profile::named("optane-100").unwrap(), &|_| ()).unwrap();
    assert_eq!(fitting.fields.len(), 14);
    for field in fitting.fields {
        let [less, now, more] = field.error_percent;
        assert!(now <= less.min(more) + 5.0, "{field:?}");
    }
}

#[test]
fn figures_that_nobody_published_say_so() {
    let row = row("same/clwb");
    assert_eq!((row.published, row.error_percent, row.trust), (None, None, None));
    assert!(OPTANE_100.sections()[1].1.contains("| not measured |"));
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
fn memory_without_an_xpline_writes_what_it_is_given() {
    let results = calibrate(&Profile::named("dram").unwrap(), &|_| ()).unwrap();
    assert!(results.rows.iter().all(|row| row.modelled.is_finite()));
    let amplified = results.rows.iter().filter(|row| row.unit == "media/written");
    assert!(amplified.map(|row| row.modelled).all(|units| units == 1.0));
}

/// Which another run made, on another machine perhaps.
#[test]
fn the_document_has_the_generated_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/calibration.md");
    let Ok(document) = std::fs::read_to_string(path) else {
        eprintln!("skipped: {path} is not there");
        return;
    };
    for (name, table) in OPTANE_100.sections() {
        let there = section(&document, &name);
        assert_eq!(there, Some(&*table), "lapis lab device --write docs/calibration.md renews it");
    }
}
