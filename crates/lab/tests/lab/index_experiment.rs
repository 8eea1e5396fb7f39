//! `lab index` over every structure and operation, small.

use std::sync::LazyLock;

use lapis_index::IndexKind;
use lapis_lab::experiment::{ExperimentError, Findings, Sides};
use lapis_lab::index_experiment::{Operation, Options, PEERS, Pages, Row, compare_with_peers, run};
use lapis_lab::keys::Distribution;

fn tiny() -> Options {
    Options {
        operations: Operation::ALL.to_vec(),
        distributions: Distribution::ALL.to_vec(),
        keys: 3000,
        repetitions: 1500,
        modelled_keys: 1000,
        modelled_repetitions: 500,
        ..Options::default()
    }
}

fn rows(options: &Options) -> Vec<Row> {
    run(options, &|_| ()).unwrap().rows
}

fn modelled_only() -> Options {
    Options { sides: Sides::modelled_only(), ..tiny() }
}

static MODELLED: LazyLock<Vec<Row>> = LazyLock::new(|| rows(&modelled_only()));

#[test]
fn a_structure_is_measured_in_a_file_that_is_gone_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        indexes: vec![IndexKind::FastFair],
        operations: vec![Operation::Get],
        memory: Some(directory.path().to_owned()),
        sides: Sides { model: false, ..Sides::default() },
        ..tiny()
    };
    let options = Options { runs: 3, pages: Pages::Small, each_key_once: true, ..options };
    for row in rows(&options) {
        let measured = row.measured.unwrap();
        assert_eq!(measured.repetitions, 3);
        assert!(0.0 < measured.mops_min && measured.mops_min <= measured.mops);
        assert!(measured.mops <= measured.mops_max);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let taken = directory.path().join("taken");
    std::fs::write(&taken, b"precious").unwrap();
    assert!(run(&Options { memory: Some(taken.clone()), ..options }, &|_| ()).is_err());
    assert_eq!(std::fs::read(&taken).unwrap(), b"precious");
}

#[test]
fn every_structure_does_every_operation_it_can() {
    let rows = rows(&tiny());
    for &index in &tiny().indexes {
        for operation in Operation::ALL {
            let found = rows
                .iter()
                .filter(|row| (row.case.index, row.case.operation) == (index.name(), operation));
            let unordered = !index.is_ordered() && operation.needs_order();
            assert_eq!(found.count(), if unordered { 0 } else { 5 }, "{index} {operation}");
        }
    }
    for row in &rows {
        let (measured, modelled) = (row.measured.unwrap(), row.modelled.as_ref().unwrap());
        assert!(measured.mops > 0.0 && measured.p50_ns <= measured.p9999_ns, "{row:?}");
        assert_eq!((row.case.keys, modelled.figures.keys), (3000, 1000), "{row:?}");
        assert!(modelled.figures.mops.unwrap() > 0.0, "{row:?}");
        assert!(row.case.bytes_per_key >= 16.0, "{row:?}");
    }
}

#[test]
fn counts_are_the_same_on_every_run() {
    assert_eq!(rows(&modelled_only()), *MODELLED);
}

#[test]
fn inserts_do_not_answer_for_the_keys_that_are_put_back_after_deletes() {
    let media_writes = |operations: &[Operation]| {
        let options = Options {
            indexes: vec![IndexKind::Wort, IndexKind::PClht],
            operations: operations.to_vec(),
            distributions: vec![Distribution::Uniform],
            modelled_keys: 2000,
            modelled_repetitions: 50,
            ..modelled_only()
        };
        let mut rows = rows(&options);
        rows.retain(|row| row.case.operation == Operation::Insert);
        [0, 1].map(|at| rows[at].modelled.as_ref().unwrap().counts.media_writes)
    };
    let alone = media_writes(&[Operation::Insert]);
    let after = media_writes(&[Operation::Delete, Operation::Insert]);
    for (alone, after) in alone.into_iter().zip(after) {
        assert!(after < 1.2 * alone, "{after} media writes per insert, {alone} without deletes");
    }
}

#[test]
fn reads_flush_nothing_and_changes_flush_and_fence() {
    for row in &*MODELLED {
        let modelled = row.modelled.as_ref().unwrap();
        let reads = ["get", "range", "ycsb-c", "get-many"].contains(&row.case.operation.name());
        if reads {
            assert_eq!((modelled.counts.flushes, modelled.counts.fences), (0.0, 0.0), "{row:?}");
        } else {
            assert!(modelled.counts.flushes > 0.0 && modelled.counts.fences > 0.0, "{row:?}");
            assert!(
                modelled.counts.wpq_inserts > 0.0 && modelled.counts.media_writes > 0.0,
                "{row:?}"
            );
        }
    }
}

