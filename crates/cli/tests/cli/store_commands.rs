//! put, get, delete, scan, info and check.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::runner::{Outcome, Scene, ended, run, text};

#[test]
fn what_is_put_is_got_byte_for_byte() {
    let scene = Scene::new();
    let value: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let file = scene.file("value", &value);
    scene.run(["put", "binary", "--file", text(&file)]).good();
    scene.run(["put", "text", "a value"]).good();
    assert_eq!(scene.run(["get", "binary"]).good(), value);
    assert_eq!(scene.run(["get", "text"]).good(), b"a value");
}

#[test]
fn a_value_can_come_from_standard_input() {
    let scene = Scene::new();
    scene.run_with_input(["put", "key", "-"], b"from a pipe\n").good();
    assert_eq!(scene.run(["get", "key"]).good(), b"from a pipe\n");
    scene.run_with_input(["put", "key", "--file", "-"], b"").good();
    assert_eq!(scene.run(["get", "key"]).good(), b"");
}

#[test]
fn a_value_can_go_to_a_file_and_a_file_that_cannot_be_read_is_named() {
    let scene = Scene::new();
    let value: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let put = scene.run(["put", "key", "--file", text(&scene.file("in", &value)), "--json"]);
    assert_eq!(put.json()["bytes"], value.len());
    let out = scene.path("out");
    let got = scene.run(["get", "key", "--output", text(&out), "--json"]);
    assert_eq!(got.json()["bytes"], value.len());
    assert!(std::fs::read(&out).unwrap() == value);
    let got = scene.run(["get", "other", "--output", text(&out), "--json"]);
    assert_eq!((got.code, &got.json()["found"]), (Some(1), &false.into()));
    assert!(std::fs::read(&out).unwrap() == value);
    let refused = scene.run(["put", "key", "--file", text(&scene.path("missing"))]);
    assert!(refused.sentence(2).contains("missing: no such file"), "{refused:?}");
    let refused = scene.run(["put", "key", "--file", "/"]);
    assert!(refused.sentence(2).contains("is a directory"), "{refused:?}");
}

#[test]
fn putting_again_replaces() {
    let scene = Scene::new();
    scene.run(["put", "key", "first"]).good();
    scene.run(["put", "key", "second"]).good();
    assert_eq!(scene.run(["get", "key"]).good(), b"second");
}

#[test]
fn a_missing_key_is_exit_code_1_and_a_sentence() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    let outcome = scene.run(["get", "other"]);
    assert!(outcome.sentence(1).starts_with("there is no key `other` in the table `main`"));
    assert!(outcome.stdout.is_empty());
    let outcome = scene.run(["delete", "other", "--json"]);
    outcome.sentence(1);
    assert_eq!(outcome.json()["deleted"], false);
}

#[test]
fn a_deleted_key_is_gone() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    scene.run(["delete", "key"]).good();
    scene.run(["get", "key"]).sentence(1);
}

#[test]
fn tables_are_separate() {
    let scene = Scene::new();
    scene.run(["put", "key", "a", "--table", "first"]).good();
    scene.run(["put", "key", "b", "--table", "second"]).good();
    assert_eq!(scene.run(["get", "key", "--table", "first"]).good(), b"a");
    assert_eq!(scene.run(["get", "key", "--table", "second"]).good(), b"b");
    let outcome = scene.run(["get", "key"]);
    assert!(outcome.sentence(2).contains("no table `main`; it has first, second"));
}

