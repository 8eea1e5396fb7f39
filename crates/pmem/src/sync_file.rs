//! Durability across a power cut on an ordinary file: what flushes note, fences write out.

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::domain::DomainFault;
use crate::file_lock::LockedFile;

/// The pages of a mapped file that must reach the disk at the next fence.
///
/// A fence holds the lock while the kernel writes: a second thread's fence must not return while
/// the range that *it* flushed is still being written by the first.
#[derive(Debug)]
pub(crate) struct SyncFile {
    file: Arc<LockedFile>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Byte address ranges noted since the last fence, merged while they are adjacent.
    pending: Vec<(usize, usize)>,
    /// Set for good once the kernel has failed to write a page: it may since have marked that page
    /// clean, so that no later success says anything about it.
    fault: Option<DomainFault>,
}

impl State {
    fn note_failure(&mut self, outcome: Result<(), Errno>) {
        if let Err(error) = outcome {
            tracing::error!(%error, "the medium refused to persist a write");
            self.fault = Some(DomainFault::WritesLost { reason: error.to_string() });
        }
    }
}

impl SyncFile {
    pub(crate) fn new(file: Arc<LockedFile>) -> Self {
        Self { file, state: Mutex::default() }
    }

    pub(crate) fn note(&self, start: usize, bytes: usize) {
        let page_bytes = rustix::param::page_size();
        let first = start & !(page_bytes - 1);
        let end = (start + bytes).next_multiple_of(page_bytes);
        let mut state = self.state.lock();
        if let Some(last) = state.pending.last_mut()
            && first <= last.1
            && end >= last.0
        {
            last.0 = last.0.min(first);
            last.1 = last.1.max(end);
            return;
        }
        state.pending.push((first, end));
    }

    pub(crate) fn complete(&self) {
        let mut state = self.state.lock();
        let outcome = match state.pending.as_slice() {
            [] => return,
            [(first, end)] => {
                // SAFETY: `note` only ever gets ranges of the live mapping; msync reads nothing.
                unsafe {
                    rustix::mm::msync(
                        std::ptr::without_provenance_mut(*first),
                        end - first,
                        rustix::mm::MsyncFlags::SYNC,
                    )
                }
            }
            // Several ranges: one fdatasync of the file costs one device flush instead of many.
            _ => rustix::fs::fdatasync(&**self.file),
        };
        state.pending.clear();
        state.note_failure(outcome);
    }

    /// Writes out the file and its size, on which the caller relies. Nobody else is told of a write that failed
    /// before.
    pub(crate) fn sync_whole(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let outcome = rustix::fs::fsync(&**self.file);
        state.note_failure(outcome);
        outcome
    }

    pub(crate) fn health(&self) -> Result<(), DomainFault> {
        match &self.state.lock().fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }
}

// Miri has no such files.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::file_lock::Access;

    #[test]
    fn a_file_that_could_not_be_written_out_whole_is_a_fault_for_good() {
        // It cannot be written out.
        let file = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let sync = SyncFile::new(Arc::new(LockedFile::new(file, Access::Write).unwrap()));
        assert_eq!(sync.health(), Ok(()));
        assert!(sync.sync_whole().is_err());
        assert!(matches!(sync.health(), Err(DomainFault::WritesLost { .. })));
    }
}
