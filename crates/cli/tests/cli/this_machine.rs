//! `lapis lab device --this-machine`.

use crate::runner::{Scene, run, text};

const QUICK: [&str; 7] =
    ["lab", "device", "--this-machine", "--mebibytes", "64", "--milliseconds", "1"];

#[test]
fn measured_and_modelled_latencies_stand_beside_each_other() {
    let json = ["--experiment", "read-latency,persist-latency", "--json"];
    let outcome = run(QUICK.iter().chain(&json)).json();
    assert_eq!(outcome["profile"], "optane-100");
    let found = &outcome["this_machine"];
    assert_eq!(found["memory"], "anonymous memory");
    assert_eq!(found["memory_is_persistent"], false);
    assert!(found["remark"].as_str().unwrap().contains("not PM"));
    let rows = found["rows"].as_array().unwrap();
    for experiment in ["read-latency", "persist-latency"] {
        for pattern in ["same", "sequential", "random"] {
            let both = rows.iter().any(|row| {
                row["experiment"] == experiment
                    && row["pattern"] == pattern
                    && row["measured"]["latency_ns"].as_f64() > Some(0.0)
                    && row["modelled"]["latency_ns"].as_f64() > Some(0.0)
            });
            assert!(both, "{experiment} {pattern}: {rows:?}");
        }
    }
}

#[test]
fn what_is_modelled_is_the_same_on_every_run() {
    let json = ["--experiment", "interference", "--json"];
    let modelled = || {
        let outcome = run(QUICK.iter().chain(&json)).json();
        let rows = outcome["this_machine"]["rows"].as_array().unwrap().clone();
        rows.into_iter().map(|row| row["modelled"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(modelled(), modelled());
}

#[test]
fn a_memory_file_is_worked_on_and_removed_and_never_one_that_exists() {
    let scene = Scene::new();
    let path = scene.path("memory");
    let file = ["--pmem", text(&path), "--measured-only", "--experiment", "read-latency"];
    run(QUICK.iter().chain(&file)).good();
    assert!(!path.exists());
    let path = scene.file("taken", "somebody's");
    let file = ["--pmem", text(&path), "--measured-only", "--experiment", "read-latency"];
    let outcome = run(QUICK.iter().chain(&file));
    assert!(outcome.sentence(2).contains("exists already"), "{outcome:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
}

#[test]
fn what_cannot_be_characterised_is_refused() {
    let cases: [(&[&str], &str); 3] = [
        (&["--mebibytes", "1"], "too few"),
        (&["--experiment", "speed"], "there is no such experiment"),
        (&["--profile", "bubble"], "there is no device profile bubble"),
    ];
    for (arguments, expected) in cases {
        let outcome = run(QUICK.iter().take(3).chain(arguments));
        assert!(outcome.sentence(2).contains(expected), "{arguments:?}: {outcome:?}");
    }
}
