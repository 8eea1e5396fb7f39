//! What a structure under test keeps its state on.

use lapis_device::Modelled;
use lapis_pmem::Pool;

/// What a subject creates or opens its structure on: all of it is cut by the same power cut.
#[derive(Debug)]
pub struct Storage {
    /// The pool; none for a subject that asks for no bytes.
    pub pool: Option<Pool<Modelled>>,
    /// The machine that all of it is part of.
    pub machine: Modelled,
}

impl Storage {
    /// The pool, for a subject that keeps its state in nothing else.
    ///
    /// # Panics
    /// If the subject asked for no bytes.
    pub fn into_pool(self) -> Pool<Modelled> {
        self.pool.expect("a pool is had by asking for its bytes")
    }
}