#[test]
fn tables_in_persistent_indexes_lie_in_persistent_memory() {
    let scene = Scene::new();
    let outcome = scene.run(["put", "key", "a", "--index", "wort"]);
    assert!(outcome.sentence(2).contains("without persistent memory"), "{outcome:?}");
    let scene = Scene::new();
    let memory = scene.path("memory");
    let memory = ["--pmem", crate::runner::text(&memory), "--pmem-mib", "16"];
    scene.run(["put", "key", "a", "--index", "p-clht"].iter().chain(&memory)).good();
    scene.run(["put", "key", "b", "--table", "tree"]).good();
    assert_eq!(scene.run(["get", "key"]).good(), b"a");
    let outcome = scene.run(["put", "key", "c", "--index", "wort"]);
    assert!(outcome.sentence(2).contains("is held by p-clht"), "{outcome:?}");
    let outcome = scene.run(["put", "key", "c", "--table", "tree", "--index", "wort"]);
    assert!(outcome.sentence(2).contains("is held by a B+-tree"), "{outcome:?}");
    assert!(scene.run(["scan", "--from", "a"]).sentence(2).contains("no ranges"));
    let info = scene.run(["info", "--json"]).json();
    assert_eq!(
        (&info["tables"][0]["index"], &info["tables"][1]["index"]),
        (&"p-clht".into(), &"b+tree".into())
    );
    assert_eq!(info["durability"], "process-crash");
    assert_eq!(scene.run(["check"]).good_text(), "the store is in order\n");
}

#[test]
fn a_file_that_stands_for_persistent_memory_is_said_to_with_what_a_store_can_do_about_it() {
    let scene = Scene::new();
    let memory = scene.path("memory");
    scene.run(["put", "key", "a", "--pmem", text(&memory), "--pmem-mib", "16"]).good();
    let info = scene.run(["info", "--json"]).json();
    // A memory file system keeps it no longer than that, and says so itself.
    if info["tiers"][2]["medium"] == "file" {
        let why = info["why"].as_str().unwrap();
        assert!(why.contains("not a power cut") && why.contains("without --pmem"), "{why}");
        assert!(!why.contains("open with"), "{why}");
    }
}

#[test]
fn memory_that_cannot_be_made_is_refused_by_the_name_that_was_given() {
    let outcome = Scene::new().run(["put", "key", "a", "--pmem", "/nonexistent/x"]);
    assert_eq!(outcome.sentence(2), "/nonexistent/x: no such file");
}

#[test]
fn chances_of_pages_in_persistent_memory_are_chosen_each_time_and_told() {
    let scene = Scene::new();
    let memory = scene.path("memory");
    let memory = ["--pmem", crate::runner::text(&memory), "--pmem-mib", "16"];
    scene.run(["put", "key", "a", "--placement", "spitfire"].iter().chain(&memory)).good();
    let tuned = ["info", "--placement", "spitfire:0.1,1,0.2,0.5,tuned=100"];
    assert!(scene.run(tuned).good_text().contains("tuned each 100 operations, 0 times so far"));
    let info = scene.run(tuned.iter().chain(&["--json"])).json();
    assert_eq!(info["migration"]["dram_reads"]["chance"], 0.1);
    assert_eq!(info["migration"]["tuned_each"], 100);
    let fixed = scene.run(["info", "--placement", "spitfire", "--json"]).json();
    assert!(fixed["migration"].get("tuned_each").is_none());
    for wrong in ["spitfire:0.1", "spitfire:0,0,0,2", "spitfire:tuned=0"] {
        let outcome = scene.run(["info", "--placement", wrong]);
        assert!(outcome.sentence(2).contains("spitfire:0.1,0.9,0.2,1,tuned"), "{outcome:?}");
    }
}

#[test]
fn leaves_of_a_table_are_chosen_when_it_is_made() {
    let scene = Scene::new();
    scene.run(["put", "key", "a", "--table", "hashed", "--leaves", "hashed"]).good();
    scene.run(["put", "key", "b", "--table", "sorted"]).good();
    scene.run(["put", "key", "c", "--table", "hashed", "--leaves", "hashed"]).good();
    let outcome = scene.run(["put", "key", "d", "--table", "sorted", "--leaves", "hashed"]);
    assert!(outcome.sentence(2).contains("has no such leaves"), "{outcome:?}");
    let sorted = scene.file("sorted.tsv", "a\t1\nb\t2\n");
    let import = ["import", text(&sorted), "--sorted", "--table", "loaded", "--leaves", "hashed"];
    scene.run(import).good();
    assert_eq!(scene.run(["scan", "--table", "loaded"]).good_text(), "a\t1\nb\t2\n");
    let info = scene.run(["info", "--json"]).json();
    let tables = info["tables"].as_array().unwrap().iter();
    let found: Vec<_> =
        tables.map(|it| [&it["name"], &it["index"]].map(|it| it.as_str().unwrap())).collect();
    let hashed = "b+tree, hashed leaves";
    let named = |it: &&[&str; 2]| !it[0].starts_with('.');
    let found: Vec<_> = found.iter().filter(named).copied().collect();
    assert_eq!(found, [["hashed", hashed], ["loaded", hashed], ["sorted", "b+tree"]]);
    assert_eq!(scene.run(["check"]).good_text(), "the store is in order\n");
}

