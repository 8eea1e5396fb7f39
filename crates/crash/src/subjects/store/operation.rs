//! What is done to a store, and what it holds.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::SmallRng;

pub(super) const TABLES: [&str; 2] = ["left", "right"];
const KEYS: u8 = 60;

/// What becomes of a key: a value of so many bytes, made from the number; or nothing.
pub(super) type Write = (usize, u8, Option<(usize, u8)>);

/// An operation on a store.
#[derive(Clone, Debug)]
pub enum StoreOperation {
    /// A transaction.
    Commit(Vec<Write>),
    /// A transaction that is given up.
    Abort(Vec<Write>),
    /// Makes a further table, with an entry.
    CreateTable(u8),
    /// Drops it.
    DropTable(u8),
    /// What a thread in the background does.
    Maintain,
    /// Writes every page and cuts the log.
    Checkpoint,
    /// Closes the engine and opens it.
    Reopen,
    /// Moves pages to the front and gives the end of the device back.
    Compact,
    /// Loads a table, or drops it if there is one.
    LoadOrDrop(u8),
    /// A transaction that need not be durable, and a backup, which makes it so.
    BackUp(Write),
    /// A value that is written piece by piece.
    Stream(Write),
    /// Takes away what has expired.
    RemoveExpired,
}

impl StoreOperation {
    /// Whether a full disk may refuse it.
    pub(super) fn takes_room(&self) -> bool {
        match self {
            Self::Commit(writes) | Self::Abort(writes) => {
                writes.iter().any(|(_, _, value)| value.is_some())
            }
            Self::CreateTable(_) | Self::LoadOrDrop(_) => true,
            _ => false,
        }
    }
}

/// The contents of a store: tables by name, keys to length and number.
pub type StoreState = BTreeMap<String, BTreeMap<Vec<u8>, (usize, u8)>>;

pub(super) fn key(number: u8) -> Vec<u8> {
    match number % 3 {
        0 => vec![b'k'; 1 + usize::from(number)],
        1 => vec![0, number],
        _ => format!("key number {number}").into_bytes(),
    }
}

pub(super) fn write(random: &mut SmallRng) -> Write {
    let (table, key) = (random.random_range(0..TABLES.len()), random.random_range(0..KEYS));
    let value = match random.random_range(0..12) {
        0..=3 => None,
        // In chunks.
        4 => Some((random.random_range(1200..3000), random.random())),
        5..=8 => Some((random.random_range(300..800), random.random())),
        _ => Some((random.random_range(0..100), random.random())),
    };
    (table, key, value)
}

pub(super) fn writes(random: &mut SmallRng) -> Vec<Write> {
    let count = match random.random_range(0..12) {
        // More than a record of the log holds.
        0 => 40,
        1..=3 => random.random_range(2..8),
        _ => 1,
    };
    let fills = |(table, key, _): Write| (table, key, Some((700, key)));
    let writes = (0..count).map(|_| write(random));
    if count == 40 { writes.map(fills).collect() } else { writes.collect() }
}

/// More than is put into the log together.
pub(super) fn stream(random: &mut SmallRng) -> Write {
    let (table, key) = (random.random_range(0..TABLES.len()), random.random_range(0..KEYS));
    (table, key, Some((random.random_range(17_000..30_000), random.random())))
}

/// The same writes, all of which take room; or none of which does.
pub(super) fn filling(mut writes: Vec<Write>, fills: bool) -> Vec<Write> {
    for (_, key, value) in &mut writes {
        *value = fills.then(|| value.unwrap_or((900, *key)));
    }
    writes
}

pub(super) fn extra_table(number: u8) -> String {
    format!("extra {number}")
}

pub(super) fn loaded_table(number: u8) -> String {
    format!("loaded {number}")
}

/// What is loaded into it: some leaves, and some long values.
pub(super) fn loaded(number: u8) -> BTreeMap<Vec<u8>, (usize, u8)> {
    let value = |at: usize| if at.is_multiple_of(12) { (1500, number + 1) } else { (150, 7) };
    (0..20 * (1 + usize::from(number))).map(|at| (vec![at as u8; 30], value(at))).collect()
}

pub(super) fn canonical((bytes, number): (usize, u8)) -> (usize, u8) {
    if bytes == 0 { (0, 0) } else { (bytes, number) }
}
