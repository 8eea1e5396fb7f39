//! Entries that expire.
//!
//! A record may say since when it counts no more (`value.rs`), in milliseconds of the clock of the wall since 1970. From then
//! on nobody sees it, and some time later it is taken away: by [`Engine::maintain`], which walks over the tables that have
//! such entries, some records at a time and no faster than they are worth, or by [`Engine::remove_expired`]. A table without
//! order has no place to go on from: all of it is looked at, for many keys at once.
//!
//! # Invariants
//!
//! * T1. *A reader has one time.* A transaction and a snapshot look at the clock when they meet the first record that
//!   expires, and stay with that: what they have seen they see again.
//! * T2. *What is taken away has expired*: by a transaction that reads the record, and is validated like any other. Who began
//!   before still finds it among the versions.
//! * T3. *The walk knows its tables.* The catalog says that a table has such entries before the first one is in the log.
//!
//! The clock is the machine's. One that is set back shows what had expired and was not taken away yet; one that is
//! set forward hides, and takes away, what should have stayed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapis_blocks::block_log::Durability;
use lapis_pmem::{Domain, host_lock};
use parking_lot::Mutex;

use crate::end_to_end::whole;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::index_table::IndexTable;
use crate::key_range::KeyRange;
use crate::mutants::EXPIRY_NOT_VALIDATED;
use crate::tables::{CatalogEntry, Properties, Table, TableId, name_key, table_value};
use crate::transaction::Transaction;
use crate::value;

/// Records that the walk looks at, or takes away, before it commits.
const RECORDS_AT_ONCE: usize = 1024;
/// The most that are remembered of a table without order, and the bytes of their keys.
const MOST_FOUND: usize = 64 << 10;
const MOST_FOUND_BYTES: usize = 4 << 20;
/// Of so many records that were looked at, one that was taken away makes it worth to go on without a pause.
const RECORDS_WORTH_IT: usize = 8;
/// The walk's pause where it was not, by the clock that entries expire by; and the records for which it is a millisecond
/// longer, so that a large table without order does not keep a core busy: to look at them takes a tenth of one, or less.
const PAUSE_MS: u64 = 100;
const RECORDS_PER_MS: usize = 512;

/// How long an entry lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeToLive {
    /// As long as entries of its table do that are not given a time.
    #[default]
    OfTable,
    /// Until it is removed.
    Forever,
    /// So long from now on, to the millisecond.
    For(Duration),
}

/// What tells the time.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The clock of the wall.
    #[default]
    System,
    /// Milliseconds since 1970 that somebody sets: for tests.
    Set(&'static AtomicU64),
}

impl Clock {
    pub(crate) fn now_ms(self) -> u64 {
        match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds),
            Self::Set(milliseconds) => milliseconds.load(Ordering::Relaxed),
        }
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What an engine knows of entries that expire.
#[derive(Debug)]
pub(crate) struct Expiry {
    clock: Clock,
    /// Whether there is a table that has some.
    any: AtomicBool,
    walk: Mutex<Walk>,
}

/// How far the walk has come.
#[derive(Debug, Default)]
struct Walk {
    table: TableId,
    place: Place,
    /// Since when it pauses, and how long, if it does.
    pause: Option<(u64, u64)>,
}

/// How far a table has been looked through.
#[derive(Debug, Default)]
struct Place {
    /// The last key that was looked at. A table without order is looked at from its beginning.
    behind: Option<Box<[u8]>>,
    /// What had expired there, and has not been taken away.
    found: VecDeque<Box<[u8]>>,
    /// Whether there may be more than was found.
    has_more: bool,
    /// Records that were looked at last, and taken away since.
    looked_at: usize,
    removed: usize,
}

impl Place {
    /// Whether the table has been looked through.
    fn is_end(&self) -> bool {
        // What is seen in a damaged index need not be found, and so not go: it is not looked at for ever.
        self.found.is_empty() && !(self.has_more && (self.behind.is_some() || self.removed > 0))
    }

