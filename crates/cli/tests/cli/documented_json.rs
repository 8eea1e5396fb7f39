//! What `--json` prints has the names that are documented.

use serde_json::{Value, json};

use crate::runner::{Outcome, Scene, run, text};

fn assert_fields(object: &Value, fields: &[&str]) {
    for field in fields {
        assert!(object.get(field).is_some_and(|value| !value.is_null()), "{field} in {object}");
    }
}

fn json(outcome: Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.json()
}

#[test]
fn get_put_delete_and_scan() {
    let scene = Scene::new();
    let put = json(scene.run(["put", "key", "value", "--json"]));
    assert_eq!(put, json!({"table": "main", "key": "key", "bytes": 5}));
    let got = json(scene.run(["get", "key", "--json"]));
    assert_eq!(got, json!({"table": "main", "key": "key", "found": true, "value": "value"}));
    let scanned = json(scene.run(["scan", "--json"]));
    let entry = json!({"key": "key", "value": "value"});
    assert_eq!(scanned, json!({"table": "main", "entries": [entry], "count": 1}));
    let deleted = json(scene.run(["delete", "key", "--json"]));
    assert_eq!(deleted, json!({"table": "main", "key": "key", "deleted": true}));
    let empty = json(scene.run(["scan", "--json"]));
    assert_eq!(empty, json!({"table": "main", "entries": [], "count": 0}));
    let missing = scene.run(["get", "key", "--json"]);
    missing.sentence(1);
    assert_eq!(missing.json(), json!({"table": "main", "key": "key", "found": false}));
}

#[test]
fn bytes_that_are_not_text_are_base64() {
    let scene = Scene::new();
    scene.run_with_input(["put", "key", "-"], &[0xff, 0x00]).good();
    let got = json(scene.run(["get", "key", "--json"]));
    assert_eq!(got["value_base64"], "/wA=");
    assert!(got.get("value").is_none());
}

#[test]
fn import_and_export() {
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\nb\t2\n");
    let import = json(scene.run(["import", text(&file), "--json"]));
    assert_fields(&import, &["records", "bytes", "seconds", "resumed_from", "total_records"]);
    assert_eq!((&import["records"], &import["bytes"]), (&json!(2), &json!(8)));
    let output = scene.path("out.csv");
    let export = json(scene.run(["export", "--output", text(&output), "--json"]));
    assert_eq!((&export["records"], &export["format"]), (&json!(2), &json!("csv")));
}

#[test]
fn info_and_check() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    let info = json(scene.run(["info", "--json"]));
    assert_fields(&info, &["durability", "why", "tiers", "tables", "bytes"]);
    assert_eq!(info["tables"][0]["name"], "main");
    let check = json(scene.run(["check", "--json"]));
    assert_eq!((&check["ok"], &check["problems"]), (&json!(true), &json!([])));
}

#[test]
fn ycsb() {
    let arguments = ["ycsb", "--workload", "load,a", "--records", "500", "--operations", "500"];
    let report = json(run(arguments.iter().chain(&["--threads", "2", "--json"])));
    let fields = ["workload", "records", "operations", "threads", "ops_per_s", "per_op", "seed"];
    assert_fields(&report, &fields);
    assert_fields(&report["machine"], &["version", "commit", "processor", "flush"]);
    let counts = ["flushes", "fences", "wpq_inserts", "media_writes", "media_reads", "profile"];
    assert_fields(&report["per_op"], &counts);
    assert_fields(&report["latency_ns"], &["p50", "p99", "p999", "p9999"]);
    assert_eq!((&report["records"], &report["operations"]), (&json!(500), &json!(500)));
    assert_eq!(report["runs"].as_array().unwrap().len(), 2);
    assert_eq!(report["runs"][0]["workload"], "ycsb-load");
}

#[test]
fn ycsb_writes_a_row_for_each_workload() {
    let scene = Scene::new();
    let file = scene.path("rows.csv");
    let arguments = ["ycsb", "--workload", "load,c", "--records", "100", "--operations", "100"];
    run(arguments.into_iter().chain(["--measured-only", "--csv", text(&file)])).good();
    let rows = std::fs::read_to_string(&file).unwrap();
    let workloads: Vec<_> = rows.lines().map(|row| row.split(',').next().unwrap()).collect();
    assert_eq!(workloads, ["workload", "ycsb-load", "ycsb-c"], "{rows}");
}

