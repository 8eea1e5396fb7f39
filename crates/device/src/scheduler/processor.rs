//! Where the workers of a run are executed: all on one processor, since one of them runs at a time. The
//! baton then changes hands by a switch of threads; to wake another processor takes many times as long.

/// The processor that a run was started on.
#[derive(Clone, Copy)]
pub(crate) struct Processor {
    #[cfg(target_os = "linux")]
    number: usize,
}

#[cfg(target_os = "linux")]
impl Processor {
    /// Where the calling thread is.
    pub(crate) fn of_caller() -> Self {
        Self { number: rustix::thread::sched_getcpu() }
    }

    /// Keeps the calling thread there. One that may not be kept is only slower.
    pub(crate) fn stay(self) {
        let mut only = rustix::thread::CpuSet::new();
        if self.number < rustix::thread::CpuSet::MAX_CPU {
            only.set(self.number);
            _ = rustix::thread::sched_setaffinity(None, &only);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Processor {
    pub(crate) fn of_caller() -> Self {
        Self {}
    }

    pub(crate) fn stay(self) {}
}