    fn is_worth_it(&self) -> bool {
        self.removed >= self.looked_at.max(RECORDS_AT_ONCE) / RECORDS_WORTH_IT
    }

    fn pause_ms(&self) -> u64 {
        PAUSE_MS.max((self.looked_at / RECORDS_PER_MS) as u64)
    }
}

impl Walk {
    /// Goes to where the next step begins, after one at `now`. Returns whether to go on at once.
    fn go_on(&mut self, step: Result<(), EngineError>, now: u64) -> Result<bool, EngineError> {
        let (goes_on, pause_ms) = match step {
            Ok(()) if !self.place.found.is_empty() => (true, 0),
            Ok(()) => (self.place.is_worth_it(), self.place.pause_ms()),
            // What was found is looked at again before it goes.
            Err(EngineError::Conflict) => (false, PAUSE_MS),
            Err(_) => (false, self.place.pause_ms()),
        };
        self.pause = (!goes_on).then_some((now, pause_ms));
        let failed = step.err().filter(|error| !matches!(error, EngineError::Conflict));
        if failed.is_some() || self.place.is_end() {
            // Other tables have their turn first.
            (self.table, self.place) = (self.table + 1, Place::default());
        }
        match failed {
            None | Some(EngineError::Dropped { .. }) => Ok(goes_on),
            Some(error) => Err(error),
        }
    }
}

impl Expiry {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, any: AtomicBool::new(false), walk: Mutex::default() }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(crate) fn is_past(&self, at: u64) -> bool {
        at <= self.now_ms()
    }

    /// Since when an entry counts no more that is put now.
    pub(crate) fn of<D: Domain>(&self, lives: TimeToLive, table: &Table<D>) -> Option<u64> {
        let lives = match lives {
            TimeToLive::OfTable => table.time_to_live(),
            TimeToLive::Forever => None,
            TimeToLive::For(time) => Some(time),
        };
        lives.map(|time| self.now_ms().saturating_add(milliseconds(time)))
    }

    /// Has the walk come to a table, if that has entries that expire.
    pub(crate) fn note<D: Domain>(&self, table: &Table<D>) {
        if table.has_expiring() {
            self.any.store(true, Ordering::Release);
        }
    }
}

