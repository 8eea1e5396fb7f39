//! The types cost nothing: typed functions compile to the instructions of hand-written ones.
//!
//! This compares the machine code itself, so it needs `objdump` but neither valgrind nor a timer.
//! Ignored by default because it builds the example in release mode:
//!
//! ```text
//! cargo test -p lapis-pmem --test pmem zero_cost -- --ignored
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Builds the example and returns the path of the program.
fn example() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "-p", "lapis-pmem", "--example", "zero_cost"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the example does not build");
    // This test is target/debug/deps/zero_cost-….
    let test = std::env::current_exe().expect("this test has a path");
    let target = test.ancestors().nth(3).expect("it lies in the target directory");
    target.join("release/examples/zero_cost")
}

/// The mnemonics of one function, padding left out, with how often each occurs.
fn instructions(program: &PathBuf, function: &str) -> BTreeMap<String, usize> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", &format!("--disassemble={function}")])
        .arg(program)
        .output()
        .expect("objdump is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        // "  79190:	push   %rbp"
        let Some((address, instruction)) = line.split_once(":\t") else { continue };
        if address.trim().is_empty() || instruction.contains("nop") {
            continue;
        }
        let mnemonic = instruction.split_whitespace().next().unwrap_or_default();
        *counts.entry(mnemonic.to_owned()).or_insert(0) += 1;
    }
    assert!(!counts.is_empty(), "{function} is not in the program");
    counts
}

#[test]
#[ignore = "builds in release mode and needs objdump"]
fn typed_functions_have_the_instructions_of_hand_written_ones() {
    let program = example();
    for pair in ["bitmap_commit", "publish", "insert"] {
        let typed = instructions(&program, &format!("{pair}_typed"));
        let by_hand = instructions(&program, &format!("{pair}_by_hand"));
        let total = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
        println!("{pair}: {} instructions typed, {} by hand", total(&typed), total(&by_hand));
        for persistent in ["clwb", "clflushopt", "clflush"] {
            assert_eq!(typed.get(persistent), by_hand.get(persistent), "{pair}: {persistent}");
        }
        // Paths that are out of line differ a little: a call through another table, a field more.
        assert!(
            total(&typed) * 8 <= total(&by_hand) * 9,
            "{pair}: {} instructions typed, {} by hand: {typed:?} {by_hand:?}",
            total(&typed),
            total(&by_hand)
        );
    }
}
