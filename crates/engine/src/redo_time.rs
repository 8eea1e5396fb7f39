//! How long an opening after a crash would take, and keeping that short.
//!
//! What is to be done again is the log since the last checkpoint, and it is estimated by two costs: of a byte of the log (read,
//! sorted, put), and of a page that was changed since, which has to be read first. A page that was written and changed
//! again counts each time, so this is too much rather than too little. What a byte takes is what it took at the last
//! opening that had enough to do to tell, and otherwise assumed; what a page takes is what reading one took since the engine was
//! opened, and no less than assumed: after a power cut no page is in the kernel's memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapis_buffer::BufferManager;
use lapis_pmem::Domain;

use crate::engine::Shared;
use crate::error::EngineError;
use crate::recovery::RecoveryReport;

/// A recovery of less says nothing of longer ones; and a checkpoint is not begun for less of the log, whatever is asked for.
pub(crate) const LEAST_BYTES: u64 = 1 << 20;
/// Reads of fewer pages say nothing of others.
const FEWEST_READS: u64 = 64;

/// What it takes to do things again.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Costs {
    byte_ns: f64,
    page_ns: f64,
}

impl Costs {
    /// Three times what was measured on two cores of a virtual machine, with records of 116 bytes in pages in DRAM; and a read from
    /// an SSD by itself.
    const ASSUMED: Self = Self { byte_ns: 20.0, page_ns: 100_000.0 };

    fn of(last: &RecoveryReport, (reads, reading): (u64, Duration)) -> Self {
        let Self { mut byte_ns, mut page_ns } = Self::ASSUMED;
        if last.bytes >= LEAST_BYTES {
            byte_ns =
                last.elapsed.saturating_sub(last.reading).as_nanos() as f64 / last.bytes as f64;
        }
        if reads >= FEWEST_READS {
            page_ns = page_ns.max(reading.as_nanos() as f64 / reads as f64);
        }
        Self { byte_ns, page_ns }
    }

    fn of_pages(self, pages: u64) -> Duration {
        Duration::from_nanos((pages as f64 * self.page_ns) as u64)
    }

    fn of_bytes(self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * self.byte_ns) as u64)
    }

    /// Bytes of the log that may be done again in `most` beside so many pages.
    fn bytes_within(self, most: Duration, pages: u64) -> u64 {
        let left = most.saturating_sub(self.of_pages(pages)).as_nanos();
        ((left as f64 / self.byte_ns) as u64).max(LEAST_BYTES)
    }
}

/// How far the log may go before there is a checkpoint.
#[derive(Debug)]
pub(crate) struct RedoLimit {
    most: Option<Duration>,
    /// Whoever commits beyond this makes a checkpoint first.
    due: AtomicU64,
    /// Pages that had been written when the log was cut last.
    written_before: AtomicU64,
}

impl RedoLimit {
    pub(crate) fn new(most: Option<Duration>) -> Self {
        Self { most, due: AtomicU64::new(u64::MAX), written_before: AtomicU64::new(0) }
    }
}

impl<D: Domain> Shared<D> {
    /// How long it would take to do the log again that there is now.
    pub(crate) fn time_to_redo(&self) -> Duration {
        let (costs, pages) = (self.costs_to_redo(), self.pages_to_redo());
        costs.of_pages(pages) + costs.of_bytes(self.bytes_to_redo())
    }

    pub(crate) fn bytes_to_redo(&self) -> u64 {
        let log = self.log.block_log();
        log.end().number().saturating_sub(log.start().number())
    }

    fn costs_to_redo(&self) -> Costs {
        Costs::of(&self.recovery, self.manager.time_of_reads())
    }

    /// Changed since the log was cut: those that were written, and those that are still to be.
    fn pages_to_redo(&self) -> u64 {
        let (written, changed) = pages_changed(&self.manager);
        written.saturating_sub(self.redo_limit.written_before.load(Ordering::Relaxed)) + changed
    }

    /// The log has been cut.
    pub(crate) fn note_cut(&self) {
        let (written, _) = pages_changed(&self.manager);
        self.redo_limit.written_before.store(written, Ordering::Relaxed);
        self.look_at_redo();
    }

    /// Looks how far the log may go. Whether half of that is used.
    pub(crate) fn look_at_redo(&self) -> bool {
        let Some(most) = self.redo_limit.most else { return false };
        let log = self.log.block_log();
        let (start, end) = (log.start().number(), log.end().number());
        let bytes = self.costs_to_redo().bytes_within(most, self.pages_to_redo());
        self.redo_limit.due.store(due_at(start, end, bytes), Ordering::Relaxed);
        end - start > (bytes / 2).max(LEAST_BYTES)
    }

    /// Before a commit: keeps the log as short as is asked for, if the work in the background has not. What is not durable is not
    /// done again.
    pub(crate) fn keep_redo_short(&self) -> Result<(), EngineError> {
        if self.redo_limit.most.is_some()
            && self.log.block_log().durable().number() > self.redo_limit.due.load(Ordering::Relaxed)
        {
            self.checkpoint()?;
        }
        Ok(())
    }
}

/// Where a checkpoint is due, if so many bytes may be done again.
fn due_at(start: u64, end: u64, bytes: u64) -> u64 {
    // Where a checkpoint could not cut it, the next one is not tried at once. Any length may be asked for: then never.
    start.saturating_add(bytes).max(end.saturating_add(LEAST_BYTES))
}

/// Pages that were written since the engine was opened, and pages that are changed now.
fn pages_changed<D: Domain>(manager: &BufferManager<D>) -> (u64, u64) {
    let now = manager.statistics();
    (now.pages_written, now.changed_frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_byte_costs_is_what_the_last_opening_took_unless_that_was_short() {
        let elapsed = Duration::from_millis(1500);
        let reading = Duration::from_millis(500);
        let last = RecoveryReport { bytes: 1_000_000_000, elapsed, reading, ..Default::default() };
        assert_eq!(Costs::of(&last, (0, reading)).of_bytes(3_000_000), Duration::from_millis(3));
        let short = RecoveryReport { bytes: 1000, ..last };
        assert_eq!(Costs::of(&short, (0, reading)), Costs::ASSUMED);
    }

    #[test]
    fn a_page_costs_what_reading_one_took_and_no_less_than_assumed() {
        let costs = |reads| Costs::of(&RecoveryReport::default(), reads);
        let slow = (100, Duration::from_millis(400));
        assert_eq!(costs(slow).of_pages(10), Duration::from_millis(40));
        let fast = (100, Duration::from_millis(1));
        assert_eq!(costs(fast), Costs::ASSUMED);
        assert_eq!(costs((3, Duration::from_secs(3))), Costs::ASSUMED);
    }

    #[test]
    fn more_pages_leave_less_for_the_log_but_never_nothing() {
        let most = Duration::from_secs(2);
        let bytes = |pages| Costs::ASSUMED.bytes_within(most, pages);
        assert_eq!((bytes(0), bytes(10_000)), (100_000_000, 50_000_000));
        assert_eq!(bytes(u64::MAX), LEAST_BYTES);
    }

    #[test]
    fn any_time_at_all_is_never_over() {
        let bytes = Costs::ASSUMED.bytes_within(Duration::MAX, 0);
        assert_eq!(due_at(4096, 8192, bytes), u64::MAX);
    }
}