fn alphabet() -> Scene {
    let scene = Scene::new();
    let lines: String = ('a'..='z').map(|c| format!("{c}\tvalue of {c}\n")).collect();
    let file = scene.file("alphabet.tsv", lines);
    scene.run(["import", text(&file)]).good();
    scene
}

#[test]
fn a_scan_gives_ranges_in_both_directions() {
    let scene = alphabet();
    let scan = |arguments: &[&str]| {
        scene.run(["scan"].iter().chain(arguments)).good_text().replace('\n', " ")
    };
    assert_eq!(scan(&["--from", "c", "--to", "e"]), "c\tvalue of c d\tvalue of d ");
    assert_eq!(scan(&["--keys-only", "--from", "x"]), "x y z ");
    assert_eq!(scan(&["--keys-only", "--to", "c", "--reverse"]), "b a ");
    assert_eq!(scan(&["--keys-only", "--reverse", "--limit", "2"]), "z y ");
    assert_eq!(scan(&["--keys-only", "--limit", "0"]), "");
}

#[test]
fn a_scan_by_prefix_gives_the_keys_that_start_with_it() {
    let scene = Scene::new();
    for key in ["ab", "abc", "abd", "ac", "b"] {
        scene.run(["put", key, ""]).good();
    }
    let keys = |more: &[&str]| scene.run(["scan", "--keys-only"].iter().chain(more)).good_text();
    assert_eq!(keys(&["--prefix", "ab"]), "ab\nabc\nabd\n");
    assert_eq!(keys(&["--prefix", "ab", "--reverse", "--limit", "1"]), "abd\n");
    assert_eq!(keys(&["--prefix", "x"]), "");
}

#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    let scene = Scene::new();
    let lines: String = (0..20_000).map(|i| format!("{i:08}\t{}\n", "x".repeat(50))).collect();
    let file = scene.file("many.tsv", lines);
    scene.run(["import", text(&file)]).good();
    for command in ["scan", "export"] {
        let mut child =
            scene.command([command]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 8];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(&first, b"00000000");
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(output.stderr.is_empty(), "{command}");
    }
}

/// An output that nobody reads any more.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// What comes of a command whose standard output nobody reads.
fn run_unread(scene: &Scene, arguments: &[&str]) -> Outcome {
    let mut command = scene.command(arguments);
    let piped = command.stdin(Stdio::null()).stdout(closed()).stderr(Stdio::piped());
    ended(Vec::new(), piped.spawn().unwrap())
}

#[test]
fn a_failure_is_one_if_nobody_reads_the_output() {
    let scene = alphabet();
    for command in
        [&["get", "other"][..], &["get", "other", "--json"], &["delete", "other", "--json"]]
    {
        let outcome = run_unread(&scene, command);
        assert!(outcome.sentence(1).contains("there is no key `other`"), "{outcome:?}");
    }
    let outcome = run_unread(&scene, &["get", "a", "--table", "other", "--json"]);
    assert!(outcome.sentence(2).contains("no table `other`"), "{outcome:?}");
    let outcome = run_unread(&Scene::new(), &["get", "a", "--json"]);
    assert!(outcome.sentence(2).contains("there is no store in"), "{outcome:?}");
    for command in
        [&["check"][..], &["check", "--json"], &["info"], &["get", "a"], &["put", "b", "c"]]
    {
        let outcome = run_unread(&scene, command);
        assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{command:?}");
    }
}

#[test]
fn a_failed_check_is_one_if_nobody_reads_the_output() {
    let scene = damaged();
    for command in [&["check"][..], &["check", "--json"], &["export", "--salvage"]] {
        assert_eq!(run_unread(&scene, command).code, Some(1), "{command:?}");
    }
}

