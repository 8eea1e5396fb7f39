//! What each thread does, by its number and that of the operation, and what the tables should have then.

use std::collections::BTreeMap;

use lapis::{Error, Store, Table, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// Keys that a thread writes to in each table.
const KEYS: u64 = 200;
/// Most values are shorter.
const USUALLY_LONGEST: usize = 200;
/// Every so many operations of a thread count in one entry that all threads share.
const SHARED: u64 = 3;
const SHARED_KEY: &[u8] = b"shared";

/// The entries of one table.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What all threads do, as far as it is the same for all.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where all choices come from.
    pub seed: u64,
    /// Bytes of the longest values.
    pub longest: usize,
    /// Tables.
    pub tables: usize,
}

/// One thread's entry in a table: none if it is removed.
struct Write {
    table: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// Where a thread notes how many of its operations are done.
fn count_key(thread: usize) -> Vec<u8> {
    format!("thread {thread}").into_bytes()
}

fn key(thread: usize, number: u64) -> Vec<u8> {
    let tail =
        if number.is_multiple_of(5) { " with a longer key than the others have" } else { "" };
    format!("{thread} {}{tail}", number * 7919 % 10_007).into_bytes()
}

fn number_in(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Plan {
    /// The table in which a thread counts.
    fn count_table(self, thread: usize) -> usize {
        thread % self.tables
    }

    fn writes(self, thread: usize, operation: u64) -> Vec<Write> {
        let seed = self.seed ^ (thread as u64) << 48 ^ operation << 8;
        let mut random = SmallRng::seed_from_u64(seed);
        let writes = if random.random_ratio(1, 5) { random.random_range(2..9) } else { 1 };
        let write = |_| {
            let table = random.random_range(0..self.tables);
            let key = key(thread, random.random_range(0..KEYS));
            let most = if random.random_ratio(1, 20) { self.longest } else { USUALLY_LONGEST };
            let mut value = vec![0; random.random_range(0..=most)];
            random.fill_bytes(&mut value);
            let removed = random.random_ratio(1, 5);
            Write { table, key, value: (!removed).then_some(value) }
        };
        (0..writes).map(write).collect()
    }

    /// Does one operation, in one transaction. Returns when it is durable.
    pub fn execute(
        self,
        store: &Store,
        tables: &[Table],
        thread: usize,
        operation: u64,
    ) -> Result<(), Error> {
        let writes = self.writes(thread, operation);
        store.retry(|transaction| {
            for Write { table, key, value } in &writes {
                match value {
                    Some(value) => transaction.put(&tables[*table], key, value)?,
                    None => drop(transaction.delete(&tables[*table], key)?),
                }
            }
            if operation.is_multiple_of(SHARED) {
                increment(transaction, &tables[0])?;
            }
            let counts = &tables[self.count_table(thread)];
            transaction.put(counts, &count_key(thread), &(operation + 1).to_le_bytes())
        })
    }

    /// How many operations of a thread the store has.
    pub fn done(self, tables: &[Table], thread: usize) -> Result<u64, Error> {
        let count = tables[self.count_table(thread)].get(&count_key(thread))?;
        Ok(number_in(count.as_deref()))
    }

    /// What the tables have after so many operations of each thread.
    pub fn expected(self, done: &[u64]) -> Vec<Contents> {
        let mut tables = vec![Contents::new(); self.tables];
        for (thread, done) in done.iter().enumerate().filter(|(_, done)| **done > 0) {
            for write in (0..*done).flat_map(|operation| self.writes(thread, operation)) {
                let table = &mut tables[write.table];
                match write.value {
                    Some(value) => table.insert(write.key, value),
                    None => table.remove(&write.key),
                };
            }
            let count = done.to_le_bytes().to_vec();
            tables[self.count_table(thread)].insert(count_key(thread), count);
        }
        let shared: u64 = done.iter().map(|done| done.div_ceil(SHARED)).sum();
        if shared > 0 {
            tables[0].insert(SHARED_KEY.to_vec(), shared.to_le_bytes().to_vec());
        }
        tables
    }

    /// What a table has; of one without an order, under the keys that are ever written.
    pub fn found(self, table: &Table, threads: usize) -> Result<Contents, Error> {
        if table.is_ordered() {
            return table.iter()?.collect();
        }
        let keys = (0..threads).flat_map(|thread| (0..KEYS).map(move |number| key(thread, number)));
        let keys = keys.chain((0..threads).map(count_key)).chain([SHARED_KEY.to_vec()]);
        let mut contents = Contents::new();
        for key in keys {
            if let Some(value) = table.get(&key)? {
                contents.insert(key, value);
            }
        }
        Ok(contents)
    }
}

fn increment(transaction: &mut Transaction, table: &Table) -> Result<(), Error> {
    let shared = number_in(transaction.get(table, SHARED_KEY)?.as_deref());
    transaction.put(table, SHARED_KEY, &(shared + 1).to_le_bytes())
}
