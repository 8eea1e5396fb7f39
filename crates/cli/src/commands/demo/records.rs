//! Real records that any machine has: the source lines of the crates that `lapis` was built from.
//!
//! Those lie in cargo's registry directory, because this binary was built. Where they do not (it
//! was built elsewhere, or the directory was cleaned), other text of the machine stands in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::operations::SplitMix;

/// The crates that `lapis` was built from, with their versions.
const LOCK_FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));

/// What lines are made of where there is no text.
const WORDS: [&str; 16] = [
    "page", "log", "flush", "fence", "line", "key", "value", "table", "frame", "batch", "commit",
    "split", "merge", "crash", "redo", "check",
];
const GENERATED_SEED: u64 = 0x1A;

/// Lines longer than this are data that happens to have no line feeds.
const LONGEST_LINE_BYTES: usize = 16 * 1024;

/// Files longer than this are not read.
const LONGEST_FILE_BYTES: u64 = 16 << 20;

/// Lines of text with keys that say where each comes from.
#[derive(Debug, Default)]
pub struct Records {
    /// Key and line. The places searched overlap; a key counts once.
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What they are, one phrase per source.
    pub sources: Vec<String>,
}

impl Records {
    /// Collects `wanted` lines; what the machine does not have in the places searched is made up.
    pub fn collect(wanted: usize) -> Self {
        let registries = registries();
        let locked = locked_crates();
        let mut records = Self::default();
        records.add_crates(&registries, wanted, "crates lapis was built from", |name| {
            locked.contains(name)
        });
        records.add_crates(&registries, wanted, "other crates", |name| !locked.contains(name));
        let own_sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for directory in [
            own_sources.canonicalize().unwrap_or(own_sources),
            PathBuf::from("/usr/include"),
            PathBuf::from("/usr/share/dict"),
            PathBuf::from("/usr/share/doc"),
            PathBuf::from("/usr/share"),
            PathBuf::from("/etc"),
        ] {
            let before = records.entries.len();
            let files = records.add_tree(&directory, "", wanted, |_| true);
            let lines = records.entries.len() - before;
            if lines > 0 {
                records.sources.push(format!(
                    "{lines} lines of {files} text files under {}",
                    directory.display()
                ));
            }
        }
        records.add_generated(wanted);
        records
    }

