//! What it takes to add an index, a log, cells or a page scheme: a folder or module, and one line. A toy
//! of each, `tests/toy_index` and `tests/toy_blocks`, is added to a copy of the sources, and is then
//! found in every list.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Where the modules go, and the lists: the file of each, how it begins, and the line.
const MODULES: [(&str, &str); 4] = [
    ("toy_index", "crates/index/src/toy"),
    ("toy_blocks/toy_log.rs", "crates/blocks/src/toy_log.rs"),
    ("toy_blocks/toy_cell.rs", "crates/blocks/src/in_place/toy_cell.rs"),
    ("toy_blocks/toy_page.rs", "crates/blocks/src/page/toy.rs"),
];
const LISTS: [(&str, &str, &str); 4] = [
    ("crates/index/src/lib.rs", "registry! {", "1000 toy::Toy [ordered];"),
    ("crates/blocks/src/lib.rs", "logs! {", "ToyLog toy_log [Toy];"),
    ("crates/blocks/src/in_place/mod.rs", "cells! {", "1000 Toy toy_cell::ToyCell [];"),
    ("crates/blocks/src/page/mod.rs", "page_schemes! {", "Toy page_toy toy;"),
];

/// Copies what differs, so that what was built before needs not be built again, and removes what is
/// there no more.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(to).unwrap().map(Result::unwrap) {
            let (name, path) = (entry.file_name(), entry.path());
            if from.join(&name).exists() || name.to_string_lossy().starts_with("toy") {
                continue;
            }
            let removed = if path.is_dir() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            removed.unwrap();
        }
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            if entry.file_name() != OsStr::new("target") {
                copy(&entry.path(), &to.join(entry.file_name()));
            }
        }
        return;
    }
    write(to, &std::fs::read(from).unwrap());
}

fn write(to: &Path, contents: &[u8]) {
    if std::fs::read(to).ok().as_deref() != Some(contents) {
        std::fs::write(to, contents).unwrap();
    }
}

