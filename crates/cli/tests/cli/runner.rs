//! Runs the built binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A directory for a test and a store in it.
pub struct Scene {
    directory: TempDir,
}

/// What came of a command.
#[derive(Debug)]
pub struct Outcome {
    /// What was run, without the directory of the store.
    words: Vec<String>,
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Outcome {
    /// Standard output of a command that must have succeeded.
    pub fn good(self) -> Vec<u8> {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// The same as text.
    pub fn good_text(self) -> String {
        String::from_utf8(self.good()).unwrap()
    }

    /// The one JSON object on standard output, whatever the exit code; all of it is documented.
    pub fn json(&self) -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_slice(&self.stdout).unwrap_or_else(|_| {
            panic!(
                "not one JSON value: {:?} {}",
                self.stdout.escape_ascii().to_string(),
                self.stderr
            )
        });
        assert!(value.is_object(), "{value}");
        crate::json_schema::check(&self.words, &value);
        value
    }

    /// The sentence of a command that must have ended with `code`: one line, one sentence, not
    /// Rust's way of showing values.
    pub fn sentence(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        let sentence = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(sentence.starts_with("lapis: "), "{sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
        for rust in ["panicked", "Some(", "Err(", "Os {", "kind:", "internal error", "os error"] {
            assert!(!sentence.contains(rust), "{sentence}");
        }
        &sentence["lapis: ".len()..]
    }
}

impl Scene {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Writes a file into the test's directory.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// A command with `--dir` of the store, not yet started.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut words = arguments.into_iter();
        let mut command = lapis();
        command.arg(words.next().unwrap()).arg("--dir").arg(self.store()).args(words);
        command
    }

    /// Runs a command on the store.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Outcome {
        finish(self.command(arguments), b"")
    }

    /// Runs a command on the store with standard input.
    pub fn run_with_input<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Outcome {
        finish(self.command(arguments), input)
    }
}

/// The binary, not yet started, with no settings of whoever runs the test.
pub fn lapis() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapis"));
    command.env_remove("LAPIS_LOG");
    command
}

/// Runs the binary without a store.
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Outcome {
    let mut command = lapis();
    command.args(arguments);
    finish(command, b"")
}

/// Runs a command to its end.
pub fn finish(mut command: Command, input: &[u8]) -> Outcome {
    let mut words: Vec<_> =
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(at) = words.iter().position(|word| word == "--dir") {
        words.drain(at..words.len().min(at + 2));
    }
    let piped = (Stdio::piped(), Stdio::piped(), Stdio::piped());
    let mut child = command.stdin(piped.0).stdout(piped.1).stderr(piped.2).spawn().unwrap();
    // The command may end without reading it all.
    let _ = child.stdin.take().unwrap().write_all(input);
    ended(words, child)
}

/// Waits for a command, whose output is in pipes.
pub fn ended(words: Vec<String>, child: Child) -> Outcome {
    let output = child.wait_with_output().unwrap();
    Outcome {
        words,
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
