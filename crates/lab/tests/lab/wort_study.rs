//! `lab wort` over every structure, small.

use std::sync::LazyLock;

use lapis_index::IndexKind;
use lapis_lab::experiment::{ExperimentError, Findings, Sides};
use lapis_lab::keys::Distribution;
use lapis_lab::wort_study::{
    Contestant, Experiment, Latency, ModelledOperations, Options, Plan, StringKind, StringSource,
    StudyResults, depths, run,
};

fn tiny() -> Options {
    Options {
        keys: 1500,
        modelled_keys: 1000,
        modelled_operations: 500,
        strings: StringSource::Generated(1000),
        radix_keys: 1500,
        ..Options::default()
    }
}

/// On the machine of the study.
fn modelled_only() -> Sides {
    Sides { measure: false, ..Options::default().sides }
}

fn study(options: &Options) -> StudyResults {
    run(options, &|_| ()).unwrap()
}

static OPERATIONS: LazyLock<StudyResults> = LazyLock::new(|| {
    let experiments = vec![Experiment::Operations];
    study(&Options { sides: modelled_only(), experiments, ..tiny() })
});

/// Measured, too.
static EVERYTHING: LazyLock<StudyResults> = LazyLock::new(|| study(&tiny()));

fn modelled(results: &StudyResults) -> impl Iterator<Item = (Contestant, &ModelledOperations)> {
    results.operations.iter().map(|row| (row.case.structure, row.modelled.as_ref().unwrap()))
}

#[test]
fn inserts_of_a_whole_load_are_counted_where_as_many_are_asked_for() {
    let (sides, experiments) = (modelled_only(), vec![Experiment::Operations]);
    let results = study(&Options {
        indexes: vec![IndexKind::Wort],
        distributions: vec![Distribution::Sparse],
        modelled_operations: 5000,
        sides,
        experiments,
        ..tiny()
    });
    let [(_, whole)] = modelled(&results).collect::<Vec<_>>()[..] else { panic!("one row") };
    assert_eq!((whole.keys, whole.inserts, whole.searches), (1000, 1000, 250));
    // The first nodes are among them.
    assert!(whole.insert.flushes > 2.0, "{}", whole.insert.flushes);
}

#[test]
fn every_structure_has_its_rows_in_every_experiment() {
    let results = &*EVERYTHING;
    for structure in Contestant::ALL {
        let measured = matches!(structure, Contestant::Index(_));
        let operations: Vec<_> =
            results.operations.iter().filter(|row| row.case.structure == structure).collect();
        assert_eq!(operations.len(), 3, "{structure}");
        for row in operations {
            assert_eq!(row.measured.is_some(), measured, "{structure}");
            let modelled = row.modelled.as_ref().unwrap();
            assert_eq!((modelled.keys, modelled.inserts, modelled.searches), (1000, 500, 125));
            assert_eq!(modelled.times.len(), 5);
        }
        let ranges = results.ranges.iter().filter(|row| row.case.structure == structure);
        assert_eq!(ranges.count(), 6, "{structure}");
        let recovery = results.recovery.iter().filter(|row| row.structure == structure);
        assert_eq!(recovery.count(), if measured { 6 } else { 0 }, "{structure}");
        let strings = results.strings.iter().filter(|row| row.case.structure == structure);
        let kinds: Vec<StringKind> = strings
            .map(|row| {
                assert_eq!(row.measured.is_some(), measured, "{structure}");
                assert_eq!(row.modelled.as_ref().unwrap().inserts, 500);
                row.case.strings
            })
            .collect();
        assert_eq!(kinds, StringKind::GENERATED, "{structure}");
    }
    let reference = results.ranges.iter().filter(|row| row.case.structure == Contestant::BTreeMap);
    assert_eq!(reference.filter(|row| row.measured.is_some()).count(), 6);
    assert_eq!(results.sections().len(), 13);
    let claims =
        results.sections().into_iter().find(|(name, _)| name.ends_with("claims, measured"));
    assert_eq!(claims.unwrap().1.matches("\n| Fig. ").count(), 6);
    let drawing = results.figure().unwrap().svg().unwrap();
    for panel in ["Figs. 7 to 10", "insert, byte strings, measured", "search, url keys, modelled"] {
        assert!(drawing.contains(panel), "{panel}");
    }
}

#[test]
fn counts_and_virtual_times_are_the_same_on_every_run() {
    // Whether anything is measured besides or not; of that, nothing is compared.
    let [mut first, mut second] =
        [EVERYTHING.clone(), study(&Options { sides: modelled_only(), ..tiny() })];
    for results in [&mut first, &mut second] {
        results.recovery.clear();
        results.operations.iter_mut().for_each(|row| row.measured = None);
        results.ranges.iter_mut().for_each(|row| row.measured = None);
        results.ranges.retain(|row| row.modelled.is_some());
        results.strings.iter_mut().for_each(|row| row.measured = None);
    }
    assert!(!first.ranges.is_empty());
    assert_eq!(first, second);
}