#[test]
fn workloads_are_drawn_and_explorations_written_as_rows() {
    let scene = Scene::new();
    let (figure, rows, trace) =
        (scene.path("figure.svg"), scene.path("rows.csv"), scene.path("trace.csv"));
    std::fs::write(&trace, "version,time_us,op,size,lbn\n1,5,2a,512,7\n1,9,28,512,7\n").unwrap();
    let ycsb = ["ycsb", "--workload", "load,c", "--records", "100", "--operations", "100"];
    for arguments in [&ycsb[..], &["replay", text(&trace)]] {
        let drawn = ["--plot", text(&figure), "--csv", text(&rows)];
        run(arguments.iter().copied().chain(drawn)).good();
        let drawing = std::fs::read_to_string(&figure).unwrap();
        assert!(drawing.contains("modelled: optane-100") && drawing.contains("measured here"));
        assert!(std::fs::read_to_string(&rows).unwrap().starts_with("workload,records,"));
    }
    run(["crash", "wort", "--ops", "20", "--images", "50", "--csv", text(&rows)]).good();
    assert!(std::fs::read_to_string(&rows).unwrap().starts_with("event,count"));
}

#[test]
fn crash_with_several_workers() {
    let arguments =
        ["crash", "p-clht", "--workers", "2", "--ops", "6", "--schedules", "5", "--json"];
    let report = json(run(arguments));
    let fields =
        ["structure", "seed", "ops", "crash_points", "images", "distinct_states", "images_per_s"];
    assert_fields(&report, &fields);
    // Five histories for each kind of keys.
    assert_eq!((&report["workers"], &report["schedules"]), (&json!(2), &json!(10)));
    assert_eq!(report["violations"], json!([]));
}

#[test]
fn crash() {
    let report = json(run(["crash", "wort", "--ops", "10", "--images", "200", "--json"]));
    let fields =
        ["structure", "seed", "ops", "crash_points", "images", "distinct_states", "images_per_s"];
    assert_fields(&report, &fields);
    assert_eq!((&report["structure"], &report["ops"]), (&json!("wort"), &json!(10)));
    assert_eq!(report["violations"], json!([]));
    assert!(report["images"].as_u64().unwrap() > 0);
    let coverage = &report["coverage"];
    let fields = ["persist_points_passed_only_after_crashes", "persist_points_missed"];
    assert_fields(coverage, &fields);
    assert_fields(coverage, &["events_only_after_crashes", "events_missed"]);
    let count = |field: &str| coverage[field].as_u64().unwrap();
    assert!(count("persist_points_passed") > 5 && count("events_passed") > 0, "{coverage}");
    assert!(count("persist_points_passed") <= count("persist_points"), "{coverage}");
}

#[test]
fn crash_mutants() {
    let report = json(run(["crash", "--mutants", "--structure", "wort", "--json"]));
    let rows = report["mutants"].as_array().unwrap();
    assert!(rows.len() >= 9);
    for row in rows {
        assert_fields(row, &["name", "structure", "strategy", "killed", "images", "seconds"]);
        assert_eq!(row["structure"], json!("wort"));
        // Every strategy finds every mutant; several workers need not.
        let by_workers = row["strategy"] == json!({ "workers": 3 });
        assert!(by_workers || row["killed"] == json!(true), "{row}");
    }
    assert_eq!(report["unmutated_violations"], 0);
}