#[test]
fn many_look_ups_at_once_overlap_misses_where_it_is_known_early_what_they_read() {
    let options = Options {
        indexes: vec![IndexKind::Wort, IndexKind::PClht, IndexKind::Cceh, IndexKind::LevelHash],
        operations: vec![Operation::Get, Operation::GetMany],
        distributions: vec![Distribution::Uniform],
        modelled_keys: 3000,
        // Nothing would miss otherwise.
        caches_for_keys: Some(2_000_000),
        ..modelled_only()
    };
    for pair in rows(&options).chunks(2) {
        let [alone, many] = [0, 1].map(|at| pair[at].modelled.clone().unwrap().figures);
        assert_eq!((alone.operations, many.operations), (500, 500));
        let gain = many.mops.unwrap() / alone.mops.unwrap();
        assert!(gain > 1.1, "{}: {alone:?}, {many:?}", pair[0].case.index);
    }
}

#[test]
fn what_many_at_once_gain_is_told_of_those_that_did_both() {
    let sections = |operations: &[Operation]| {
        let indexes = vec![IndexKind::Wort];
        let distributions = vec![Distribution::Uniform];
        let operations = operations.to_vec();
        let options = Options { indexes, distributions, operations, ..modelled_only() };
        run(&options, &|_| ()).unwrap().sections()
    };
    let both = sections(&[Operation::Get, Operation::GetMany, Operation::Insert]);
    assert_eq!(both.len(), 2);
    let row = both[1].1.lines().last().unwrap();
    assert!(row.starts_with("| `wort` | 1000 uniform | ") && row.ends_with("| – | – |"), "{row}");
    assert_eq!(sections(&[Operation::Get, Operation::Insert]).len(), 1);
}

#[test]
fn who_reads_latencies_of_many_at_once_is_told_what_they_are_of() {
    let notes = |operation: Operation, sides: Sides| {
        let indexes = vec![IndexKind::PClht];
        let options = Options { indexes, operations: vec![operation], sides, ..tiny() };
        run(&options, &|_| ()).unwrap().notes().join(" ")
    };
    let measured = Sides { model: false, ..Sides::default() };
    assert!(notes(Operation::GetMany, measured.clone()).contains("whole calls, of 64 keys"));
    assert!(!notes(Operation::Get, measured).contains("whole calls"));
    assert!(!notes(Operation::GetMany, Sides::modelled_only()).contains("whole calls"));
}

#[test]
fn an_update_in_place_costs_one_flush_and_one_fence() {
    let options = Options { operations: vec![Operation::Update], ..modelled_only() };
    // These write a new record or entry and then what makes it count.
    let out_of_place =
        [IndexKind::NvTree, IndexKind::FpTree, IndexKind::PBwTree].map(IndexKind::name);
    for row in rows(&options) {
        let modelled = row.modelled.as_ref().unwrap();
        if out_of_place.contains(&row.case.index) {
            assert!(modelled.counts.flushes > 1.0 && modelled.counts.fences > 1.0, "{row:?}");
        } else {
            assert_eq!((modelled.counts.flushes, modelled.counts.fences), (1.0, 1.0), "{row:?}");
        }
    }
}

#[test]
fn threads_share_an_index() {
    let options = Options { threads: 3, sides: Sides::measured_only(), ..tiny() };
    assert!(rows(&options).iter().all(|row| row.case.threads == 3 && row.modelled.is_none()));
}

#[test]
fn more_workers_do_more_in_the_same_virtual_time_and_a_slower_memory_less() {
    let mops = |threads: usize, profile: &str| {
        let options = Options {
            indexes: vec![IndexKind::PClht],
            operations: vec![Operation::Update],
            distributions: vec![Distribution::Uniform],
            threads,
            sides: Sides { profile: profile.into(), ..Sides::modelled_only() },
            modelled_keys: 3000,
            ..tiny()
        };
        let rows = rows(&options);
        assert_eq!(rows[0].case.threads, threads);
        rows[0].modelled.as_ref().unwrap().figures.mops.unwrap()
    };
    assert!(mops(4, "optane-100") > 2.0 * mops(1, "optane-100"));
    assert!(mops(1, "dram") > mops(1, "hymem-sep"));
}

