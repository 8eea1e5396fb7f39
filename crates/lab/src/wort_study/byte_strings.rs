//! Byte-string keys: generated ones that share prefixes as real ones do, or those of a file.
//!
//! | strings | made like | what they share |
//! |---|---|---|
//! | `url` | `https://www.` host `/` section `/` word `-` word `-` number | long beginnings: the scheme all of them, the host the pages of one |
//! | `email` | given `.` family, number, `@` host | short beginnings; what all of one host share is at the end |
//! | `file` | the first field of each line of a file | as it comes |
//!
//! Words are syllables of a consonant and a vowel. How often a host, a name or a word is used falls with
//! its rank (the logarithm of the rank is uniform), so that there are hosts with many pages and many
//! with one. The number is the key's own, so no two keys are the same. Everything follows from the
//! seed.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use lapis_index::{INDEXES_HERE, IndexMaker};
use lapis_pmem::Hardware;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::key_list::KeyList;
use crate::experiment::ExperimentError;
use crate::keys::scatter;
use crate::named::named;

named! {
    /// Where byte strings come from.
    pub enum StringKind {
        /// Generated addresses of pages.
        Url = "url",
        /// Generated addresses of people.
        Email = "email",
        /// Lines of a file.
        File = "file",
    }
}

impl StringKind {
    /// Those that are generated.
    pub const GENERATED: [Self; 2] = [Self::Url, Self::Email];
}

/// Names of sites for so many pages: fifty a site on average.
const PAGES_PER_SITE: u64 = 50;
/// Hosts of electronic mail, and names, of which there are few.
const MAIL_HOSTS: u64 = 2000;
const GIVEN_NAMES: u64 = 1000;
const FAMILY_NAMES: u64 = 20_000;
/// Words of which titles of pages are made.
const WORDS: u64 = 5000;
const SECTIONS: [&str; 8] =
    ["articles", "blog", "catalogue", "docs", "forum", "news", "products", "wiki"];
const DOMAINS: [&str; 6] = ["com", "org", "net", "de", "io", "co.uk"];

/// Strings one after another in one piece of memory, so that reading them in order costs a session
/// as little as reading integers does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Strings {
    /// `count` strings, distinct, in random order.
    pub(super) fn generate(kind: StringKind, count: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ kind as u64);
        let mut made = Self::default();
        for number in 0..count as u64 {
            // Numbers of eight digits at most while there are fewer keys than that; distinct always.
            let number = number * 97 + 1000;
            match kind {
                StringKind::Url => made.push_url(count as u64, number, &mut random),
                StringKind::Email | StringKind::File => made.push_email(number, &mut random),
            }
        }
        made.shuffled(seed)
    }

    /// The first field of each line of the file at `path`, up to a tab, each once, in random order.
    ///
    /// # Errors
    /// [`ExperimentError::KeyFile`].
    pub(super) fn read(path: &Path, seed: u64) -> Result<Self, ExperimentError> {
        let failed = |why| ExperimentError::KeyFile { path: path.to_owned(), why };
        let text = std::fs::read(path).map_err(failed)?;
        let first = |line: &'_ [u8]| line.split(|&byte| byte == b'\t').next().map(<[u8]>::len);
        let mut keys = BTreeSet::new();
        for line in text.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let key = &line[..first(line).unwrap_or(0)];
            if (1..=lapis_index::MAX_KEY_BYTES).contains(&key.len()) {
                keys.insert(key);
            }
        }
        let mut found = Self::default();
        for key in keys {
            found.bytes.extend_from_slice(key);
            found.ends.push(found.bytes.len());
        }
        Ok(found.shuffled(seed))
    }

    /// The same in another order, which depends on the seed.
    pub(super) fn shuffled(&self, seed: u64) -> Self {
        let mut places: Vec<usize> = (0..self.ends.len()).collect();
        places.shuffle(&mut SmallRng::seed_from_u64(seed));
        let mut other = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.ends.len()),
        };
        for place in places {
            other.bytes.extend_from_slice(self.at(place));
            other.ends.push(other.bytes.len());
        }
        other
    }

    /// Mean length.
    pub(super) fn mean_bytes(&self) -> f64 {
        if self.ends.is_empty() { 0.0 } else { self.bytes.len() as f64 / self.ends.len() as f64 }
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.bytes.write_fmt(text).expect("memory takes what is written");
    }

    /// The word of this number: syllables, at least two.
    fn push_word(&mut self, number: u64) {
        const CONSONANTS: &[u8; 16] = b"bcdfghklmnprstvz";
        const VOWELS: &[u8; 4] = b"aeio";
        let mut digits = scatter(number);
        for _ in 0..2 + digits % 3 {
            digits = scatter(digits);
            self.bytes.push(CONSONANTS[(digits % 16) as usize]);
            self.bytes.push(VOWELS[(digits / 16 % 4) as usize]);
        }
    }

    fn push_url(&mut self, pages: u64, number: u64, random: &mut SmallRng) {
        let site = rank(pages.div_ceil(PAGES_PER_SITE), random);
        self.write(format_args!("https://www."));
        self.push_word(site);
        self.push_word(!site);
        let domain = DOMAINS[(scatter(site) % DOMAINS.len() as u64) as usize];
        let section = SECTIONS[rank(SECTIONS.len() as u64, random) as usize];
        self.write(format_args!(".{domain}/{section}/"));
        for _ in 0..2 {
            self.push_word(rank(WORDS, random));
            self.bytes.push(b'-');
        }
        self.write(format_args!("{number}"));
        self.end();
    }

    fn push_email(&mut self, number: u64, random: &mut SmallRng) {
        self.push_word(rank(GIVEN_NAMES, random));
        self.bytes.push(b'.');
        self.push_word(rank(FAMILY_NAMES, random));
        self.write(format_args!("{number}@"));
        let host = rank(MAIL_HOSTS, random);
        self.push_word(host);
        self.push_word(!host);
        let domain = DOMAINS[(scatter(host) % DOMAINS.len() as u64) as usize];
        self.write(format_args!(".{domain}"));
        self.end();
    }
}

