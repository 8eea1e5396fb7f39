//! Write transactions and snapshots.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use lapis_index::Direction;
use lapis_pmem::Domain;
use lapis_pmem::host_lock::{self, HostGuard};
use parking_lot::{ArcMutexGuard, ArcRwLockReadGuard, MutexGuard, RawMutex, RawRwLock};

use crate::engine::{Engine, Writer};
use crate::entries::{Entries, KeyRange};
use crate::error::Error;
use crate::record::WriteSet;
use crate::table::Table;
use crate::table_state::TableState;
use crate::value::Value;
use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

thread_local! {
    /// Engines of which this thread holds snapshots, by address: how many, and the lock that they
    /// share. It is taken once per thread: taken again while a writer waits, it would never come.
    static SNAPSHOTS: RefCell<BTreeMap<usize, (usize, SharedGuard)>> =
        const { RefCell::new(BTreeMap::new()) };
}

thread_local! {
    /// Engines that this thread has a transaction of, by address: asking for the turn again, it
    /// would wait for itself.
    static TURNS: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
}

type SharedGuard = ArcRwLockReadGuard<RawRwLock, ()>;

/// Whether this thread holds a snapshot of the engine, and with it its lock.
pub(crate) fn holds_snapshot<D: Domain>(engine: &Engine<D>) -> bool {
    SNAPSHOTS.with_borrow(|held| held.contains_key(&std::ptr::from_ref(engine).addr()))
}

/// Whether this thread has a transaction of the engine, and with it the writer's turn.
fn has_turn<D: Domain>(engine: &Engine<D>) -> bool {
    TURNS.with_borrow(|held| held.contains(&std::ptr::from_ref(engine).addr()))
}

/// Waits for the writer's turn to change something that is no entry.
pub(crate) fn turn_to_change<D: Domain>(
    engine: &Engine<D>,
) -> Result<HostGuard<'_, D, MutexGuard<'_, Writer>>, Error> {
    if has_turn(engine) {
        return Err(Error::TransactionHeld);
    }
    Ok(host_lock::lock(engine.pool.domain(), &engine.writer))
}

/// Keeps writers out while everything is looked at; nobody has to be kept out if this thread has
/// the turn already, and none of what its transaction is to write has been written yet.
pub(crate) fn turn_to_look<D: Domain>(
    engine: &Engine<D>,
) -> Option<HostGuard<'_, D, MutexGuard<'_, Writer>>> {
    (!has_turn(engine)).then(|| host_lock::lock(engine.pool.domain(), &engine.writer))
}

pub(crate) fn validate(key: &[u8], value: &[u8]) -> Result<(), Error> {
    match (key.len(), value.len()) {
        (0, _) => Err(Error::EmptyKey),
        (bytes, _) if bytes > MAX_KEY_BYTES => Err(Error::KeyTooLong { bytes }),
        (_, bytes) if bytes > MAX_VALUE_BYTES => Err(Error::ValueTooLong { bytes }),
        _ => Ok(()),
    }
}

/// The turn of a writer. Dropping it makes what was stored visible, then lets the next one in.
struct Turn<D: Domain> {
    writer: ArcMutexGuard<RawMutex, Writer>,
    engine: Arc<Engine<D>>,
}

impl<D: Domain> Drop for Turn<D> {
    fn drop(&mut self) {
        TURNS.with_borrow_mut(|held| held.remove(&Arc::as_ptr(&self.engine).addr()));
        self.engine.pool.domain().synchronize();
    }
}

/// A write transaction over any tables of one store.
///
/// Writers take turns: a transaction waits for its turn when it is made and holds it until it is
/// committed or dropped. It reads the committed state and its own writes; nobody else sees those
/// before [`Transaction::commit`], which makes all of them durable and visible at once. Dropping it
/// leaves no trace. Transactions are serializable.
pub struct Transaction<D: Domain> {
    turn: Turn<D>,
    writes: WriteSet,
    engine: Arc<Engine<D>>,
}

impl<D: Domain> std::fmt::Debug for Transaction<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({} writes)", self.writes.len())
    }
}

