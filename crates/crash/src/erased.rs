//! Subjects without their types, for which the checker is compiled once.
//!
//! A subject is written with types of its own for operations, states and the open structure.
//! Compiled for each of these, the checker would be most of the program. So it works on
//! [`AnySubject`], of which operations and states are references to what only the subject looks into.
//! What is done with them for each image costs no more than it did: a state is copied once, over that of the image
//! before, and hashed and compared by code that knows its type.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use lapis_device::Modelled;
use lapis_pmem::{AuditReport, Pool};
use xxhash_rust::xxh3::Xxh3;

use crate::concurrent::{Call, ConcurrentSubject, Offence, Plan, Stop};
use crate::storage::{DeviceFault, Storage};
use crate::subject::{Kills, Live, Subject, WalkMemory};

/// The hash by which states are told apart.
pub(crate) fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = Xxh3::new();
    value.hash(&mut hasher);
    hasher.digest()
}

/// An open structure of any type.
pub(crate) type AnyLive = Box<dyn Live<AnyValue, AnyState>>;

/// The same, which several workers use.
pub(crate) type AnyShared = Box<dyn Any + Send + Sync>;

trait Value: Any + fmt::Debug + Send + Sync {}
impl<T: Any + fmt::Debug + Send + Sync> Value for T {}

/// An operation, or an answer.
#[derive(Clone)]
pub(crate) struct AnyValue(Arc<dyn Value>);

impl AnyValue {
    fn new<T: Value>(value: T) -> Self {
        Self(Arc::new(value))
    }

    fn get<T: Any>(&self) -> &T {
        let value: &dyn Any = &*self.0;
        known_type(value.downcast_ref())
    }
}

impl fmt::Debug for AnyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

trait State: Value {
    fn equals(&self, other: &dyn State) -> bool;
    fn hash(&self) -> u64;
    fn copy(&self) -> Arc<dyn State>;
    fn become_copy_of(&mut self, other: &dyn State);
}

impl<T: Clone + Eq + Hash + Value> State for T {
    fn equals(&self, other: &dyn State) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }

    fn hash(&self) -> u64 {
        hash_of(self)
    }

    fn copy(&self) -> Arc<dyn State> {
        Arc::new(self.clone())
    }

    fn become_copy_of(&mut self, other: &dyn State) {
        let other: &dyn Any = other;
        self.clone_from(known_type(other.downcast_ref()));
    }
}

/// A state. What is cloned is shared until it is changed.
#[derive(Clone)]
pub(crate) struct AnyState(Arc<dyn State>);

impl AnyState {
    fn new<T: State>(state: T) -> Self {
        Self(Arc::new(state))
    }

    fn get<T: Any>(&self) -> &T {
        let state: &dyn Any = &*self.0;
        known_type(state.downcast_ref())
    }

    fn get_mut<T: State>(&mut self) -> &mut T {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = self.0.copy();
        }
        let state: Option<&mut dyn Any> = Arc::get_mut(&mut self.0).map(|state| state as _);
        known_type(state.and_then(<dyn Any>::downcast_mut))
    }

    /// Makes it another, in the memory that it has if nobody else refers to that: states are copied for each image.
    pub(crate) fn become_copy_of(&mut self, other: &Self) {
        match Arc::get_mut(&mut self.0) {
            Some(state) => state.become_copy_of(&*other.0),
            None => self.0 = other.0.copy(),
        }
    }

    /// Of what it refers to, as [`hash_of`] that would be.
    pub(crate) fn hash(&self) -> u64 {
        self.0.hash()
    }
}

impl fmt::Debug for AnyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for AnyState {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}
impl Eq for AnyState {}

impl Hash for AnyState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0.hash());
    }
}

/// What a subject has made comes back to the same subject.
fn known_type<T>(value: Option<T>) -> T {
    value.expect("a value of one subject was given to another")
}

fn each<T: Value>(values: Vec<T>) -> Vec<AnyValue> {
    values.into_iter().map(AnyValue::new).collect()
}

/// What a structure is checked by.
pub(crate) type Subjects = Vec<Box<dyn AnySubject>>;

