//! Durability across a power cut on an ordinary file: what flushes note, fences write out.

use std::sync::Arc;

use parking_lot::Mutex;

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

const PAGE_BYTES: usize = 4096;

impl SyncFile {
    pub(crate) fn new(file: Arc<LockedFile>) -> Self {
        Self { file, state: Mutex::default() }
    }

    pub(crate) fn note(&self, start: usize, bytes: usize) {
        let first = start & !(PAGE_BYTES - 1);
        let end = (start + bytes).next_multiple_of(PAGE_BYTES);
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
        if let Err(error) = outcome {
            tracing::error!(%error, "the medium refused to persist a write");
            state.fault = Some(DomainFault::WritesLost { reason: error.to_string() });
        }
    }

    pub(crate) fn health(&self) -> Result<(), DomainFault> {
        match &self.state.lock().fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }
}
