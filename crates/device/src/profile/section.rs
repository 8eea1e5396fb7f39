//! Sections of a profile, their values and what is wrong with them.

use toml::{Table, Value};

use super::{ProfileError, Sourced, Trust};

/// Longest text in a profile.
const LONGEST_TEXT: usize = 500;

/// A kind of value.
pub(super) trait Kind: Sized {
    /// The type of bounds.
    type Bound: std::fmt::Display + Copy;
    fn from_toml(value: &Value, least: Self::Bound, most: Self::Bound) -> Result<Self, String>;
    fn in_words(&self) -> String;
}

impl Kind for u64 {
    type Bound = u64;

    fn from_toml(value: &Value, least: u64, most: u64) -> Result<Self, String> {
        let Value::Integer(number) = value else {
            return Err(format!("takes a whole number, not {}", value.type_str()));
        };
        match u64::try_from(*number) {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!("is {number}, outside of {least} to {most}")),
        }
    }

    fn in_words(&self) -> String {
        self.to_string()
    }
}

impl Kind for f64 {
    type Bound = f64;

    fn from_toml(value: &Value, least: f64, most: f64) -> Result<Self, String> {
        let number = match value {
            Value::Float(number) => *number,
            Value::Integer(number) => *number as f64,
            _ => return Err(format!("takes a number, not {}", value.type_str())),
        };
        // Not a number is in no range.
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(format!("is {number}, outside of {least} to {most}"))
        }
    }

    fn in_words(&self) -> String {
        self.to_string()
    }
}

impl Kind for bool {
    type Bound = u8;

    fn from_toml(value: &Value, _: u8, _: u8) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| format!("takes true or false, not {}", value.type_str()))
    }

    fn in_words(&self) -> String {
        self.to_string()
    }
}

/// A section that is being read; what is taken is removed.
pub(super) struct Section<'f> {
    file: &'f str,
    title: &'static str,
    table: Table,
}

impl Section<'_> {
    fn wrong(&self, field: &str, what: impl Into<String>) -> ProfileError {
        wrong(self.file, &format!("{}.{field}", self.title), what)
    }

    /// The field called `name`, between its bounds.
    pub(super) fn take<K: Kind>(
        &mut self,
        name: &'static str,
        least: K::Bound,
        most: K::Bound,
    ) -> Result<Sourced<K>, ProfileError> {
        let Some(entry) = self.table.remove(name) else {
            return Err(self.wrong(name, "is missing"));
        };
        let Value::Table(mut entry) = entry else {
            let form = "takes { value = .., trust = \"..\", source = \"..\" }";
            return Err(self.wrong(name, form));
        };
        let mut part = |part: &str| {
            entry.remove(part).ok_or_else(|| self.wrong(name, format!("has no {part}")))
        };
        let (value, trust, source) = (part("value")?, part("trust")?, part("source")?);
        if let Some(unknown) = entry.keys().next() {
            return Err(self.wrong(name, format!("has a part {unknown:?} that is not known")));
        }
        let value = K::from_toml(&value, least, most).map_err(|what| self.wrong(name, what))?;
        let letter = trust.as_str().unwrap_or_default();
        let trust = Trust::ALL.into_iter().find(|trust| trust.letter() == letter);
        let trust = trust.ok_or_else(|| {
            self.wrong(name, "takes a trust of \"M\", \"D\", \"F\", \"A\" or \"U\"")
        })?;
        let source =
            text(&source).map_err(|what| self.wrong(name, format!("has a source that {what}")))?;
        Ok(Sourced { value, trust, source })
    }

    pub(super) fn finish(self) -> Result<(), ProfileError> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(self.wrong(&shown(unknown), "is not a field of profiles")),
        }
    }
}

/// A name out of a file, fit for a message.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(60).flat_map(char::escape_debug).collect()
}

/// A text of a profile.
pub(super) fn text(value: &Value) -> Result<String, &'static str> {
    match value.as_str() {
        None => Err("is no text"),
        Some("") => Err("is empty"),
        Some(text) if text.len() > LONGEST_TEXT => Err("is too long"),
        Some(text) if text.chars().any(char::is_control) => Err("has control characters"),
        Some(text) => Ok(text.to_owned()),
    }
}

pub(super) fn wrong(file: &str, field: &str, what: impl Into<String>) -> ProfileError {
    ProfileError::Field { file: file.to_owned(), field: field.to_owned(), what: what.into() }
}

/// Takes the section called `title`.
pub(super) fn section<'f>(
    file: &'f str,
    root: &mut Table,
    title: &'static str,
) -> Result<Section<'f>, ProfileError> {
    match root.remove(title) {
        None => Err(wrong(file, title, "is missing")),
        Some(Value::Table(table)) => Ok(Section { file, title, table }),
        Some(_) => Err(wrong(file, title, format!("takes a section [{title}]"))),
    }
}
