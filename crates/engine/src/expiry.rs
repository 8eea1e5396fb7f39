//! Entries that expire.
//!
//! A record may say since when it counts no more (`value.rs`), in milliseconds of the clock of the wall since 1970. From then
//! on nobody sees it, and some time later it is taken away: by [`Engine::maintain`], which walks over the tables that have
//! such entries, some records at a time and no faster than they are worth, or by [`Engine::remove_expired`].
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

use std::collections::BTreeMap;
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
use crate::key_range::KeyRange;
use crate::mutants::EXPIRY_NOT_VALIDATED;
use crate::tables::{CatalogEntry, Properties, Table, TableId, name_key, table_value};
use crate::transaction::Transaction;
use crate::value;

/// Records that the walk looks at before it commits.
const RECORDS_AT_ONCE: usize = 1024;
/// Expired ones are taken away at once, of which so many in a step make it worth to go on without a pause.
const WORTH_GOING_ON: usize = RECORDS_AT_ONCE / 8;
/// The walk's pause after a step that was not, by the clock that entries expire by.
const PAUSE_MS: u64 = 100;

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
    /// The last key that was looked at.
    behind: Option<Box<[u8]>>,
    /// Since when it pauses, if it does.
    pauses_since: Option<u64>,
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

/// A step of the walk.
struct Step {
    removed: usize,
    /// The last key, if there may be more behind it.
    last: Option<Box<[u8]>>,
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
            let mut behind = None;
            loop {
                let step = match self.remove_expired_of(table, behind.as_deref()) {
                    Err(EngineError::Conflict) => continue,
                    Err(EngineError::Dropped { .. }) => break,
                    step => step?,
                };
                removed += step.removed as u64;
                behind = step.last;
                if behind.is_none() {
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
        if walk.pauses_since.is_some_and(|since| now.abs_diff(since) < PAUSE_MS) {
            return Ok(false);
        }
        let tables = self.tables().into_iter().filter(|table| table.has_expiring());
        let tables: BTreeMap<TableId, _> = tables.map(|table| (table.id(), table)).collect();
        let next = tables.range(walk.table..).next().or_else(|| tables.first_key_value());
        let Some((&id, table)) = next else { return Ok(false) };
        if id != walk.table {
            (walk.table, walk.behind) = (id, None);
        }
        let step = match self.remove_expired_of(table, walk.behind.as_deref()) {
            // Another time.
            Err(EngineError::Conflict | EngineError::Dropped { .. }) => {
                Step { removed: 0, last: None }
            }
            Err(error) => {
                // Other tables have their turn first.
                *walk = Walk { table: id + 1, behind: None, pauses_since: Some(now) };
                return Err(error);
            }
            Ok(step) => step,
        };
        walk.behind = step.last;
        if walk.behind.is_none() {
            walk.table = id + 1;
        }
        let is_worth_it = step.removed >= WORTH_GOING_ON;
        walk.pauses_since = (!is_worth_it).then_some(now);
        Ok(is_worth_it)
    }

    /// Takes away what has expired among the next records of a table (T2).
    fn remove_expired_of(
        &self,
        table: &Arc<Table<D>>,
        behind: Option<&[u8]>,
    ) -> Result<Step, EngineError> {
        let shared = self.shared();
        // Registered as a reader before it is seen that the table is there.
        let mut transaction = self.begin()?;
        table.check_not_dropped()?;
        let now = transaction.now_ms();
        let has_expired = |record: &[u8]| value::expiry_of(record).is_some_and(|at| at <= now);
        let (mut expired, mut looked_at, mut last) = (Vec::<Box<[u8]>>::new(), 0, None);
        shared.guarded(|| {
            if !table.is_ordered() {
                table.contents().visit_all(|key, record| {
                    if record.is_ok_and(has_expired) && expired.len() < RECORDS_AT_ONCE {
                        expired.push(key.into());
                    }
                })?;
                // These are gone next time.
                last = expired.last().filter(|_| expired.len() == RECORDS_AT_ONCE).cloned();
                return Ok(());
            }
            let range = KeyRange::new::<&[u8]>(&match behind {
                Some(behind) => (Bound::Excluded(behind), Bound::Unbounded),
                None => (Bound::Unbounded, Bound::Unbounded),
            });
            table.contents().visit(&range, |key, record| {
                if has_expired(record) {
                    expired.push(key.into());
                }
                looked_at += 1;
                if looked_at == RECORDS_AT_ONCE {
                    last = Some(Box::from(key));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })
        })?;
        let (mut removed, looks) = (0, !shared.domain.commits(EXPIRY_NOT_VALIDATED));
        for (at, key) in expired.iter().enumerate() {
            let had_expired = match looks {
                true => transaction.remove_if_expired(table, key),
                false => transaction.write(table, key, None).map(|()| true),
            };
            match had_expired {
                Ok(had_expired) => removed += usize::from(had_expired),
                Err(EngineError::TransactionTooLong { .. }) if at > 0 => {
                    last = Some(expired[at - 1].clone());
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        transaction.commit(Durability::Eventual)?;
        Ok(Step { removed, last })
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
