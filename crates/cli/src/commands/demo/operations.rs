//! The demo's workload: what each thread does, determined by a seed.
//!
//! Because it is determined, the process that is killed has to report no more than the number of
//! each write when it is acknowledged; the process that kills it works out the rest.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// There is one new key for this many loaded ones.
const LOADED_PER_NEW_KEY: usize = 10;

/// Which write a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub round: u32,
    pub thread: u32,
    pub number: u64,
}

/// The keys of the workload and the text that their values are made of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Keys {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Keys {
    /// The keys of `records`, and a tenth as many that are new.
    pub fn of(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let mut entries: Vec<_> = records.into_iter().collect();
        let new_keys = (entries.len() / LOADED_PER_NEW_KEY).max(1);
        entries.extend((0..new_keys).map(|number| {
            (format!("new/{number:06}").into_bytes(), b"a record that was not loaded".to_vec())
        }));
        Self { entries }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn key(&self, index: usize) -> &[u8] {
        &self.entries[index].0
    }

    pub fn text(&self, index: usize) -> &[u8] {
        &self.entries[index].1
    }

    /// The value that a write gives key `index`.
    pub fn value(&self, index: usize, stamp: Stamp) -> Vec<u8> {
        let Stamp { round, thread, number } = stamp;
        let mut value = format!("round {round} thread {thread} operation {number}: ").into_bytes();
        value.extend_from_slice(self.text(index));
        value
    }

    /// Writes them to a file for the other process.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for (key, text) in &self.entries {
            for bytes in [key, text] {
                file.write_all(&(bytes.len() as u32).to_le_bytes())?;
                file.write_all(bytes)?;
            }
        }
        file.flush()
    }

    /// Reads what [`Keys::save`] wrote.
    pub fn load(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::new(File::open(path)?);
        let mut entries = Vec::new();
        while let Some(key) = read_bytes(&mut file)? {
            let text = read_bytes(&mut file)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            entries.push((key, text));
        }
        Ok(Self { entries })
    }
}

fn read_bytes(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match file.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    file.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// What a thread does next. Keys are indexes into [`Keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Put { key: usize },
    Get { key: usize },
    Delete { key: usize },
    Range { from: usize, limit: usize },
}

impl Action {
    /// The key that is written, if it is a write.
    pub fn written_key(self) -> Option<usize> {
        match self {
            Self::Put { key } | Self::Delete { key } => Some(key),
            Self::Get { .. } | Self::Range { .. } => None,
        }
    }
}

/// The endless actions of one thread: 50 % put, 30 % get, 10 % delete, 10 % range. A thread writes
/// only keys whose index is its own number modulo the number of threads, so that the order of the
/// writes of a key is known.
#[derive(Clone, Debug)]
pub struct Actions {
    random: SplitMix,
    thread: usize,
    threads: usize,
    keys: usize,
    number: u64,
}

impl Actions {
    /// The actions of thread `thread` of `threads` in round `round`, over `keys` keys.
    pub fn new(seed: u64, round: u32, thread: usize, threads: usize, keys: usize) -> Self {
        let mut random = SplitMix(seed);
        let mixed = random.next() ^ (u64::from(round) << 32) ^ thread as u64;
        Self { random: SplitMix(mixed), thread, threads, keys, number: 0 }
    }
}

impl Iterator for Actions {
    /// The number of the operation, from 0, and what it is.
    type Item = (u64, Action);

    fn next(&mut self) -> Option<Self::Item> {
        let percent = self.random.below(100);
        let owned = (self.keys - self.thread).div_ceil(self.threads);
        let key = self.thread + self.random.below(owned as u64) as usize * self.threads;
        let action = match percent {
            0..50 => Action::Put { key },
            50..80 => Action::Get { key },
            80..90 => Action::Delete { key },
            _ => Action::Range { from: key, limit: 1 + self.random.below(20) as usize },
        };
        self.number += 1;
        Some((self.number - 1, action))
    }
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same numbers in both processes.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Keys {
        Keys::of((0..count).map(|i| (format!("k{i}").into_bytes(), format!("t{i}").into_bytes())))
    }

    #[test]
    fn keys_survive_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let keys = keys(25);
        keys.save(&path).unwrap();
        assert_eq!(Keys::load(&path).unwrap(), keys);
        assert_eq!(keys.len(), 27);
        std::fs::write(&path, [4, 0, 0, 0, 1]).unwrap();
        assert!(Keys::load(&path).is_err());
    }

    #[test]
    fn actions_are_determined_and_stay_in_their_partition() {
        let of = |thread| Actions::new(7, 1, thread, 3, 10).take(2000).collect::<Vec<_>>();
        assert_eq!(of(2), of(2));
        assert_ne!(of(1), of(2));
        let written: std::collections::BTreeSet<_> =
            of(0).into_iter().filter_map(|(_, action)| action.written_key()).collect();
        assert_eq!(written.into_iter().collect::<Vec<_>>(), [0, 3, 6, 9]);
    }

    #[test]
    fn the_mix_is_as_announced() {
        let actions: Vec<_> = Actions::new(1, 1, 0, 1, 100).take(10_000).map(|(_, a)| a).collect();
        let share = |wanted: fn(&Action) -> bool| actions.iter().filter(|a| wanted(a)).count();
        assert!((4700..5300).contains(&share(|a| matches!(a, Action::Put { .. }))));
        assert!((2700..3300).contains(&share(|a| matches!(a, Action::Get { .. }))));
        assert!((850..1150).contains(&share(|a| matches!(a, Action::Delete { .. }))));
        assert!((850..1150).contains(&share(|a| matches!(a, Action::Range { .. }))));
    }
}
