//! What it takes to add an index: its folder, `tests/toy_index`, and one line. The toy is added to a
//! copy of the sources, and is then found in every list.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const LINE: &str = "    1000 toy::Toy [ordered];\n";

/// Copies what differs, so that what was built before needs not be built again, and removes what is
/// there no more.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(to).unwrap().map(Result::unwrap) {
            let (name, path) = (entry.file_name(), entry.path());
            if from.join(&name).exists() || name == OsStr::new("toy") {
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

/// The sources with the toy among them. They stay where they are for the next time.
fn sources_with_the_toy() -> PathBuf {
    let (from, to) = (Path::new(WORKSPACE), Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy"));
    let list = Path::new("crates/index/src/lib.rs");
    let before = std::fs::read_to_string(from.join(list)).unwrap();
    let (lines, rest) = before.split_once("\n}\n").unwrap();
    let after = format!("{lines}\n{LINE}}}\n{rest}");
    for part in ["Cargo.toml", "Cargo.lock", "examples", "include", "data", "docs", "README.md"] {
        if from.join(part).exists() {
            copy(&from.join(part), &to.join(part));
        }
    }
    copy(&from.join("crates"), &to.join("crates"));
    copy(&from.join("crates/cli/tests/toy_index"), &to.join("crates/index/src/toy"));
    write(&to.join(list), after.as_bytes());
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

#[test]
#[ignore = "builds the workspace once more; .ci/run has it"]
fn an_index_is_its_folder_and_one_line() {
    let sources = &sources_with_the_toy();
    cargo(sources, &["build", "-p", "lapis-cli"]);

    let table = json(sources, "lab capabilities");
    assert!(rows(&table, "rows").iter().any(|row| row["kind"] == "toy" && row["ordered"] == true));

    let explored = json(sources, "crash toy --ops 30");
    assert!(rows(&explored, "violations").is_empty() && explored["images"].as_u64() > Some(100));
    let workers = json(sources, "crash toy --workers 2 --ops 4 --schedules 10");
    assert!(rows(&workers, "violations").is_empty(), "{workers}");
    let points = json(sources, "crash toy --persist-points --ops 60");
    let points = rows(&points, "persist_points");
    assert!(points.len() >= 4 && points.iter().all(|point| point["killed"] == true), "{points:?}");
    let mutants = json(sources, "crash --mutants --structure toy");
    assert!(rows(&mutants, "mutants").iter().all(|row| row["name"] == "toy/unflushed-node"));

    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let store = store.to_str().unwrap();
    for number in 0..20 {
        lapis(sources, &format!("put --dir {store} key{number:02} value{number} --index toy"));
    }
    assert_eq!(lapis(sources, &format!("get --dir {store} key07")), "value7");
    assert_eq!(lapis(sources, &format!("scan --dir {store}")).lines().count(), 20);
    assert_eq!(json(sources, &format!("info --dir {store}"))["tables"][0]["index"], "toy");
    assert_eq!(json(sources, &format!("check --dir {store}"))["ok"], true);

    let found = json(sources, "lab index --index toy --keys 200 --operation insert,get,range");
    assert_eq!(rows(&found, "rows").len(), 3);
    assert!(rows(&found, "rows").iter().all(|row| row["index"] == "toy"));

    let test = "conformance::toy::numbers::ranges_of_all_bounds_in_both_directions";
    let tested = cargo(sources, &["test", "-p", "lapis-index", "--test", "index", test]);
    assert!(tested.contains(&format!("test {test} ... ok")), "{tested}");
}
