//! Every pair of a store and a flush instruction of one worker, on one line and on two: what memory
//! may hold once both have happened and a fence promises what it can. The machine and the axioms
//! (`reference`) must agree with the set that is written here.

use std::collections::BTreeSet;

use lapis_device::PowerFailDomain;
use lapis_device::litmus::Instruction::{
    self, Exchange, Flush, FullFence, NonTemporal, Store, StoreFence, StrongFlush,
};
use lapis_device::litmus::{CutTime, LitmusProgram};

use crate::litmus::reference::reference;

/// Two words of one line and one of another.
const A0: usize = 0;
const A1: usize = 1;
const B0: usize = 8;

/// What the three words may hold when the worker has executed everything.
fn left(program: &[Instruction]) -> BTreeSet<[u64; 3]> {
    // The last load names all words, and changes nothing.
    let mut worker = program.to_vec();
    worker.push(Instruction::Load(B0));
    let program = LitmusProgram { workers: vec![worker] };
    let domain = PowerFailDomain::Adr;
    let found = program.outcomes(domain, CutTime::End);
    assert_eq!(found, reference(&program, domain, CutTime::End));
    found.iter().map(|outcome| [A0, A1, B0].map(|word| outcome.memory[word])).collect()
}

macro_rules! pairs {
    ($($name:ident: $program:expr => $legal:expr;)*) => {
        $(
            #[test]
            fn $name() {
                assert_eq!(left(&$program), BTreeSet::from($legal));
            }
        )*
    };
}