    /// Makes up what the machine does not have.
    fn add_generated(&mut self, wanted: usize) {
        let missing = wanted.saturating_sub(self.entries.len());
        if missing == 0 {
            return;
        }
        let mut random = SplitMix(GENERATED_SEED);
        for number in 0..missing {
            let words =
                (0..3 + random.below(9)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]);
            let line = words.collect::<Vec<_>>().join(" ");
            self.entries.insert(format!("generated:{number:07}").into_bytes(), line.into_bytes());
        }
        self.sources.push(format!("{missing} lines that were made up, for want of text"));
    }

    /// Adds the lines of those crates whose `name-version` is `chosen`.
    fn add_crates(
        &mut self,
        registries: &[PathBuf],
        wanted: usize,
        what: &str,
        chosen: impl Fn(&str) -> bool,
    ) {
        for registry in registries {
            let (before, mut crates, mut files) = (self.entries.len(), 0, 0);
            for directory in sorted_children(registry) {
                let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
                    continue;
                };
                if self.entries.len() >= wanted || !chosen(name) {
                    continue;
                }
                let is_source = |path: &Path| path.extension().is_some_and(|end| end == "rs");
                files += self.add_tree(&directory, &format!("{name}/"), wanted, is_source);
                crates += 1;
            }
            let lines = self.entries.len() - before;
            if lines > 0 {
                self.sources.push(format!(
                    "{lines} lines of {files} source files of {crates} {what}, in {}",
                    registry.display()
                ));
            }
        }
    }

    /// Adds the lines of all text files under `directory` until there are `wanted`; the number of
    /// files that gave some. Keys are `prefix`, the path below `directory` (the whole path without
    /// a prefix), and the number of the line.
    fn add_tree(
        &mut self,
        directory: &Path,
        prefix: &str,
        wanted: usize,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> usize {
        let mut files = 0;
        // Children are pushed in reverse, so that files come in the order of their paths.
        let mut pending = vec![directory.to_path_buf()];
        while let Some(path) = pending.pop() {
            if self.entries.len() >= wanted {
                break;
            }
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_dir() {
                let is_build = path.file_name().is_some_and(|name| name == "target");
                if !is_build {
                    pending.extend(sorted_children(&path).into_iter().rev());
                }
                continue;
            }
            if !metadata.is_file() || metadata.len() > LONGEST_FILE_BYTES || !is_wanted(&path) {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let below = path.strip_prefix(directory).unwrap_or(&path);
            let shown = if prefix.is_empty() { &path } else { below };
            let name = format!("{prefix}{}", shown.display());
            if name.len() < 4096 && self.add_lines(&name, &text, wanted) {
                files += 1;
            }
        }
        files
    }

    fn add_lines(&mut self, name: &str, text: &str, wanted: usize) -> bool {
        let before = self.entries.len();
        for (index, line) in text.lines().enumerate() {
            if self.entries.len() >= wanted {
                break;
            }
            let is_text = !line.trim().is_empty() && line.len() <= LONGEST_LINE_BYTES;
            if is_text && !line.contains('\0') {
                let key = format!("{name}:{}", index + 1);
                self.entries.insert(key.into_bytes(), line.as_bytes().to_vec());
            }
        }
        self.entries.len() > before
    }
}

/// The directories that hold crates, one per registry.
fn registries() -> Vec<PathBuf> {
    let cargo_home = std::env::var_os("CARGO_HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    cargo_home.map_or_else(Vec::new, |home| sorted_children(&home.join("registry/src")))
}

/// `name-version` of every package in the lock file.
fn locked_crates() -> BTreeSet<String> {
    let mut crates = BTreeSet::new();
    let mut name = "";
    for line in LOCK_FILE.lines() {
        let quoted = |line: &'static str, field: &str| {
            line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"')
        };
        if let Some(found) = quoted(line, "name") {
            name = found;
        } else if let Some(version) = quoted(line, "version") {
            crates.insert(format!("{name}-{version}"));
        }
    }
    crates
}

fn sorted_children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut children: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    children.sort();
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_names_this_crates_dependencies() {
        let crates = locked_crates();
        assert!(crates.iter().any(|name| name.starts_with("clap-4.")), "{crates:?}");
    }

    #[test]
    fn lines_are_keyed_by_path_and_number_and_blank_ones_left_out() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("src")).unwrap();
        std::fs::write(directory.path().join("src/b.rs"), "one\n\n  three\n").unwrap();
        std::fs::write(directory.path().join("src/a.bin"), [0xff, 0xfe]).unwrap();
        let mut records = Records::default();
        let files = records.add_tree(directory.path(), "x-1.0/", 10, |_| true);
        let entry = |key: &str, line: &str| (key.as_bytes().to_vec(), line.as_bytes().to_vec());
        assert_eq!(files, 1);
        let expected = [entry("x-1.0/src/b.rs:1", "one"), entry("x-1.0/src/b.rs:3", "  three")];
        assert_eq!(records.entries, BTreeMap::from(expected));
    }

    #[test]
    fn where_there_is_no_text_it_is_made_up() {
        let mut records = Records::default();
        records.add_generated(1000);
        assert_eq!(records.entries.len(), 1000);
        assert!(records.sources[0].contains("1000 lines"));
    }

    #[test]
    fn no_more_lines_are_taken_than_wanted() {
        let records = Records::collect(50);
        assert_eq!(records.entries.len(), 50);
        assert!(!records.sources.is_empty());
    }
}
