//! `lapis trace`: a program that knows nothing of Lapis, recorded and checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runner::{Outcome, Scene, finish, lapis, run, text};

/// The recorder is compiled once.
const CACHE: &str = env!("CARGO_TARGET_TMPDIR");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Whether there is what `lapis trace` takes; says what is missing.
fn can_trace() -> bool {
    let says = |program: &str, word: &str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(word))
    };
    let can = cfg!(target_arch = "x86_64") && says("qemu-x86_64", "version 7.2") && says("cc", "");
    if !can {
        eprintln!(
            "skipped: it takes QEMU 7.2's user-mode emulation (Debian 12: qemu-user) and `cc`"
        );
    }
    can
}

/// Compiles an example in C.
fn compiled(scene: &Scene, name: &str, options: &[&str]) -> PathBuf {
    compiled_from(scene, &format!("{ROOT}/examples/bring-your-own/c/{name}.c"), options)
}

fn compiled_from(scene: &Scene, source: &str, options: &[&str]) -> PathBuf {
    let program = scene.path(Path::new(source).file_stem().unwrap().to_str().unwrap());
    let mut command = Command::new("cc");
    command.args(["-g", "-O1", "-Wall", "-Wextra", "-Werror"]).args(options);
    command.arg(format!("-I{ROOT}/include")).arg("-o").arg(&program);
    assert!(command.arg(source).status().unwrap().success());
    program
}

/// Records the ring that uses a file, and has the check of the other ring judge its images.
fn recorded_and_checked(scene: &Scene, options: &[&str]) -> (Outcome, Outcome) {
    let (program, check) = (compiled(scene, "plain_ring", options), compiled(scene, "ring", &[]));
    let (pool, trace) = (scene.path("pool"), scene.path("ring.trace"));
    let mut command = lapis();
    command.env("XDG_CACHE_HOME", CACHE).args(["trace", "--json", "--map", text(&pool)]);
    command.args(["--output-acknowledges", "-o", text(&trace), "--", text(&program), text(&pool)]);
    let recorded = finish(command, b"");
    let check = format!("{} check", text(&check));
    let checked = run(["crash", "--trace", text(&trace), "--recover", &check, "--json"]);
    (recorded, checked)
}

#[test]
fn an_unchanged_program_is_recorded_and_its_images_taken() {
    if !can_trace() {
        return;
    }
    let (recorded, checked) = recorded_and_checked(&Scene::new(), &[]);
    let report = recorded.json();
    assert_eq!((recorded.code, &report["region_bytes"]), (Some(0), &576.into()), "{recorded:?}");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let report = checked.json();
    // 24 operations of nine stores, two flushes and two fences, and 16 of three events; each begins and ends.
    assert_eq!(report["events"], 24 * (13 + 2) + 16 * (3 + 2));
    assert_eq!((&report["ops"], &report["acknowledgements"]), (&40.into(), &40.into()));
    assert!(report["distinct_states"].as_u64().unwrap() > 30, "{report}");
}

#[test]
fn the_fault_planted_in_an_unchanged_program_is_found_and_told_with_its_lines() {
    if !can_trace() {
        return;
    }
    let (_, checked) = recorded_and_checked(&Scene::new(), &["-DPLANTED_BUG"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let report = checked.json();
    let violation = &report["violations"][0];
    let source = std::fs::read_to_string(format!("{ROOT}/examples/bring-your-own/c/plain_ring.c"));
    let source = source.unwrap();
    let line = |what: &str| 1 + source.lines().position(|line| line.contains(what)).unwrap();
    let told = violation["shrunk"].to_string();
    for what in ["entry[word] = ", "r->tail = number + 1"] {
        assert!(told.contains(&format!("plain_ring.c:{}\"", line(what))), "{what}: {told}");
    }
    assert!(violation["what"].as_str().unwrap().contains("of entry"), "{violation}");
}

#[test]
fn what_an_unchanged_program_says_before_it_is_durable_is_found_without_any_check() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new();
    recorded_and_checked(&scene, &["-DLATE_FLUSH"]);
    let found = run(["crash", "--trace", text(&scene.path("ring.trace")), "--json"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    let failure = &found.json()["violations"][0]["failure"];
    assert_eq!((&failure["kind"], &failure["missing"]), (&"not_durable".into(), &"fence".into()));
    assert!(failure["stored_at"].as_str().unwrap().contains("plain_ring.c:"), "{failure}");
}

#[test]
fn what_the_c_library_stores_has_the_line_that_called_it() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new();
    let text_of_it = "#include <fcntl.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
        int main(int count, char **arguments) {\n\
        int file = open(arguments[count - 1], O_RDWR | O_CREAT, 0644);\n\
        if (ftruncate(file, 4096) != 0) return 1;\n\
        void *pool = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);\n\
        memcpy(pool, arguments[0], strlen(arguments[0]));\n\
        return write(1, \"stored\", 6) != 6; }\n";
    let source = scene.file("copy.c", text_of_it);
    let program = compiled_from(&scene, text(&source), &["-fno-builtin"]);
    let (pool, trace) = (scene.path("pool"), scene.path("copy.trace"));
    let mut command = lapis();
    command.env("XDG_CACHE_HOME", CACHE).args([
        "trace",
        "--output-acknowledges",
        "--map",
        text(&pool),
    ]);
    command.args(["-o", text(&trace), "--", text(&program), text(&pool)]);
    assert_eq!(finish(command, b"").code, Some(0));
    let found = run(["crash", "--trace", text(&trace), "--json"]).json();
    let stored_at = found["violations"][0]["failure"]["stored_at"].as_str().unwrap();
    assert!(stored_at.ends_with("copy.c:9"), "{found}");
}

#[test]
fn what_is_missing_is_named_with_its_package() {
    let scene = Scene::new();
    let mut command = lapis();
    command.env("PATH", scene.path("")).args(["trace", "--map", "pool", "--", "true"]);
    let refused = finish(command, b"");
    assert!(refused.sentence(2).contains("apt-get install qemu-user"), "{refused:?}");
}

#[test]
fn a_program_that_never_maps_the_file_is_told_so() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new();
    let mut command = lapis();
    command.env("XDG_CACHE_HOME", CACHE);
    command.args(["trace", "--map", text(&scene.path("pool")), "--"]);
    command.arg(Path::new("/bin/true"));
    let refused = finish(command, b"");
    assert!(refused.sentence(2).contains("never mapped"), "{refused:?}");
}
