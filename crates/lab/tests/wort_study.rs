//! `lab wort` over every structure, small.

use lapis_index::IndexKind;
use lapis_lab::index_experiment::ExperimentError;
use lapis_lab::keys::Distribution;
use lapis_lab::wort_study::{
    Contestant, Experiment, Latency, ModelledOperations, Options, StudyResults, depths, figure,
    run, sections,
};

fn tiny() -> Options {
    Options {
        keys: 3000,
        modelled_keys: 2000,
        modelled_operations: 1000,
        radix_keys: 3000,
        ..Options::default()
    }
}

fn study(options: &Options) -> StudyResults {
    run(options, &|_| ()).unwrap()
}

fn modelled(results: &StudyResults) -> impl Iterator<Item = (Contestant, &ModelledOperations)> {
    results.operations.iter().map(|row| (row.structure, row.modelled.as_ref().unwrap()))
}

#[test]
fn every_structure_has_its_rows_in_every_experiment() {
    let results = study(&tiny());
    for structure in Contestant::ALL {
        let measured = matches!(structure, Contestant::Index(_));
        let operations: Vec<_> =
            results.operations.iter().filter(|row| row.structure == structure).collect();
        assert_eq!(operations.len(), 3, "{structure}");
        for row in operations {
            assert_eq!(row.measured.is_some(), measured, "{structure}");
            let modelled = row.modelled.as_ref().unwrap();
            assert_eq!((modelled.keys, modelled.inserts, modelled.searches), (2000, 1000, 250));
            assert_eq!(modelled.times.len(), 5);
        }
        let ranges = results.ranges.iter().filter(|row| row.structure == structure);
        assert_eq!(ranges.count(), 6, "{structure}");
        let recovery = results.recovery.iter().filter(|row| row.structure == structure);
        assert_eq!(recovery.count(), if measured { 6 } else { 0 }, "{structure}");
    }
    let reference = results.ranges.iter().filter(|row| row.structure == Contestant::BTreeMap);
    assert_eq!(reference.filter(|row| row.measured.is_some()).count(), 6);
    assert_eq!(sections(&results).len(), 9);
    assert!(figure(&results).svg().unwrap().contains("Figs. 7 to 10"));
}

#[test]
fn counts_and_virtual_times_are_the_same_on_every_run() {
    let options = Options { measure: false, ..tiny() };
    assert_eq!(study(&options), study(&options));
}

#[test]
fn a_slower_memory_takes_longer_and_counts_stay() {
    let only = [Experiment::Operations];
    let with = |latencies: &[Latency]| {
        let experiments = only.to_vec();
        let latencies = latencies.to_vec();
        study(&Options { measure: false, experiments, latencies, ..tiny() })
    };
    let both = with(&[Latency::new(100, 100), Latency::new(300, 100), Latency::new(100, 300)]);
    let alone = with(&[Latency::new(100, 300)]);
    for ((structure, both), (_, alone)) in modelled(&both).zip(modelled(&alone)) {
        assert_eq!((both.insert, both.search), (alone.insert, alone.search), "{structure}");
        assert_eq!(both.times[2], alone.times[0], "{structure}");
        let [dram, reads, writes] = [both.times[0], both.times[1], both.times[2]];
        assert!(reads.insert_ns >= dram.insert_ns, "{structure}");
        assert!(writes.insert_ns > dram.insert_ns, "{structure}");
        // At least two lines are flushed, one after another, and each takes 200 ns longer.
        assert!(writes.insert_ns - dram.insert_ns > 200.0, "{structure}");
        assert_eq!(writes.search_ns, dram.search_ns, "{structure}");
    }
}