/// A [`Subject`] of any types.
pub(crate) trait AnySubject: Sync {
    fn name(&self) -> &'static str;
    fn pool_bytes(&self) -> usize;
    fn created_bytes(&self) -> usize;
    fn device_blocks(&self) -> Vec<u64>;
    fn most_blocks(&self, after_crash: bool) -> Vec<u64>;
    fn device_faults(&self, seed: u64) -> Vec<DeviceFault>;
    fn prior_contents(&self) -> u8;
    fn prior_range(&self) -> Range<usize>;
    fn kills(&self) -> Kills;
    fn rare_cut(&self) -> Option<(u64, usize)>;
    fn first_operation(&self) -> usize;
    fn operations(&self, count: usize, seed: u64) -> Vec<AnyValue>;
    fn probes(&self, state: &AnyState, interrupted: Option<&AnyValue>, seed: u64) -> Vec<AnyValue>;
    fn create(&self, storage: Storage) -> Result<AnyLive, String>;
    fn open(&self, storage: Storage) -> Result<Option<AnyLive>, String>;
    fn initial(&self) -> AnyState;
    fn apply(&self, state: &mut AnyState, operation: &AnyValue);
    fn owns_source(&self, file: &str) -> bool;
    fn walk_memory(&self) -> Option<Rc<dyn WalkMemory>>;
}

impl<S: Subject> AnySubject for S {
    fn name(&self) -> &'static str {
        Subject::name(self)
    }
    fn pool_bytes(&self) -> usize {
        Subject::pool_bytes(self)
    }
    fn device_blocks(&self) -> Vec<u64> {
        Subject::device_blocks(self)
    }
    fn most_blocks(&self, after_crash: bool) -> Vec<u64> {
        Subject::most_blocks(self, after_crash)
    }
    fn device_faults(&self, seed: u64) -> Vec<DeviceFault> {
        Subject::device_faults(self, seed)
    }
    fn created_bytes(&self) -> usize {
        Subject::created_bytes(self)
    }
    fn prior_contents(&self) -> u8 {
        Subject::prior_contents(self)
    }
    fn prior_range(&self) -> Range<usize> {
        Subject::prior_range(self)
    }
    fn kills(&self) -> Kills {
        Subject::kills(self)
    }
    fn rare_cut(&self) -> Option<(u64, usize)> {
        Subject::rare_cut(self)
    }
    fn first_operation(&self) -> usize {
        Subject::first_operation(self)
    }
    fn operations(&self, count: usize, seed: u64) -> Vec<AnyValue> {
        each(Subject::operations(self, count, seed))
    }
    fn probes(&self, state: &AnyState, interrupted: Option<&AnyValue>, seed: u64) -> Vec<AnyValue> {
        each(Subject::probes(self, state.get(), interrupted.map(AnyValue::get), seed))
    }
    fn create(&self, storage: Storage) -> Result<AnyLive, String> {
        Ok(Box::new(OpenOf::<S>(Subject::create(self, storage)?)))
    }
    fn open(&self, storage: Storage) -> Result<Option<AnyLive>, String> {
        Ok(Subject::open(self, storage)?.map(|live| Box::new(OpenOf::<S>(live)) as AnyLive))
    }
    fn initial(&self) -> AnyState {
        AnyState::new(Subject::initial(self))
    }
    fn apply(&self, state: &mut AnyState, operation: &AnyValue) {
        Subject::apply(self, state.get_mut(), operation.get());
    }
    fn owns_source(&self, file: &str) -> bool {
        Subject::owns_source(self, file)
    }
    fn walk_memory(&self) -> Option<Rc<dyn WalkMemory>> {
        Subject::walk_memory(self)
    }
}

struct OpenOf<S: Subject>(S::Live);

impl<S: Subject> Live<AnyValue, AnyState> for OpenOf<S> {
    fn perform(&mut self, operation: &AnyValue) -> Result<(), String> {
        self.0.perform(operation.get())
    }
    fn was_refused(&self) -> bool {
        self.0.was_refused()
    }
    fn observe(&self) -> Result<AnyState, String> {
        self.0.observe().map(AnyState::new)
    }
    fn find(&self, expected: &[&AnyState], turn: u64) -> Result<Option<usize>, String> {
        match expected {
            [] => Ok(None),
            [one] => self.0.find(&[one.get()], turn),
            [one, other, ..] => self.0.find(&[one.get(), other.get()], turn),
        }
    }
    fn check(&self) -> Vec<String> {
        self.0.check()
    }
    fn audit_checks(&self) -> bool {
        self.0.audit_checks()
    }
    fn events(&self) -> Vec<(&'static str, u64)> {
        self.0.events()
    }
    fn reclaim_and_audit(&self) -> AuditReport {
        self.0.reclaim_and_audit()
    }
    fn remember_walks(&mut self, memory: &Rc<dyn WalkMemory>) {
        self.0.remember_walks(memory);
    }
    fn pool(&self) -> Option<&Pool<Modelled>> {
        self.0.pool()
    }
}

