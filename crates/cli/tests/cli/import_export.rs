//! import and export.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::runner::{Outcome, Scene, ended, text};

fn import(scene: &Scene, file: &std::path::Path, more: &[&str]) -> Outcome {
    scene.run(["import", text(file)].iter().chain(more))
}

/// Records that only CSV and JSON lines can carry.
fn odd_records() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"plain".to_vec(), b"value".to_vec()),
        (b"empty".to_vec(), b"".to_vec()),
        (b"tab\tand\nline feed".to_vec(), b"\r\n\t\n".to_vec()),
        (b"\"quoted\"".to_vec(), b"a \"b\", c".to_vec()),
        (b"\0\xff\xfe".to_vec(), vec![0x80; 300]),
        ("grün".into(), "größer".into()),
        (b"{\"key\":\"x\"}".to_vec(), b"{\"key\":\"x\",\"value\":\"y\"}".to_vec()),
        (vec![b'k'; 1970], vec![b'v'; 200_000]),
    ];
    records.sort();
    records
}

/// A store with those records, put there through base64 JSON lines.
fn odd_store() -> Scene {
    use base64::Engine;
    let scene = Scene::new();
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: String = odd_records()
        .iter()
        .map(|(key, value)| {
            format!(
                "{{\"key_base64\":\"{}\",\"value_base64\":\"{}\"}}\n",
                encode(key),
                encode(value)
            )
        })
        .collect();
    let file = scene.file("odd.jsonl", lines);
    import(&scene, &file, &[]).good();
    scene
}

/// Every record of a store, by way of `scan --json`.
fn records(scene: &Scene) -> Vec<(Vec<u8>, Vec<u8>)> {
    use base64::Engine;
    let bytes = |entry: &serde_json::Value, name: &str| match &entry[name] {
        serde_json::Value::String(text) => text.clone().into_bytes(),
        _ => base64::engine::general_purpose::STANDARD
            .decode(entry[format!("{name}_base64")].as_str().unwrap())
            .unwrap(),
    };
    let scanned = scene.run(["scan", "--json"]).json();
    let entries = scanned["entries"].as_array().unwrap();
    entries.iter().map(|entry| (bytes(entry, "key"), bytes(entry, "value"))).collect()
}

#[test]
fn csv_and_json_lines_bring_any_bytes_back() {
    let scene = odd_store();
    assert_eq!(records(&scene), odd_records());
    for name in ["out.csv", "out.jsonl"] {
        let file = scene.path(name);
        scene.run(["export", "--output", text(&file)]).good();
        let copy = Scene::new();
        import(&copy, &file, &[]).good();
        assert_eq!(records(&copy), odd_records(), "{name}");
    }
}

#[test]
fn a_tsv_file_comes_back_as_it_was() {
    let scene = Scene::new();
    let contents = b"a\t\nb\t1\t2\r\nc\t\xff\xfe\n";
    let file = scene.file("in.tsv", contents);
    import(&scene, &file, &[]).good();
    assert_eq!(scene.run(["export"]).good(), contents);
    let output = scene.path("out.tsv");
    scene.run(["export", "--output", text(&output)]).good();
    assert_eq!(std::fs::read(output).unwrap(), contents);
}

#[test]
fn what_tsv_cannot_carry_is_refused_and_leaves_no_file() {
    let scene = odd_store();
    let output = scene.path("out.tsv");
    let outcome = scene.run(["export", "--output", text(&output)]);
    assert!(outcome.sentence(2).contains("use --format jsonl"), "{outcome:?}");
    assert!(!output.exists());
    let leftovers = std::fs::read_dir(scene.path("")).unwrap().count();
    assert_eq!(leftovers, 2, "the store and the imported file");
}