#[test]
fn searches_flush_nothing_and_inserts_flush_and_fence() {
    let options = Options { measure: false, experiments: vec![Experiment::Operations], ..tiny() };
    for (structure, found) in modelled(&study(&options)) {
        assert_eq!((found.search.flushes, found.search.fences), (0.0, 0.0), "{structure}");
        assert!(found.insert.flushes >= 1.0 && found.insert.fences >= 1.0, "{structure}");
        assert!(found.insert.wpq_inserts > 0.0 && found.insert.media_writes > 0.0, "{structure}");
    }
}

#[test]
fn warm_caches_that_hold_everything_miss_nothing_in_a_search() {
    let options = Options { measure: false, experiments: vec![Experiment::Operations], ..tiny() };
    for (structure, found) in modelled(&study(&options)) {
        assert!(found.search.llc_misses < 0.5, "{structure}: {found:?}");
    }
}

#[test]
fn what_lies_in_dram_misses_only_where_inner_nodes_do() {
    let options = Options { measure: false, experiments: vec![Experiment::Operations], ..tiny() };
    for (structure, found) in modelled(&study(&options)) {
        let volatile = matches!(structure, Contestant::Index(kind)
            if Contestant::ALL.contains(&Contestant::InnerOnPm(kind)));
        if !volatile {
            assert_eq!(found.insert.dram_misses, 0.0, "{structure}");
        }
    }
}

/// Of the structures that were built: distribution, structure, mean depth.
fn built(keys: usize, indexes: Vec<IndexKind>) -> Vec<(Distribution, Contestant, f64)> {
    let results = depths(&Options { keys, indexes, ..tiny() }, &|_| ()).unwrap();
    results.depths.iter().map(|row| (row.distribution, row.structure, row.depth)).collect()
}

#[test]
fn dense_keys_make_radix_trees_as_deep_as_they_have_digits() {
    let digits = [(IndexKind::Wort, 3.0), (IndexKind::Woart, 2.0), (IndexKind::ArtCow, 2.0)];
    for (index, digits) in digits {
        let found = built(0xFFF, vec![index]);
        let dense = (Distribution::Dense, Contestant::Index(index), digits);
        assert!(found.contains(&dense), "{found:?}");
    }
}

#[test]
fn depths_computed_from_the_keys_are_those_of_the_trees_that_were_built() {
    let radix = vec![IndexKind::Wort, IndexKind::Woart, IndexKind::ArtCow];
    for keys in [1000, 4096, 10_000] {
        let options = Options {
            indexes: radix.clone(),
            experiments: vec![Experiment::RadixDepths],
            radix_keys: keys,
            ..tiny()
        };
        let computed: Vec<_> = study(&options)
            .radix_depths
            .iter()
            .map(|row| (row.distribution, row.structure, row.depth))
            .collect();
        assert_eq!(computed, built(keys, radix.clone()));
        assert_eq!(computed.len(), 9);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for wrong in [
        Options { keys: 999, ..tiny() },
        Options { modelled_keys: (128 << 20) + 1, ..tiny() },
        Options { modelled_operations: 0, ..tiny() },
        Options { indexes: vec![], ..tiny() },
        Options { indexes: vec![IndexKind::PClht], ..tiny() },
        Options { latencies: vec![], ..tiny() },
        Options { recovery_threads: vec![0], ..tiny() },
        Options { measure: false, model: false, ..tiny() },
    ] {
        let error = run(&wrong, &|_| ()).unwrap_err();
        assert!(matches!(error, ExperimentError::BadOption { .. }), "{wrong:?}: {error}");
    }
    let error = run(&Options { profile: "papyrus".into(), ..tiny() }, &|_| ()).unwrap_err();
    assert!(matches!(error, ExperimentError::Profile(_)), "{error}");
}

#[test]
fn latencies_are_read_as_they_are_written() {
    for latency in Latency::STUDY {
        assert_eq!(latency.to_string().parse(), Ok(latency));
    }
    for wrong in ["", "100", "100/", "0/100", "100/20000", "a/b", "1/2/3"] {
        assert!(wrong.parse::<Latency>().is_err(), "{wrong}");
    }
}
