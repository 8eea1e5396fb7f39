//! ycsb, replay and the laboratory.

use crate::runner::{Scene, run, text};

#[test]
fn ycsb_on_a_directory_finds_its_records_again() {
    let scene = Scene::new();
    let small = ["--records", "300", "--operations", "200"];
    scene.run(["ycsb", "--workload", "load,a,e,f"].iter().chain(&small)).good();
    scene.run(["ycsb", "--workload", "c,d"].iter().chain(&small)).good();
    assert_eq!(scene.run(["check"]).code, Some(0));
}

#[test]
fn ycsb_refuses_a_table_of_something_else() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    scene.run(["ycsb", "--table", "main", "--records", "10"]).sentence(2);
}

#[test]
fn an_unknown_workload_is_refused() {
    let outcome = run(["ycsb", "--workload", "load,z"]);
    assert!(outcome.sentence(2).contains("`z` is not a value of --workload"), "{outcome:?}");
}

#[test]
fn a_workload_that_no_machine_can_run_is_refused() {
    let most = u64::MAX.to_string();
    let cases: [(&[&str], &str); 3] = [
        (&["--records", &most], "use fewer records and operations"),
        (&["--workload", "load,d", "--records", "100", "--operations", &most], "use fewer records"),
        (&["--threads", "100000"], "a workload takes 1 to 1024 threads, not 100000"),
    ];
    for (arguments, expected) in cases {
        let outcome = run(["ycsb"].iter().chain(arguments));
        assert!(outcome.sentence(2).contains(expected), "{arguments:?}: {outcome:?}");
    }
}

#[test]
fn how_a_store_is_opened_means_nothing_without_its_directory() {
    for option in [
        ["--durability", "group"],
        ["--cache-mib", "64"],
        ["--pmem", "/nowhere/memory"],
        ["--placement", "ssd"],
        ["--pmem-caches", "volatile"],
    ] {
        for workload in [&["ycsb"][..], &["replay", "/nowhere/trace.csv"]] {
            let outcome = run(workload.iter().chain(&option));
            assert!(outcome.sentence(2).contains("give --dir"), "{option:?}: {outcome:?}");
        }
    }
}

#[test]
fn entries_that_do_not_last_are_no_workloads() {
    let scene = Scene::new();
    for workload in [&["ycsb"][..], &["replay", "/nowhere/trace.csv"]] {
        let outcome = scene.run(workload.iter().chain(&["--table-ttl", "1ms"]));
        assert!(outcome.sentence(2).contains("is not an argument here"), "{outcome:?}");
    }
    scene.run(["put", "k", "v", "--table", "short", "--table-ttl", "1h"]).good();
    let outcome = scene.run(["ycsb", "--records", "100", "--table", "short"]);
    assert!(outcome.sentence(2).contains("live 3600 s"), "{outcome:?}");
}

#[test]
fn a_workload_that_could_not_be_counted_is_not_run() {
    let scene = Scene::new();
    let trace = scene.file("trace.csv", "version,time,op,size,lbn\n1,1,2a,512,7\n");
    for workload in [&["ycsb", "--records", "100"][..], &["replay", text(&trace)]] {
        let outcome = scene.run(workload.iter().chain(&["--profile", "nope"]));
        assert!(outcome.sentence(2).contains("there is no device profile nope"), "{outcome:?}");
        assert!(!scene.store().exists());
    }
}

#[test]
fn a_replay_compares_every_answer() {
    let scene = Scene::new();
    let trace = "version,time,op,size,lbn\n1,1,2a,512,7\n1,2,28,512,7\n1,3,2a,4096,8\n";
    let file = scene.file("trace.csv", trace);
    let report = run(["replay", text(&file), "--json"]).json();
    assert_eq!((&report["records"], &report["operations"]), (&2.into(), &3.into()));
    assert_eq!((&report["verified"], &report["mismatches"]), (&3.into(), &0.into()));
}

#[test]
fn a_bad_trace_is_refused_by_line() {
    let scene = Scene::new();
    let file = scene.file("trace.csv", "version,time,op,size,lbn\n1,1,99,512,7\n");
    assert!(run(["replay", text(&file)]).sentence(2).contains("line 2"));
    let empty = scene.file("empty.csv", "");
    assert!(run(["replay", text(&empty)]).sentence(2).contains("no requests"));
}

#[test]
fn an_exploration_is_the_same_every_time() {
    let explore = || {
        let arguments = ["crash", "wort", "--ops", "8", "--seed", "3", "--images", "0", "--json"];
        let mut report = run(arguments).json();
        for measured in ["seconds", "images_per_s"] {
            report.as_object_mut().unwrap().remove(measured);
        }
        report
    };
    assert_eq!(explore(), explore());
}