#[test]
fn each_format_has_its_way_to_name_the_key() {
    let cases: [(&str, &str, &[&str], &str); 5] = [
        ("f.tsv", "x\tk\ty\n", &["--key", "2"], "k\tx\ty\n"),
        ("f.csv", "x,k,\"y,z\"\n", &["--key", "2"], "k\tx,\"y,z\"\n"),
        ("g.csv", "n,id\n1,k\n", &["--key", "id"], "k\t1\n"),
        ("f.jsonl", "{\"id\":\"k\",\"n\":1}\n", &["--key", "id"], "k\t{\"id\":\"k\",\"n\":1}\n"),
        (
            "g.jsonl",
            "{\"id\":\"k\",\"body\":\"b\"}\n",
            &["--key", "id", "--value-field", "body"],
            "k\tb\n",
        ),
    ];
    for (name, contents, arguments, expected) in cases {
        let scene = Scene::new();
        let file = scene.file(name, contents);
        import(&scene, &file, arguments).good();
        assert_eq!(scene.run(["scan"]).good_text(), expected, "{name}");
    }
}

#[test]
fn names_above_numbers_are_no_record_unless_that_is_asked_for() {
    let trace = "version,time_us,op\n1,10,2a\n1,11,28\n";
    let scene = Scene::new();
    let file = scene.file("trace.csv", trace);
    let report = import(&scene, &file, &["--json"]).json();
    assert_eq!((&report["records"], &report["duplicates"]), (&2.into(), &1.into()));
    assert_eq!((&report["header"], &report["key"][0]), (&true.into(), &"version".into()));
    let text = import(&scene, &file, &["--again"]).good_text();
    assert!(text.contains("WARNING: 2 of these records") && text.contains("--key"), "{text}");
    let scene = Scene::new();
    let file = scene.file("trace.csv", trace);
    let report = import(&scene, &file, &["--key", "time_us,op", "--json"]).json();
    assert_eq!((&report["records"], &report["duplicates"]), (&2.into(), &0.into()));
    assert_eq!(records(&scene)[0], (b"10:2a".to_vec(), b"1".to_vec()));
    let report = import(&scene, &file, &["--header=no", "--table", "all", "--json"]).json();
    assert_eq!((&report["records"], &report["key"][0]), (&3.into(), &"column 1".into()));
}

#[test]
fn a_key_and_a_value_above_numbers_come_back_from_what_was_exported() {
    for format in ["tsv", "csv"] {
        let scene = Scene::new();
        let file = scene.file(
            "f.jsonl",
            "{\"key\":\"a\",\"value\":\"none\"}\n{\"key\":\"b\",\"value\":\"1\"}\n",
        );
        import(&scene, &file, &["--value-field", "value"]).good();
        let exported = scene.run(["export", "--format", format]).good_text();
        let other = Scene::new();
        let file = other.file(&format!("f.{format}"), exported);
        let said = import(&other, &file, &[]).good_text();
        assert!(said.contains("--header=yes"), "{said}");
        assert_eq!(records(&other), records(&scene), "{format}");
    }
}

#[test]
fn records_whose_key_is_there_are_replaced_kept_or_refused() {
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\nb\t2\na\t3\n");
    let values = |scene: &Scene| records(scene).into_iter().map(|it| it.1).collect::<Vec<_>>();
    import(&scene, &file, &["--on-duplicate", "keep"]).good();
    assert_eq!(values(&scene), [b"1", b"2"]);
    import(&scene, &file, &["--again"]).good();
    assert_eq!(values(&scene), [b"3", b"2"]);
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\nb\t2\na\t3\n");
    let outcome = import(&scene, &file, &["--on-duplicate", "error", "--batch", "2"]);
    assert!(outcome.sentence(2).contains("f.tsv:3: the key `a` is there already"), "{outcome:?}");
    assert_eq!(values(&scene), [b"1", b"2"]);
}

