//! Profiles: the built-in ones are sound, and no file, however bad, gets more than one clear
//! sentence.

use lapis_device::profile::Trust;
use lapis_device::{Config, Modelled, Profile, ProfileError};
use lapis_pmem::{PCell, Region};
use proptest::prelude::*;

const OPTANE_100: &str = "optane-100";

fn text() -> &'static str {
    Profile::text_of(OPTANE_100).unwrap()
}

fn parse(text: &str) -> Result<Profile, ProfileError> {
    Profile::parse("my.toml", text.as_bytes())
}

/// The sentence for the profile with every `from` replaced by `to`.
fn sentence_with(from: &str, to: &str) -> String {
    assert!(text().contains(from), "{from}");
    let sentence = parse(&text().replace(from, to)).unwrap_err().to_string();
    assert!(sentence.contains("my.toml") && !sentence.contains('\n'), "{sentence}");
    sentence
}

/// The profile with another value for one field.
fn with_value(field: &str, value: &str) -> String {
    let change = |line: &str| {
        if !line.starts_with(&format!("{field} = ")) {
            return line.to_owned();
        }
        let (before, rest) = line.split_once("value = ").unwrap();
        let (_, after) = rest.split_once(", trust").unwrap();
        format!("{before}value = {value}, trust{after}")
    };
    let lines: Vec<String> = text().lines().map(change).collect();
    lines.join("\n")
}

#[test]
fn every_built_in_profile_is_found_by_its_name_and_makes_a_machine() {
    for name in Profile::NAMES {
        let profile = Profile::find(name).unwrap();
        assert_eq!(profile.name, name);
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let config = Config { counting: Some(profile.machine()), ..Config::default() };
        let machine = Modelled::over(&region, config);
        // SAFETY: inside the mapped region, which nobody else uses.
        unsafe { lapis_pmem::Domain::copy(&machine, region.base(), &[1; 256]) };
        assert!(machine.now_ns(0) > 0, "{name}");
    }
}

#[test]
fn every_field_has_a_source_and_what_is_measured_says_where() {
    for name in Profile::NAMES {
        let listing = Profile::named(name).unwrap().listing();
        assert!(listing.len() > 50, "{name}");
        for field in listing {
            assert!(field.source.len() > 3, "{name} {field:?}");
        }
    }
    let optane = Profile::named(OPTANE_100).unwrap();
    assert_eq!(
        (optane.memory.buffer_units.value, optane.memory.buffer_units.trust),
        (64, Trust::M)
    );
    assert_eq!(optane.memory.read_after_persist_ns.trust, Trust::F);
}

#[test]
fn a_profile_is_read_from_a_file_of_any_name() {
    let path = std::env::temp_dir().join(format!("lapis-profile-{}.toml", std::process::id()));
    std::fs::write(&path, text()).unwrap();
    let found = Profile::find(path.to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found.unwrap(), Profile::named(OPTANE_100).unwrap());
}

#[test]
fn what_is_neither_built_in_nor_a_file_is_answered_with_the_names_there_are() {
    let sentence = Profile::find("optane-900").unwrap_err().to_string();
    assert!(sentence.contains("optane-900") && sentence.contains("nvdimm-n"), "{sentence}");
    let sentence = Profile::find("/nonexistent/my.toml").unwrap_err().to_string();
    assert!(sentence.contains("/nonexistent/my.toml cannot be read"), "{sentence}");
}

#[test]
fn an_unknown_field_section_or_part_is_named() {
    let sentence = sentence_with("l1_ways =", "l1_weighs =");
    assert!(sentence.contains("caches.l1_ways is missing"), "{sentence}");
    let sentence = sentence_with("[core]", "[core]\nspeed = 3");
    assert!(sentence.contains("core.speed is not a field"), "{sentence}");
    let sentence = sentence_with("[core]", "[gpu]\n[core]");
    assert!(sentence.contains("gpu is not a section"), "{sentence}");
    let sentence = sentence_with("l1_ways = {", "l1_ways = { colour = 1,");
    assert!(sentence.contains("caches.l1_ways") && sentence.contains("colour"), "{sentence}");
}

