//! What the documents refer to is there.

use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The documents of the workspace.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let mut paths: Vec<_> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into();
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(docs.filter(|path| path.extension().is_some_and(|end| end == "md")));
    paths
}

/// The paths below `crates/` that a text names.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("crates/").map(|(start, _)| {
        let rest = &text[start..];
        let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let end = rest.find(|c| !is_of_path(c)).unwrap_or(rest.len());
        rest[..end].trim_end_matches('.')
    })
}

#[test]
fn each_path_below_crates_that_a_document_names_is_there() {
    let mut count = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        // A reader's own module is not there.
        for path in paths_in(&text).filter(|path| !path.contains("/your_")) {
            assert!(Path::new(ROOT).join(path).exists(), "{}: {path}", document.display());
            count += 1;
        }
    }
    assert!(count > 50, "only {count} paths are found");
}

#[test]
fn a_path_ends_where_a_sentence_or_a_place_in_the_file_begins() {
    let text = "`crates/a/b.rs:12`, crates/c/d-e. And (crates/f/)";
    assert!(paths_in(text).eq(["crates/a/b.rs", "crates/c/d-e", "crates/f/"]));
}
