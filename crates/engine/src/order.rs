//! The order of transactions: who is the last, who is still changing trees, who reads which state.

use std::collections::{BTreeMap, VecDeque};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::Domain;
use lapis_pmem::host_lock::{self, HostGuard};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::EngineError;
use crate::mutants::READERS_FORGOTTEN;
use crate::reads::{ReadSet, WrittenKeys};

/// A reader looks so often whether the trees have its state before it sleeps. Another's change takes a microsecond or two,
/// to fall asleep and be woken takes twenty.
const LOOKS: u32 = 100;

/// A transaction that is in the log and not yet in all trees.
#[derive(Debug)]
struct Applying {
    lsn: u64,
    /// Where the log must be kept from until it is.
    keep_from: u64,
    done: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The last transaction.
    last: u64,
    applying: VecDeque<Applying>,
    /// States that are read, and by how many.
    readers: Begun,
    /// Those of them that are transactions, which are validated.
    validated: Begun,
    /// What was written since the oldest transaction began.
    recent: VecDeque<(u64, Arc<WrittenKeys>)>,
    /// Where the log must be kept from for transactions that have parts in it and are not yet ordered.
    unordered: Begun,
    /// Transactions of several parts, and where the first may be.
    long: BTreeMap<u64, u64>,
    /// Why nothing is written any more.
    stopped: Option<Arc<str>>,
}

/// How many have begun at each place in the log and not ended.
#[derive(Debug, Default)]
struct Begun(BTreeMap<u64, usize>);

impl Begun {
    fn begin(&mut self, at: u64) {
        *self.0.entry(at).or_default() += 1;
    }

    /// Of those that have begun there, one ends.
    fn end(&mut self, at: u64) {
        if let Some(count) = self.0.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&at);
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.0.first_key_value().map(|(&at, _)| at)
    }

    /// Whether there is one, beside the one that has begun at `own`.
    fn has_any_beside(&self, own: Option<u64>) -> bool {
        let is_other = |own| self.0.len() > 1 || self.0.get(&own).is_some_and(|&count| count > 1);
        own.map_or(!self.0.is_empty(), is_other)
    }
}

impl State {
    fn check_running(&self) -> Result<(), EngineError> {
        match &self.stopped {
            Some(why) => Err(EngineError::Stopped { why: Arc::clone(why) }),
            None => Ok(()),
        }
    }

    fn kept_from(&self) -> Option<u64> {
        let applying = self.applying.iter().map(|applying| applying.keep_from).min();
        [applying, self.unordered.oldest()].into_iter().flatten().min()
    }

    /// The first transaction that has not changed its trees; the largest number if all have.
    fn first_applying(&self) -> u64 {
        self.applying.front().map_or(u64::MAX, |first| first.lsn)
    }

    fn enter(&mut self, since: u64, is_validated: bool) {
        self.readers.begin(since);
        if is_validated {
            self.validated.begin(since);
        }
    }

    fn leave(&mut self, since: u64, is_validated: bool) {
        self.readers.end(since);
        if is_validated {
            self.validated.end(since);
        }
        let oldest = self.validated.oldest().unwrap_or(u64::MAX);
        while self.recent.front().is_some_and(|(lsn, _)| *lsn <= oldest) {
            self.recent.pop_front();
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Order<D: Domain> {
    domain: D,
    state: Mutex<State>,
    /// [`State::first_applying`], for those who look without the lock.
    first_applying: AtomicU64,
    /// Notified when a transaction has changed its trees, or nothing will any more, or the log is kept for fewer.
    applied: Condvar,
}

/// The turn to append a commit record.
pub(crate) struct Turn<'o, D: Domain> {
    order: &'o Order<D>,
    state: Locked<'o, D>,
}

type Locked<'o, D> = HostGuard<'o, D, MutexGuard<'o, State>>;

impl<D: Domain> Order<D> {
    pub(crate) fn new(domain: D, last: u64) -> Self {
        let state = Mutex::new(State { last, ..State::default() });
        let first_applying = AtomicU64::new(u64::MAX);
        Self { domain, state, first_applying, applied: Condvar::new() }
    }

    fn lock(&self) -> Locked<'_, D> {
        host_lock::lock(&self.domain, &self.state)
    }

    /// Registers a reader of the present state, which is validated or only reads, and waits until the trees have it (E3).
    /// Returns its LSN.
    pub(crate) fn enter(&self, is_validated: bool) -> Result<u64, EngineError> {
        let mut state = self.lock();
        state.check_running()?;
        let since = state.last;
        state.enter(since, is_validated);
        let waited = self.wait_with(state, since);
        if waited.is_err() {
            self.leave(since, is_validated);
        }
        waited.map(|()| since)
    }

    /// Waits until every transaction up to `lsn` has changed its trees; 0 is none. Of those that read, for who is no reader
    /// (E4).
    #[inline]
    pub(crate) fn wait_until_applied(&self, lsn: u64) -> Result<(), EngineError> {
        if lsn == 0 || self.first_applying.load(Ordering::Acquire) > lsn {
            return Ok(());
        }
        self.wait_with(self.lock(), lsn)
    }

    fn wait_with<'o>(&'o self, mut state: Locked<'o, D>, lsn: u64) -> Result<(), EngineError> {
        // E3: whoever stores that number has changed its trees before, or taken this lock after those who have. A machine
        // on which threads take turns has nobody to look at, so its scheduler explores only what is below.
        if !D::DETERMINISTIC && state.first_applying() <= lsn {
            drop(state);
            for _ in 0..LOOKS {
                spin_loop();
                if self.first_applying.load(Ordering::Acquire) > lsn {
                    return Ok(());
                }
            }
            state = self.lock();
        }
        while state.first_applying() <= lsn {
            state.check_running()?;
            state = host_lock::wait(&self.state, state, &self.applied);
        }
        Ok(())
    }

