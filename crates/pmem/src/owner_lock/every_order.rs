//! The lock under loom: in orders of memory that the language allows and x86-64 does not have, too.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::OwnerLock;

/// Loom finds two threads that have access at once, or one after the other without knowing of it.
type Counted = OwnerLock<UnsafeCell<u64>>;

fn count_up(lock: &Counted, times: usize) {
    for _ in 0..times {
        // SAFETY: the pointer is used while the guard lives, which is the only one.
        lock.lock().with_mut(|count| unsafe { *count += 1 });
    }
}

fn counted_by_two(owns_first: usize, first: usize, second: usize) {
    loom::model(move || {
        let lock = Arc::new(Counted::new(UnsafeCell::new(0)));
        count_up(&lock, owns_first);
        let other = thread::spawn({
            let lock = Arc::clone(&lock);
            move || count_up(&lock, second)
        });
        count_up(&lock, first);
        other.join().unwrap();
        // SAFETY: as above.
        let count = lock.lock().with(|count| unsafe { *count });
        assert_eq!(count, (owns_first + first + second) as u64);
    });
}

#[test]
fn a_second_thread_comes_while_the_owner_is_at_work() {
    counted_by_two(1, 2, 1);
}

#[test]
fn the_lock_changes_hands_and_comes_back() {
    counted_by_two(1, 1, 2);
}

#[test]
fn one_of_two_wants_no_owner() {
    loom::model(|| {
        let lock = Arc::new(Counted::new(UnsafeCell::new(0)));
        count_up(&lock, 1);
        let other = thread::spawn({
            let lock = Arc::clone(&lock);
            // SAFETY: as above.
            move || lock.lock_shared().with_mut(|count| unsafe { *count += 1 })
        });
        count_up(&lock, 2);
        other.join().unwrap();
        // SAFETY: as above.
        assert_eq!(lock.lock().with(|count| unsafe { *count }), 4);
    });
}

#[test]
fn two_threads_come_first() {
    counted_by_two(0, 2, 2);
}

#[test]
fn three_threads_come_first() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lock = Arc::new(Counted::new(UnsafeCell::new(0)));
        let others = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || count_up(&lock, 1))
        });
        count_up(&lock, 1);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