impl<D: Domain> Engine<D> {
    /// Takes away all entries that have expired by now, and returns their number. The thread that calls
    /// [`Engine::maintain`] does so some time anyhow.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn remove_expired(&self) -> Result<u64, EngineError> {
        self.shared().check_writable()?;
        let mut removed = 0;
        for table in self.tables().iter().filter(|table| table.has_expiring()) {
            let mut place = Place::default();
            loop {
                match self.remove_expired_of(table, &mut place) {
                    Err(EngineError::Conflict) => continue,
                    Err(EngineError::Dropped { .. }) => break,
                    step => removed += step? as u64,
                }
                if place.is_end() {
                    break;
                }
            }
        }
        Ok(removed)
    }

    /// Goes on with the walk, if it is time to. Returns whether to go on at once.
    pub(crate) fn walk_expiring(&self) -> Result<bool, EngineError> {
        let shared = self.shared();
        if !shared.expiry.any.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut walk = host_lock::lock(&shared.domain, &shared.expiry.walk);
        let now = shared.expiry.now_ms();
        if walk.pause.is_some_and(|(since, ms)| now.abs_diff(since) < ms) {
            return Ok(false);
        }
        let tables = self.tables().into_iter().filter(|table| table.has_expiring());
        let tables: BTreeMap<TableId, _> = tables.map(|table| (table.id(), table)).collect();
        let next = tables.range(walk.table..).next().or_else(|| tables.first_key_value());
        let Some((&id, table)) = next else { return Ok(false) };
        if id != walk.table {
            (walk.table, walk.place) = (id, Place::default());
        }
        let step = self.remove_expired_of(table, &mut walk.place).map(|_| ());
        walk.go_on(step, now)
    }

    /// Takes away what has expired among the next records of a table (T2). Returns how many there were.
    fn remove_expired_of(
        &self,
        table: &Arc<Table<D>>,
        place: &mut Place,
    ) -> Result<usize, EngineError> {
        let shared = self.shared();
        if let Some(index) = table.contents().as_index().filter(|_| !table.is_ordered())
            && place.found.is_empty()
        {
            // Not as a reader: what is replaced meanwhile would be kept for it.
            let _pinned = index.pin();
            table.check_not_dropped()?;
            shared.guarded(|| {
                find_unordered(index, shared.expiry.now_ms(), place);
                Ok(())
            })?;
        }
        // Registered as a reader before it is seen that the table is there.
        let mut transaction = self.begin()?;
        table.check_not_dropped()?;
        if table.is_ordered() && place.found.is_empty() {
            shared.guarded(|| find_ordered(table, transaction.now_ms(), place))?;
        }
        let (mut removed, looks) = (0, !shared.domain.commits(EXPIRY_NOT_VALIDATED));
        let mut done = 0;
        for key in place.found.iter().take(RECORDS_AT_ONCE) {
            let had_expired = match looks {
                true => transaction.remove_if_expired(table, key),
                false => transaction.write(table, key, None).map(|()| true),
            };
            match had_expired {
                Ok(had_expired) => removed += usize::from(had_expired),
                Err(EngineError::TransactionTooLong { .. }) if done > 0 => break,
                Err(error) => return Err(error),
            }
            done += 1;
        }
        transaction.commit(Durability::Eventual)?;
        place.found.drain(..done);
        place.removed += removed;
        Ok(removed)
    }

    /// Sees to it that the catalog says of a table that it has entries that expire (T3).
    pub(crate) fn note_expiring(&self, table: &Arc<Table<D>>) -> Result<(), EngineError> {
        if !table.has_expiring() {
            let has_expiring = |properties| Properties { has_expiring: true, ..properties };
            self.note_in_catalog(table, has_expiring)?;
            table.set_has_expiring();
            self.shared().expiry.note(table);
        }
        Ok(())
    }

    /// Sees to it that the catalog says of a table that it has long values (V3).
    pub(crate) fn note_long_values(&self, table: &Arc<Table<D>>) -> Result<(), EngineError> {
        if !table.has_long_values() {
            let has_long = |properties| Properties { has_long_values: true, ..properties };
            self.note_in_catalog(table, has_long)?;
            // Before anybody can replace the record.
            table.set_has_long_values();
        }
        Ok(())
    }

    /// Changes what the catalog says of a table, before whatever is committed next.
    fn note_in_catalog(
        &self,
        table: &Arc<Table<D>>,
        change: impl Fn(Properties) -> Properties,
    ) -> Result<(), EngineError> {
        let (catalog, key) = (&self.shared().catalog, name_key(table.name()));
        let note = |transaction: &mut Transaction<D>| {
            let dropped = || EngineError::Dropped { name: table.name().to_owned() };
            let entry = transaction.get_record(catalog, &key)?.ok_or_else(dropped)?;
            match CatalogEntry::parse(&key, &entry)? {
                CatalogEntry::Table { id, place, properties, .. } if id == table.id() => {
                    let entry = table_value(id, place, change(properties));
                    transaction.write(catalog, &key, Some(whole(&entry)))
                }
                _ => Err(dropped()),
            }
        };
        self.retry(note, Durability::Eventual)
    }
}

