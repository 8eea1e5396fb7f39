//! Blocks that take all the room a pool has, for structures that have to go on without.

use lapis_device::Modelled;
use lapis_pmem::{BlockVisitor, PCell, Pool, Slot, persistent};

use crate::subject::text;

const ROOT: &str = "ballast";
const HEAD_BYTES: usize = size_of::<Ballast>();
/// The largest blocks that are taken.
const MOST_BYTES: usize = 4096;

persistent! {
    /// One of a chain of blocks that begins at a root of the pool.
    struct Ballast: 16 {
        next: Slot<Ballast>,
        block_bytes: PCell<u64>,
    }
}

/// Takes all blocks that there are. They stay: a crash before they are reachable gives them back.
///
/// # Errors
/// What went wrong, for a person.
pub(super) fn take_all_room(pool: &Pool<Modelled>) -> Result<(), String> {
    let domain = pool.domain();
    let mut first = None;
    // Of large ones first, so that it is soon done; then what is left of each size.
    for block_bytes in (HEAD_BYTES..=MOST_BYTES).rev().step_by(HEAD_BYTES) {
        while let Ok(mut block) = pool.allocate_with_tail::<Ballast>(block_bytes - HEAD_BYTES) {
            block.zero();
            block.block_bytes.store(domain, block_bytes as u64);
            if let Some(before) = first.take() {
                let _committed = block.next.publish_exclusive(before).persist();
            }
            first = Some(pool.fence(block.flush()));
        }
    }
    if let Some(first) = first {
        let _committed = pool.publish_root(ROOT, 0, first).map_err(text)?.persist();
    }
    Ok(())
}

/// Visits what was taken.
pub(super) fn visit(visitor: &mut BlockVisitor<'_, Modelled>, pool: &Pool<Modelled>) {
    let mut next = pool.root::<Ballast>(ROOT);
    while let Some(block) = next.filter(|link| !link.is_null()) {
        let head = pool.at(block);
        if !visitor.visit(block, head.block_bytes.load(pool.domain()) as usize) {
            return;
        }
        next = Some(head.next.load(pool.domain()));
    }
}