#[test]
fn a_backup_that_is_not_read_to_its_end_is_an_error() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    let outcome = run_unread(&scene, &["backup", "-"]);
    assert_eq!(outcome.sentence(2), "cannot write the backup to standard output: broken pipe");
    scene.run(["put", "long", "--file", text(&scene.file("long", vec![1; 1 << 20]))]).good();
    let outcome = run_unread(&scene, &["backup", "-"]);
    assert_eq!(outcome.sentence(2), "cannot write the backup to standard output: broken pipe");
}

#[test]
fn an_import_goes_on_if_nobody_reads_what_it_acknowledges() {
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\nb\t2\nc\t3\n");
    let import = ["import", text(&file), "--acknowledge", "--batch", "1"];
    assert_eq!(run_unread(&scene, &import).code, Some(0));
    assert_eq!(scene.run(["scan", "--keys-only"]).good_text(), "a\nb\nc\n");
}

#[test]
fn a_standard_error_that_takes_nothing_leaves_the_exit_code() {
    let scene = damaged();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (command, code) in
        [(&["get", "key"][..], 1), (&["put", "", "v"], 2), (&["export", "--salvage"], 1)]
    {
        for stderr in [closed(), full().into()] {
            let status = scene.command(command).stdout(Stdio::null()).stderr(stderr).status();
            assert_eq!(status.unwrap().code(), Some(code), "{command:?}");
        }
    }
}

