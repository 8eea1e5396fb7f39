//! How a command ends.

use std::io;
use std::path::Path;

use lapis_lab::experiment::ExperimentError;
use lapis_pmem::{PoolError, RegionError};

/// How a command that could be carried out turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Good,
    /// A check failed; the output says what. Exit code 1.
    Bad,
    /// A signal ended it early, and nothing was wrong until then. Exit code as if it had ended the process.
    Stopped,
}

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for is not there. Exit code 1.
    NotThere(String),
    /// The request is wrong or could not be carried out. Exit code 2.
    Refused(String),
    /// Whoever read the output has stopped reading. Not an error.
    OutputClosed,
}

impl Failure {
    /// A refusal with this sentence.
    pub fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }

    /// An operating system's error about a file.
    pub fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::Refused(format!("cannot {doing} {}: {}", path.display(), reason(error)))
    }

    /// An error of a stream of a store's value.
    pub fn of_value(error: io::Error) -> Self {
        match lapis::Error::from_io(error) {
            Ok(error) => error.into(),
            Err(error) => Self::Refused(error.to_string()),
        }
    }

    /// The sentence for standard error, on one line.
    pub fn sentence(&self) -> Option<String> {
        match self {
            Self::NotThere(sentence) | Self::Refused(sentence) => {
                Some(without_numbers(&sentence.split_whitespace().collect::<Vec<_>>().join(" ")))
            }
            Self::OutputClosed => None,
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotThere(_) => 1,
            Self::Refused(_) => 2,
            Self::OutputClosed => 0,
        }
    }
}

/// What went wrong, in the style of our own sentences.
pub fn reason(error: &io::Error) -> String {
    let text = without_numbers(&error.to_string());
    // A temporary file's error has its name behind the system's words, which nobody has given.
    match text.split_once(" at path \"") {
        Some((words, _)) => words.to_lowercase(),
        None if error.raw_os_error().is_some() => text.to_lowercase(),
        None => text,
    }
}

/// Leaves out the numbers of errors that the standard library appends: ` (os error 20)`.
fn without_numbers(sentence: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut text = sentence.to_owned();
    while let Some(start) = text.find(NUMBER) {
        let Some(length) = text[start..].find(')') else { break };
        text.replace_range(start..=start + length, "");
    }
    text
}

impl From<lapis::Error> for Failure {
    fn from(error: lapis::Error) -> Self {
        let mut sentence = error.to_string();
        if let lapis::Error::Memory { source, .. } = &error
            && let PoolError::Region(RegionError::DeviceTooShort { device_bytes, .. }) = source
        {
            sentence += &format!("; ask for less: --pmem-mib {}", device_bytes >> 20);
        }
        Self::Refused(sentence)
    }
}

impl From<lapis_crash::CrashError> for Failure {
    fn from(error: lapis_crash::CrashError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        match error {
            // A check that failed, not a request that is wrong.
            ExperimentError::WrongAnswers { .. } => Self::NotThere(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_line() {
        let failure = Failure::refused("a\n  b");
        assert_eq!(failure.sentence().as_deref(), Some("a b"));
        let failure = Failure::refused("a (os error 20), b");
        assert_eq!(failure.sentence().as_deref(), Some("a, b"));
    }

    #[test]
    fn a_device_that_is_too_short_says_which_option_asks_for_less() {
        let (device_bytes, asked_bytes) = (64 << 20, 256 << 20);
        let short = RegionError::DeviceTooShort { device_bytes, asked_bytes };
        let error = lapis::Error::Memory { path: "/dev/dax0.0".into(), source: short.into() };
        assert_eq!(
            Failure::from(error).sentence().as_deref(),
            Some(
                "/dev/dax0.0: the device has 67108864 bytes, and 268435456 are asked for; ask for less: --pmem-mib 64"
            )
        );
    }

    #[test]
    fn an_error_of_a_temporary_file_does_not_show_its_name() {
        let error = tempfile::tempfile_in("/nonexistent").unwrap_err();
        assert_eq!(reason(&error), "no such file or directory");
        let error = tempfile::NamedTempFile::new_in("/nonexistent").unwrap_err();
        assert_eq!(reason(&error), "no such file or directory");
    }

    #[test]
    fn a_file_error_names_the_file_and_the_reason_without_a_number() {
        let error = std::fs::File::open("/nonexistent/x").unwrap_err();
        let failure = Failure::file("read", Path::new("/nonexistent/x"), &error);
        assert_eq!(
            failure.sentence().as_deref(),
            Some("cannot read /nonexistent/x: no such file or directory")
        );
        assert_eq!(failure.exit_code(), 2);
    }
}