#[test]
fn crash_rates() {
    let report = json(run(["crash", "--rates", "--row", "header-log", "--json"]));
    let [row] = report["rows"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let fields =
        ["name", "images", "run", "run_in_part", "set_up_s", "images_s", "lines_per_image"];
    assert_fields(row, &fields);
    assert_eq!(
        (&row["name"], &row["pool_mib"]),
        (&json!("`lapis crash header-log`"), &json!(null))
    );
}

#[test]
fn crash_of_one_mutant_is_a_violation_that_says_how_to_see_it_again() {
    let mutant = "wort/link-before-fence";
    let outcome = run(["crash", "wort:u64", "--ops", "5", "--mutant", mutant, "--json"]);
    assert_eq!(outcome.code, Some(1));
    let replay = outcome.json()["violations"][0]["replay"].as_str().unwrap().to_owned();
    assert!(replay.contains("--mutant wort/link-before-fence --at "), "{replay}");
}

#[test]
fn crash_all() {
    let report = json(run(["crash", "--all", "--budget", "600ms", "--json"]));
    assert_eq!((&report["budget_s"], &report["violations"]), (&json!(0.6), &json!(0)));
    let rows = report["structures"].as_array().unwrap();
    assert!(rows.len() >= 6);
    for row in rows {
        let fields = ["structure", "seeds", "crash_points", "images", "images_per_s"];
        assert_fields(row, &fields);
        assert_eq!(row["violations"], json!([]));
    }
}

#[test]
fn persist_points() {
    let arguments = ["crash", "cow-cell", "--ops", "10", "--persist-points", "--json"];
    let outcome = run(arguments);
    let report = outcome.json();
    let rows = report["persist_points"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert_fields(row, &["name", "killed"]);
    }
    let survived = rows.iter().any(|row| row["killed"] == false);
    assert_eq!(outcome.code, Some(i32::from(survived)));
}

#[test]
fn lab_index() {
    let arguments = ["lab", "index", "--index", "wort,p-clht", "--operation", "insert,get"];
    let more = ["--keys", "500", "--distribution", "zipf", "--json"];
    let report = json(run(arguments.iter().chain(&more)));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let fields =
            ["index", "operation", "distribution", "keys", "threads", "depth", "bytes_per_key"];
        assert_fields(row, &fields);
        assert_fields(&row["measured"], &["mops", "p50_ns", "p99_ns", "p9999_ns"]);
        let counts = ["profile", "flushes", "fences", "wpq_inserts", "media_writes", "media_reads"];
        assert_fields(&row["modelled"], &counts);
    }
}

/// A small run of each experiment that measures here and models a device, the modelled side alone.
const EXPERIMENTS: [&[&str]; 3] = [
    &["log", "--log", "rawl", "--size", "64", "--threads", "1", "--placement", "padded"],
    &["page", "--page-bytes", "4096", "--dirty-lines", "1,4", "--threads", "1"],
    &["inplace", "--size", "8,16", "--modelled-operations", "50"],
];

fn experiment(arguments: &[&str], more: &[&str]) -> Value {
    let all = ["lab"].iter().chain(arguments).chain(&["--modelled-only", "--json"]).chain(more);
    json(run(all))
}

#[test]
fn lab_log_page_and_inplace() {
    for arguments in EXPERIMENTS {
        let report = experiment(arguments, &[]);
        for row in report["rows"].as_array().unwrap() {
            assert_fields(row, &["variant", "threads", "barriers"]);
            assert_eq!(row["measured"], Value::Null);
            let counts = ["profile", "flushes", "fences", "wpq_inserts", "media_writes"];
            assert_fields(&row["modelled"], &counts);
        }
    }
}

#[test]
fn lab_results_say_what_they_were_found_with() {
    let index = ["index", "--index", "wort", "--operation", "get", "--keys", "100", "--seed", "7"];
    let results = [experiment(&index, &[]), json(run(["lab", "capabilities", "--json"]))];
    for result in &results {
        let fields =
            ["version", "commit", "processor", "flush", "page_bytes", "huge_pages", "cores"];
        assert_fields(&result["machine"], &fields);
    }
    // Of a table of capabilities nothing is left to chance.
    assert_eq!(results.map(|result| result["seed"].clone()), [json!(7), Value::Null]);
}