#[test]
fn an_output_that_takes_nothing_is_an_error() {
    let scene = alphabet();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = scene.command(["scan"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(sentence, "lapis: cannot write to standard output: no space left on device\n");
}

#[test]
fn a_store_that_is_open_elsewhere_is_refused() {
    let scene = Scene::new();
    scene.run(["put", "key", "value"]).good();
    // It acknowledges a first record, so has the store open, and then waits for another.
    let mut other = scene
        .command(["import", "-", "--format", "tsv", "--batch", "1", "--acknowledge"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = other.stdin.take().unwrap();
    input.write_all(b"first\t1\n").unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "acknowledged 1\n");
    let refused = scene.run(["get", "key"]);
    let by_whom = format!("open in another process, {} (lapis), to write", other.id());
    assert!(refused.sentence(2).contains(&by_whom), "{refused:?}");
    drop(input);
    assert!(other.wait().unwrap().success());
    assert_eq!(scene.run(["get", "key"]).good(), b"value");
}

#[test]
fn commands_that_read_change_no_file_and_need_no_permission_to() {
    let scene = alphabet();
    let files = || {
        let names = ["pages.lapis", "log.lapis"].map(|name| scene.store().join(name));
        names.map(|name| (std::fs::read(&name).unwrap(), name))
    };
    let before = files();
    for (_, name) in &before {
        std::fs::set_permissions(name, std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    for command in [&["get", "a"][..], &["scan"], &["info"], &["check"], &["export"]] {
        scene.run(command).good();
    }
    scene.run(["backup", text(&scene.path("backup"))]).good();
    assert!(files() == before);
}

#[test]
fn what_lives_for_a_time_is_gone_afterwards() {
    let scene = Scene::new();
    scene.run(["put", "short", "1", "--ttl", "1ms"]).good();
    scene.run(["put", "long", "2", "--ttl", "30d"]).good();
    scene.run(["put", "of-table", "3", "--table", "brief", "--table-ttl", "1ms"]).good();
    std::thread::sleep(std::time::Duration::from_millis(2));
    scene.run(["get", "short"]).sentence(1);
    scene.run(["get", "of-table", "--table", "brief"]).sentence(1);
    assert_eq!(scene.run(["get", "long"]).good(), b"2");
    let info = scene.run(["info", "--statistics", "--json"]).json();
    assert_eq!(
        (&info["tables"][0]["name"], &info["tables"][0]["entries"]),
        (&"brief".into(), &0.into())
    );
    assert_eq!(info["tables"][0]["time_to_live_s"], 0.001);
    assert_eq!(info["tables"][1]["entries"], 1);
    let refused = scene.run(["put", "key", "4", "--table", "brief", "--table-ttl", "5s"]);
    assert!(refused.sentence(2).contains("its entries live 0.001 s"), "{refused:?}");
    let refused = scene.run(["put", "key", "4", "--ttl", "soon"]);
    assert!(refused.sentence(2).contains("give a number"), "{refused:?}");
}

#[test]
fn a_good_store_passes_its_check() {
    let scene = alphabet();
    assert_eq!(scene.run(["check"]).good_text(), "the store is in order\n");
}

#[test]
fn a_damaged_value_fails_the_check() {
    let scene = Scene::new();
    let value = "something that is easy to find in the file ".repeat(20);
    scene.run(["put", "key", &value]).good();
    let pool = scene.store().join("pages.lapis");
    let mut bytes = std::fs::read(&pool).unwrap();
    let mut damaged = 0;
    for at in 0..bytes.len() - 20 {
        if bytes[at..].starts_with(b"easy to find") {
            bytes[at] = b'E';
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    std::fs::write(&pool, bytes).unwrap();
    let outcome = scene.run(["check", "--json"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = outcome.json();
    assert_eq!(report["ok"], false);
    assert!(!report["problems"].as_array().unwrap().is_empty());
}

fn lines() -> String {
    (0..2000).map(|i| format!("key{i:04}\tvalue{i}\n")).collect()
}

/// A store with those lines.
fn many() -> Scene {
    let scene = Scene::new();
    let file = scene.file("many.tsv", lines());
    scene.run(["import", text(&file)]).good();
    scene
}

/// Changes a bit of one page in the middle of the table.
fn damage(scene: &Scene) {
    let path = scene.store().join("pages.lapis");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(9).rposition(|window| window == b"value1000").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

fn damaged() -> Scene {
    let scene = many();
    damage(&scene);
    scene
}

#[test]
fn a_scan_of_a_damaged_store_is_one_object_with_json() {
    let outcome = damaged().run(["scan", "--json"]);
    let sentence = outcome.sentence(2);
    let object: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!((&object["error"], &object["code"]), (&sentence.into(), &2.into()));
    let entries = object["entries"].as_array().unwrap();
    assert!((1..2000).contains(&entries.len()), "{}", entries.len());
    assert_eq!(object["count"], entries.len());
}

#[test]
fn a_table_of_which_a_salvage_meets_nothing_is_refused_and_those_it_meets_are_named() {
    let scene = many();
    scene.run(["put", "key", "value", "--table", "second"]).good();
    scene.run(["put", "key", "value", "--table", "empty"]).good();
    scene.run(["delete", "key", "--table", "empty"]).good();
    let path = scene.path("out.tsv");
    for more in [&[][..], &["--output", text(&path)]] {
        let outcome = scene.run(["export", "--salvage", "--table", "other"].iter().chain(more));
        let sentence = outcome.sentence(2);
        assert!(
            sentence.ends_with("`other` was met; there is something of main, second"),
            "{sentence}"
        );
        assert!(outcome.stdout.is_empty() && !path.exists());
    }
    assert_eq!(scene.run(["export", "--salvage", "--table", "empty"]).good(), b"");
}

#[test]
fn what_can_be_read_of_a_damaged_store_is_exported_and_the_rest_is_listed() {
    let scene = many();
    let lines = lines();
    assert_eq!(scene.run(["export", "--salvage"]).good_text(), lines);
    damage(&scene);
    assert_ne!(scene.run(["export"]).code, Some(0));
    let outcome = scene.run(["export", "--salvage"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("lapis: lost: table \"main\", "), "{outcome:?}");
    let found = String::from_utf8(outcome.stdout).unwrap();
    let found: Vec<_> = found.lines().collect();
    assert!((500..2000).contains(&found.len()) && found.iter().all(|line| lines.contains(line)));
}

#[test]
fn a_backup_is_verified_and_restored_and_a_store_is_not_overwritten() {
    let scene = alphabet();
    let backup = scene.path("a.backup");
    let report = scene.run(["backup", text(&backup), "--json"]).json();
    // The alphabet, and how far its import came.
    assert_eq!((&report["tables"], &report["entries"]), (&2.into(), &27.into()));
    assert!(run(["restore", "--verify", text(&backup)]).good_text().contains("27 entries"));
    let other = Scene::new();
    other.run(["restore", text(&backup)]).good();
    assert_eq!(other.run(["export"]).good(), scene.run(["export"]).good());
    assert!(other.run(["restore", text(&backup)]).sentence(2).contains("is there already"));
    assert!(run(["restore", text(&backup)]).sentence(2).contains("give --dir"));
    std::fs::write(&backup, &std::fs::read(&backup).unwrap()[..100]).unwrap();
    assert!(run(["restore", "--verify", text(&backup)]).sentence(2).contains("cut off"));
}

#[test]
fn a_key_that_only_an_index_takes_is_restored_into_one_and_else_said_to_need_it() {
    let with_memory = |scene: &Scene, words: &[&str]| {
        let memory = scene.path("memory");
        scene.run(words.iter().chain(&["--pmem-mib", "16", "--pmem", text(&memory)]))
    };
    let (scene, long) = (Scene::new(), "k".repeat(10_000));
    with_memory(&scene, &["put", &long, "value", "--index", "wort"]).good();
    let longer = scene.run(["put", &"k".repeat(1971), "value", "--table", "tree"]);
    assert!(longer.sentence(2).contains("longer than the longest, 1970"), "{longer:?}");
    let backup = scene.path("a.backup");
    scene.run(["backup", text(&backup)]).good();
    run(["restore", "--verify", text(&backup)]).good();
    let refused = Scene::new().run(["restore", text(&backup)]);
    let sentence = refused.sentence(2);
    for part in ["10000 bytes", "takes 1970", "--pmem", text(&backup)] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let other = Scene::new();
    with_memory(&other, &["restore", text(&backup)]).good();
    assert_eq!(other.run(["get", &long]).good(), b"value");
}

#[test]
fn a_backup_is_written_into_a_pipe_and_where_a_link_leads_to() {
    let scene = alphabet();
    let link = scene.path("link");
    std::os::unix::fs::symlink("a.backup", &link).unwrap();
    // The first time there is nothing there yet.
    for _ in 0..2 {
        scene.run(["backup", text(&link)]).good();
        assert!(link.is_symlink());
        run(["restore", "--verify", text(&scene.path("a.backup"))]).good();
    }
    let pipe = scene.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reads = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    scene.run(["backup", text(&pipe)]).good();
    assert!(std::fs::read(scene.path("a.backup")).unwrap() == reads.join().unwrap());
    assert!(!pipe.metadata().unwrap().is_file());
}

#[test]
fn a_backup_that_cannot_be_read_or_written_is_named() {
    let scene = alphabet();
    let directory = scene.path("");
    let directory = text(&directory);
    let outcome = run(["restore", "--verify", directory]);
    assert_eq!(outcome.sentence(2), format!("cannot read {directory}: is a directory"));
    let nowhere = scene.path("nowhere/a.backup");
    let outcome = scene.run(["backup", text(&nowhere)]);
    let sentence = format!("cannot write {}: no such file or directory", nowhere.display());
    assert_eq!(outcome.sentence(2), sentence);
}

#[test]
fn compaction_says_what_it_gave_back() {
    let report = alphabet().run(["compact", "--json"]).json();
    assert!(report["bytes_after"].as_u64() <= report["bytes_before"].as_u64(), "{report}");
}

#[test]
fn a_store_too_damaged_to_be_opened_fails_the_check() {
    let scene = alphabet();
    let pool = scene.store().join("pages.lapis");
    let file = std::fs::OpenOptions::new().write(true).open(pool).unwrap();
    file.set_len(100 << 10).unwrap();
    let outcome = scene.run(["check", "--json"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(!outcome.json()["problems"].as_array().unwrap().is_empty());
    scene.run(["get", "a"]).sentence(2);
}

#[test]
fn info_names_the_medium_and_the_guarantee() {
    let scene = alphabet();
    let text = scene.run(["info", "--statistics"]).good_text();
    assert!(text.contains("durability"), "{text}");
    assert!(text.contains("main") && text.contains("pages.lapis") && text.contains("26"), "{text}");
}