impl<D: Domain> Transaction<D> {
    pub(crate) fn begin(engine: &Arc<Engine<D>>) -> Result<Self, Error> {
        if has_turn(engine) {
            return Err(Error::TransactionHeld);
        }
        let writer = host_lock::wait_for(
            engine.pool.domain(),
            || engine.writer.try_lock_arc(),
            || engine.writer.lock_arc(),
        );
        TURNS.with_borrow_mut(|held| held.insert(Arc::as_ptr(engine).addr()));
        let turn = Turn { writer, engine: Arc::clone(engine) };
        Ok(Self { turn, writes: BTreeMap::new(), engine: Arc::clone(engine) })
    }

    fn state<'t>(&self, table: &'t Table<D>) -> Result<&'t Arc<TableState<D>>, Error> {
        if !Arc::ptr_eq(&self.engine, table.engine()) {
            return Err(Error::ForeignTable { name: table.name().to_owned() });
        }
        table.state()
    }

    /// The value of a key as this transaction sees it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&self, table: &Table<D>, key: &[u8]) -> Result<Option<Value>, Error> {
        let state = self.state(table)?;
        validate(key, &[])?;
        // The key is cloned only if there are writes to look among.
        if !self.writes.is_empty()
            && let Some(written) = self.writes.get(&(state.id, key.to_vec()))
        {
            return Ok(written.clone().map(Value));
        }
        self.engine.get(state, key)
    }

    /// Adds or replaces a key.
    ///
    /// # Errors
    /// [`Error`]; the transaction goes on as it was.
    pub fn put(&mut self, table: &Table<D>, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let id = self.state(table)?.id;
        validate(key, value)?;
        self.writes.insert((id, key.to_vec()), Some(value.to_vec()));
        Ok(())
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// [`Error`]; the transaction goes on as it was.
    pub fn delete(&mut self, table: &Table<D>, key: &[u8]) -> Result<bool, Error> {
        let state = self.state(table)?;
        validate(key, &[])?;
        let entry = (state.id, key.to_vec());
        let committed = state.index.get(key).is_some();
        let present = self.writes.get(&entry).map_or(committed, Option::is_some);
        if committed {
            self.writes.insert(entry, None);
        } else {
            self.writes.remove(&entry);
        }
        Ok(present)
    }

    /// The entries of a range as this transaction sees them, fetched lazily.
    ///
    /// # Errors
    /// [`Error::Unordered`] for a hash table, and others.
    pub fn range<R: RangeBounds<Vec<u8>>>(
        &self,
        table: &Table<D>,
        range: R,
        direction: Direction,
    ) -> Result<TransactionEntries<'_, D>, Error> {
        let state = self.state(table)?;
        table.require_order()?;
        let range = KeyRange::of(&range);
        let mine = self.writes.range((state.id, Vec::new())..).take_while({
            let id = state.id;
            move |((table, _), _)| *table == id
        });
        let mut mine: Vec<_> = mine
            .filter(|((_, key), _)| range.contains(key))
            .map(|((_, key), value)| (key.as_slice(), value.as_deref()))
            .collect();
        if direction == Direction::Backward {
            mine.reverse();
        }
        let committed =
            Entries::new(Arc::clone(&self.engine), Arc::clone(state), range, direction).peekable();
        Ok(TransactionEntries { committed, mine: mine.into_iter().peekable(), direction })
    }

    /// Number of keys that the transaction will write.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it has written nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Makes all writes durable and visible, or none. Durable on return.
    ///
    /// Cost: one log append (1 fence), then what the indexes need; for a single put of up to 4,088 bytes
    /// into a WORT table 3 fences in all.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TransactionTooLong`], [`Error::SnapshotHeld`]: nothing was
    /// written. [`Error::Fault`], [`Error::Stopped`]: see there.
    pub fn commit(mut self) -> Result<(), Error> {
        if holds_snapshot(&self.engine) {
            return Err(Error::SnapshotHeld);
        }
        self.engine.commit(&mut self.turn.writer, &self.writes)
    }
}

/// A key that a transaction writes, and its new value, or none for a delete.
type Write<'t> = (&'t [u8], Option<&'t [u8]>);

