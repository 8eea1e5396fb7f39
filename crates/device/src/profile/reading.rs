//! Reading a profile, strictly.

use toml::{Table, Value};

use super::fields::{Caches, Core, Dram, Interleaving, Memory, Ssd};
use super::page_costs::PageCosts;
use super::{Profile, ProfileError, Sourced, Trust};

/// Sections of a profile, in the order of the type.
const SECTIONS: [&str; 5] = [Caches::TITLE, Core::TITLE, Dram::TITLE, Memory::TITLE, Ssd::TITLE];

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

    fn finish(self) -> Result<(), ProfileError> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(self.wrong(&shown(unknown), "is not a field of profiles")),
        }
    }
}

/// A name out of a file, fit for a message.
fn shown(name: &str) -> String {
    name.chars().take(60).flat_map(char::escape_debug).collect()
}

fn text(value: &Value) -> Result<String, &'static str> {
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

fn section<'f>(
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

pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Profile, ProfileError> {
    if bytes.len() > Profile::FILE_BYTES_LIMIT {
        return Err(ProfileError::TooLarge { file: file.to_owned() });
    }
    let Ok(contents) = std::str::from_utf8(bytes) else {
        return Err(ProfileError::NotText { file: file.to_owned() });
    };
    let mut root: Table = contents.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| {
            contents.bytes().take(span.start).filter(|&byte| byte == b'\n').count()
        });
        let why = format!("line {}: {}", line + 1, shown(error.message()));
        ProfileError::NotToml { file: file.to_owned(), why }
    })?;
    let mut words = |field: &str| {
        let value = root.remove(field).ok_or_else(|| wrong(file, field, "is missing"))?;
        text(&value).map_err(|what| wrong(file, field, what))
    };
    let (name, description) = (words("name")?, words("description")?);
    let mut sections = Vec::with_capacity(SECTIONS.len());
    for title in SECTIONS {
        sections.push(section(file, &mut root, title)?);
    }
    let mut interleaving = root
        .contains_key(Interleaving::TITLE)
        .then(|| section(file, &mut root, Interleaving::TITLE))
        .transpose()?;
    let page = root.remove(PageCosts::TITLE).map(|page| PageCosts::read(file, page)).transpose()?;
    if let Some(unknown) = root.keys().next() {
        return Err(wrong(file, &shown(unknown), "is not a section of profiles"));
    }
    let [caches, core, dram, memory, ssd] = &mut sections[..] else {
        unreachable!("one for each title");
    };
    let profile = Profile {
        name,
        description,
        caches: Caches::read(caches)?,
        core: Core::read(core)?,
        dram: Dram::read(dram)?,
        memory: Memory::read(memory)?,
        ssd: Ssd::read(ssd)?,
        interleaving: interleaving.as_mut().map(Interleaving::read).transpose()?,
        page,
    };
    sections.into_iter().chain(interleaving).try_for_each(Section::finish)?;
    check(file, &profile)?;
    Ok(profile)
}

/// What no field can say by itself.
fn check(file: &str, profile: &Profile) -> Result<(), ProfileError> {
    let caches = &profile.caches;
    for (field, bytes, ways) in [
        ("caches.l1_capacity_bytes", &caches.l1_capacity_bytes, &caches.l1_ways),
        ("caches.l2_capacity_bytes", &caches.l2_capacity_bytes, &caches.l2_ways),
        ("caches.l3_capacity_bytes", &caches.l3_capacity_bytes, &caches.l3_ways),
    ] {
        if !bytes.value.is_multiple_of(64 * ways.value) {
            let what = format!("is {}, no multiple of {} ways of 64", bytes.value, ways.value);
            return Err(wrong(file, field, what));
        }
    }
    if caches.l1_capacity_bytes.value > caches.l2_capacity_bytes.value {
        return Err(wrong(file, "caches.l2_capacity_bytes", "is less than L1, which it contains"));
    }
    let memory = &profile.memory;
    let unit = memory.media_unit_bytes.value;
    if !unit.is_power_of_two() {
        return Err(wrong(file, "memory.media_unit_bytes", format!("is {unit}, no power of two")));
    }
    let stripe = memory.interleave_bytes.value;
    if !stripe.is_multiple_of(unit) {
        let what = format!("is {stripe}, no multiple of a media unit of {unit}");
        return Err(wrong(file, "memory.interleave_bytes", what));
    }
    let block = memory.wear_block_bytes.value;
    if !block.is_multiple_of(stripe) {
        let what = format!("is {block}, no multiple of memory.interleave_bytes, {stripe}");
        return Err(wrong(file, "memory.wear_block_bytes", what));
    }
    Ok(())
}
