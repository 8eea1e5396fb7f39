//! Locks in persistent words under loom: in orders of memory that the language allows and x86-64 does not have, too.

use loom::sync::Arc;
use loom::thread;

use super::GenerationLock;
use crate::lock_word::LockGeneration;
use crate::{LoomMachine, PCell};

/// Two words that are equal whenever nobody holds the lock.
struct Pair {
    machine: LoomMachine,
    lock: GenerationLock,
    words: [PCell<u64>; 2],
}

impl Pair {
    fn change(&self) {
        let generation = LockGeneration::of(2);
        self.lock.lock(&self.machine, generation);
        let words = self.words.each_ref().map(|word| word.load(&self.machine));
        assert_eq!(words[0], words[1]);
        self.words.iter().for_each(|word| word.store_ordered(&self.machine, words[0] + 1));
        self.lock.unlock(&self.machine, self.lock.read(&self.machine));
    }
}

/// The lock was left taken by an earlier generation.
#[test]
fn writers_exclude_each_other_and_no_reader_accepts_half_of_a_change() {
    loom::model(|| {
        let machine = LoomMachine::default();
        let (lock, words) = (GenerationLock(PCell::new(0)), [0, 0].map(PCell::new));
        // Where they stay: loom's words go by the place.
        let pair = Arc::new(Pair { machine, lock, words });
        pair.lock.init(&pair.machine, LockGeneration::of(1), 0);
        pair.lock.lock(&pair.machine, LockGeneration::of(1));
        pair.words.iter().for_each(|word| word.store(&pair.machine, 0));
        let writer = thread::spawn({
            let pair = Arc::clone(&pair);
            move || pair.change()
        });
        let before = pair.lock.read(&pair.machine);
        let seen = pair.words.each_ref().map(|word| word.load_acquire(&pair.machine));
        let after = pair.lock.reread(&pair.machine);
        if before == after && !before.is_locked(LockGeneration::of(2)) {
            assert_eq!(seen[0], seen[1], "half of a change was accepted");
        }
        pair.change();
        writer.join().unwrap();
        assert_eq!(pair.words.each_ref().map(|word| word.load(&pair.machine)), [2, 2]);
    });
}
