//! Reading a profile, strictly.

use toml::Table;

use super::fields::{Caches, Core, Dram, Interleaving, Memory, Ssd};
use super::page_costs::PageCosts;
use super::section::{Section, section, shown, text, wrong};
use super::{Profile, ProfileError};

/// Sections of a profile, in the order of the type.
const SECTIONS: [&str; 5] = [Caches::TITLE, Core::TITLE, Dram::TITLE, Memory::TITLE, Ssd::TITLE];

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
