//! References by frames: that they are used, found again and never written out.

use std::sync::Arc;

use lapis_buffer::{
    BufferError, BufferManager, Interruption, NoLog, PageKind, PageNumber, SpaceError,
};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::Hardware;

use crate::pool::options;

type Manager = BufferManager<Hardware>;

const SWIZZLED: u64 = 1 << 63;
/// Where the references of a root begin, and where a leaf says which it is.
const REFERENCES: usize = 64;
const LEAF: usize = 40;

/// A root with leaves that say which they are.
fn tree(frames: usize, leaves: usize) -> (Manager, PageNumber, Vec<PageNumber>) {
    let device = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
    let manager =
        BufferManager::create(crate::hardware(), device, Arc::new(NoLog), &options(frames))
            .unwrap();
    let numbers: Vec<_> = (0..leaves)
        .map(|leaf| {
            let mut page = manager.allocate_page(PageKind(17), |_| 0).unwrap();
            page.write(0).set_word(LEAF, leaf as u64);
            page.number()
        })
        .collect();
    let mut root = manager.allocate_page(PageKind(16), |_| 0).unwrap();
    let mut page = root.write(0);
    page.set_references(REFERENCES, leaves);
    for (at, number) in numbers.iter().enumerate() {
        page.set_word(REFERENCES + at * 8, number.get());
    }
    let number = root.number();
    drop(root);
    (manager, number, numbers)
}

fn descend(manager: &Manager, root: PageNumber, leaf: usize) -> Result<u64, BufferError> {
    manager.retry(|| {
        let mut root = manager.fix(root)?;
        let page = manager.fix_child(&mut root, REFERENCES + leaf * 8)?;
        let word = page.read().word(LEAF);
        page.validate()?;
        Ok(word)
    })
}

fn reference(manager: &Manager, root: PageNumber, leaf: usize) -> u64 {
    manager.fix_exclusive(root).unwrap().read().word(REFERENCES + leaf * 8)
}

/// What the device holds of the root's references.
fn on_device(manager: &Manager, root: PageNumber, leaf: usize) -> u64 {
    let at = REFERENCES + leaf * 8;
    let read = |page: &[u8]| u64::from_le_bytes(*page[at..].first_chunk().unwrap());
    manager.space().unwrap().read(root, read).unwrap()
}

#[test]
fn the_second_descent_goes_by_the_frame() {
    let (manager, root, numbers) = tree(16, 4);
    assert_eq!(reference(&manager, root, 2), numbers[2].get());
    assert_eq!(descend(&manager, root, 2).unwrap(), 2);
    assert!(reference(&manager, root, 2) & SWIZZLED != 0);
    assert_eq!(reference(&manager, root, 1), numbers[1].get());
    assert_eq!(descend(&manager, root, 2).unwrap(), 2);
    assert_eq!(manager.statistics().swizzled, 1);
    let by_number = manager.fix_exclusive(numbers[2]).unwrap();
    assert_eq!(by_number.read().word(LEAF), 2, "by its number it is found as well");
}

#[test]
fn an_evicted_child_is_referred_to_by_its_number_again() {
    let (manager, root, numbers) = tree(8, 40);
    for round in 0..3 {
        for leaf in 0..40 {
            assert_eq!(descend(&manager, root, leaf).unwrap(), leaf as u64, "round {round}");
        }
    }
    let mut frames = 0;
    for (leaf, number) in numbers.iter().enumerate() {
        match reference(&manager, root, leaf) {
            word if word & SWIZZLED != 0 => frames += 1,
            word => assert_eq!(word, number.get()),
        }
    }
    let statistics = manager.statistics();
    assert_eq!(frames, statistics.swizzled - statistics.unswizzled);
    assert!(statistics.unswizzled > 60 && (1..8).contains(&frames), "{statistics:?}");
}

#[test]
fn on_the_device_references_are_numbers_while_they_are_frames_in_memory() {
    let (manager, root, numbers) = tree(16, 4);
    for leaf in 0..4 {
        descend(&manager, root, leaf).unwrap();
    }
    let mut page = manager.fix_exclusive(root).unwrap();
    page.write(0).set_word(2000, 1);
    drop(page);
    manager.write_all().unwrap();
    assert_eq!(manager.statistics().changed_frames, 0, "the parent of children in memory is clean");
    for (leaf, number) in numbers.iter().enumerate() {
        assert!(reference(&manager, root, leaf) & SWIZZLED != 0);
        assert_eq!(on_device(&manager, root, leaf), number.get());
    }
}

#[test]
fn references_that_move_within_their_page_are_found() {
    let (manager, root, _) = tree(8, 20);
    for leaf in 0..5 {
        descend(&manager, root, leaf).unwrap();
    }
    let mut page = manager.fix_exclusive(root).unwrap();
    page.write(0).move_within(REFERENCES, REFERENCES + 800, 20 * 8);
    page.write(0).set_references(REFERENCES + 800, 20);
    drop(page);
    for leaf in (0..20).chain(0..20) {
        let found = descend(&manager, root, 100 + leaf).unwrap();
        assert_eq!(found, leaf as u64);
    }
    assert!(manager.statistics().unswizzled > 5);
}