#[test]
fn what_looks_wrong_in_a_file_is_said() {
    let scene = Scene::new();
    let file = scene.file("f.csv", "a;1\nb;2\n");
    let report = import(&scene, &file, &["--json"]).json();
    assert!(report["warnings"][0].as_str().unwrap().contains("--delimiter semicolon"), "{report}");
    let report =
        import(&scene, &file, &["--delimiter", "semicolon", "--table", "t", "--json"]).json();
    assert!(report["warnings"].as_array().unwrap().is_empty(), "{report}");
    let file = scene.file("f.tsv", "a\t1\r\nb\t2\r\n");
    let text = import(&scene, &file, &["--table", "u"]).good_text();
    assert!(text.contains("WARNING: lines end in carriage returns"), "{text}");
}

#[test]
fn standard_input_can_be_imported() {
    let scene = Scene::new();
    let outcome = scene.run_with_input(["import", "-", "--format", "tsv"], b"a\t1\n");
    outcome.good();
    assert_eq!(scene.run(["get", "a"]).good(), b"1");
    let outcome = scene.run_with_input(["import", "/dev/stdin", "--format", "csv"], b"b,2\n");
    outcome.good();
    assert_eq!(scene.run(["get", "b"]).good(), b"2");
    let outcome = scene.run_with_input(["import", "-"], b"a\t1\n");
    assert!(outcome.sentence(2).contains("--format"));
}

