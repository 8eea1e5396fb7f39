//! Latches under loom: in orders of memory that the language allows and x86-64 does not have, too.

use lapis_pmem::{DramCell, LoomMachine};
use loom::sync::Arc;
use loom::thread;

use super::{LINE_LOADED_BESIDE_WRITERS, Latch, Loading};

/// Two words that are equal whenever nobody holds the latch.
struct Pair {
    machine: LoomMachine,
    latch: Latch<LoomMachine>,
    words: [DramCell<u64, LoomMachine>; 2],
}

impl Pair {
    fn new(machine: LoomMachine, is_partial: bool) -> Arc<Self> {
        let words = [0, 0].map(DramCell::new);
        Arc::new(Self { machine, latch: Latch::new(is_partial), words })
    }

    /// Adds one to both words, if nobody holds the latch.
    fn change(&self) -> bool {
        let Ok(version) = self.latch.try_take(&self.machine) else { return false };
        let words = self.words.each_ref().map(|word| word.load(&self.machine));
        assert_eq!(words[0], words[1]);
        self.words.iter().for_each(|word| word.store(&self.machine, words[0] + 1));
        self.latch.release(&self.machine, version, true);
        true
    }

    /// What an optimistic reader is told, if it accepts that.
    fn read(&self) -> Option<u64> {
        let version = self.latch.version(&self.machine).ok()?;
        let words = self.words.each_ref().map(|word| word.load(&self.machine));
        self.latch.validate(&self.machine, version).ok()?;
        assert_eq!(words[0], words[1], "half of a change was accepted");
        Some(words[0])
    }
}

fn a_reader_beside_a_writer(machine: fn() -> LoomMachine, reads: usize, changes: u64) {
    loom::model(move || {
        let pair = Pair::new(machine(), false);
        let writer = thread::spawn({
            let pair = Arc::clone(&pair);
            move || (0..changes).all(|_| pair.change())
        });
        assert!((0..reads).filter_map(|_| pair.read()).is_sorted());
        assert!(writer.join().unwrap());
        assert_eq!(pair.read(), Some(changes));
    });
}

#[test]
fn no_reader_accepts_half_of_a_change() {
    a_reader_beside_a_writer(LoomMachine::default, 1, 2);
}

#[test]
fn no_reader_sees_a_change_and_then_none() {
    a_reader_beside_a_writer(LoomMachine::default, 2, 1);
}

#[test]
#[should_panic(expected = "half of a change was accepted")]
fn without_fences_some_reader_accepts_half_of_a_change() {
    a_reader_beside_a_writer(LoomMachine::without_fences, 1, 1);
}

#[test]
fn writers_exclude_each_other_and_see_what_was_changed() {
    loom::model(|| {
        let pair = Pair::new(LoomMachine::default(), false);
        let writer = thread::spawn({
            let pair = Arc::clone(&pair);
            move || u64::from(pair.change())
        });
        let changes = u64::from(pair.change());
        let changes = changes + writer.join().unwrap();
        assert_eq!(pair.read(), Some(changes));
    });
}

/// Who loads lines stores to the page beside readers, but never beside a writer.
fn lines_are_loaded_beside_a_writer(machine: fn() -> LoomMachine) {
    loom::model(move || {
        let pair = Pair::new(machine(), true);
        let writer = thread::spawn({
            let pair = Arc::clone(&pair);
            move || u64::from(pair.change())
        });
        let (machine, latch) = (&pair.machine, &pair.latch);
        let mut loaded = 0;
        if let Ok(version) = latch.version(machine)
            && latch.begin_loading(machine, version) == Loading::Begun
        {
            let before = pair.words.each_ref().map(|word| word.load(machine));
            pair.words.iter().zip(before).for_each(|(word, held)| word.store(machine, held + 1));
            latch.end_loading(machine, version, true);
            loaded = 1;
        }
        let changes = writer.join().unwrap();
        assert_eq!(pair.words.each_ref().map(|word| word.load(machine)), [loaded + changes; 2]);
    });
}

#[test]
fn nobody_writes_while_lines_are_loaded() {
    lines_are_loaded_beside_a_writer(LoomMachine::default);
}

#[test]
#[should_panic]
fn without_keeping_writers_out_somebody_does() {
    lines_are_loaded_beside_a_writer(|| LoomMachine::committing(LINE_LOADED_BESIDE_WRITERS));
}
