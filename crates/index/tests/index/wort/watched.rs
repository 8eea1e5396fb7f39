//! A machine that counts what it is asked to do and can be interrupted at each fence.

use std::fmt;
use std::sync::{Arc, Mutex};

use lapis_pmem::{PersistCounts, Pool, Region, Watcher};

/// The machine at hand, watched.
pub type Watched = lapis_pmem::Watched<(PersistCounts, Hook)>;

type Action = Arc<dyn Fn() + Send + Sync>;

/// What is done before each fence.
#[derive(Clone, Default)]
pub struct Hook {
    before_fence: Arc<Mutex<Option<Action>>>,
}

impl Hook {
    /// Has `action` called before each fence, except for fences that it causes itself.
    pub fn before_each_fence(&self, action: impl Fn() + Send + Sync + 'static) {
        *self.before_fence.lock().unwrap() = Some(Arc::new(action));
    }

    /// Ends [`Hook::before_each_fence`].
    pub fn let_be(&self) {
        *self.before_fence.lock().unwrap() = None;
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Watcher for Hook {
    fn fencing(&self) {
        let action = self.before_fence.lock().unwrap().take();
        if let Some(action) = action {
            action();
            *self.before_fence.lock().unwrap() = Some(action);
        }
    }
}

/// A pool of `bytes` in anonymous memory on a watched machine.
pub fn watched_pool(bytes: usize) -> Arc<Pool<Watched>> {
    let region = Region::anonymous(bytes, bytes.max(256 << 20)).unwrap();
    let domain = Watched::new((PersistCounts::default(), Hook::default()));
    Arc::new(Pool::create(region, domain).unwrap())
}

/// What `action` answers, and the lines it flushes and the fences it makes.
pub fn counting<R>(domain: &Watched, action: impl FnOnce() -> R) -> (R, (u64, u64)) {
    let counts = &domain.watcher().0;
    let before = (counts.flushes(), counts.fences());
    let result = action();
    (result, (counts.flushes() - before.0, counts.fences() - before.1))
}
