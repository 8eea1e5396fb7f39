//! `lab wort` over every structure, small.

use lapis_index::IndexKind;
use lapis_lab::index_experiment::ExperimentError;
use lapis_lab::keys::Distribution;
use lapis_lab::wort_study::{
    Contestant, Experiment, Latency, ModelledOperations, Options, StudyResults, depths, figure,
    run, sections,
};

fn tiny() -> Options {
    Options { keys: 3000, modelled_keys: 2000, modelled_operations: 1000, ..Options::default() }
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
        let measured = !matches!(structure, Contestant::InnerOnPm(_));
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
    assert_eq!(sections(&results).len(), 8);
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

#[test]
fn depths_of_wort_are_what_the_keys_make_them() {
    let wort = |keys| {
        let indexes = vec![IndexKind::Wort];
        let results = depths(&Options { indexes, keys, ..tiny() }, &|_| ()).unwrap();
        let depth = |distribution: Distribution| {
            let of = results.depths.iter().find(|row| row.distribution == distribution);
            of.unwrap().depth
        };
        [Distribution::Dense, Distribution::Sparse, Distribution::Clustered].map(depth)
    };
    // 1 to 0xFFF: three nibbles, each branching.
    assert_eq!(wort(4095)[0], 3.0);
    let [dense, sparse, clustered] = wort(4096);
    // The key 0x1000 alone needs a fourth nibble, and all others have a node more above them.
    assert!((3.99..4.0).contains(&dense), "{dense}");
    // One key to a slot of the third level.
    assert_eq!(sparse, 3.0);
    // 64 runs fill the second level's slots by fours; 64 successive numbers take two levels more, or
    // three where they cross a byte.
    assert!((4.0..4.6).contains(&clustered), "{clustered}");
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
