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
    /// A transaction that goes back to savepoints.
    RollBack(RollBack),
    /// A transaction, while somebody reads the state before it and the background takes away what nobody wants.
    CommitBesideReader(Vec<Write>),
    /// Drops a further table while a transaction that is not committed has written to it, and this besides.
    DropBeside(u8, Vec<Write>),
    /// Fills a further table, which it makes if there is none, with what is loaded into the table of the second number.
    Fill(u8, u8),
    /// All that there is to do in the background. Nothing may be left then that nobody wants.
    Settle,
    /// A transaction that need not be durable, and a backup, which is restored into another store.
    Restore(Write),
}

/// What a transaction does that goes back to savepoints.
#[derive(Clone, Debug)]
pub struct RollBack {
    /// Before the first savepoint: it stays.
    pub(super) kept: Vec<Write>,
    /// Behind it: it is taken back.
    pub(super) undone: Vec<Write>,
    /// Behind a second savepoint, to be taken back; and again when all that is: then it stays.
    pub(super) last: Vec<Write>,
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

/// Writes to the first of the same keys, of other values.
fn other_values(random: &mut SmallRng, of: &[Write]) -> Vec<Write> {
    of.iter().take(8).map(|(table, key, _)| (*table, *key, write(random).2)).collect()
}

/// A transaction that goes back to savepoints, and at no time has more than one may have.
pub(super) fn roll_back(random: &mut SmallRng) -> RollBack {
    let mut kept = writes(random);
    kept.truncate(30);
    let mut undone = other_values(random, &kept);
    undone.extend((0..4).map(|_| write(random)));
    let last = if random.random() { other_values(random, &undone) } else { Vec::new() };
    RollBack { kept, undone, last }
}

/// What comes next where much is taken back: what belongs together comes together.
pub(super) fn taken_back(random: &mut SmallRng) -> Vec<StoreOperation> {
    let number = random.random_range(0..3);
    vec![match random.random_range(0..20) {
        0..=4 => StoreOperation::RollBack(roll_back(random)),
        5 | 6 => StoreOperation::CommitBesideReader(writes(random)),
        7 => StoreOperation::Settle,
        8 => StoreOperation::Restore(write(random)),
        9 => StoreOperation::Stream(stream(random)),
        10 => StoreOperation::Abort(writes(random)),
        11 => StoreOperation::Fill(number, random.random_range(0..3)),
        // Under the name of one whose pages may still be there.
        12 | 13 => {
            let dropped = StoreOperation::DropBeside(number, writes(random));
            return vec![dropped, StoreOperation::Fill(number, random.random_range(0..3))];
        }
        14 => StoreOperation::DropBeside(number, writes(random)),
        15 => StoreOperation::Maintain,
        16 => StoreOperation::Checkpoint,
        17 => StoreOperation::Reopen,
        18 => StoreOperation::Compact,
        _ => StoreOperation::Commit(writes(random)),
    }]
}

/// What a store is restored from before anything is done to it: some of the keys that are written to, short values and long
/// ones.
pub(super) fn restored() -> StoreState {
    let of = |table: u8| {
        let keys = (0..KEYS).step_by(3 + usize::from(table)).map(key);
        keys.zip(loaded(table).into_values()).collect()
    };
    TABLES.iter().zip(0..).map(|(name, table)| ((*name).to_owned(), of(table))).collect()
}
