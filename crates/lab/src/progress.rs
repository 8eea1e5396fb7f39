//! What long work tells whoever waits for it.

/// How far a workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Operations done.
    pub done: u64,
    /// Operations to do.
    pub total: u64,
}

/// Called from the working threads now and then.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);