pairs! {
    store_then_store_of_the_same_line:
        [Store(A0, 1), Store(A1, 2)] => [[0, 0, 0], [1, 0, 0], [1, 2, 0]];
    store_then_store_of_another_line:
        [Store(A0, 1), Store(B0, 2)] => [[0, 0, 0], [1, 0, 0], [0, 0, 2], [1, 0, 2]];
    store_then_store_of_the_same_word:
        [Store(A0, 1), Store(A0, 2)] => [[0, 0, 0], [1, 0, 0], [2, 0, 0]];
    store_then_clwb_and_fence:
        [Store(A0, 1), Flush(A1), StoreFence] => [[1, 0, 0]];
    store_then_clwb_without_a_fence:
        [Store(A0, 1), Flush(A0)] => [[0, 0, 0], [1, 0, 0]];
    store_then_clwb_of_another_line_and_fence:
        [Store(A0, 1), Flush(B0), StoreFence] => [[0, 0, 0], [1, 0, 0]];
    store_then_clflush_needs_no_fence:
        [Store(A0, 1), StrongFlush(A1)] => [[1, 0, 0]];
    store_then_clflush_of_another_line:
        [Store(A0, 1), StrongFlush(B0)] => [[0, 0, 0], [1, 0, 0]];
    // The flush may be late and cover the store, or not: either way it may be there or not.
    clwb_then_store_of_the_same_line_and_fence:
        [Store(A0, 1), Flush(A0), Store(A1, 2), StoreFence] => [[1, 0, 0], [1, 2, 0]];
    clwb_then_store_of_another_line_and_fence:
        [Store(A0, 1), Flush(A0), Store(B0, 2), StoreFence] => [[1, 0, 0], [1, 0, 2]];
    clflush_then_store_of_the_same_line:
        [Store(A0, 1), StrongFlush(A0), Store(A1, 2)] => [[1, 0, 0], [1, 2, 0]];
    clwb_then_clwb_share_a_fence:
        [Store(A0, 1), Store(B0, 2), Flush(A0), Flush(B0), StoreFence] => [[1, 0, 2]];
    clwb_then_clflush_of_another_line:
        [Store(A0, 1), Store(B0, 2), Flush(A0), StrongFlush(B0)] => [[0, 0, 2], [1, 0, 2]];
    clwb_then_clflush_of_the_same_line:
        [Store(A0, 1), Flush(A0), StrongFlush(A0)] => [[1, 0, 0]];
    clwb_then_full_fence:
        [Store(A0, 1), Flush(A0), FullFence] => [[1, 0, 0]];
    clwb_then_locked_instruction:
        [Store(A0, 1), Flush(A0), Exchange(B0, 2)] => [[1, 0, 0], [1, 0, 2]];
    store_then_locked_instruction_of_the_same_line:
        [Store(A0, 1), Exchange(A1, 2)] => [[0, 0, 0], [1, 0, 0], [1, 2, 0]];
    store_then_locked_instruction_of_another_line:
        [Store(A0, 1), Exchange(B0, 2)] => [[0, 0, 0], [1, 0, 0], [0, 0, 2], [1, 0, 2]];
    locked_instruction_then_clwb_and_fence:
        [Exchange(A0, 1), Flush(A0), StoreFence] => [[1, 0, 0]];
    locked_instruction_then_clflush:
        [Exchange(A0, 1), StrongFlush(A0)] => [[1, 0, 0]];
    locked_instruction_alone_is_not_durable:
        [Exchange(A0, 1)] => [[0, 0, 0], [1, 0, 0]];
    fence_then_clwb:
        [Store(A0, 1), StoreFence, Flush(A0)] => [[0, 0, 0], [1, 0, 0]];
    non_temporal_then_store_of_the_same_line:
        [NonTemporal(A0, 1), Store(A1, 2)] => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]];
    non_temporal_then_store_of_the_same_word:
        [NonTemporal(A0, 1), Store(A0, 2)] => [[0, 0, 0], [1, 0, 0], [2, 0, 0]];
    store_then_non_temporal_of_the_same_line:
        [Store(A0, 1), NonTemporal(A1, 2)] => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]];
    store_then_non_temporal_of_the_same_word_and_fence:
        [Store(A0, 1), NonTemporal(A0, 2), StoreFence] => [[2, 0, 0]];
    non_temporal_then_clwb_and_locked_instruction:
        [NonTemporal(A0, 1), Flush(A0), Exchange(B0, 2)] => [[1, 0, 0], [1, 0, 2]];
    non_temporal_then_clflush:
        [NonTemporal(A0, 1), StrongFlush(A0)] => [[0, 0, 0], [1, 0, 0]];
    non_temporal_then_fence:
        [NonTemporal(A0, 1), NonTemporal(B0, 2), StoreFence] => [[1, 0, 2]];
    non_temporal_then_full_fence:
        [NonTemporal(A0, 1), FullFence] => [[1, 0, 0]];
    fence_then_clwb_then_store_of_the_same_line:
        [Store(A0, 1), Flush(A0), StoreFence, Store(A1, 2)] => [[1, 0, 0], [1, 2, 0]];
    clflush_then_clwb_of_the_same_line:
        [Store(A0, 1), StrongFlush(A0), Store(A1, 2), Flush(A0)] => [[1, 0, 0], [1, 2, 0]];
    clflush_then_clwb_of_another_line:
        [Store(A0, 1), Store(B0, 2), StrongFlush(A0), Flush(B0)] => [[1, 0, 0], [1, 0, 2]];
    clflush_then_clflush_of_another_line:
        [Store(A0, 1), Store(B0, 2), StrongFlush(A0), StrongFlush(B0)] => [[1, 0, 2]];
    clflush_then_locked_instruction_of_the_same_line:
        [Store(A0, 1), StrongFlush(A0), Exchange(A1, 2)] => [[1, 0, 0], [1, 2, 0]];
    clflush_then_non_temporal_of_the_same_line:
        [Store(A0, 1), StrongFlush(A0), NonTemporal(A1, 2)] => [[1, 0, 0], [1, 2, 0]];
    clwb_then_non_temporal_of_the_same_line_and_fence:
        [Store(A0, 1), Flush(A0), NonTemporal(A1, 2), StoreFence] => [[1, 2, 0]];
    locked_instruction_then_store_of_the_same_line:
        [Exchange(A0, 1), Store(A1, 2)] => [[0, 0, 0], [1, 0, 0], [1, 2, 0]];
    locked_instruction_then_locked_instruction_of_another_line:
        [Exchange(A0, 1), Exchange(B0, 2)] => [[0, 0, 0], [1, 0, 0], [0, 0, 2], [1, 0, 2]];
    locked_instruction_then_non_temporal_of_the_same_line:
        [Exchange(A0, 1), NonTemporal(A1, 2)] => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]];
    non_temporal_then_locked_instruction_of_another_line:
        [NonTemporal(A0, 1), Exchange(B0, 2)] => [[1, 0, 0], [1, 0, 2]];
    non_temporal_then_non_temporal_of_the_same_word:
        [NonTemporal(A0, 1), NonTemporal(A0, 2)] => [[0, 0, 0], [1, 0, 0], [2, 0, 0]];
    // The fence makes the non-temporal store durable and lets the cached one be where it was.
    non_temporal_then_store_of_the_same_line_and_fence:
        [NonTemporal(A0, 1), Store(A1, 2), StoreFence] => [[1, 0, 0], [1, 2, 0]];
    non_temporal_and_store_of_one_line_then_clwb_and_fence:
        [NonTemporal(A0, 1), Store(A1, 2), Flush(A1), StoreFence] => [[1, 2, 0]];
    fence_then_non_temporal:
        [StoreFence, NonTemporal(A0, 1), NonTemporal(A1, 2)]
            => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]];
}