impl KeyList for Strings {
    type Key = [u8];
    const INDEXES_HERE: &'static IndexMaker<Hardware, [u8]> = &INDEXES_HERE;

    #[inline]
    fn count(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn at(&self, place: usize) -> &[u8] {
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[begin..self.ends[place]]
    }

    /// Its length and its last bytes: nothing to compute, so that a session is not charged for it.
    #[inline]
    fn value_of(key: &[u8]) -> u64 {
        let last = key.last_chunk::<4>().map_or(0, |last| u32::from_le_bytes(*last));
        (key.len() as u64) << 32 | u64::from(last)
    }
}

/// A number below `count`, small ones more often: its logarithm is uniform.
fn rank(count: u64, random: &mut SmallRng) -> u64 {
    let uniform: f64 = random.random();
    (((count as f64 + 1.0).powf(uniform) - 1.0) as u64).min(count.saturating_sub(1))
}

/// Which strings are studied, and where they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringSource {
    /// So many, generated, of each of [`StringKind::GENERATED`].
    Generated(usize),
    /// The first fields of the lines of a file.
    File(PathBuf),
}

impl StringSource {
    /// The strings, by kind.
    pub(super) fn load(&self, seed: u64) -> Result<Vec<(StringKind, Strings)>, ExperimentError> {
        match self {
            Self::Generated(count) => {
                let make = |kind| (kind, Strings::generate(kind, *count, seed));
                Ok(StringKind::GENERATED.map(make).to_vec())
            }
            Self::File(path) => {
                let strings = Strings::read(path, seed)?;
                if strings.count() < super::LEAST_KEYS {
                    let what = format!(
                        "{} has {} keys; the study takes at least 1,000",
                        path.display(),
                        strings.count()
                    );
                    return Err(ExperimentError::BadOption { what });
                }
                Ok(vec![(StringKind::File, strings)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(strings: &Strings) -> Vec<&[u8]> {
        (0..strings.count()).map(|place| strings.at(place)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_strings_and_another_seed_others() {
        for kind in StringKind::GENERATED {
            let strings = Strings::generate(kind, 500, 1);
            assert_eq!(strings, Strings::generate(kind, 500, 1), "{kind}");
            assert_ne!(strings, Strings::generate(kind, 500, 2), "{kind}");
        }
    }

    #[test]
    fn all_strings_are_distinct_and_keep_to_their_pattern() {
        for kind in StringKind::GENERATED {
            let strings = Strings::generate(kind, 20_000, 42);
            let distinct: BTreeSet<&[u8]> = all(&strings).into_iter().collect();
            assert_eq!(distinct.len(), 20_000, "{kind}");
            for string in distinct {
                let text = std::str::from_utf8(string).unwrap();
                match kind {
                    StringKind::Url => assert!(text.starts_with("https://www."), "{text}"),
                    _ => assert_eq!(text.matches('@').count(), 1, "{text}"),
                }
            }
        }
    }

    #[test]
    fn some_hosts_have_many_pages_and_many_have_one() {
        let strings = Strings::generate(StringKind::Url, 20_000, 42);
        let mut pages = std::collections::HashMap::new();
        for string in all(&strings) {
            let host: Vec<&[u8]> = string.splitn(4, |&byte| byte == b'/').take(3).collect();
            *pages.entry(host).or_insert(0) += 1;
        }
        assert!(pages.values().max().unwrap() > &1000);
        assert!((100..=400).contains(&pages.len()), "{}", pages.len());
    }

    #[test]
    fn another_order_has_the_same_strings() {
        let strings = Strings::generate(StringKind::Email, 1000, 3);
        let other = strings.shuffled(7);
        assert_ne!(all(&strings), all(&other));
        let sorted = |strings: &Strings| {
            let mut all: Vec<Vec<u8>> = all(strings).into_iter().map(<[u8]>::to_vec).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&strings), sorted(&other));
        assert_eq!(strings.mean_bytes(), other.mean_bytes());
    }

    #[test]
    fn a_file_gives_the_first_field_of_each_line_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "b\t1\r\na\n\nb\t2\nabc\r\n").unwrap();
        let strings = Strings::read(file.path(), 1).unwrap();
        let found: BTreeSet<&[u8]> = all(&strings).into_iter().collect();
        assert_eq!(found, BTreeSet::from([b"a".as_slice(), b"b", b"abc"]));
        assert_eq!(strings.count(), 3);
    }

    #[test]
    fn a_file_that_is_not_there_or_has_too_few_keys_is_refused() {
        let source = StringSource::File("/nowhere/keys".into());
        let error = source.load(1).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/keys: "), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo\n").unwrap();
        let error = StringSource::File(file.path().into()).load(1).unwrap_err().to_string();
        assert!(error.contains("has 2 keys"), "{error}");
    }
}