/// A [`ConcurrentSubject`] of any types.
pub(crate) trait AnyConcurrentSubject: Sync {
    fn name(&self) -> &'static str;
    fn pool_bytes(&self) -> usize;
    fn device_blocks(&self) -> Vec<u64>;
    fn device_faults(&self, seed: u64) -> Vec<DeviceFault>;
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<AnyValue>;
    fn create(&self, storage: Storage) -> Result<AnyShared, String>;
    fn open(&self, storage: Storage) -> Result<AnyShared, String>;
    fn perform(&self, live: &AnyShared, operation: &AnyValue) -> Result<AnyValue, String>;
    fn observe(&self, live: &AnyShared) -> Result<AnyState, String>;
    fn problems(&self, live: &AnyShared) -> Vec<String>;
    fn audit(&self, live: &AnyShared) -> AuditReport;
    fn judge(
        &self,
        initial: &AnyState,
        calls: &[Call<AnyValue, AnyValue>],
        found: &AnyState,
    ) -> Result<(), Offence>;
    fn background_workers(&self) -> usize;
    fn work_in_background(
        &self,
        live: &AnyShared,
        worker: usize,
        stop: &Stop,
    ) -> Result<(), String>;
    fn changes(&self, operation: &AnyValue) -> bool;
    fn owns_source(&self, file: &str) -> bool;
}

impl<S: ConcurrentSubject> AnyConcurrentSubject for S {
    fn name(&self) -> &'static str {
        ConcurrentSubject::name(self)
    }
    fn pool_bytes(&self) -> usize {
        ConcurrentSubject::pool_bytes(self)
    }
    fn device_blocks(&self) -> Vec<u64> {
        ConcurrentSubject::device_blocks(self)
    }
    fn device_faults(&self, seed: u64) -> Vec<DeviceFault> {
        ConcurrentSubject::device_faults(self, seed)
    }
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<AnyValue> {
        ConcurrentSubject::plan(self, workers, operations, seed).map(AnyValue::new)
    }
    fn create(&self, storage: Storage) -> Result<AnyShared, String> {
        Ok(Box::new(ConcurrentSubject::create(self, storage)?))
    }
    fn open(&self, storage: Storage) -> Result<AnyShared, String> {
        Ok(Box::new(ConcurrentSubject::open(self, storage)?))
    }
    fn perform(&self, live: &AnyShared, operation: &AnyValue) -> Result<AnyValue, String> {
        ConcurrentSubject::perform(self, shared::<S>(live), operation.get()).map(AnyValue::new)
    }
    fn observe(&self, live: &AnyShared) -> Result<AnyState, String> {
        ConcurrentSubject::observe(self, shared::<S>(live)).map(AnyState::new)
    }
    fn problems(&self, live: &AnyShared) -> Vec<String> {
        ConcurrentSubject::problems(self, shared::<S>(live))
    }
    fn audit(&self, live: &AnyShared) -> AuditReport {
        ConcurrentSubject::audit(self, shared::<S>(live))
    }
    fn judge(
        &self,
        initial: &AnyState,
        calls: &[Call<AnyValue, AnyValue>],
        found: &AnyState,
    ) -> Result<(), Offence> {
        let calls: Vec<_> = calls.iter().map(typed::<S>).collect();
        ConcurrentSubject::judge(self, initial.get(), &calls, found.get())
    }
    fn background_workers(&self) -> usize {
        ConcurrentSubject::background_workers(self)
    }
    fn work_in_background(
        &self,
        live: &AnyShared,
        worker: usize,
        stop: &Stop,
    ) -> Result<(), String> {
        ConcurrentSubject::work_in_background(self, shared::<S>(live), worker, stop)
    }
    fn changes(&self, operation: &AnyValue) -> bool {
        ConcurrentSubject::changes(self, operation.get())
    }
    fn owns_source(&self, file: &str) -> bool {
        ConcurrentSubject::owns_source(self, file)
    }
}

fn shared<S: ConcurrentSubject>(live: &AnyShared) -> &S::Live {
    let live: &dyn Any = &**live;
    known_type(live.downcast_ref())
}

fn typed<S: ConcurrentSubject>(call: &Call<AnyValue, AnyValue>) -> Call<S::Operation, S::Returned> {
    Call {
        worker: call.worker,
        number: call.number,
        operation: call.operation.get::<S::Operation>().clone(),
        begin: call.begin,
        completed: call.completed.as_ref().map(|(end, answer)| {
            let answer: &S::Returned = answer.get();
            (*end, answer.clone())
        }),
    }
}