#[test]
fn an_image_that_no_power_cut_leaves_is_refused() {
    let outcome = run(["crash", "wort:bytes", "--ops", "5", "--at", "0", "--image", "-", "--json"]);
    assert!(outcome.sentence(2).contains("no power cut after 0 events"), "{outcome:?}");
    assert_eq!(outcome.json()["code"], 2);
    let outcome = run(["crash", "wort", "--at", "40"]);
    assert!(outcome.sentence(2).contains("--image"), "{outcome:?}");
}

#[test]
fn the_laboratory_refuses_what_it_does_not_have() {
    let outcome = run(["lab", "index", "--profile", "optane-900", "--keys", "10"]);
    assert!(
        outcome.sentence(2).contains("there is no device profile optane-900; there is dram"),
        "{outcome:?}"
    );
    let outcome = run(["lab", "index", "--operation", "fly"]);
    assert!(outcome.sentence(2).contains("`fly` is not a value of --operation"), "{outcome:?}");
    let outcome =
        run(["lab", "index", "--index", "p-clht", "--operation", "range", "--keys", "10"]);
    assert!(outcome.sentence(2).contains("name an ordered index"), "{outcome:?}");
    let outcome = run(["lab", "tiers"]);
    assert!(outcome.sentence(2).contains("there is no command `lab tiers`"), "{outcome:?}");
}

#[test]
fn an_index_experiment_that_no_machine_can_run_is_refused() {
    let most = u64::MAX.to_string();
    let outcome = run(["lab", "index", "--measured-only", "--keys", &most]);
    assert!(outcome.sentence(2).contains("MB are available"), "{outcome:?}");
    let outcome = run(["lab", "index", "--measured-only", "--threads", "100000"]);
    assert!(outcome.sentence(2).contains("takes 1 to 1024 threads, not 100000"), "{outcome:?}");
}

#[test]
fn the_capability_table_is_markdown_with_a_row_for_each_index() {
    let table = run(["lab", "capabilities"]).good_text();
    assert!(table.lines().all(|line| line.starts_with('|') && line.ends_with('|')), "{table}");
    for index in ["wort", "fast-fair", "p-clht"] {
        assert!(table.contains(&format!("| `{index}` |")), "{table}");
    }
}

#[test]
fn depths_of_a_later_run_join_those_of_an_earlier_one_in_a_document() {
    let scene = Scene::new();
    let document = scene.file(
        "study.md",
        "<!-- generated: lapis lab wort --depths -->\n<!-- end of generated -->\n",
    );
    for structure in ["fptree", "wort"] {
        let only = ["--index", structure, "--distribution", "sparse", "--keys", "2000"];
        let into = ["lab", "wort", "--depths", "--write", text(&document)];
        let outcome = run(into.iter().chain(&only));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let said = format!("{structure}, 2,000 sparse keys: about 0.1 GB");
        assert!(outcome.stderr.contains(&said), "{outcome:?}");
    }
    let table = std::fs::read_to_string(&document).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| sparse")).collect();
    assert!(rows[0].contains("| `wort` | 2,000 |") && rows[1].contains("| `fptree` | 2,000 |"));
    assert_eq!(rows.len(), 2);
}

#[test]
fn what_a_comparison_with_published_code_takes_no_notice_of_is_refused() {
    for ignored in [
        ["--distribution", "dense"],
        ["--repetitions", "10"],
        ["--modelled-keys", "10"],
        ["--modelled-repetitions", "10"],
        ["--caches-for-keys", "10"],
        ["--profile", "dram"],
        ["--pmem", "/nowhere"],
        ["--plot", "peers.svg"],
    ] {
        let outcome = run(["lab", "index", "--peers"].iter().chain(&ignored));
        assert!(outcome.sentence(2).contains("cannot be used with"), "{ignored:?}: {outcome:?}");
    }
    let outcome = run(["lab", "index", "--peers", "--runs", "0"]);
    assert!(outcome.sentence(2).contains("at least once"), "{outcome:?}");
}

#[test]
fn published_code_is_quoted_and_ours_measured() {
    let report = run(["lab", "index", "--peers", "--keys", "500", "--runs", "2", "--json"]).json();
    assert_eq!(report["rows"][0]["published_mops"][1], 2.77);
    assert!(report["ours"][0]["mops"][0].as_f64().unwrap() > 0.0);
    assert_eq!(report["runs"], 2);
}