#[test]
fn a_header_is_found_whatever_pieces_it_comes_in() {
    let scene = Scene::new();
    let mut import = scene.command(["import", "-", "--format", "csv", "--json"]);
    let piped = import.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in ["version,time_us,op\n", "1,10,2a\n", "2,11,28\n"] {
        input.write_all(line.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(input);
    let report = ended(vec!["import".to_owned()], child).json();
    assert_eq!((&report["header"], &report["records"]), (&true.into(), &2.into()));
}

#[test]
fn sorted_records_are_imported_from_the_first_on_after_an_import_that_ended_early() {
    let scene = Scene::new();
    let file = scene.file("q.tsv", "a\t1\nb\t2\nc\t3\nd\t4\n");
    scene.run(["put", "d", "0"]).good();
    import(&scene, &file, &["--batch", "1", "--on-duplicate", "error"]).sentence(2);
    for key in ["a", "b", "c", "d"] {
        scene.run(["delete", key]).good();
    }
    let report = import(&scene, &file, &["--sorted", "--json"]).json();
    assert_eq!((&report["records"], &report["resumed_from"]), (&4.into(), &0.into()));
    assert_eq!(scene.run(["export"]).good_text(), "a\t1\nb\t2\nc\t3\nd\t4\n");
}

#[test]
fn a_bad_line_among_sorted_records_says_that_nothing_is_stored() {
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\nbad line\n");
    let outcome = import(&scene, &file, &["--sorted"]);
    assert!(outcome.sentence(2).ends_with("(nothing is stored)"), "{outcome:?}");
}

#[test]
fn sorted_records_become_a_table_at_once_or_not_at_all() {
    let scene = Scene::new();
    let lines: String = (0..3000).map(|number| format!("k{number:05}\tvalue {number}\n")).collect();
    let unsorted = scene.file("unsorted.tsv", format!("{lines}k00007\tagain\n"));
    let refused = scene.run(["import", text(&unsorted), "--sorted"]);
    let sentence = refused.sentence(2);
    assert!(
        sentence.contains("unsorted.tsv:3001: the key `k00007` does not come behind"),
        "{sentence}"
    );
    assert!(scene.run(["get", "k00007"]).sentence(2).contains("no table `main`"));
    let sorted = scene.file("sorted.tsv", &lines);
    let report = scene.run(["import", text(&sorted), "--sorted", "--json"]).json();
    assert_eq!((&report["records"], &report["duplicates"]), (&3000.into(), &0.into()));
    assert_eq!(scene.run(["export"]).good_text(), lines);
    let report = scene.run(["import", text(&sorted), "--sorted", "--json"]).json();
    assert_eq!(report["already_imported"], true);
    let refused = scene.run(["import", text(&sorted), "--sorted", "--again"]);
    assert!(refused.sentence(2).contains("the table `main` has entries"), "{refused:?}");
    assert_eq!(scene.run(["check"]).good_text(), "the store is in order\n");
}

#[test]
fn a_finished_import_is_not_repeated_unless_asked_for() {
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\nb\t2\n");
    import(&scene, &file, &[]).good();
    scene.run(["put", "a", "changed"]).good();
    let again = import(&scene, &file, &["--json"]).json();
    assert_eq!((&again["already_imported"], &again["records"]), (&true.into(), &0.into()));
    assert_eq!(scene.run(["get", "a"]).good(), b"changed");
    let forced = import(&scene, &file, &["--again", "--json"]).json();
    assert_eq!((&forced["already_imported"], &forced["records"]), (&false.into(), &2.into()));
    assert_eq!(scene.run(["get", "a"]).good(), b"1");
}

#[test]
fn a_changed_file_and_another_table_are_imports_of_their_own() {
    let scene = Scene::new();
    let file = scene.file("f.tsv", "a\t1\n");
    import(&scene, &file, &[]).good();
    let other = import(&scene, &file, &["--table", "other", "--json"]).json();
    assert_eq!(other["records"], 1);
    std::fs::write(&file, "a\t1\nb\t2\n").unwrap();
    let changed = import(&scene, &file, &["--json"]).json();
    assert_eq!((&changed["records"], &changed["resumed_from"]), (&2.into(), &0.into()));
}

#[test]
fn acknowledgements_count_up_to_the_records() {
    let scene = Scene::new();
    let lines: String = (0..25).map(|i| format!("{i}\tv\n")).collect();
    let file = scene.file("f.tsv", lines);
    let text = import(&scene, &file, &["--acknowledge", "--batch", "10"]).good_text();
    let numbers: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("acknowledged ")).collect();
    assert_eq!(numbers, ["10", "20", "25"]);
}

#[test]
fn a_bad_line_is_named_and_nothing_of_its_batch_is_stored() {
    let scene = Scene::new();
    let lines: String = (0..25).map(|i| format!("{i:02}\tv\n")).collect();
    let file = scene.file("f.tsv", format!("{lines}bad line\n"));
    let outcome = import(&scene, &file, &["--batch", "10"]);
    let sentence = outcome.sentence(2);
    assert!(sentence.contains("f.tsv:26: there is no tab between key and value"), "{sentence}");
    let keys = scene.run(["scan", "--keys-only"]).good_text();
    assert_eq!(keys.lines().count(), 20);
    assert_eq!(scene.run(["check"]).code, Some(0));
}

#[test]
fn every_kind_of_bad_line_is_named() {
    let long = format!("{}\tv\n", "k".repeat(1971));
    let cases: [(&str, &str, &str); 8] = [
        ("a.tsv", "a\t1\n\tv\n", "a.tsv:2: the key is empty"),
        ("b.tsv", &long, "b.tsv:1: the key has 1971 bytes and may have 1970"),
        ("c.csv", "a,1\nb,1,2\n", "c.csv:2: there are 3 fields where the lines before have 2"),
        ("d.csv", "a,1\nb,\"x\n", "d.csv:2: a quotation mark is missing"),
        ("e.csv", "a,1\n,1\n", "e.csv:2: the key is empty"),
        ("f.jsonl", "{\"key\":\"a\"}\n{\"key\"\n", "f.jsonl:2: this is not a JSON object"),
        ("g.jsonl", "{\"id\":\"a\"}\n", "g.jsonl:1: the object has no field `key`"),
        ("h.jsonl", "{\"key\":\"\"}\n", "h.jsonl:1: the key is empty"),
    ];
    for (name, contents, expected) in cases {
        let scene = Scene::new();
        let file = scene.file(name, contents);
        let outcome = import(&scene, &file, &[]);
        assert!(outcome.sentence(2).contains(expected), "{outcome:?}");
    }
}
