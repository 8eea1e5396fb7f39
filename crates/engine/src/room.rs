//! Room on the device of the pages: what a commit may take there is promised to it before it is in the log.
//!
//! So a full disk refuses commits that need room and does nothing else: what is in the log can be applied, reads go on, and
//! so does what makes room, which has a reserve (`lapis_buffer`'s promises, S1 and S2).

use lapis_buffer::{BufferError, Promise, RoomFor, SpaceError, WriteAheadLog};
use lapis_pmem::Domain;
use lapis_tree::{Puts, most_new_pages};

use crate::commit::Write;
use crate::engine::Shared;
use crate::error::EngineError;
use crate::mutants::{RESERVE_GIVEN_AWAY, ROOM_NOT_PROMISED};
use crate::tables::CATALOG;

/// Bytes of a listing of chunks that are to go.
const LISTING_BYTES: u64 = 9;

impl<D: Domain> Shared<D> {
    /// Promises the pages that these writes may take; none where they take none.
    pub(crate) fn promise_room_for(
        &self,
        writes: &[Write<'_, D>],
    ) -> Result<Option<Promise<'_, D>>, EngineError> {
        let (mut puts, mut room_for) = (Puts::default(), RoomFor::MakingRoom);
        for same in writes.chunk_by(|one, next| one.table.id() == next.table.id()) {
            let Some(first) = same.first().filter(|first| !first.is_to_index()) else { continue };
            puts.trees += 1;
            for write in same {
                let Some(value) = write.value else { continue };
                puts.records += 1;
                puts.bytes += (write.key.len() + value.len()) as u64;
                if first.table.id() != CATALOG {
                    room_for = RoomFor::Growth;
                }
            }
        }
        // Each of them may replace a long value, whose chunks are then listed.
        let listed = writes.iter().filter(|write| write.table.has_long_values()).count() as u64;
        puts.trees += u64::from(listed > 0);
        puts.records += listed;
        puts.bytes += listed * LISTING_BYTES;
        if puts.records == 0 {
            return Ok(None);
        }
        self.promise_room(puts, room_for)
    }

    /// Promises the pages that these puts may take. What was freed and is not free on the device yet is made so before it
    /// is said that there is no room.
    pub(crate) fn promise_room(
        &self,
        puts: Puts,
        room_for: RoomFor,
    ) -> Result<Option<Promise<'_, D>>, EngineError> {
        let Some(space) = self.manager.space() else { return Ok(None) };
        if self.domain.commits(ROOM_NOT_PROMISED) {
            return Ok(None);
        }
        let given_away = self.domain.commits(RESERVE_GIVEN_AWAY);
        let room_for = if given_away { RoomFor::MakingRoom } else { room_for };
        let promise = || {
            let pages = most_new_pages(puts, space.used_pages(), space.page_bytes());
            space.promise(pages, room_for)
        };
        let promised = match promise() {
            Err(SpaceError::NoRoom { .. }) => {
                self.log.block_log().sync()?;
                space.write_freed(self.log.flushed_lsn()).map_err(BufferError::from)?;
                promise()
            }
            promised => promised,
        };
        Ok(Some(promised.map_err(BufferError::from)?))
    }
}
