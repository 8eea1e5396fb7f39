//! E1 to E5 under loom: in orders of memory that the language allows and x86-64 does not have, too, with a fence in each pin.

use loom::sync::Arc;
use loom::thread;

use super::{Clock, Reader, mutants};
use crate::observed::Observed;
use crate::{DramCell, LoomMachine};

type Word = <LoomMachine as Observed>::DramWord<u64>;

const WHOLE: u64 = 7;
const FREED: u64 = 0;

/// Two blocks, and a link to the one that is in use.
struct Setting {
    machine: LoomMachine,
    clock: Clock<Word>,
    reader: Reader<Word>,
    link: DramCell<u64, LoomMachine>,
    blocks: [DramCell<u64, LoomMachine>; 2],
}

impl Setting {
    fn read(&self) {
        self.reader.pin(&self.machine, &self.clock);
        let block = self.link.load_acquire(&self.machine) as usize;
        assert_eq!(self.blocks[block].load(&self.machine), WHOLE, "a block is read that is free");
        self.reader.unpin(&self.machine);
    }

    /// Puts the second block in the place of the first, and frees that if it may.
    fn replace(&self) {
        self.link.store_release(&self.machine, 1);
        let stamp = self.clock.stamp(&self.machine);
        if self.clock.oldest(&self.machine, || [&self.reader]) > stamp {
            self.blocks[0].store(&self.machine, FREED);
        }
    }
}

fn a_reader_beside_a_writer(machine: fn() -> LoomMachine, pins: usize) {
    loom::model(move || {
        let setting = Arc::new(Setting {
            machine: machine(),
            clock: Clock::new::<LoomMachine>(),
            reader: Reader::with_fences::<LoomMachine>(true),
            link: DramCell::new(0),
            blocks: [WHOLE, WHOLE].map(DramCell::new),
        });
        let reader = thread::spawn({
            let setting = Arc::clone(&setting);
            move || (0..pins).for_each(|_| setting.read())
        });
        setting.replace();
        reader.join().unwrap();
    });
}

#[test]
fn no_order_frees_what_is_read() {
    a_reader_beside_a_writer(LoomMachine::default, 1);
}

#[test]
fn no_order_frees_what_is_read_by_a_later_pin() {
    a_reader_beside_a_writer(LoomMachine::default, 2);
}

#[test]
#[should_panic(expected = "a block is read that is free")]
fn without_the_barrier_some_order_does() {
    a_reader_beside_a_writer(|| LoomMachine::committing(mutants::NO_BARRIER), 1);
}
