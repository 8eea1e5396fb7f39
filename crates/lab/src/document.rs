//! Tables in documents that a command makes, so that no figure in them is typed by hand.
//!
//! A section is what lies between two lines of Markdown comments; it names the command that prints
//! it, and [`put`] replaces it:
//!
//! ```text
//! <!-- generated: lapis lab capabilities -->
//! | index | …
//! <!-- end of generated -->
//! ```

use std::path::{Path, PathBuf};

const END: &str = "<!-- end of generated -->";

/// Why a section was not replaced. The document is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// The document has no such section.
    #[error("{path} has no section \"<!-- generated: {command} -->\" that ends in \"{END}\"")]
    NoSection {
        /// The document.
        path: PathBuf,
        /// The command that the section should name.
        command: String,
    },
    /// The document cannot be read or written.
    #[error("{path}: {why}")]
    Document {
        /// The document.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
}

fn begin(command: &str) -> String {
    format!("<!-- generated: {command} -->")
}

/// What `document` has in the section of `command`; none if it has no such section.
pub fn section<'d>(document: &'d str, command: &str) -> Option<&'d str> {
    let (_, rest) = document.split_once(&begin(command))?;
    let (text, _) = rest.split_once(END)?;
    Some(text.trim_start_matches(['\r', '\n']))
}

/// `document` with `text`, which ends in a newline, in the section of `command`; none if it has no
/// such section.
pub fn put(document: &str, command: &str, text: &str) -> Option<String> {
    let begin = begin(command);
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{text}{END}{after}"))
}

/// Replaces those of `sections`, commands and texts, that the file at `path` has. `renew` is told what
/// such a section has been and what was found, and says what it becomes.
///
/// # Errors
/// [`SectionError`]; it has to have one of them.
pub fn put_those_there<S: AsRef<str>>(
    path: &Path,
    sections: &[(S, String)],
    renew: impl Fn(&str, &str) -> String,
) -> Result<(), SectionError> {
    let failed = |why| SectionError::Document { path: path.to_owned(), why };
    let before = std::fs::read_to_string(path).map_err(failed)?;
    let (mut document, mut there) = (before.clone(), false);
    for (command, found) in sections.iter().map(|(command, found)| (command.as_ref(), found)) {
        let text = section(&document, command).map(|old| renew(old, found));
        if let Some(renewed) = text.and_then(|text| put(&document, command, &text)) {
            (document, there) = (renewed, true);
        }
    }
    match sections.first() {
        Some((command, _)) if !there => {
            let command = command.as_ref().to_owned();
            Err(SectionError::NoSection { path: path.to_owned(), command })
        }
        _ if document == before => Ok(()),
        _ => std::fs::write(path, document).map_err(failed),
    }
}

/// Replaces the section of `command` in the file at `path`.
///
/// # Errors
/// [`SectionError`].
pub fn put_into_file(path: &Path, command: &str, text: &str) -> Result<(), SectionError> {
    put_those_there(path, &[(command, text.to_owned())], |_, found| found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Title\n\n<!-- generated: a b -->\nold\n<!-- end of generated -->\n\n\
                            <!-- generated: c -->\n<!-- end of generated -->\nMore.\n";

    #[test]
    fn what_is_put_into_a_section_is_found_there_and_the_rest_stays() {
        let document = put(DOCUMENT, "a b", "new\n").unwrap();
        assert_eq!(section(&document, "a b"), Some("new\n"));
        assert_eq!(section(&document, "c"), Some(""));
        assert!(document.starts_with("# Title\n\n<!--") && document.ends_with("-->\nMore.\n"));
    }

    #[test]
    fn a_section_that_is_not_there_is_neither_found_nor_made() {
        assert_eq!(section(DOCUMENT, "d"), None);
        assert_eq!(put(DOCUMENT, "d", "new\n"), None);
    }

    #[test]
    fn a_file_takes_those_of_several_sections_that_it_has_and_has_to_have_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), DOCUMENT).unwrap();
        let text = || "new\n".to_owned();
        let replace = |_: &str, found: &str| found.to_owned();
        put_those_there(file.path(), &[("d", text()), ("c", text())], replace).unwrap();
        let document = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(
            [section(&document, "c"), section(&document, "a b")],
            [Some("new\n"), Some("old\n")]
        );
        let error = put_those_there(file.path(), &[("d", text())], replace).unwrap_err();
        assert!(matches!(error, SectionError::NoSection { .. }), "{error}");
    }

    #[test]
    fn a_file_without_the_section_is_left_as_it_was() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), DOCUMENT).unwrap();
        let error = put_into_file(file.path(), "d", "new\n").unwrap_err();
        assert!(matches!(error, SectionError::NoSection { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), DOCUMENT);
        put_into_file(file.path(), "c", "new\n").unwrap();
        let document = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(section(&document, "c"), Some("new\n"));
    }
}
