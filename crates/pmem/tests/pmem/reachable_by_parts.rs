//! Visits of which some parts are known come to the same as others.

use std::collections::HashMap;
use std::rc::Rc;

use lapis_pmem::parts::{KnownParts, PartName};
use lapis_pmem::{
    BlockVisitor, Hardware, Link, PCell, Pool, ReachabilityProblem, ReachableBlocks, ReachablePart,
};

/// Remembers every part for ever.
#[derive(Default)]
struct Everything {
    parts: HashMap<PartName, Rc<ReachablePart>>,
    open: Vec<PartName>,
    passed: Vec<PartName>,
}

impl KnownParts<ReachablePart> for Everything {
    fn known(&mut self, name: PartName) -> Option<Rc<ReachablePart>> {
        self.parts.get(&name).cloned()
    }
    fn passed(&mut self, name: PartName) {
        self.passed.push(name);
    }
    fn begin(&mut self, name: PartName) -> bool {
        self.open.push(name);
        true
    }
    fn keeps(&mut self) -> bool {
        true
    }
    fn end(&mut self, part: Option<ReachablePart>) {
        let name = self.open.pop().unwrap();
        if let Some(part) = part {
            self.parts.insert(name, Rc::new(part));
        }
    }
}

type Block = Link<PCell<u64>>;

fn blocks(pool: &Pool, count: usize) -> Vec<Block> {
    (0..count).map(|_| pool.allocate::<PCell<u64>>().unwrap().flush().release()).collect()
}

/// Part 1 holds the first two blocks and part 2, which holds the third.
fn visit(
    pool: &Pool,
    known: &mut Everything,
    blocks: &[Block],
    before: &[Block],
) -> ReachableBlocks {
    let visit = |visitor: &mut BlockVisitor<'_, Hardware>, block: Block| visitor.visit(block, 8);
    pool.reachable_by_parts(known, |visitor| {
        for &block in before {
            visit(visitor, block);
        }
        if let Some(ends) = visitor.begin_part(1) {
            assert_eq!(ends, [10, 20], "the ends are those that were told");
        } else {
            visit(visitor, blocks[0]);
            visit(visitor, blocks[1]);
            if visitor.begin_part(2).is_none() {
                visit(visitor, blocks[2]);
                visitor.end_part(Some([30, 40]));
            }
            visitor.end_part(Some([10, 20]));
        }
    })
}

#[test]
fn a_part_that_is_known_is_passed_over_and_its_blocks_are_reachable() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    let (blocks, mut known) = (blocks(&pool, 3), Everything::default());
    let first = visit(&pool, &mut known, &blocks, &[]);
    assert_eq!((first.block_count(), known.passed.len(), known.parts.len()), (3, 0, 2));
    let again = visit(&pool, &mut known, &blocks, &[]);
    assert_eq!((again.block_count(), known.passed.as_slice()), (3, &[1][..]));
    assert!(again.problems().is_empty());
    pool.reclaim(&again);
    assert!(pool.audit(&again).is_clean());
    // Where only the inner one is known, the outer one has its blocks all the same.
    known.parts.remove(&1);
    assert_eq!(visit(&pool, &mut known, &blocks, &[]).block_count(), 3);
    assert_eq!(visit(&pool, &mut known, &blocks, &[]).block_count(), 3);
    assert_eq!(known.passed, [1, 2, 1]);
}

#[test]
fn a_block_that_is_reached_before_and_in_a_known_part_has_two_owners() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    let (blocks, mut known) = (blocks(&pool, 3), Everything::default());
    visit(&pool, &mut known, &blocks, &[]);
    let reachable = visit(&pool, &mut known, &blocks, &blocks[2..]);
    let offset = blocks[2].offset();
    assert_eq!(reachable.problems(), [ReachabilityProblem::ReachedTwice { offset }]);
}

#[test]
fn of_a_part_in_which_something_is_wrong_nothing_is_known() {
    let pool = Pool::create_anonymous(1 << 20).unwrap();
    let (mut blocks, mut known) = (blocks(&pool, 3), Everything::default());
    blocks[1] = blocks[0];
    for _ in 0..2 {
        let reachable = visit(&pool, &mut known, &blocks, &[]);
        assert_eq!(reachable.problems().len(), 1);
    }
    assert_eq!(known.passed, [2], "the inner one is in order");
}

#[test]
fn blocks_of_a_slab_that_is_another_one_now_are_not_taken_for_known() {
    let one = Pool::create_anonymous(1 << 20).unwrap();
    let mut known = Everything::default();
    let of_one = blocks(&one, 3);
    visit(&one, &mut known, &of_one, &[]);
    // In this one, the first slab is for larger blocks.
    let other = Pool::create_anonymous(1 << 20).unwrap();
    let _larger = other.allocate::<[PCell<u64>; 16]>().unwrap();
    let of_other = blocks(&other, 3);
    let reachable = visit(&other, &mut known, &of_other, &[]);
    assert_eq!((reachable.block_count(), known.passed.len()), (3, 0));
    assert!(reachable.problems().is_empty());
}
