//! Writing the dirty lines of a page to the lane's µlog and then in place.

use super::PageScheme;
use super::{PageKind, PageRun};
use crate::declaration::Declaration;
use lapis_pmem::{Committed, Domain, LINE_BYTES, Pool};

use super::layout::{LINE_SET_WORDS, LOG_HEADER_BYTES, LogHeader, Start, Target, address};
use super::{DirtyLines, Lane, PageError, PageStore, Place, mutants};

use lapis_pmem::Link;

impl<D: Domain> PageStore<D> {
    /// Writes the dirty lines of a page that exists. Four barriers.
    pub(super) fn write_through_log(
        &self,
        lane: &mut Lane,
        id: u32,
        current: Place,
        page: &[u8],
        dirty: &DirtyLines,
    ) -> Result<Committed, PageError> {
        let (domain, lines) = (self.pool.domain(), self.geometry.lines());
        let log_link = self.geometry.log(self.root, self.geometry.lane_of(id));
        let log = self.pool.at(log_link);
        domain.happens("a page is written by way of its log");
        lane.logged = None;
        if !domain.commits(mutants::NO_INVALIDATION) {
            // I5: before anything of the log is written.
            let _: Committed = log.target.publish(domain, 0).persist();
        }
        if domain.commits(mutants::VALID_BEFORE_LINES) {
            self.validate(log, id, current, dirty);
        }
        self.log_lines(log_link, page, dirty);
        // I5: the lines, before the log is valid.
        domain.fence();
        let slot = self.geometry.slot(self.root, current.slot);
        if domain.commits(mutants::APPLIED_BEFORE_VALID) {
            write_lines(&self.pool, slot, lines, dirty, |run| &page[run]);
        }
        self.validate(log, id, current, dirty);
        lane.logged = Some(id);
        // I4: every line that is written here is in the log.
        write_lines(&self.pool, slot, lines, dirty, |run| &page[run]);
        // I5 of the next µlog of this lane: it must not be invalid while these are not durable.
        let committed = Committed::after_fence(domain);
        let logged = dirty.count() as u64;
        lane.logs += 1;
        lane.lines_written += 2 * logged + if lines > 64 * LINE_SET_WORDS { 4 } else { 2 };
        domain.health()?;
        Ok(committed)
    }

    /// Writes the dirty lines to the log, end to end, and, of a page with many lines, which they are.
    fn log_lines(&self, log: Link<LogHeader>, page: &[u8], dirty: &DirtyLines) {
        let (domain, lines) = (self.pool.domain(), self.geometry.lines());
        let start = address(&self.pool, log);
        if lines > 64 * LINE_SET_WORDS {
            let mut bytes = [0; 2 * LINE_BYTES];
            let words = &dirty.words()[LINE_SET_WORDS..];
            for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            // SAFETY: the second and third line of the log, which the lane alone uses.
            unsafe { domain.copy_nontemporal(start.add(LINE_BYTES), &bytes) };
        }
        let mut at = LOG_HEADER_BYTES;
        for run in dirty.runs(lines) {
            let source = &page[run.start * LINE_BYTES..run.end * LINE_BYTES];
            // SAFETY: the log has room for all lines of a page behind its header, and the lane alone
            // uses it.
            unsafe { domain.copy_nontemporal(start.add(at), source) };
            at += source.len();
        }
    }

    /// Makes the log valid, durably.
    fn validate(&self, log: &LogHeader, id: u32, current: Place, dirty: &DirtyLines) {
        let domain = self.pool.domain();
        log.version.store(domain, current.version);
        for (cell, word) in log.lines.iter().zip(dirty.words()) {
            cell.store(domain, *word);
        }
        // I5: last in the line (rule R2), which vouches for the rest of it.
        let target = log.target.publish(domain, Target::new(current.slot, id).0);
        // I4: before any line of the page is written.
        let _: Committed = target.persist();
    }
}

/// Writes the lines in `set` of a page in place, past the caches; `source` has the bytes of a range
/// of the page.
pub(super) fn write_lines<'s, D: Domain>(
    pool: &Pool<D>,
    slot: Link<Start>,
    lines: usize,
    set: &DirtyLines,
    mut source: impl FnMut(std::ops::Range<usize>) -> &'s [u8],
) {
    let start = address(pool, slot);
    for run in set.runs(lines) {
        let bytes = run.start * LINE_BYTES..run.end * LINE_BYTES;
        // SAFETY: within the slot, which nobody else writes: its lane is locked for writing, or the store is being
        // opened. Who reads words of it meanwhile (`words_at`) finds out that he was overtaken, as in
        // `PageStore::write_contents`.
        unsafe { pool.domain().copy_nontemporal(start.add(bytes.start), source(bytes.clone())) };
    }
}

impl PageScheme {
    /// The dirty lines to a log and then in place.
    pub const MICRO_LOG: Self = Self {
        kind: PageKind::MicroLog,
        name: "page-mulog",
        number: 3,
        copies: false,
        has_micro_logs: true,
        loads_clean_lines: false,
        has_checksums: false,
    };
}

/// See [`PageScheme::logs`].
pub(crate) fn logs(_: usize, _: usize) -> bool {
    true
}

pub(crate) const DECLARATION: Declaration<PageRun> = Declaration {
    name: "page-mulog",
    sources: &["blocks/src/page"],
    mutants: mutants::PAGE_MULOG,
    runs: &[
        PageRun { name: "page-mulog:4k", scheme: PageScheme::MICRO_LOG, page_bytes: 4096 },
        // Which lines are logged takes more than one line to say.
        PageRun { name: "page-mulog:32k", scheme: PageScheme::MICRO_LOG, page_bytes: 32768 },
        // And two.
        PageRun { name: "page-mulog:64k", scheme: PageScheme::MICRO_LOG, page_bytes: 65536 },
    ],
    operations: 24,
    persist_points: (64, 2),
};
