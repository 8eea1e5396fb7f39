//! `lapis crash --record`, `--trace` and `--performance`.

use lapis_device::Marker;
use lapis_device::trace_file::{FlushInstruction, Record, StoreKind, TraceHeader, TraceWriter};

use crate::runner::{Scene, run, text};

/// A trace of one operation, which flushes its store and leaves out the fence unless told to.
pub fn one_operation(fenced: bool) -> Vec<u8> {
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

#[test]
fn macros_that_are_switched_off_may_stand_as_statements() {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
    let source = "#include \"lapis_trace.h\"\n\
                  int main(void) {\n\
                  static char region[64];\n\
                  LAPIS_TRACE_BEGIN(\"x\", region, sizeof region);\n\
                  LAPIS_TRACE_SYNC();\n\
                  LAPIS_TRACE_END();\n\
                  return LAPIS_TRACE_BEGIN(\"x\", region, 64) + LAPIS_TRACE_SYNC() + LAPIS_TRACE_END();\n\
                  }\n";
    let scene = Scene::new();
    for (compiler, name) in [("cc", "off.c"), ("c++", "off.cpp")] {
        let mut command = std::process::Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-DLAPIS_TRACE_OFF", include]);
        command.arg("-o").arg(scene.path("off")).arg(scene.file(name, source));
        let Ok(output) = command.output() else {
            eprintln!("skipped: there is no `{compiler}` on this machine");
            continue;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let ended = std::process::Command::new(scene.path("off")).status().unwrap();
        assert_eq!(ended.code(), Some(0));
    }
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
    // Nothing is asserted in it, and nothing is judged unless it is asked for.
    let unasked = run(["crash", "--trace", text(&path)]);
    assert!(unasked.sentence(2).contains("nothing in"), "{unasked:?}");
    let read =
        run(["crash", "--trace", text(&path), "--recover", "true", "--images", "3", "--json"]);
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

#[test]
fn a_trace_in_which_nothing_can_be_judged_is_no_success() {
    let scene = Scene::new();
    let whole = one_operation(true);
    // The header and a torn block.
    let path = saved(&scene, &whole[..80]);
    let refused = run(["crash", "--trace", text(&path)]);
    assert!(refused.sentence(2).contains("no operation ends in it"), "{refused:?}");
    assert_eq!(run(["crash", "--trace", text(&path), "--recover", "true"]).code, Some(0));
}

#[test]
fn an_image_that_the_trace_does_not_have_is_refused() {
    let scene = Scene::new();
    let path = saved(&scene, &one_operation(true));
    for (at, image) in [("3", "9999"), ("3", "1,1,1"), ("77", "0"), ("2", "killed")] {
        let arguments = ["--recover", "false", "--at", at, "--image", image];
        let refused = run(["crash", "--trace", text(&path)].into_iter().chain(arguments));
        assert!(refused.sentence(2).contains("not one of this trace"), "{at} {image}: {refused:?}");
    }
}

#[test]
fn a_violation_of_a_trace_is_told_and_drawn_with_the_lines_of_its_source() {
    let scene = Scene::new();
    let path = saved(&scene, &one_operation(false));
    let page = scene.path("trace.html");
    let found = run(["crash", "--trace", text(&path), "--html", text(&page)]);
    assert_eq!(found.code, Some(1), "{found:?}");
    let said = String::from_utf8(found.stdout).unwrap();
    let order = [
        "told from what is in flight on:",
        "operation 1 begins",
        "store 8 bytes at 0x40 (line 1, byte 0x40) = 0x0707070707070707 – lost",
        "list.c:12",
        "flush line 1",
        "operation 1 is acknowledged",
        "✗ the power is cut just after the acknowledgement",
        "line 1 (byte 0x40): none of its 1 pending stores made it",
        "it has been flushed and not fenced",
        "broken: what an operation has stored is durable when it ends",
        "again: lapis crash --trace ",
    ];
    let mut rest = said.as_str();
    for part in order {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in {said}"));
        rest = &rest[at + part.len()..];
    }
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("list.c:12") && page.contains("title=\"byte 0x40\""), "{page}");
}
