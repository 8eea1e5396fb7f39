//! Bad input: one sentence on standard error, exit code 2, no store made on the way.

use std::process::Command;

use crate::runner::{Scene, finish, run, text};

#[test]
fn wrong_command_lines_are_refused() {
    let cases: [(&[&str], &str); 21] = [
        (&[], "name a command"),
        (&["frobnicate"], "there is no command `frobnicate`"),
        (&["get", "key"], "give --dir"),
        (&["get", "--dir", "x"], "give <KEY>"),
        (&["put", "--dir", "x", "key"], "give <VALUE>"),
        (&["put", "--dir", "x", "k", "v", "--file", "f"], "cannot be used with"),
        (&["scan", "--dir", "x", "--limit", "many"], "`many` is not a value of --limit"),
        (&["scan", "--dir", "x", "--prefix", "a", "--from", "b"], "cannot be used with"),
        (&["import", "--dir", "x", "f.tsv", "--batch", "0"], "`0` is not a value of --batch"),
        (&["lab", "index", "--index", "b-tree"], "use one of wort, fast-fair, p-clht"),
        (&["info", "--dir", "x", "--placement", "main-memory"], "--placement <WAY>: choose ssd, "),
        (&["crash", "b-tree"], "use one of wort"),
        (&["crash"], "give"),
        (&["crash", "pop-log:sparse"], "use one of pop-log, pop-log:padded"),
        (&["crash", "wort:u16", "--persist-points"], "use one of wort, wort:u64, wort:bytes"),
        (&["crash", "wort:splitting", "--ops", "3"], "add --workers 2"),
        (&["crash", "allocator:file", "--workers", "2"], "choose allocator"),
        (&["crash", "--all", "--budget", "3 days"], "as in 500ms, 60s or 5m"),
        (&["crash", "wort", "--mutants"], "cannot be used with"),
        (&["crash", "--mutants", "--structure", "b-tree"], "use one of wort"),
        (
            &["check", "--dir", "x", "--durability", "total"],
            "use one of immediate, group, eventual",
        ),
    ];
    for (arguments, expected) in cases {
        let outcome = run(arguments);
        assert!(outcome.sentence(2).contains(expected), "{arguments:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty());
    }
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_build_without_other_stores_says_how_to_get_one_that_compares() {
    let outcome = run(["lab", "compare", "--records", "1000"]);
    assert!(outcome.sentence(2).contains("cargo run --release --features peers -- lab compare"));
}

#[test]
fn the_wort_study_refuses_what_it_cannot_run() {
    let cases: [(&[&str], &str); 10] = [
        (&["--string-keys", "9"], "between 1,000 and 134,217,728 (128Mi) byte-string keys"),
        (&["--experiment", "strings", "--string-file", "/nowhere/keys"], "/nowhere/keys: "),
        (&["--keys", "4G"], "as 4000000, 500k, 4M or 128Mi"),
        (&["--keys", "999"], "between 1,000 and 134,217,728"),
        (&["--keys", "129Mi"], "between 1,000 and 134,217,728"),
        (&["--depths", "--keys", "0"], "between 1,000 and 134,217,728"),
        (&["--index", "p-clht"], "use one of wort"),
        (&["--distribution", "zipf"], "use dense, sparse, clustered"),
        (&["--latency", "300"], "as in 300/100"),
        (&["--profile", "papyrus"], "there is no device profile papyrus"),
    ];
    for (arguments, expected) in cases {
        let outcome = run(["lab", "wort"].iter().chain(arguments));
        assert!(outcome.sentence(2).contains(expected), "{arguments:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty());
    }
}

#[test]
fn more_memory_for_pages_than_there_is_is_refused() {
    let scene = Scene::new();
    let program = env!("CARGO_BIN_EXE_lapis");
    for words in ["put k v", "get k"] {
        let limited =
            format!("ulimit -v 2000000; exec {program} {words} --dir \"$0\" --cache-mib 4096");
        let mut command = Command::new("sh");
        command.arg("-c").arg(limited).arg(scene.store());
        let outcome = finish(command, b"");
        assert!(outcome.sentence(2).contains("does not give so much memory"), "{outcome:?}");
    }
    assert!(!scene.store().exists());
}

#[test]
fn experiments_that_no_machine_can_run_are_refused() {
    let most = u64::MAX.to_string();
    let study = ["amplification", "--threads", "1", "--index", "wort"];
    for (experiment, option, expected) in [
        (&["inplace", "--size", "8", "--measured-only"][..], "--operations", "100,000,000 times"),
        (&["inplace", "--size", "8"], "--modelled-operations", "100,000,000 times"),
        (&study, "--keys", "1 to 64,000,000 keys"),
        (&study, "--operations", "1 to 64,000,000 keys"),
    ] {
        let outcome = run([&["lab"], experiment, &[option, &most]].concat());
        assert!(outcome.sentence(2).contains(expected), "{experiment:?}: {outcome:?}");
    }
    let outcome = run(["demo", "--records", &most]);
    assert!(outcome.sentence(2).contains("is not a value of --records"), "{outcome:?}");
}

#[test]
fn a_figure_or_document_that_cannot_be_written_is_refused_before_the_experiment() {
    let scene = Scene::new();
    // It would be refused itself.
    let experiment = ["lab", "inplace", "--size", "0"];
    let figure = scene.path("x.txt");
    let outcome = run(experiment.iter().chain(&["--plot", text(&figure)]));
    assert!(outcome.sentence(2).contains("a figure is written as .svg or .html"), "{outcome:?}");
    let document = scene.path("x.md");
    let outcome = run(experiment.iter().chain(&["--write", text(&document)]));
    assert!(outcome.sentence(2).contains("cannot write into"), "{outcome:?}");
    assert!(!figure.exists() && !document.exists());
}

#[test]
fn reading_commands_make_no_store() {
    let scene = Scene::new();
    for arguments in
        [&["get", "k"][..], &["delete", "k"], &["scan"], &["info"], &["check"], &["export"]]
    {
        let outcome = scene.run(arguments);
        assert!(outcome.sentence(2).contains("there is no store in"), "{outcome:?}");
    }
    assert!(!scene.store().exists());
}

#[test]
fn a_file_that_cannot_be_imported_makes_no_store() {
    let scene = Scene::new();
    let nameless = scene.file("data", "a\tb\n");
    let cases = [
        (text(&scene.path("missing.tsv")).to_owned(), "no such file or directory"),
        (text(&nameless).to_owned(), "give --format tsv, csv or jsonl"),
        (text(&scene.path("")).to_owned() + ".", "cannot tell the format"),
    ];
    for (file, expected) in cases {
        let outcome = scene.run(["import", &file]);
        assert!(outcome.sentence(2).contains(expected), "{outcome:?}");
    }
    let outcome = scene.run(["import", text(&scene.path("")), "--format", "tsv"]);
    assert!(outcome.sentence(2).contains("is a directory"), "{outcome:?}");
    assert!(!scene.store().exists());
}

#[test]
fn options_of_another_format_are_refused() {
    let scene = Scene::new();
    let tsv = scene.file("f.tsv", "a\tb\n");
    let jsonl = scene.file("f.jsonl", "{}\n");
    let outcome = scene.run(["import", text(&tsv), "--delimiter", "pipe"]);
    assert!(outcome.sentence(2).contains("add --format csv"));
    let outcome = scene.run(["import", text(&jsonl), "--header"]);
    assert!(outcome.sentence(2).contains("leave it out"));
    let outcome = scene.run(["import", text(&tsv), "--key", "0"]);
    assert!(outcome.sentence(2).contains("counted from 1"));
    let outcome = scene.run(["import", text(&tsv), "--value-field", "x"]);
    assert!(outcome.sentence(2).contains("leave it out"));
}

#[test]
fn with_json_a_failure_is_on_standard_output_too() {
    let scene = Scene::new();
    for (arguments, code) in [(&["get", "k"][..], 2), (&["scan", "--limit", "many"], 2)] {
        let outcome = scene.run(arguments.iter().chain(&["--json"]));
        let failure = outcome.json();
        assert_eq!(failure["error"], outcome.sentence(code));
        assert_eq!(failure["code"], code);
    }
    let outcome = run(["frobnicate", "--json"]);
    assert_eq!(outcome.json()["error"], outcome.sentence(2));
}

#[test]
fn empty_and_overlong_keys_are_refused() {
    let scene = Scene::new();
    scene.run(["put", "", "v"]).sentence(2);
    assert!(!scene.store().exists());
    let long = "k".repeat(65_536);
    assert!(scene.run(["put", &long, "v"]).sentence(2).contains("65536"));
    scene.run(["put", &long[..1970], "v"]).good();
    scene.run(["get", &long]).sentence(1);
}

#[test]
fn a_value_file_that_is_missing_is_refused() {
    let scene = Scene::new();
    let outcome = scene.run(["put", "k", "--file", "/nonexistent/file"]);
    assert!(outcome.sentence(2).contains("cannot read /nonexistent/file"));
    assert!(!scene.store().exists());
}

#[test]
fn something_that_is_no_store_is_refused() {
    let scene = Scene::new();
    std::fs::create_dir(scene.store()).unwrap();
    std::fs::write(scene.store().join("pages.lapis"), "x".repeat(1 << 17)).unwrap();
    std::fs::write(scene.store().join("log.lapis"), "x".repeat(1 << 17)).unwrap();
    scene.run(["get", "k"]).sentence(2);
    scene.run(["put", "k", "v"]).sentence(2);
    let file = Scene::new();
    std::fs::write(file.store(), "a file where the directory should be").unwrap();
    file.run(["put", "k", "v"]).sentence(2);
}

#[test]
fn a_truncated_store_is_refused() {
    let scene = Scene::new();
    scene.run(["put", "k", "v"]).good();
    let pool = scene.store().join("pages.lapis");
    for length in [0, 100, 4096, 70_000] {
        std::fs::OpenOptions::new().write(true).open(&pool).unwrap().set_len(length).unwrap();
        scene.run(["get", "k"]).sentence(2);
    }
}

#[test]
fn a_table_name_of_lapis_own_is_refused() {
    let scene = Scene::new();
    let outcome = scene.run(["put", "k", "v", "--table", ".imports"]);
    assert!(outcome.sentence(2).contains("start with a dot"));
}

#[test]
fn a_log_filter_that_is_none_is_refused() {
    let scene = Scene::new();
    let mut command = scene.command(["check"]);
    let output = command.env("LAPIS_LOG", "a=b=c").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("LAPIS_LOG"));
}

#[test]
fn the_log_goes_to_standard_error_only() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    let outcome = scene.run(["get", "key", "-vvv"]);
    assert_eq!(outcome.good(), b"value");
}

#[test]
fn help_names_every_command_and_has_examples() {
    let help = run(["--help"]).good_text();
    for command in [
        "demo", "import", "export", "get", "put", "delete", "scan", "info", "check", "ycsb",
        "replay", "crash", "lab",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
        let own = run([command, "--help"]).good_text();
        assert!(own.contains("Example"), "{command}: {own}");
        assert!(own.contains("--json"), "{command}: {own}");
    }
    assert!(!help.contains("demo-worker"));
}