/// The entries of a range as a transaction sees them: the committed ones with its own writes laid
/// over. See [`Transaction::range`].
pub struct TransactionEntries<'t, D: Domain> {
    committed: std::iter::Peekable<Entries<D>>,
    mine: std::iter::Peekable<std::vec::IntoIter<Write<'t>>>,
    direction: Direction,
}

impl<D: Domain> std::fmt::Debug for TransactionEntries<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TransactionEntries")
    }
}

impl<D: Domain> Iterator for TransactionEntries<'_, D> {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(&(mine, _)) = self.mine.peek() else { return self.committed.next() };
            match self.committed.peek() {
                Some(Err(_)) => return self.committed.next(),
                Some(Ok((committed, _))) => {
                    let mut order = committed.as_slice().cmp(mine);
                    if self.direction == Direction::Backward {
                        order = order.reverse();
                    }
                    if order.is_lt() {
                        return self.committed.next();
                    }
                    if order.is_eq() {
                        self.committed.next();
                    }
                }
                None => {}
            }
            let (key, value) = self.mine.next()?;
            if let Some(value) = value {
                return Some(Ok((key.to_vec(), Value(value.to_vec()))));
            }
        }
    }
}

/// One committed state of the store. While it lives, commits of other threads wait to be applied;
/// keep it short. Not `Send`.
pub struct Snapshot<D: Domain> {
    engine: Arc<Engine<D>>,
    /// The lock is given back by the thread that took it.
    _thread: PhantomData<*const ()>,
}

impl<D: Domain> std::fmt::Debug for Snapshot<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl<D: Domain> Snapshot<D> {
    pub(crate) fn new(engine: &Arc<Engine<D>>) -> Self {
        SNAPSHOTS.with_borrow_mut(|held| {
            let shared = || {
                let (lock, domain) = (&engine.apply, engine.pool.domain());
                let held = host_lock::wait_for(domain, || lock.try_read_arc(), || lock.read_arc());
                (0, held)
            };
            held.entry(Arc::as_ptr(engine).addr()).or_insert_with(shared).0 += 1;
        });
        Self { engine: Arc::clone(engine), _thread: PhantomData }
    }

    /// The value of a key in this state.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&self, table: &Table<D>, key: &[u8]) -> Result<Option<Value>, Error> {
        if !Arc::ptr_eq(&self.engine, table.engine()) {
            return Err(Error::ForeignTable { name: table.name().to_owned() });
        }
        validate(key, &[])?;
        self.engine.get(table.state()?, key)
    }

    /// The entries of a range in this state, fetched lazily.
    ///
    /// # Errors
    /// [`Error::Unordered`] for a hash table, and others.
    pub fn range<R: RangeBounds<Vec<u8>>>(
        &self,
        table: &Table<D>,
        range: R,
        direction: Direction,
    ) -> Result<SnapshotEntries<'_, D>, Error> {
        if !Arc::ptr_eq(&self.engine, table.engine()) {
            return Err(Error::ForeignTable { name: table.name().to_owned() });
        }
        table.require_order()?;
        let state = Arc::clone(table.state()?);
        let range = KeyRange::of(&range);
        let entries = Entries::new(Arc::clone(&self.engine), state, range, direction);
        Ok(SnapshotEntries { entries, _snapshot: self })
    }
}

impl<D: Domain> Drop for Snapshot<D> {
    fn drop(&mut self) {
        let address = Arc::as_ptr(&self.engine).addr();
        SNAPSHOTS.with_borrow_mut(|held| {
            if let Some((count, _)) = held.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    held.remove(&address);
                }
            }
        });
    }
}

/// The entries of a range in one state. See [`Snapshot::range`].
#[derive(Debug)]
pub struct SnapshotEntries<'s, D: Domain> {
    entries: Entries<D>,
    _snapshot: &'s Snapshot<D>,
}

impl<D: Domain> Iterator for SnapshotEntries<'_, D> {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }
}

/// Whether this thread would wait for itself if it changed the engine.
pub(crate) fn check_no_snapshot<D: Domain>(engine: &Arc<Engine<D>>) -> Result<(), Error> {
    if holds_snapshot(engine) { Err(Error::SnapshotHeld) } else { Ok(()) }
}