    /// A reader has ended. Returns the oldest state that is still read, or may be from now on.
    pub(crate) fn leave(&self, since: u64, is_validated: bool) -> u64 {
        let mut state = self.lock();
        state.leave(since, is_validated);
        self.oldest_state(&state)
    }

    /// The oldest state that is read, or may be from now on.
    pub(crate) fn oldest_reader(&self) -> u64 {
        self.oldest_state(&self.lock())
    }

    /// Nobody reads an older state, nor will: who begins later reads the last one or a later one.
    fn oldest_state(&self, state: &State) -> u64 {
        let reader = state.readers.oldest().filter(|_| !self.domain.commits(READERS_FORGOTTEN));
        reader.unwrap_or(state.last)
    }

    /// Whether every transaction up to `lsn` has changed its trees.
    pub(crate) fn is_applied(&self, lsn: u64) -> bool {
        self.lock().first_applying() > lsn
    }

    /// Whether a transaction is under way, beside `own`.
    pub(crate) fn has_transactions(&self, own: Option<u64>) -> bool {
        self.lock().validated.has_any_beside(own)
    }

    /// The turn.
    pub(crate) fn turn(&self) -> Result<Turn<'_, D>, EngineError> {
        let state = self.lock();
        state.check_running()?;
        Ok(Turn { order: self, state })
    }

    /// Keeps the log as it is from here on, for parts that are about to be appended.
    pub(crate) fn keep_log(&self) -> u64 {
        let mut state = self.lock();
        let from = state.last;
        state.unordered.begin(from);
        from
    }

    /// Parts for which the log was kept are in it with their commit, or in vain.
    pub(crate) fn let_go_of_log(&self, from: u64) {
        let mut state = self.lock();
        state.unordered.end(from);
        drop(state);
        self.applied.notify_all();
    }

    /// The transaction `lsn` has changed all of its trees.
    pub(crate) fn has_applied(&self, lsn: u64) {
        let mut state = self.lock();
        let at = state.applying.partition_point(|applying| applying.lsn < lsn);
        if let Some(applying) = state.applying.get_mut(at).filter(|found| found.lsn == lsn) {
            applying.done = true;
        }
        while state.applying.front().is_some_and(|first| first.done) {
            state.applying.pop_front();
        }
        self.first_applying.store(state.first_applying(), Ordering::Release);
        drop(state);
        self.applied.notify_all();
    }

    /// Ends writing for good.
    pub(crate) fn stop(&self, why: &str) -> EngineError {
        let mut state = self.lock();
        let why = Arc::clone(state.stopped.get_or_insert_with(|| why.into()));
        drop(state);
        self.applied.notify_all();
        EngineError::Stopped { why }
    }

    pub(crate) fn check_running(&self) -> Result<(), EngineError> {
        self.lock().check_running()
    }

    /// The last transaction.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Where a checkpoint may cut the log at most, as far as transactions are concerned (E5): at the LSN of one, or at
    /// the end. To be asked before pages are.
    pub(crate) fn keep_from(&self, end: impl FnOnce() -> u64) -> u64 {
        // With the lock held, nobody is ordered meanwhile.
        self.lock().kept_from().unwrap_or_else(end)
    }

    /// Where the log is kept from for transactions that are under way; none if it is for nobody.
    pub(crate) fn kept_from(&self) -> Option<u64> {
        self.lock().kept_from()
    }

    /// Waits until the log is not kept from `from` on any more. For who is not under way.
    pub(crate) fn wait_beyond(&self, from: u64) -> Result<(), EngineError> {
        let mut state = self.lock();
        while state.kept_from().is_some_and(|kept| kept <= from) {
            state.check_running()?;
            state = host_lock::wait(&self.state, state, &self.applied);
        }
        Ok(())
    }

    /// The place to cut the log that is not in the middle of a transaction, at `from` or before it (E5).
    pub(crate) fn whole_from(&self, from: u64) -> u64 {
        let mut state = self.lock();
        let first = state.long.range(from..).map(|(_, &first)| first).min();
        let from = first.map_or(from, |first| first.min(from));
        state.long = state.long.split_off(&from);
        from
    }
}

