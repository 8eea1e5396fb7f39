//! Compaction: the file of pages becomes as short as what is in it.

use std::sync::Arc;

use lapis_buffer::{BufferError, PageNumber, RoomFor, Space};
use lapis_pmem::{Domain, host_lock};
use lapis_tree::{CompactionPlace, Puts};

use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::tables::Table;

/// Pages that move for pages that moved before them.
const MOST_ROUNDS: usize = 4;

/// A page that moves, to a level that has room for it.
const ONE_PAGE: Puts = Puts { trees: 0, records: 1, bytes: 0 };

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Pages that are somewhere else now.
    pub moved_pages: u64,
    /// Pages at the end of the device whose storage was given back.
    pub freed_pages: u64,
}

impl<D: Domain> Engine<D> {
    /// Moves pages from the end of the device to free places before them, and gives the end back. Others read and write
    /// meanwhile; tables are neither made nor dropped. The first page of a table stays where it is, and
    /// what only an open snapshot still reads stays too.
    ///
    /// # Errors
    /// [`EngineError`]; pages that have moved stay where they are.
    pub fn compact(&self) -> Result<CompactionReport, EngineError> {
        let shared = self.shared();
        shared.check_writable()?;
        let Some(space) = shared.manager.space() else { return Ok(CompactionReport::default()) };
        shared.guarded(|| self.compact_to(space))
    }

    fn compact_to(&self, space: &Space<D>) -> Result<CompactionReport, EngineError> {
        let (shared, mut report) = (self.shared(), CompactionReport::default());
        self.remove_expired()?;
        let _making = host_lock::lock(&shared.domain, &shared.making);
        while shared.remove_unwanted_chunks()? || shared.free_dropped()? {}
        // What was freed is free on the device, too.
        shared.checkpoint()?;
        for _ in 0..MOST_ROUNDS {
            let moved = self.move_pages(space)?;
            if moved == 0 {
                break;
            }
            report.moved_pages += moved;
            shared.let_log_be_cut()?;
            shared.checkpoint()?;
        }
        report.freed_pages = space.trim().map_err(BufferError::from)?;
        Ok(report)
    }

    /// Moves what lies behind as many pages as there are.
    fn move_pages(&self, space: &Space<D>) -> Result<u64, EngineError> {
        let shared = self.shared();
        let Some(highest) = PageNumber::new(space.used_pages()) else { return Ok(0) };
        let system = [Arc::clone(&shared.catalog), Arc::clone(&shared.chunks)];
        let mut moved = 0;
        for table in system.into_iter().chain(self.tables()) {
            moved += shared.move_pages_of(&table, highest)?;
        }
        Ok(moved)
    }
}

impl<D: Domain> Shared<D> {
    fn move_pages_of(&self, table: &Table<D>, highest: PageNumber) -> Result<u64, EngineError> {
        // A record has the page that moves, and the one above it.
        let of_record = 2 * self.manager.page_bytes() as u64;
        let between_cuts = (self.room_for_structure() / 4 / of_record).max(1);
        let (mut moved, mut place) = (0, CompactionPlace::default());
        let Some(tree) = table.contents().as_tree() else { return Ok(0) };
        loop {
            // Its old place is free later than the new one is taken.
            let _room = self.promise_room(ONE_PAGE, RoomFor::MakingRoom)?;
            if !tree.move_one_page(highest, &mut place)? {
                return Ok(moved);
            }
            moved += 1;
            if moved % between_cuts == 0 {
                self.let_log_be_cut()?;
            }
        }
    }
}