/// The sources with the toys among them. They stay where they are for the next time.
fn sources_with_the_toys() -> PathBuf {
    let (from, to) = (Path::new(WORKSPACE), Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy"));
    let with_line = |(file, list, line): (&str, &str, &str)| {
        let text = std::fs::read_to_string(from.join(file)).unwrap();
        let (before, list_and_rest) = text.split_once(&format!("\n{list}")).unwrap();
        let (lines, rest) = list_and_rest.split_once("\n}\n").unwrap();
        format!("{before}\n{list}{lines}\n    {line}\n}}\n{rest}")
    };
    std::fs::create_dir_all(&to).unwrap();
    for part in [
        "Cargo.toml",
        "Cargo.lock",
        "examples",
        "fuzz",
        "include",
        "data",
        "docs",
        "tools",
        "README.md",
    ] {
        if from.join(part).exists() {
            copy(&from.join(part), &to.join(part));
        }
    }
    copy(&from.join("crates"), &to.join("crates"));
    for (module, home) in MODULES {
        copy(&from.join("crates/cli/tests").join(module), &to.join(home));
    }
    for list in LISTS {
        write(&to.join(list.0), with_line(list).as_bytes());
    }
    to
}

fn cargo(sources: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(sources).args(arguments).env("CARGO_NET_OFFLINE", "true");
    command.env("CARGO_TARGET_DIR", sources.join("target"));
    for profile in ["DEV", "TEST"] {
        command.env(format!("CARGO_PROFILE_{profile}_OPT_LEVEL"), "0");
        command.env(format!("CARGO_PROFILE_{profile}_DEBUG"), "0");
        command.env(format!("CARGO_PROFILE_{profile}_INCREMENTAL"), "false");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What the binary with the toy prints.
fn lapis(sources: &Path, words: &str) -> String {
    let mut command = Command::new(sources.join("target/debug/lapis"));
    let output = command.args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(sources: &Path, words: &str) -> Value {
    serde_json::from_str(&lapis(sources, &format!("{words} --json"))).unwrap()
}

fn rows<'v>(value: &'v Value, list: &str) -> &'v [Value] {
    value[list].as_array().unwrap()
}

fn has_no_violation(explored: &Value) {
    assert!(rows(explored, "violations").is_empty(), "{explored}");
    assert!(explored["images"].as_u64() > Some(100), "{explored}");
}

fn all_are_killed(report: &Value, list: &str, least: usize) {
    let found = rows(report, list);
    assert!(found.len() >= least && found.iter().all(|row| row["killed"] == true), "{report}");
}

/// Not the toys by themselves only: each is to stand beside all others, which takes one build.
#[test]
#[ignore = "builds the workspace once more: `cargo test -p lapis-cli --test cli -- --ignored toy_index`"]
fn an_index_a_log_cells_and_a_page_scheme_are_a_module_and_one_line() {
    let sources = &sources_with_the_toys();
    cargo(sources, &["build", "-p", "lapis-cli"]);
    is_an_index(sources);
    is_a_log(sources);
    are_cells(sources);
    is_a_page_scheme(sources);

    let test = "conformance::toy::numbers::ranges_of_all_bounds_in_both_directions";
    let tested = cargo(sources, &["test", "-p", "lapis-index", "--test", "index", test]);
    assert!(tested.contains(&format!("test {test} ... ok")), "{tested}");
    // What every log in a ring is asked, and every page scheme.
    let tested = cargo(sources, &["test", "-p", "lapis-blocks", "--test", "blocks", "model::"]);
    assert!(tested.contains("logs::model::toy_log::behaves_like_a_queue ... ok"), "{tested}");
    assert!(tested.contains("page::model::every_scheme_behaves_like_a_map ... ok"), "{tested}");
}

fn is_an_index(sources: &Path) {
    let table = json(sources, "lab capabilities");
    assert!(rows(&table, "rows").iter().any(|row| row["kind"] == "toy" && row["ordered"] == true));

    has_no_violation(&json(sources, "crash toy --ops 30"));
    let workers = json(sources, "crash toy --workers 2 --ops 4 --schedules 10");
    assert!(rows(&workers, "violations").is_empty(), "{workers}");
    all_are_killed(&json(sources, "crash toy --persist-points --ops 60"), "persist_points", 4);
    let mutants = json(sources, "crash --mutants --structure toy");
    assert!(rows(&mutants, "mutants").iter().all(|row| row["name"] == "toy/unflushed-node"));

    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let store = store.to_str().unwrap();
    for number in 0..20 {
        let put = format!("put --dir {store} key{number:02} value{number} --index toy");
        lapis(sources, &format!("{put} --pmem {store} --pmem-mib 16"));
    }
    assert_eq!(lapis(sources, &format!("get --dir {store} key07")), "value7");
    assert_eq!(lapis(sources, &format!("scan --dir {store}")).lines().count(), 20);
    assert_eq!(json(sources, &format!("info --dir {store}"))["tables"][0]["index"], "toy");
    assert_eq!(json(sources, &format!("check --dir {store}"))["ok"], true);

    let found = json(sources, "lab index --index toy --keys 200 --operation insert,get,range");
    assert_eq!(rows(&found, "rows").len(), 3);
    assert!(rows(&found, "rows").iter().all(|row| row["index"] == "toy"));
}

fn is_a_log(sources: &Path) {
    has_no_violation(&json(sources, "crash toy-log --ops 40"));
    // Under cells, too.
    has_no_violation(&json(sources, "crash log-cell:toy --ops 10 --images 300"));
    all_are_killed(&json(sources, "crash --mutants --structure toy-log"), "mutants", 1);
    let found = json(sources, "lab log --log toy-log --size 64 --threads 1,2 --modelled-only");
    // Dense, padded and streamed; with two threads padded ones also shared.
    assert_eq!(rows(&found, "rows").len(), 3 + 3 + 1);
    assert!(rows(&found, "rows").iter().all(|row| row["variant"] == "toy-log"), "{found}");
}

fn are_cells(sources: &Path) {
    has_no_violation(&json(sources, "crash toy-cell --ops 40"));
    all_are_killed(&json(sources, "crash toy-cell --persist-points --ops 40"), "persist_points", 4);
    all_are_killed(&json(sources, "crash --mutants --structure toy-cell"), "mutants", 1);
    let found = json(sources, "lab inplace --size 16 --modelled-operations 50 --modelled-only");
    let of_toy = rows(&found, "rows").iter().filter(|row| row["variant"] == "toy-cell");
    assert_eq!(of_toy.count(), 6, "{found}");
}

fn is_a_page_scheme(sources: &Path) {
    has_no_violation(&json(sources, "crash page-toy --ops 30"));
    let found = json(
        sources,
        "lab page --variant page-toy --dirty-lines 1,2 --threads 1 --page-bytes 4096 --modelled-only",
    );
    let barriers: Vec<_> = rows(&found, "rows").iter().map(|row| &row["barriers"]).collect();
    assert_eq!(barriers, [4, 2], "{found}");
}
