//! Durability across a power cut on an ordinary file: what flushes note, fences write out.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};

use crate::domain::DomainFault;
use crate::file_lock::LockedFile;

/// The pages of a mapped file that must reach the disk at the next fence.
#[derive(Debug)]
pub(crate) struct SyncFile {
    file: Arc<LockedFile>,
    /// The turn to have the kernel write, and what it writes. Taken before `state`, and by everyone who waits for a write: by then
    /// whoever had it has noted an error, which the kernel tells only once; and what others flushed is written that he took
    /// with his.
    syncing: Mutex<Ranges>,
    /// Held for a moment only: who flushes, or asks for the health, does not wait for the kernel.
    state: Mutex<State>,
}

/// Byte address ranges, merged while they are adjacent.
type Ranges = Vec<(usize, usize)>;

#[derive(Debug, Default)]
struct State {
    /// What was noted since the kernel was last told to write.
    pending: Ranges,
    /// Set for good once the kernel has failed to write a page: it may since have marked that page
    /// clean, so that no later success says anything about it.
    fault: Option<DomainFault>,
}

impl SyncFile {
    pub(crate) fn new(file: Arc<LockedFile>) -> Self {
        Self { file, syncing: Mutex::default(), state: Mutex::default() }
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

    /// Has the kernel write at least the ranges that `write` gets: those noted before. What is noted meanwhile is
    /// the next one's.
    fn write_out(
        &self,
        write: impl Fn(&[(usize, usize)]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut ranges = self.syncing.lock();
        // Before the kernel begins. Of two vectors neither is ever allocated anew.
        mem::swap(&mut *ranges, &mut self.state.lock().pending);
        // A signal came between; nothing is lost.
        let outcome = retry_on_intr(|| write(&ranges));
        ranges.clear();
        if let Err(error) = outcome {
            tracing::error!(%error, "the medium refused to persist a write");
            let fault = DomainFault::WritesLost { reason: error.to_string() };
            self.state.lock().fault = Some(fault);
        }
        outcome
    }

    pub(crate) fn complete(&self) {
        // The fault is noted.
        let _ = self.write_out(|ranges| match ranges {
            [] => Ok(()),
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
        });
    }

    /// Writes out the file and its size, on which the caller relies. Nobody else is told of a write that failed
    /// before.
    pub(crate) fn sync_whole(&self) -> Result<(), Errno> {
        self.write_out(|_| rustix::fs::fsync(&**self.file))
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
    use std::cell::Cell;
    use std::fs::OpenOptions;
    use std::sync::mpsc::{self, Receiver};
    use std::thread::{self, Scope};
    use std::time::Duration;

    use super::*;
    use crate::file_lock::Access;

    /// Of a file that cannot be written out, which is one for all tests: its lock is shared.
    fn sync_file() -> SyncFile {
        let file = OpenOptions::new().write(true).open("/dev/null").unwrap();
        SyncFile::new(Arc::new(LockedFile::new(file, Access::Read).unwrap()))
    }

    fn page(number: usize) -> (usize, usize) {
        let bytes = rustix::param::page_size();
        (number * bytes, (number + 1) * bytes)
    }

    /// Has a thread write out, in which the kernel does not end before it is sent for. Returns what it is to end with, when it has begun.
    fn begin<'s>(scope: &'s Scope<'s, '_>, sync: &'s SyncFile) -> mpsc::Sender<Result<(), Errno>> {
        let ((begins, begun), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let ends: Receiver<Result<(), Errno>> = ends;
        scope.spawn(move || {
            let _ = sync.write_out(|ranges| {
                begins.send(ranges.to_vec()).unwrap();
                ends.recv().unwrap()
            });
        });
        assert_eq!(begun.recv().unwrap(), [page(2)]);
        end
    }

    #[test]
    fn a_file_that_could_not_be_written_out_whole_is_a_fault_for_good() {
        let sync = sync_file();
        assert_eq!(sync.health(), Ok(()));
        assert!(sync.sync_whole().is_err());
        assert!(matches!(sync.health(), Err(DomainFault::WritesLost { .. })));
    }

    #[test]
    fn who_flushes_while_the_kernel_writes_waits_for_nobody_and_is_written_next() {
        let sync = &sync_file();
        sync.note(page(2).0, 1);
        thread::scope(|scope| {
            let end = begin(scope, sync);
            let (flushed, waited) = mpsc::channel();
            scope.spawn(move || {
                // The same page again, which may be written already.
                sync.note(page(2).0 + 100, 1);
                flushed.send(sync.health()).unwrap();
            });
            let health = waited.recv_timeout(Duration::from_secs(10));
            end.send(Ok(())).unwrap();
            assert_eq!(health, Ok(Ok(())));
        });
        let written = Cell::new(Vec::new());
        for expected in [vec![page(2)], vec![]] {
            let outcome = sync.write_out(|ranges| {
                written.set(ranges.to_vec());
                Ok(())
            });
            assert_eq!(outcome, Ok(()));
            assert_eq!(written.take(), expected);
        }
    }

    #[test]
    fn who_comes_while_the_kernel_writes_waits_for_its_end_and_learns_of_the_error() {
        let sync = &sync_file();
        sync.note(page(2).0, 1);
        thread::scope(|scope| {
            let end = begin(scope, sync);
            let (begins, begun) = mpsc::channel();
            let other = scope.spawn(move || {
                begins.send(()).unwrap();
                // What it flushed is among what is being written.
                sync.complete();
                sync.health()
            });
            begun.recv().unwrap();
            thread::sleep(Duration::from_millis(50));
            end.send(Err(Errno::IO)).unwrap();
            assert!(matches!(other.join().unwrap(), Err(DomainFault::WritesLost { .. })));
        });
    }

    #[test]
    fn a_signal_while_the_kernel_writes_loses_nothing() {
        let (sync, signals) = (sync_file(), Cell::new(2));
        let outcome = sync.write_out(|_| match signals.replace(signals.get() - 1) {
            0 => Ok(()),
            _ => Err(Errno::INTR),
        });
        assert_eq!((outcome, sync.health()), (Ok(()), Ok(())));
    }
}