#[test]
fn a_slower_memory_takes_longer_and_counts_stay() {
    let only = [Experiment::Operations];
    let with = |latencies: &[Latency]| {
        let experiments = only.to_vec();
        let latencies = latencies.to_vec();
        study(&Options { sides: modelled_only(), experiments, latencies, ..tiny() })
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
    for (structure, found) in modelled(&OPERATIONS) {
        assert_eq!((found.search.flushes, found.search.fences), (0.0, 0.0), "{structure}");
        assert!(found.insert.flushes >= 1.0 && found.insert.fences >= 1.0, "{structure}");
        assert!(found.insert.wpq_inserts > 0.0 && found.insert.media_writes > 0.0, "{structure}");
    }
}

#[test]
fn warm_caches_that_hold_everything_miss_nothing_in_a_search() {
    for (structure, found) in modelled(&OPERATIONS) {
        assert!(found.search.llc_misses < 0.5, "{structure}: {found:?}");
    }
}

#[test]
fn only_structures_with_a_volatile_part_miss_in_dram_and_less_with_inner_nodes_on_pm() {
    let missed = |of: Contestant| -> f64 {
        modelled(&OPERATIONS)
            .filter(|(one, _)| *one == of)
            .map(|(_, one)| one.insert.dram_misses)
            .sum()
    };
    for structure in Contestant::ALL {
        match structure {
            Contestant::InnerOnPm(kind) => {
                // Locks of leaves stay where they are.
                assert!(missed(structure) < missed(Contestant::Index(kind)), "{structure}");
            }
            Contestant::Index(kind) if Contestant::ALL.contains(&Contestant::InnerOnPm(kind)) => {}
            _ => assert_eq!(missed(structure), 0.0, "{structure}"),
        }
    }
}

/// Of the structures that were built: distribution, structure, mean depth.
fn built(keys: usize, indexes: Vec<IndexKind>) -> Vec<(Distribution, Contestant, f64)> {
    let options = Options { keys, indexes, ..tiny() };
    let results = depths(&options, &|_| (), &|_| ()).unwrap();
    let walked = results.depths.iter().map(|row| {
        let walked = row.walked.expect("so few keys fit anywhere");
        (row.distribution, row.structure, walked.depth)
    });
    walked.collect()
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
fn what_a_structure_needs_is_said_before_it_is_built() {
    let announced = std::sync::Mutex::new(Vec::new());
    let hear = |plan: &Plan| {
        assert!(plan.needed_bytes > 5000 * 16 && plan.fits(), "{plan}");
        announced.lock().unwrap().push((plan.distribution, plan.structure));
    };
    let options = Options { keys: 5000, ..tiny() };
    let results = depths(&options, &hear, &|_| ()).unwrap();
    let rows: Vec<_> = results.depths.iter().map(|row| (row.distribution, row.structure)).collect();
    assert_eq!(announced.into_inner().unwrap(), rows);
    assert_eq!(rows.len(), 24);
    // Of radix trees the depth follows from the keys as well.
    for row in &results.depths {
        let radix = [IndexKind::Wort, IndexKind::Woart, IndexKind::ArtCow];
        if radix.contains(&row.structure.index().unwrap()) {
            assert_eq!(row.computed_depth, row.walked.map(|tree| tree.depth), "{row:?}");
        } else {
            assert_eq!(row.computed_depth, None);
        }
    }
    assert_eq!(results.tables()[0].rows.len(), 24);
}

#[test]
fn a_byte_string_key_costs_a_b_tree_the_flush_of_its_block() {
    let indexes = vec![IndexKind::FpTree, IndexKind::NvTree, IndexKind::WbTree];
    let experiments = vec![Experiment::Operations, Experiment::Strings];
    let distributions = vec![Distribution::Sparse];
    let results =
        study(&Options { sides: modelled_only(), indexes, experiments, distributions, ..tiny() });
    for row in results.strings.iter().filter(|row| row.case.strings == StringKind::Email) {
        let with_strings = row.modelled.as_ref().unwrap().insert.flushes;
        let mut integers = modelled(&results).filter(|(one, _)| *one == row.case.structure);
        let with_integers = integers.next().unwrap().1.insert.flushes;
        // A block that crosses from one line into the next costs two.
        let more = with_strings - with_integers;
        assert!((0.8..2.5).contains(&more), "{}: {more}", row.case.structure);
    }
}

#[test]
fn byte_strings_of_a_file_have_sections_of_their_own() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines: String = (0..1500).map(|number| format!("key-{number}\tvalue\n")).collect();
    std::fs::write(file.path(), lines).unwrap();
    let results = study(&Options {
        indexes: vec![IndexKind::Wort],
        experiments: vec![Experiment::Strings],
        strings: StringSource::File(file.path().into()),
        ..tiny()
    });
    assert_eq!(results.strings.len(), 1);
    assert_eq!(results.strings[0].measured.unwrap().keys, 1500);
    let names: Vec<String> = results.sections().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[0], "lapis lab wort: byte strings of a file, measured");
    assert_eq!(names.len(), 3);
}

#[test]
fn a_model_of_another_size_has_sections_that_name_it() {
    let results = study(&Options {
        indexes: vec![IndexKind::Wort],
        experiments: vec![Experiment::Operations],
        sides: modelled_only(),
        ..tiny()
    });
    let names: Vec<String> = results.sections().into_iter().map(|(name, _)| name).collect();
    assert!(
        names.contains(&"lapis lab wort: Table 1, modelled, 1,000 keys".to_owned()),
        "{names:?}"
    );
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
        Options { strings: StringSource::Generated(999), ..tiny() },
        Options { recovery_threads: vec![0], ..tiny() },
        Options { sides: Sides { model: false, ..modelled_only() }, ..tiny() },
    ] {
        let error = run(&wrong, &|_| ()).unwrap_err();
        assert!(matches!(error, ExperimentError::BadOption { .. }), "{wrong:?}: {error}");
    }
    let error = run(
        &Options { sides: Sides { profile: "papyrus".into(), ..modelled_only() }, ..tiny() },
        &|_| (),
    )
    .unwrap_err();
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