#[test]
fn lab_rows_as_csv_are_those_of_the_json() {
    let scene = Scene::new();
    for arguments in EXPERIMENTS {
        let file = scene.path("rows.csv");
        let report = experiment(arguments, &["--csv", text(&file)]);
        let mut reader = csv::Reader::from_path(&file).unwrap();
        let headings = reader.headers().unwrap().clone();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), report["rows"].as_array().unwrap().len());
        for (row, expected) in rows.iter().zip(report["rows"].as_array().unwrap()) {
            let cell = |name| &row[headings.iter().position(|heading| heading == name).unwrap()];
            assert_eq!(cell("variant"), expected["variant"]);
            let fences = cell("modelled.fences").parse::<f64>().unwrap();
            assert_eq!(json!(fences), expected["modelled"]["fences"]);
        }
    }
}

#[test]
fn lab_figures_are_drawn_where_they_are_asked_for() {
    let scene = Scene::new();
    let figure = scene.path("figure.svg");
    let index = ["index", "--index", "wort", "--operation", "get,update", "--keys", "100"];
    for arguments in [&index[..], EXPERIMENTS[0]] {
        experiment(arguments, &["--plot", text(&figure)]);
        let drawing = std::fs::read_to_string(&figure).unwrap();
        assert!(drawing.contains("modelled: optane-100"), "{drawing}");
    }
}

#[test]
fn lab_wort() {
    let arguments = ["lab", "wort", "--index", "wort", "--distribution", "dense", "--json"];
    let sizes = ["--keys", "2000", "--modelled-keys", "2000", "--modelled-operations", "500"];
    let experiments =
        ["--experiment", "operations,ranges,recovery,strings", "--string-keys", "2000"];
    let report = json(run(arguments.iter().chain(&sizes).chain(&experiments)));
    let parts = ["profile", "flush_method", "operations", "ranges", "recovery", "strings"];
    assert_fields(&report, &parts);
    let strings = &report["strings"][0];
    assert_fields(strings, &["structure", "strings", "key_bytes", "measured", "modelled"]);
    assert_eq!(strings["strings"], "url");
    assert_fields(&strings["measured"], &["keys", "insert_ns", "search_ns", "depth"]);
    assert_eq!(report["profile"], "wort-study");
    let row = &report["operations"][0];
    assert_eq!((&row["structure"], &row["distribution"]), (&json!("wort"), &json!("dense")));
    let measured = ["keys", "insert_ns", "search_ns", "depth", "bytes_per_key"];
    assert_fields(&row["measured"], &measured);
    let modelled = ["keys", "inserts", "searches", "depth", "bytes_per_key"];
    assert_fields(&row["modelled"], &modelled);
    let counts = ["flushes", "fences", "llc_misses", "dram_misses", "wpq_inserts", "media_writes"];
    assert_fields(&row["modelled"]["insert"], &counts);
    assert_fields(&row["modelled"]["search"], &counts);
    let times = ["read_ns", "write_ns", "insert_ns", "search_ns"];
    assert_fields(&row["modelled"]["times"][0], &times);
    assert_fields(&report["ranges"][0], &["structure", "distribution", "percent", "measured"]);
    let recovery = ["structure", "keys", "threads", "rebuilds", "pool_open_us", "index_open_us"];
    assert_fields(&report["recovery"][0], &recovery);
}

#[test]
fn lab_wort_depths() {
    let arguments = ["lab", "wort", "--depths", "--keys", "2000", "--index", "wort,fptree"];
    let report = json(run(arguments.iter().chain(&["--distribution", "sparse", "--json"])));
    let fields = ["structure", "distribution", "keys", "needed_bytes", "walked"];
    for row in report["depths"].as_array().unwrap() {
        assert_fields(row, &fields);
        assert_fields(&row["walked"], &["depth", "max_depth", "bytes_per_key"]);
    }
    assert!(report["depths"][0]["computed_depth"].is_f64());
    assert!(report["depths"][1]["computed_depth"].is_null());
}

#[test]
fn lab_capabilities() {
    let report = json(run(["lab", "capabilities", "--json"]));
    assert_eq!(report["rows"].as_array().unwrap().len(), lapis_index::IndexKind::ALL.len());
    assert_fields(
        &report["rows"][0],
        &["kind", "ordered", "concurrent_writers", "lock_free_reads"],
    );
}