/// Looks at the next records of a table.
fn find_ordered<D: Domain>(
    table: &Table<D>,
    now: u64,
    place: &mut Place,
) -> Result<(), EngineError> {
    let range = KeyRange::new::<&[u8]>(&match place.behind.as_deref() {
        Some(behind) => (Bound::Excluded(behind), Bound::Unbounded),
        None => (Bound::Unbounded, Bound::Unbounded),
    });
    *place = Place::default();
    table.contents().visit(&range, |key, record| {
        if has_expired(record, now) {
            place.found.push_back(key.into());
        }
        place.looked_at += 1;
        if place.looked_at == RECORDS_AT_ONCE {
            (place.behind, place.has_more) = (Some(key.into()), true);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
}

/// Looks at the records of a table without order, until it has found many.
fn find_unordered<D: Domain>(index: &IndexTable<D>, now: u64, place: &mut Place) {
    *place = Place::default();
    let mut bytes = 0;
    index.visit_until(|key, record| {
        place.looked_at += 1;
        if record.is_ok_and(|record| has_expired(record, now)) {
            place.found.push_back(key.into());
            bytes += key.len();
        }
        if place.found.len() < MOST_FOUND && bytes < MOST_FOUND_BYTES {
            return ControlFlow::Continue(());
        }
        place.has_more = true;
        ControlFlow::Break(())
    });
}

fn has_expired(record: &[u8], now: u64) -> bool {
    value::expiry_of(record).is_some_and(|at| at <= now)
}

#[cfg(test)]
mod tests {
    use lapis_buffer::Placement;
    use lapis_index::{IndexKind, IndexOptions};
    use lapis_pmem::{FlushMethod, Hardware, Pool, Region};

    use super::*;
    use crate::engine::EngineOptions;
    use crate::storage::Storage;

    fn engine() -> Engine<Hardware> {
        let region = Region::anonymous(64 << 20, 64 << 20).unwrap();
        let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
        let pool = Arc::new(Pool::create(region, domain.clone()).unwrap());
        let mut options = EngineOptions::new(7);
        options.placement = Placement::MainMemory;
        options.buffer.frames = 64;
        options.memory.log_blocks = 2 + 2048;
        Engine::create(domain, Storage::main_memory(pool), &options).unwrap()
    }

    #[test]
    fn a_table_without_order_is_looked_at_once_for_many_that_have_expired() {
        let engine = engine();
        for kind in [IndexKind::PClht, IndexKind::Cceh, IndexKind::LevelHash] {
            let table =
                engine.create_index_table(kind.name(), kind, &IndexOptions::DEFAULT).unwrap();
            for key in 0..5000_u32 {
                let lives = TimeToLive::For(Duration::from_secs(u64::from(key % 5 == 0) * 3600));
                let later = Durability::Eventual;
                engine.put_with(&table, &key.to_be_bytes(), b"", lives, later).unwrap();
            }
            let (mut place, mut visited) = (Place::default(), 0);
            loop {
                let looks = place.found.is_empty();
                engine.remove_expired_of(&table, &mut place).unwrap();
                visited += if looks { place.looked_at } else { 0 };
                if place.is_end() {
                    break;
                }
            }
            assert_eq!((visited, place.removed), (5000, 4000), "{kind}");
            assert_eq!(engine.remove_expired_of(&table, &mut place).unwrap(), 0);
            assert_eq!((place.looked_at, place.is_end()), (1000, true), "{kind}");
        }
    }

    #[test]
    fn the_walk_pauses_for_as_long_as_what_it_looked_at_was_in_vain() {
        let after = |looked_at, removed| {
            let place = Place { looked_at, removed, ..Place::default() };
            let mut walk = Walk { place, ..Walk::default() };
            (walk.go_on(Ok(()), 5).unwrap(), walk.pause)
        };
        assert_eq!(after(10, 10), (false, Some((5, 100))));
        assert_eq!(after(1024, 127), (false, Some((5, 100))));
        assert_eq!(after(1024, 128), (true, None));
        assert_eq!(after(1 << 20, 1000), (false, Some((5, 2048))));
        assert_eq!(after(1 << 18, 1 << 15), (true, None));
    }

    #[test]
    fn the_walk_keeps_its_place_where_somebody_came_between() {
        let found = || VecDeque::from([Box::from(&b"k"[..])]);
        let behind = || Some(Box::from(&b"j"[..]));
        let place = Place { behind: behind(), found: found(), looked_at: 9, ..Place::default() };
        let mut walk = Walk { table: 3, place, pause: None };
        assert!(!walk.go_on(Err(EngineError::Conflict), 7).unwrap());
        assert_eq!((walk.table, walk.pause), (3, Some((7, 100))));
        assert_eq!((walk.place.behind, walk.place.found), (behind(), found()));
    }
}