#[test]
fn a_missing_field_section_or_part_is_named() {
    let without: Vec<&str> = text().lines().filter(|line| !line.starts_with("fence_ns")).collect();
    let sentence = parse(&without.join("\n")).unwrap_err().to_string();
    assert!(sentence.contains("core.fence_ns is missing"), "{sentence}");
    for field in ["read_buffer_other_unit_ns", "wear_block_bytes", "wear_stall_writes"] {
        let without: Vec<&str> = text().lines().filter(|line| !line.starts_with(field)).collect();
        let sentence = parse(&without.join("\n")).unwrap_err().to_string();
        assert!(sentence.contains(&format!("memory.{field} is missing")), "{sentence}");
    }
    let sentence = sentence_with("[ssd]", "[hdd]");
    assert!(sentence.contains("ssd is missing"), "{sentence}");
    let sentence = sentence_with("trust = \"A\", ", "");
    assert!(sentence.contains("has no trust"), "{sentence}");
}

#[test]
fn values_that_no_machine_has_are_refused_with_the_field_and_the_bounds() {
    for (field, value) in [
        ("read_media_ns", "-305.0"),
        ("read_media_ns", "nan"),
        ("read_media_ns", "inf"),
        ("read_media_ns", "0"),
        ("l3_capacity_bytes", "1152921504606846976"),
        ("l1_ways", "0"),
        ("l1_ways", "-8"),
        ("modules", "0"),
        ("eager_write_back_chance", "1.5"),
        ("queue_depth", "9223372036854775807"),
    ] {
        let sentence = parse(&with_value(field, value)).unwrap_err().to_string();
        assert!(sentence.contains(&format!(".{field} is ")), "{field}: {sentence}");
        assert!(sentence.contains("outside of"), "{field}: {sentence}");
    }
}

#[test]
fn values_of_another_kind_are_refused() {
    for (field, value, expected) in [
        ("read_media_ns", "\"fast\"", "takes a number"),
        ("l1_ways", "8.0", "takes a whole number"),
        ("flush_keeps_line", "1", "takes true or false"),
    ] {
        let sentence = parse(&with_value(field, value)).unwrap_err().to_string();
        assert!(sentence.contains(field) && sentence.contains(expected), "{sentence}");
    }
    let sentence = sentence_with("trust = \"M\"", "trust = \"X\"");
    assert!(sentence.contains("takes a trust of"), "{sentence}");
    let sentence = sentence_with(
        "source = \"measurement study of Optane DIMMs, FAST 2020\" }",
        "source = 5 }",
    );
    assert!(sentence.contains("source that is no text"), "{sentence}");
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (field, value, expected) in [
        ("l2_capacity_bytes", "16384", "less than L1"),
        ("l2_capacity_bytes", "1000000", "no multiple of 16 ways"),
        ("media_unit_bytes", "192", "no power of two"),
        ("interleave_bytes", "4100", "no multiple of a media unit"),
        ("wear_block_bytes", "65792", "no multiple of memory.interleave_bytes"),
    ] {
        let sentence = parse(&with_value(field, value)).unwrap_err().to_string();
        assert!(sentence.contains(expected), "{field}: {sentence}");
    }
}

#[test]
fn what_is_not_toml_not_text_or_no_profile_by_its_size_is_refused() {
    let sentence = sentence_with("[memory]", "[memory");
    assert!(sentence.contains("is not a profile: line "), "{sentence}");
    let error = Profile::parse("my.toml", &[0xFF, 0xFE, 0]).unwrap_err();
    assert!(matches!(error, ProfileError::NotText { .. }), "{error}");
    let error = Profile::parse("my.toml", &vec![b'#'; 1 << 20]).unwrap_err();
    assert!(matches!(error, ProfileError::TooLarge { .. }), "{error}");
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(parse(&deep).is_err());
}

/// What a person may get wrong: characters, bytes and lines.
fn damage() -> impl Strategy<Value = Vec<u8>> {
    let whole = text().len();
    let edits = proptest::collection::vec((0..whole, any::<u8>(), 0..4_usize), 1..6);
    edits.prop_map(|edits| {
        let mut bytes = text().as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let at = at % bytes.len();
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] = b"0123456789.-\"{}[]="[usize::from(byte) % 18],
            }
        }
        bytes
    })
}

fn survives(bytes: &[u8]) {
    match Profile::parse("damaged.toml", bytes) {
        // What is accepted makes a machine without asking for absurd amounts of memory.
        Ok(profile) => {
            let region = Region::anonymous(1 << 12, 1 << 12).unwrap();
            let config = Config { counting: Some(profile.machine()), ..Config::default() };
            let machine = Modelled::over(&region, config);
            lapis_pmem::Domain::fence(&machine);
            let _ = PCell::new(0u64);
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.starts_with("damaged.toml"), "{sentence}");
            assert!(!sentence.contains('\n') && sentence.len() < 1000, "{sentence}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_damage_makes_the_parser_panic(bytes in damage()) {
        survives(&bytes);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
    }
}