impl<D: Domain> Turn<'_, D> {
    /// Whether nothing that was read since `since` has been written.
    pub(crate) fn validate(&self, reads: &ReadSet, since: u64) -> Result<(), EngineError> {
        let recent = self.state.recent.iter().rev().take_while(|(lsn, _)| *lsn > since);
        let mut written = recent.map(|(_, written)| written);
        if !reads.is_empty() && written.any(|written| reads.has_any_of(written)) {
            return Err(EngineError::Conflict);
        }
        Ok(())
    }

    /// Whether somebody reads who may need what is about to be replaced (E3).
    pub(crate) fn has_readers(&self, own: Option<u64>) -> bool {
        self.state.readers.has_any_beside(own)
    }

    /// Whether a transaction is under way, beside `own`, that may have read what is about to be replaced.
    pub(crate) fn has_transactions(&self, own: Option<u64>) -> bool {
        self.state.validated.has_any_beside(own)
    }

    /// The record that was just appended is the last. `written` if a transaction may have read it; `first_part` where
    /// the log has to be kept from, if it is not from the record on.
    pub(crate) fn take(
        mut self,
        lsn: u64,
        written: Option<Arc<WrittenKeys>>,
        first_part: Option<u64>,
    ) {
        let state = &mut *self.state;
        state.last = lsn;
        let keep_from = first_part.unwrap_or(lsn);
        state.applying.push_back(Applying { lsn, keep_from, done: false });
        self.order.first_applying.store(state.first_applying(), Ordering::Release);
        state.recent.extend(written.map(|written| (lsn, written)));
        state.long.extend(first_part.map(|first| (lsn, first)));
    }

    /// The rest of the transaction `lsn` was just appended again, at `again`: before, nothing is needed for it.
    pub(crate) fn take_again(mut self, lsn: u64, again: u64, first_part: Option<u64>) {
        let state = &mut *self.state;
        if let Some(applying) = state.applying.iter_mut().find(|applying| applying.lsn == lsn) {
            applying.keep_from = first_part.unwrap_or(again);
        }
        state.last = again;
        state.long.extend(first_part.map(|first| (again, first)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapis_pmem::Hardware;
    use std::time::Duration;

    #[test]
    fn who_waits_for_the_log_goes_on_when_it_is_kept_for_nobody_before() {
        let order = Order::new(Hardware::detect(), 0);
        let take = |lsn| order.turn().unwrap().take(lsn, None, None);
        take(10);
        take(20);
        order.has_applied(20);
        assert_eq!(order.kept_from(), Some(10));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| order.wait_beyond(10));
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished());
            order.has_applied(10);
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(order.kept_from(), None);
        let first_part = order.keep_log();
        assert_eq!(order.kept_from(), Some(first_part));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| order.wait_beyond(first_part));
            order.let_go_of_log(first_part);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn the_log_is_kept_until_all_have_let_go_of_it() {
        let order = Order::new(Hardware::detect(), 0);
        let from = order.keep_log();
        assert_eq!(order.keep_log(), from);
        order.let_go_of_log(from);
        assert_eq!(order.kept_from(), Some(from));
        order.let_go_of_log(from);
        assert_eq!(order.kept_from(), None);
    }

    #[test]
    fn what_was_written_is_noted_for_transactions_alone() {
        let order = Order::new(Hardware::detect(), 0);
        let write = |lsn| {
            let turn = order.turn().unwrap();
            let written = turn.has_transactions(None).then(Arc::default);
            turn.take(lsn, written, None);
            order.has_applied(lsn);
            order.lock().recent.len()
        };
        let snapshot = order.enter(false).unwrap();
        assert!(order.turn().unwrap().has_readers(None));
        assert_eq!(write(10), 0);
        let transaction = order.enter(true).unwrap();
        assert_eq!(write(20), 1);
        assert_eq!(order.leave(transaction, true), snapshot);
        assert_eq!(write(30), 0);
        assert_eq!(order.leave(snapshot, false), 30);
    }

    #[test]
    fn who_waits_for_trees_goes_on_when_all_have_changed_and_when_none_will() {
        let order = Order::new(Hardware::detect(), 0);
        order.turn().unwrap().take(10, None, None);
        order.wait_until_applied(0).unwrap();
        order.wait_until_applied(9).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| order.wait_until_applied(10));
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished());
            order.has_applied(10);
            waiting.join().unwrap().unwrap();
            order.turn().unwrap().take(20, None, None);
            let waiting = scope.spawn(|| order.wait_until_applied(20));
            order.stop("the disk is gone");
            assert!(matches!(waiting.join().unwrap(), Err(EngineError::Stopped { .. })));
        });
    }

    #[test]
    fn nobody_waits_for_the_log_of_an_engine_that_has_stopped() {
        let order = Order::new(Hardware::detect(), 0);
        order.turn().unwrap().take(10, None, None);
        order.stop("the disk is gone");
        assert!(matches!(order.wait_beyond(10), Err(EngineError::Stopped { .. })));
    }
}
