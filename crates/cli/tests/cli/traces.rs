//! `lapis crash --record`, `--trace` and `--performance`.

use lapis_device::Marker;
use lapis_device::trace_file::{FlushInstruction, Record, StoreKind, TraceHeader, TraceWriter};

use crate::runner::{Scene, run, text};

/// A trace of one operation, which flushes its store and leaves out the fence unless told to.
fn one_operation(fenced: bool) -> Vec<u8> {
    let header = TraceHeader { region_bytes: 4096, base_address: 0, writer: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let (worker, location) = (0, 1);
    let marker = |marker| Record::Marker { worker, location, marker };
    let bytes = vec![7; 8];
    let instruction = FlushInstruction::Clwb;
    let mut records = vec![
        Record::File { name: "list.c".into() },
        Record::Location { file: 0, line: 12, column: 0 },
        marker(Marker::Begin(1)),
        Record::Store { kind: StoreKind::Plain, worker, location, offset: 64, bytes },
        Record::Flush { instruction, worker, location, line: 1, lines: 1 },
    ];
    records.extend(fenced.then_some(Record::Fence { worker, location }));
    records.push(marker(Marker::End(1)));
    for record in &records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

fn saved(scene: &Scene, file: &[u8]) -> std::path::PathBuf {
    let path = scene.path("p.trace");
    std::fs::write(&path, file).unwrap();
    path
}

#[test]
fn a_run_of_a_structure_is_saved_and_read_back() {
    let scene = Scene::new();
    let path = scene.path("w.trace");
    let saved = run(["crash", "wort:bytes", "--ops", "20", "--record", text(&path), "--json"]);
    assert_eq!(saved.code, Some(0), "{saved:?}");
    assert_eq!(saved.json()["structure"], "wort:bytes");
    let read = run(["crash", "--trace", text(&path), "--json"]);
    assert_eq!(read.code, Some(0), "{read:?}");
    assert_eq!(read.json()["events"], saved.json()["events"]);
    // The creation and the shutdown besides the twenty.
    assert_eq!(read.json()["ops"], 22);
}

#[test]
fn a_missing_fence_in_a_trace_is_a_violation_with_its_source_line() {
    let scene = Scene::new();
    let path = saved(&scene, &one_operation(false));
    let found = run(["crash", "--trace", text(&path), "--json"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    let violation = &found.json()["violations"][0];
    assert_eq!(violation["failure"]["missing"], "fence");
    assert_eq!(violation["failure"]["stored_at"], "list.c:12");
    let whole = saved(&scene, &one_operation(true));
    assert_eq!(run(["crash", "--trace", text(&whole)]).code, Some(0));
}

#[test]
fn the_replay_of_a_refused_image_refuses_it_again() {
    let scene = Scene::new();
    let path = saved(&scene, &one_operation(true));
    let asked = ["crash", "--trace", text(&path), "--recover", "false"];
    let found = run(asked.iter().copied().chain(["--json"]));
    assert_eq!(found.code, Some(1), "{found:?}");
    let violation = &found.json()["violations"][0];
    let position = violation["position"].to_string();
    let image: Vec<String> =
        violation["image"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let image = if image.is_empty() { "-".to_owned() } else { image.join(",") };
    let again = ["--at", position.as_str(), "--image", image.as_str(), "--json"];
    let again = run(asked.into_iter().chain(again));
    assert_eq!((again.code, &again.json()["images"]), (Some(1), &1.into()), "{again:?}");
}

#[test]
fn a_damaged_trace_and_other_files_are_refused_in_a_sentence() {
    let scene = Scene::new();
    let mut file = one_operation(true);
    let last = file.len() - 1;
    file[last] ^= 1;
    let path = saved(&scene, &file);
    let damaged = run(["crash", "--trace", text(&path)]);
    assert!(damaged.sentence(2).contains("block 0 of the trace, at byte 64, is damaged"));
    let other = scene.file("other", "not a trace");
    assert!(run(["crash", "--trace", text(&other)]).sentence(2).contains("not a Lapis trace"));
    run(["crash", "--trace", "/nonexistent/x"]).sentence(2);
    run(["crash", "--trace", text(&path), "--record", "x"]).sentence(2);
}

#[test]
fn wasted_flushes_and_fences_are_listed_and_are_no_failure() {
    let found = run(["crash", "pop-log", "--performance", "--ops", "70", "--json"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    let report = found.json();
    let findings = report["performance"][0]["findings"].as_array().unwrap().clone();
    assert!(!findings.is_empty());
    assert!(findings.iter().all(|it| it["location"].as_str().unwrap().contains(".rs:")));
    let clean = run(["crash", "wort", "--performance", "--ops", "70", "--json"]);
    for run in clean.json()["performance"].as_array().unwrap() {
        assert_eq!(run["wasted"], serde_json::json!({}));
    }
}