#[test]
fn asking_a_hash_table_for_order_alone_is_an_error() {
    let options =
        Options { indexes: vec![IndexKind::PClht], operations: vec![Operation::Range], ..tiny() };
    let error = run(&options, &|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("p-clht keeps no order"), "{error}");
}

#[test]
fn rows_have_the_fields_that_are_promised() {
    let options = Options {
        indexes: vec![IndexKind::Wort],
        operations: vec![Operation::Ycsb(lapis_lab::ycsb::Workload::A)],
        distributions: vec![Distribution::Dense],
        ..tiny()
    };
    let json = serde_json::to_value(run(&options, &|_| ()).unwrap()).unwrap();
    let row = &json["rows"][0];
    assert_eq!(row["index"], "wort");
    assert_eq!(row["operation"], "ycsb-a");
    assert_eq!(row["distribution"], "dense");
    assert_eq!((&row["keys"], &row["threads"]), (&3000.into(), &1.into()));
    for field in ["mops", "p50_ns", "p99_ns", "p9999_ns"] {
        assert!(row["measured"][field].is_number(), "{field}");
    }
    assert_eq!(row["modelled"]["profile"], "optane-100");
    assert!(row["modelled"]["mops"].is_number());
    let counts = ["flushes", "fences", "wpq_inserts", "media_writes", "media_reads", "llc_misses"];
    for field in counts {
        assert!(row["modelled"][field].is_number(), "{field}");
    }
    assert!(row["depth"].is_number() && row["bytes_per_key"].is_number());
}

#[test]
fn an_unknown_profile_is_one_clear_sentence() {
    let options = Options {
        sides: Sides { profile: "optane-300".into(), ..Sides::default() },
        ..Options::default()
    };
    let error = run(&options, &|_| ()).unwrap_err();
    let sentence = error.to_string();
    assert!(sentence.starts_with("there is no device profile optane-300; there is dram"));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for wrong in [
        Options { keys: 0, ..Options::default() },
        Options { repetitions: 0, ..Options::default() },
        Options { threads: 0, ..Options::default() },
        Options { threads: 100_000, sides: Sides::measured_only(), ..Options::default() },
        Options { operations: vec![], ..Options::default() },
        Options { sides: Sides { model: false, ..Sides::modelled_only() }, ..Options::default() },
    ] {
        assert!(matches!(run(&wrong, &|_| ()), Err(ExperimentError::BadOption { .. })));
    }
}

#[test]
fn keys_that_there_is_no_memory_for_are_refused() {
    for sides in [Sides::measured_only(), Sides::modelled_only()] {
        let options = Options { keys: usize::MAX, modelled_keys: usize::MAX, sides, ..tiny() };
        let error = run(&options, &|_| ()).unwrap_err();
        assert!(matches!(error, ExperimentError::TooLittleMemory { .. }), "{error}");
    }
}

#[test]
fn each_index_has_a_row_of_its_modelled_counts_and_bars() {
    let options = Options {
        indexes: vec![IndexKind::Wort, IndexKind::PClht],
        operations: vec![Operation::Insert],
        sides: Sides::modelled_only(),
        modelled_keys: 500,
        modelled_repetitions: 100,
        ..Options::default()
    };
    let results = run(&options, &|_| ()).unwrap();
    let (_, table) = results.sections().remove(0);
    assert_eq!(table.lines().count(), 2 + 2);
    assert!(table.contains("| `p-clht` | insert | 500 uniform | "), "{table}");
    assert!(results.figure().unwrap().svg().unwrap().contains("uniform keys, modelled"));
}

#[test]
fn a_comparison_with_published_code_without_a_run_is_refused() {
    let error = compare_with_peers(2000, 0, 1, &|_| ()).unwrap_err();
    assert!(matches!(error, ExperimentError::BadOption { .. }), "{error}");
}

#[test]
fn all_of_ours_are_measured_where_published_code_is_quoted() {
    let comparison = compare_with_peers(2000, 2, 1, &|_| ()).unwrap();
    assert_eq!(comparison.rows, PEERS);
    // By one thread and by two, hash tables with room for all keys besides.
    let unordered = IndexKind::ALL.iter().filter(|kind| !kind.is_ordered()).count();
    assert_eq!(comparison.ours.len(), 2 * (IndexKind::ALL.len() + unordered));
    assert!(comparison.ours.iter().all(|row| row.mops.iter().all(|&mops| mops > 0.0)));
    assert_eq!(comparison.runs, 2);
    let spreads = comparison.ours.iter().flat_map(|row| row.spread_percent);
    assert!(spreads.clone().all(|spread| spread >= 0.0) && spreads.sum::<f64>() > 0.0);
}