#[test]
fn references_move_to_another_page_as_numbers() {
    let (manager, root, numbers) = tree(16, 6);
    for leaf in 0..6 {
        descend(&manager, root, leaf).unwrap();
    }
    let mut from = manager.fix_exclusive(root).unwrap();
    from.unswizzle_all();
    let mut to = manager.allocate_page(PageKind(16), |_| 0).unwrap();
    let mut page = to.write(0);
    page.set_references(REFERENCES, 3);
    for (at, &number) in numbers[3..].iter().enumerate() {
        assert_eq!(from.child_number(REFERENCES + (3 + at) * 8), Some(number));
        page.set_word(REFERENCES + at * 8, number.get());
    }
    from.write(0).set_references(REFERENCES, 3);
    let other = to.number();
    drop((from, to));
    for leaf in 0..3 {
        assert_eq!(descend(&manager, root, leaf).unwrap(), leaf as u64);
        assert_eq!(descend(&manager, other, leaf).unwrap(), 3 + leaf as u64);
    }
}

#[test]
fn a_child_that_is_referred_to_by_its_frame_is_not_freed() {
    let (manager, root, numbers) = tree(16, 3);
    descend(&manager, root, 1).unwrap();
    let child = manager.fix_exclusive(numbers[1]).unwrap();
    let refused = manager.free_page(child, 0);
    assert!(matches!(refused, Err(BufferError::StillReferredTo { .. })), "{refused:?}");
    let mut parent = manager.fix_exclusive(root).unwrap();
    parent.unswizzle(REFERENCES + 8);
    drop(parent);
    manager.free_page(manager.fix_exclusive(numbers[1]).unwrap(), 0).unwrap();
    let gone = descend(&manager, root, 1);
    assert!(matches!(gone, Err(BufferError::Space(SpaceError::NotInUse { .. }))), "{gone:?}");
}

#[test]
fn a_parent_that_is_freed_leaves_its_children() {
    let (manager, root, numbers) = tree(16, 3);
    for leaf in 0..3 {
        descend(&manager, root, leaf).unwrap();
    }
    manager.free_page(manager.fix_exclusive(root).unwrap(), 0).unwrap();
    for (leaf, &number) in numbers.iter().enumerate() {
        let page = manager.fix_exclusive(number).unwrap();
        assert_eq!(page.read().word(LEAF), leaf as u64);
        manager.free_page(page, 0).unwrap();
    }
}

#[test]
fn a_word_outside_of_the_references_is_never_swizzled() {
    let (manager, root, numbers) = tree(16, 2);
    let mut page = manager.fix_exclusive(root).unwrap();
    page.write(0).set_word(1001, numbers[0].get());
    drop(page);
    let leaf = manager.retry(|| {
        let mut root = manager.fix(root)?;
        let child = manager.fix_child(&mut root, 1001)?;
        let word = child.read().word(LEAF);
        child.validate()?;
        Ok(word)
    });
    assert_eq!(leaf.unwrap(), 0);
    assert_eq!(manager.statistics().swizzled, 0);
}

#[test]
fn a_reference_to_nothing_is_an_error() {
    let (manager, root, _) = tree(16, 2);
    let mut page = manager.fix_exclusive(root).unwrap();
    page.write(0).set_word(REFERENCES, 1 << 60);
    page.write(0).set_word(REFERENCES + 8, SWIZZLED | 0xffff_ffff);
    drop(page);
    for leaf in 0..2 {
        let bad = descend(&manager, root, leaf);
        assert!(matches!(bad, Err(BufferError::BadReference { .. })), "{bad:?}");
    }
}

#[test]
fn threads_that_descend_while_children_are_evicted_find_the_right_ones() {
    let (leaves, rounds) = if cfg!(miri) { (16, 8) } else { (60, 5000) };
    let (manager, root, _) = tree(8, leaves);
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let manager = &manager;
            scope.spawn(move || {
                let mut random = worker + 7;
                for _ in 0..rounds {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                    let leaf = (random >> 33) as usize % leaves;
                    if random.is_multiple_of(5) {
                        let changed: Result<(), Interruption> = (|| {
                            let mut root = manager.fix(root)?;
                            let child = manager.fix_child(&mut root, REFERENCES + leaf * 8)?;
                            let mut child = child.exclusive()?;
                            let word = child.read().word(LEAF);
                            child.write(0).set_word(LEAF + 8, word);
                            Ok(())
                        })();
                        assert!(matches!(changed, Ok(()) | Err(Interruption::Restart(_))));
                    } else {
                        assert_eq!(descend(manager, root, leaf).unwrap(), leaf as u64);
                    }
                }
            });
        }
    });
    let statistics = manager.statistics();
    assert!(statistics.swizzled > rounds && statistics.unswizzled > rounds, "{statistics:?}");
    manager.close().unwrap();
    assert!(manager.space().unwrap().check().is_empty());
}
