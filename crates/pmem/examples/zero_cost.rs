//! Holds the pairs of functions that `crates/pmem/tests/pmem/zero_cost.rs` disassembles, and runs each once.

#[cfg(target_arch = "x86_64")]
#[path = "../benches/pairs/mod.rs"]
mod pairs;

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use lapis_pmem::{PCell, Pool, Slot};
    use pairs::*;
    use std::hint::black_box;

    let pool = Pool::create_anonymous(1 << 20)?;
    let machine = ByHand::of(&pool);
    let word = pool.allocate::<PCell<u64>>()?;
    let slot = pool.allocate::<Slot<Node>>()?;
    slot.word().store(pool.domain(), 0);
    let offset = pool.allocate::<Node>()?.link().offset();

    let committed = bitmap_commit_typed(black_box(pool.domain()), &word, black_box(1));
    black_box(committed);
    let node = pool.fence(pool.allocate::<Node>()?.flush());
    black_box(publish_typed(&slot, black_box(node)));
    slot.word().store(pool.domain(), 0);
    black_box(insert_typed(&slot, black_box(pool.allocate::<Node>()?), black_box(5)));
    // SAFETY: the words and the block are this program's own.
    unsafe {
        bitmap_commit_by_hand(black_box(&machine), word.atomic(), black_box(2));
        publish_by_hand(slot.word().atomic(), black_box(machine.block(offset)));
        slot.word().store(pool.domain(), 0);
        black_box(insert_by_hand(slot.word().atomic(), machine.block(offset), black_box(5)));
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {}
