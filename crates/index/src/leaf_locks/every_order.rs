//! Leaves' locks under loom: in orders of memory that the language allows and x86-64 does not have, too.

use lapis_pmem::{DramCell, Link, LoomMachine};
use loom::sync::Arc;
use loom::thread;

use super::LeafLocks;

fn a_reader_beside_a_writer(machine: fn() -> LoomMachine) {
    loom::model(move || {
        let machine = machine();
        let locks = Arc::new(LeafLocks::default());
        let words = Arc::new([0, 0].map(DramCell::<u64, LoomMachine>::new));
        let leaf: Link<u64> = Link::from_bits(1 << 20);
        let number = LeafLocks::number_of(leaf);
        let change = {
            let (machine, locks, words) = (machine.clone(), Arc::clone(&locks), Arc::clone(&words));
            move || {
                locks.lock(&machine, number);
                let next = words[0].load(&machine) + 1;
                words.iter().for_each(|word| word.store(&machine, next));
                locks.unlock(&machine, number);
            }
        };
        let writer = thread::spawn(change.clone());
        let before = locks.read(&machine, leaf);
        let seen = words.each_ref().map(|word| word.load(&machine));
        if !before.is_open() && locks.reread(&machine, leaf) == before {
            assert_eq!(seen[0], seen[1], "half of a change was accepted");
        }
        change();
        writer.join().unwrap();
        assert_eq!(words.each_ref().map(|word| word.load(&machine)), [2, 2]);
    });
}

#[test]
fn no_reader_of_an_unchanged_section_has_seen_half_of_a_change() {
    a_reader_beside_a_writer(LoomMachine::default);
}

#[test]
#[should_panic(expected = "half of a change was accepted")]
fn without_fences_some_reader_has() {
    a_reader_beside_a_writer(LoomMachine::without_fences);
}
