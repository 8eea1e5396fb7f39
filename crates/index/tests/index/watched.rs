//! A machine that counts what it is asked to do and can be interrupted at each fence.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};

use lapis_index::{AnyIndex, IndexKey, IndexKind, IndexOptions};
use lapis_pmem::{PersistCounts, Pool, Region, Watched, Watcher};

/// The machine at hand, watched. There is one such type, so that structures are compiled for it once.
pub type Machine = Watched<(PersistCounts, AtFence)>;

type Action = Box<dyn FnMut() + Send>;

/// What is done before each fence.
#[derive(Clone, Default)]
pub struct AtFence(Arc<Mutex<Option<Action>>>);

impl AtFence {
    /// Has `action` called before each fence, except for fences that come while it runs.
    pub fn before_each_fence(&self, action: impl FnMut() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(action));
    }

    /// Ends [`AtFence::before_each_fence`].
    pub fn let_be(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl fmt::Debug for AtFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtFence")
    }
}

impl Watcher for AtFence {
    fn fencing(&self) {
        let action = self.0.lock().unwrap().take();
        if let Some(mut action) = action {
            action();
            *self.0.lock().unwrap() = Some(action);
        }
    }
}

/// A pool of `bytes` in anonymous memory on a watched machine.
pub fn watched_pool(bytes: usize) -> Arc<Pool<Machine>> {
    let region = Region::anonymous(bytes, bytes.max(256 << 20)).unwrap();
    Arc::new(Pool::create(region, Machine::new(Default::default())).unwrap())
}

/// What `action` answers, and the lines it flushes and the fences it makes.
pub fn counting<R>(machine: &Machine, action: impl FnOnce() -> R) -> (R, (u64, u64)) {
    let counts = &machine.watcher().0;
    let before = (counts.flushes(), counts.fences());
    let result = action();
    (result, (counts.flushes() - before.0, counts.fences() - before.1))
}

/// Runs `meanwhile` while `write`, on a thread of its own, sleeps at its first fence.
pub fn beside_a_writer_at_its_first_fence<R>(
    machine: &Machine,
    write: impl FnOnce() + Send,
    meanwhile: impl FnOnce() -> R,
) -> R {
    let (sleeps, is_asleep) = mpsc::channel();
    let (wake, woken) = mpsc::channel::<()>();
    machine.watcher().1.before_each_fence(move || {
        let _ = sleeps.send(());
        let _ = woken.recv();
    });
    std::thread::scope(|scope| {
        scope.spawn(write);
        is_asleep.recv().unwrap();
        let result = meanwhile();
        drop(wake);
        result
    })
}

/// An index whose operations say what they cost: lines flushed, and fences.
pub struct Counted<K: IndexKey + ?Sized>(pub AnyIndex<Machine, K>);

impl<K: IndexKey + ?Sized> Counted<K> {
    pub fn new(kind: IndexKind) -> Self {
        Self::with(kind, &IndexOptions::default())
    }

    pub fn with(kind: IndexKind, options: &IndexOptions) -> Self {
        Self(AnyIndex::create_named(kind, &watched_pool(4 << 20), "index", options).unwrap())
    }

    /// With nodes of so many bytes.
    pub fn with_nodes(kind: IndexKind, node_bytes: usize) -> Self {
        Self::with(kind, &IndexOptions { node_bytes, ..IndexOptions::default() })
    }

    /// The same with these keys.
    pub fn holding<'k>(self, keys: impl IntoIterator<Item = &'k K>) -> Self {
        keys.into_iter().for_each(|key| _ = self.insert(key));
        self
    }

    /// The same when keys have come and gone: no allocation of such blocks costs a flush of its own.
    pub fn warm<'k>(self, keys: impl IntoIterator<Item = &'k K> + Clone) -> Self {
        keys.clone().into_iter().for_each(|key| _ = self.insert(key));
        keys.into_iter().for_each(|key| _ = self.remove(key));
        self
    }

    /// Of whatever is done.
    pub fn cost<R>(&self, action: impl FnOnce(&AnyIndex<Machine, K>) -> R) -> (u64, u64) {
        counting(self.0.pool().domain(), || action(&self.0)).1
    }

    pub fn insert(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.insert(key, 1).unwrap())
    }

    pub fn update(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.update(key, 2).unwrap())
    }

    pub fn put(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.put(key, 3).unwrap())
    }

    pub fn remove(&self, key: &K) -> (u64, u64) {
        self.cost(|index| index.remove(key).unwrap())
    }
}
