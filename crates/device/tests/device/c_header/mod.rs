//! What `include/lapis_trace.h` writes is what this crate reads. Skipped, with a word, where there
//! is no C compiler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use lapis_device::trace_file::{Claim, Ending, RecordedTrace};
use lapis_device::{Event, Marker};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// A compiler that is on this machine.
#[derive(Clone, Copy)]
struct Compiler {
    command: &'static str,
    language: [&'static str; 3],
}

const C: Compiler = Compiler { command: "cc", language: ["-std=c99", "-x", "c"] };
const CXX: Compiler = Compiler { command: "c++", language: ["-std=c++11", "-x", "c++"] };

impl Compiler {
    /// Compiles a source file, or says why it is not tried.
    fn compile(self, source: &Path, more: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
        let there = Command::new(self.command).arg("--version").output();
        if !there.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: there is no `{}` on this machine", self.command);
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let output = Command::new(self.command)
            .args(STRICT)
            .args(self.language)
            .args(more)
            .arg(format!("-I{ROOT}/include"))
            .arg(source)
            .arg("-pthread")
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {source:?} {more:?}:\n{said}", self.command);
        Some((directory, program))
    }
}

fn threads() -> PathBuf {
    Path::new(ROOT).join("crates/device/tests/device/c_header/threads.c")
}

fn run(program: &Path, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn trace(path: &Path) -> RecordedTrace {
    RecordedTrace::read(std::fs::read(path).unwrap().as_slice()).unwrap()
}

/// Compiles and runs the program that uses each macro; the traces of its two runs.
fn traces(compiler: Compiler) -> Option<[RecordedTrace; 2]> {
    let (directory, program) = compiler.compile(&threads(), &[])?;
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    run(&program, &[&first, &second]);
    Some([trace(&first), trace(&second)])
}

fn each_macro_is_its_event(compiler: Compiler) {
    let Some([recorded, _]) = traces(compiler) else { return };
    assert_eq!(recorded.ending, Ending::Complete);
    assert_eq!(recorded.header.region_bytes, 1 << 20);
    assert_eq!(recorded.header.writer, "lapis_trace.h 1");
    let mut memory = vec![0; 1 << 20];
    recorded.lay_base(&mut memory);
    assert_eq!(memory.iter().position(|&byte| byte != 0), Some(5000));
    let events = &recorded.trace.events;
    assert_eq!(events[0], Event::Marker { worker: 0, marker: Marker::Begin(1) });
    // 10,000 bytes from the third on: as many units as they touch.
    let units = (3 + 10_000usize).div_ceil(8);
    let stores = &events[1..=units];
    assert!(stores.iter().all(|event| matches!(event, Event::Store { .. })));
    let [first, last] = [stores[0], stores[units - 1]];
    assert_eq!(
        first,
        Event::Store { worker: 0, start: 3, bytes: 5, line: 0, value: 0x11_1111_1111 }
    );
    assert_eq!(last, Event::Store { worker: 0, start: 16, bytes: 3, line: 156, value: 0x11_1111 });
    let rest = &events[units + 1..];
    let word = |value| (0u8, 0u8, 8u8, 0u32, value);
    let (worker, start, bytes, line, value) = word(5);
    assert_eq!(rest[0], Event::OrderedStore { worker, start, bytes, line, value });
    assert_eq!(rest[1], Event::Locked { worker, start, bytes, line, value });
    assert_eq!(rest[2..10].len(), 8);
    assert!(rest[2..10].iter().all(|event| matches!(event, Event::NonTemporal { line: 1, .. })));
    let flushed: Vec<u32> = rest[10..30]
        .iter()
        .map(|event| match event {
            Event::Flush { worker: 0, line, .. } => *line,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flushed, (0..20).collect::<Vec<_>>());
    assert!(matches!(rest[30], Event::Flush { worker: 0, line: 1, .. }));
    assert_eq!(rest[31], Event::StrongFlush { worker: 0, line: 2 });
    assert!(matches!(rest[32], Event::Fence { worker: 0, .. }));
    assert_eq!(rest[33], Event::Marker { worker: 0, marker: Marker::Note(9) });
    assert_eq!(rest[34], Event::Marker { worker: 0, marker: Marker::End(1) });
    assert_eq!(rest.len(), 35);
    let claims: Vec<_> = recorded.assertions.iter().map(|assertion| assertion.claim).collect();
    let expected = [
        Claim::Durable { offset: 0, bytes: 8 },
        Claim::InOrder { first: (0, 8), second: (8, 8) },
        Claim::Volatile { offset: 16, bytes: 8 },
    ];
    assert_eq!(claims, expected);
    let place = recorded.event_location(0).unwrap();
    let source = std::fs::read_to_string(threads()).unwrap();
    let line = source.lines().position(|line| line.contains("LAPIS_OP_BEGIN(1)")).unwrap() + 1;
    assert!(place.file.ends_with("threads.c"), "{place}");
    assert_eq!(place.line as usize, line);
}

#[test]
fn each_macro_is_its_event_in_c() {
    each_macro_is_its_event(C);
}

#[test]
fn each_macro_is_its_event_in_cxx() {
    each_macro_is_its_event(CXX);
}

#[test]
fn threads_that_record_at_once_lose_nothing_and_keep_their_own_order() {
    let Some([_, recorded]) = traces(C) else { return };
    let mut last: BTreeMap<u8, u64> = BTreeMap::new();
    let mut flushes = BTreeMap::new();
    for event in &recorded.trace.events {
        match *event {
            Event::Store { worker, value, .. } => {
                assert_eq!(value >> 32, u64::from(worker) - 1, "a store of another worker");
                let next = last.insert(worker, value & 0xFFFF_FFFF).map_or(0, |last| last + 1);
                assert_eq!(value & 0xFFFF_FFFF, next);
            }
            Event::Flush { worker, .. } => *flushes.entry(worker).or_insert(0) += 1,
            _ => {}
        }
    }
    assert_eq!(last, (1..=4).map(|worker| (worker, 1999)).collect());
    assert_eq!(flushes, (1..=4).map(|worker| (worker, 2000 * 8 / 64)).collect());
}

#[test]
fn the_macros_can_be_switched_off() {
    for compiler in [C, CXX] {
        let Some((directory, program)) = compiler.compile(&threads(), &["-DLAPIS_TRACE_OFF"])
        else {
            continue;
        };
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        // LAPIS_TRACE_SYNC says that nothing is wrong when nothing is traced.
        run(&program, &[&first, &second]);
        assert!(!first.exists() && !second.exists());
    }
}

#[test]
fn a_process_that_is_killed_leaves_a_readable_prefix() {
    let source = "
#define LAPIS_TRACE_IMPLEMENTATION
#include \"lapis_trace.h\"
#include <signal.h>
static uint64_t words[1024] __attribute__((aligned(64)));
int main(int count, char **arguments) {
    uint64_t index;
    if (count != 2 || LAPIS_TRACE_BEGIN(arguments[1], words, sizeof words) != 0) return 1;
    for (index = 0; index < 5000; index++) {
        LAPIS_ASSIGN(words[index % 1024], index);
    }
    raise(9);
    return 0;
}
";
    let sources = tempfile::tempdir().unwrap();
    let path = sources.path().join("killed.c");
    std::fs::write(&path, source).unwrap();
    let Some((directory, program)) = C.compile(&path, &["-D_POSIX_C_SOURCE=200809L"]) else {
        return;
    };
    let file = directory.path().join("trace");
    let status = Command::new(&program).arg(&file).status().unwrap();
    assert!(!status.success());
    let recorded = trace(&file);
    let whole_bytes = std::fs::metadata(&file).unwrap().len();
    assert_eq!(recorded.ending, Ending::Cut { whole_bytes, torn_bytes: 0 });
    let count = recorded.trace.events.len();
    assert!((3000..5000).contains(&count), "{count} of 5000 stores");
    for (index, event) in recorded.trace.events.iter().enumerate() {
        assert!(matches!(event, Event::Store { value, .. } if *value == index as u64));
    }
}

#[test]
fn arguments_that_record_in_turn_and_have_effects_are_evaluated_once_and_first() {
    let source = "
#define LAPIS_TRACE_IMPLEMENTATION
#include \"lapis_trace.h\"
static uint64_t words[1024] __attribute__((aligned(64)));
static uint64_t next(unsigned *at) {
    LAPIS_ASSIGN(words[8 + *at], 7);
    *at += 1;
    return 9;
}
static uint64_t *found(unsigned *at) {
    (void)next(at);
    return &words[64];
}
int main(int count, char **arguments) {
    unsigned at = 0, place = 0;
    if (count != 2 || LAPIS_TRACE_BEGIN(arguments[1], words, sizeof words) != 0) return 1;
    LAPIS_ASSIGN(words[place++], next(&at));
    LAPIS_STORE(found(&at), 8);
    return LAPIS_TRACE_END() == 0 && place == 1 && at == 2 ? 0 : 1;
}
";
    for (compiler, name) in [(C, "nested.c"), (CXX, "nested.cc")] {
        let sources = tempfile::tempdir().unwrap();
        let path = sources.path().join(name);
        std::fs::write(&path, source).unwrap();
        let Some((directory, program)) = compiler.compile(&path, &["-Wshadow"]) else { continue };
        let file = directory.path().join("trace");
        run(&program, &[&file]);
        let stored: Vec<(u32, u8, u64)> = trace(&file)
            .trace
            .events
            .iter()
            .map(|event| match *event {
                Event::Store { line, start, value, .. } => (line, start, value),
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(stored, [(1, 0, 7), (0, 0, 9), (1, 8, 7), (8, 0, 0)]);
    }
}

#[test]
fn a_word_of_which_the_region_has_a_part_is_a_store_without_order() {
    let source = "
#define LAPIS_TRACE_IMPLEMENTATION
#include \"lapis_trace.h\"
static uint64_t words[16] __attribute__((aligned(64)));
int main(int count, char **arguments) {
    if (count != 2 || LAPIS_TRACE_BEGIN(arguments[1], words, 102) != 0) return 1;
    words[12] = 7;
    LAPIS_STORE_ORDERED(&words[12], 8);
    LAPIS_LOCKED(&words[12], 8);
    return LAPIS_TRACE_END() != 0;
}
";
    let sources = tempfile::tempdir().unwrap();
    let path = sources.path().join("clipped.c");
    std::fs::write(&path, source).unwrap();
    let Some((directory, program)) = C.compile(&path, &[]) else { return };
    let file = directory.path().join("trace");
    run(&program, &[&file]);
    let store = Event::Store { worker: 0, start: 32, bytes: 6, line: 1, value: 7 };
    assert_eq!(trace(&file).trace.events, [store, store]);
}
