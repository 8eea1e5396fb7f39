//! Finds the persist points and events in the sources of the workspace.

#[path = "src/coverage/sources/mod.rs"]
mod sources;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sources::{Kind, Source};

/// The crates whose structures are explored, and what these rest on.
const CRATES: [&str; 6] = ["pmem", "blocks", "index", "buffer", "tree", "engine"];

fn main() -> io::Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for name in CRATES {
        println!("cargo::rerun-if-changed=../{name}/src");
        let directory = crates.join(name).join("src");
        // Elsewhere than in the workspace there is nothing to be read, and nothing is known.
        if directory.is_dir() {
            read_directory(&directory, &format!("crates/{name}/src"), &mut found)?;
        }
    }
    println!("cargo::rerun-if-changed=src/coverage/sources");
    let findings = sources::read(&found);
    let mut text = String::from("pub(super) const PERSIST_POINTS: &[PersistPoint] = &[\n");
    for call in findings.persist_calls {
        let sources::PersistCall { path, line, column, kind } = call;
        let kind = match kind {
            Kind::Flush => "Flush",
            Kind::Fence => "Fence",
            Kind::NonTemporal => "NonTemporal",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "PersistPoint {{ file: {path:?}, line: {line}, column: {column}, kind: PersistKind::{kind} }},"
        );
    }
    text.push_str("];\npub(super) const EVENTS: &[(&str, &str)] = &[\n");
    for event in findings.events {
        let _ = writeln!(text, "{event:?},");
    }
    text.push_str("];\n");
    let output = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("there is no OUT_DIR"))?;
    fs::write(PathBuf::from(output).join("source_points.rs"), text)
}

fn read_directory(directory: &Path, name: &str, found: &mut Vec<Source>) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, file) = (entry.path(), entry.file_name());
        let file = file.to_string_lossy();
        let name = format!("{name}/{file}");
        if path.is_dir() && file != "tests" {
            read_directory(&path, &name, found)?;
        } else if file.ends_with(".rs") && file != "tests.rs" {
            found.push(Source { path: name, text: fs::read_to_string(path)? });
        }
    }
    Ok(())
}
