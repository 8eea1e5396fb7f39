//! Changes to a node in its frame. The node is sound, and there is room: who calls these has looked.

use lapis_buffer::PageWrite;
use lapis_pmem::Domain;

use super::{COUNTS_AT, Node, SLOTS_AT, VALUE_BYTES, WORD, slot_of};

/// What changes of a node's header.
fn set_counts<D: Domain>(page: &mut PageWrite<'_, D>, count: usize, heap: usize, garbage: usize) {
    let kept = page.read().word(COUNTS_AT) & !0xffff_ffff_ffff;
    let counts = count as u64 | (heap as u64) << 16 | (garbage as u64) << 32;
    page.set_word(COUNTS_AT, kept | counts);
}

/// Writes a leaf's record in front of the heap. Returns where.
fn write_record<D: Domain>(
    page: &mut PageWrite<'_, D>,
    heap: usize,
    suffix: &[u8],
    value: &[u8],
) -> usize {
    let offset = page.read().bytes() - heap;
    page.set_quarter(offset, value.len() as u16);
    page.copy_from(offset + VALUE_BYTES, suffix);
    page.copy_from(offset + VALUE_BYTES + suffix.len(), value);
    offset
}

/// Inserts a record into a leaf that takes it, where its slot is to be.
pub(crate) fn insert_record<D: Domain>(
    page: &mut PageWrite<'_, D>,
    at: usize,
    suffix: &[u8],
    value: &[u8],
) {
    let node = Node::new(page.read());
    let (count, garbage) = (node.count(), node.garbage());
    let heap = node.heap_bytes() + VALUE_BYTES + suffix.len() + value.len();
    let offset = write_record(page, heap, suffix, value);
    let slot = SLOTS_AT + WORD * at;
    if !node.has_table() {
        page.move_within(slot, slot + WORD, WORD * (count - at));
    }
    page.set_word(slot, node.slot_for(suffix, offset));
    set_counts(page, count + 1, heap, garbage);
}

/// Replaces a record of a leaf, of `bytes` bytes, by one for which the gap has room.
pub(crate) fn replace_record<D: Domain>(
    page: &mut PageWrite<'_, D>,
    at: usize,
    bytes: usize,
    suffix: &[u8],
    value: &[u8],
) {
    let node = Node::new(page.read());
    let (count, garbage) = (node.count(), node.garbage() + bytes);
    let heap = node.heap_bytes() + VALUE_BYTES + suffix.len() + value.len();
    let offset = write_record(page, heap, suffix, value);
    page.set_quarter(SLOTS_AT + WORD * at, offset as u16);
    set_counts(page, count, heap, garbage);
}

/// Removes a record of a leaf, of `bytes` bytes. Of one with a table, whoever makes use of that fills the hole first.
pub(crate) fn remove_record<D: Domain>(page: &mut PageWrite<'_, D>, at: usize, bytes: usize) {
    let node = Node::new(page.read());
    let count = node.count() - 1;
    let slot = SLOTS_AT + WORD * at;
    let (heap, garbage) = match count {
        0 => (node.lower_bytes() + node.upper_bytes(), 0),
        _ => (node.heap_bytes(), node.garbage() + bytes),
    };
    match node.has_table() {
        true => page.set_word(slot, 0),
        false => page.move_within(slot + WORD, slot, WORD * (count - at)),
    }
    set_counts(page, count, heap, garbage);
}

/// Inserts a key and the child behind it into an inner node, the gap of which has room for them.
pub(crate) fn insert_child<D: Domain>(
    page: &mut PageWrite<'_, D>,
    at: usize,
    suffix: &[u8],
    child: u64,
) {
    let node = Node::new(page.read());
    let (count, garbage) = (node.count(), node.garbage());
    let heap = node.heap_bytes() + suffix.len();
    let (slot, first) = (SLOTS_AT + WORD * at, node.child_offset(0));
    let behind = first + WORD * (at + 1);
    page.copy_from(page.read().bytes() - heap, suffix);
    page.move_within(behind, behind + 2 * WORD, WORD * (count - at));
    page.move_within(slot, slot + WORD, behind - slot);
    page.set_word(slot, slot_of(suffix, page.read().bytes() - heap));
    page.set_word(behind + WORD, child);
    set_counts(page, count + 1, heap, garbage);
    page.set_references(first + WORD, count + 2);
}

/// Removes a key and the child behind it from an inner node. The child is referred to by its number.
pub(crate) fn remove_child<D: Domain>(page: &mut PageWrite<'_, D>, at: usize, bytes: usize) {
    let node = Node::new(page.read());
    let count = node.count();
    let (slot, first) = (SLOTS_AT + WORD * at, node.child_offset(0));
    let behind = first + WORD * (at + 1);
    page.move_within(slot + WORD, slot, behind - slot - WORD);
    page.move_within(behind + WORD, behind - WORD, WORD * (count - at - 1));
    // What is no reference any more may name a frame, and would be written as it is: only references are translated.
    page.copy_from(first + WORD * (count - 1), &[0; 2 * WORD]);
    set_counts(page, count - 1, node.heap_bytes(), node.garbage() + bytes);
    page.set_references(first - WORD, count);
}
