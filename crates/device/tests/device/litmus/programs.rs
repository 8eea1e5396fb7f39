//! Programs of several workers that tell one order of the model from the next. Each is decided by
//! the machine and by the axioms (`reference`), which must agree on all of its outcomes.

use std::collections::BTreeSet;

use lapis_device::PowerFailDomain;
use lapis_device::litmus::Instruction::{
    Exchange, Flush, FullFence, Load, NonTemporal, Store, StoreFence, StrongFlush,
};
use lapis_device::litmus::{CutTime, Instruction, LitmusProgram, Outcome};

use crate::litmus::reference::reference;

/// Words of different lines.
const X: usize = 0;
const Y: usize = 8;
const Z: usize = 16;
const FLAG: usize = 24;

fn outcomes(workers: &[&[Instruction]], domain: PowerFailDomain) -> BTreeSet<Outcome> {
    let program = LitmusProgram { workers: workers.iter().map(|it| it.to_vec()).collect() };
    let machine = program.outcomes(domain, CutTime::Any);
    assert_eq!(machine, reference(&program, domain, CutTime::Any), "machine and axioms differ");
    machine
}

/// Whether some outcome has these registers (of all workers together) and these words.
fn allows(
    workers: &[&[Instruction]],
    domain: PowerFailDomain,
    registers: &[u64],
    memory: &[(usize, u64)],
) -> bool {
    outcomes(workers, domain).iter().any(|outcome| {
        outcome.registers.concat() == registers
            && memory.iter().all(|&(word, value)| outcome.memory[word] == value)
    })
}

const ADR: PowerFailDomain = PowerFailDomain::Adr;

/// Litmus tests, a program each: whether some outcome has these registers and these words.
macro_rules! litmus {
    ($($name:ident: $domain:ident, $workers:expr, $registers:expr, $memory:expr => $allowed:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let found = allows(&$workers, PowerFailDomain::$domain, &$registers, &$memory);
                assert_eq!(found, $allowed);
            }
        )*
    };
}

litmus! {
    what_one_worker_flushed_another_s_fence_does_not_make_durable:
        Adr, [&[Store(X, 1), Flush(X), Store(Y, 1)], &[Load(Y), StoreFence, Store(FLAG, 1)]],
        [1], [(FLAG, 1), (X, 0)] => true;
    what_another_worker_stored_can_be_flushed_and_fenced_by_who_has_seen_it:
        Adr, [&[Store(X, 1)], &[Load(X), Flush(X), StoreFence, Store(FLAG, 1)]],
        [1], [(FLAG, 1), (X, 0)] => false;
    acting_on_a_value_without_flushing_it_lets_it_be_lost_under_the_action:
        Adr, [&[Store(X, 1), Flush(X), StoreFence], &[Load(X), Store(FLAG, 1), Flush(FLAG), StoreFence]],
        [1], [(FLAG, 1), (X, 0)] => true;

    // A flush of Y takes effect before an earlier store to X is visible, as is seen when the other worker
    // stores to Y, finds X not stored yet, and Y is yet lost behind the fence.
    a_clwb_may_take_effect_before_an_earlier_store_to_another_line:
        Adr, [&[Store(X, 1), Flush(Y), StoreFence, Store(Z, 1)], &[Store(Y, 1), FullFence, Load(X)]],
        [0], [(Z, 1), (Y, 0)] => true;
    a_clflush_takes_effect_after_every_earlier_store:
        Adr, [&[Store(X, 1), StrongFlush(Y), StoreFence, Store(Z, 1)], &[Store(Y, 1), FullFence, Load(X)]],
        [0], [(Z, 1), (Y, 0)] => false;
    a_fence_between_store_and_clwb_keeps_their_order:
        Adr, [&[Store(X, 1), StoreFence, Flush(Y), StoreFence, Store(Z, 1)], &[Store(Y, 1), FullFence, Load(X)]],
        [0], [(Z, 1), (Y, 0)] => false;
    a_locked_instruction_between_store_and_clwb_keeps_their_order:
        Adr, [&[Store(X, 1), Exchange(FLAG, 1), Flush(Y), StoreFence, Store(Z, 1)], &[Store(Y, 1), FullFence, Load(X)]],
        [0, 0], [(Z, 1), (Y, 0)] => false;
    of_two_lines_flushed_while_another_worker_stores_the_second_may_be_lost:
        Adr, [&[Flush(X), Flush(Y), StoreFence, Store(Z, 1)], &[Store(X, 1), Store(Y, 1)]],
        [], [(Z, 1), (X, 1), (Y, 0)] => true;
    of_two_lines_flushed_while_another_worker_stores_the_first_may_be_lost:
        Adr, [&[Flush(X), Flush(Y), StoreFence, Store(Z, 1)], &[Store(X, 1), Store(Y, 1)]],
        [], [(Z, 1), (X, 0), (Y, 1)] => true;
    // Having seen Y, the flush of X covers what was stored before Y.
    a_load_is_not_overtaken_by_a_later_clwb:
        Adr, [&[Store(X, 1), Store(Y, 1)], &[Load(Y), Flush(X), StoreFence, Store(FLAG, 1)]],
        [1], [(FLAG, 1), (X, 0)] => false;
    a_load_is_not_overtaken_by_a_later_clflush:
        Adr, [&[Store(X, 1), Store(Y, 1)], &[Load(Y), StrongFlush(X), StoreFence, Store(FLAG, 1)]],
        [1], [(FLAG, 1), (X, 0)] => false;
    a_full_fence_holds_loads_back:
        Adr, [&[Store(X, 1), FullFence, Load(Y)], &[Store(Y, 1), FullFence, Load(X)]], [0, 0], [] => false;
    stores_of_different_workers_to_one_line_persist_in_the_order_all_see:
        Adr, [&[Store(X, 1)], &[Load(X), Store(X + 1, 1)]], [1], [(X + 1, 1), (X, 0)] => false;
    a_non_temporal_store_may_become_visible_after_a_later_store:
        Adr, [&[NonTemporal(X, 1), Store(FLAG, 1)], &[Load(FLAG), Load(X)]], [1, 0], [] => true;
    a_fence_makes_a_non_temporal_store_visible_before_a_later_store:
        Adr, [&[NonTemporal(X, 1), StoreFence, Store(FLAG, 1)], &[Load(FLAG), Load(X)]], [1, 0], [] => false;
    a_non_temporal_store_to_a_word_becomes_visible_after_the_store_before_it:
        Adr, [&[Store(X, 1), NonTemporal(X, 2), StoreFence, Store(FLAG, 1)], &[Load(FLAG), Load(X)]],
        [1, 1], [] => false;
    a_non_temporal_store_to_a_word_persists_after_the_store_before_it:
        Adr, [&[Store(X, 1), NonTemporal(X, 2), StoreFence, Store(FLAG, 1)], &[Load(FLAG), Load(X)]],
        [1, 2], [(FLAG, 1), (X, 1)] => false;
    a_locked_instruction_completes_a_flush_on_x86:
        Adr, [&[Store(X, 1), Flush(X), Exchange(FLAG, 1)]], [0], [(FLAG, 1), (X, 0)] => false;
    on_a_portable_machine_a_locked_instruction_promises_nothing:
        AdrPortable, [&[Store(X, 1), Flush(X), Exchange(FLAG, 1)]], [0], [(FLAG, 1), (X, 0)] => true;
    a_locked_instruction_completes_a_non_temporal_store_on_x86:
        Adr, [&[NonTemporal(X, 1), Exchange(FLAG, 1)]], [0], [(FLAG, 1), (X, 0)] => false;
    on_a_portable_machine_a_locked_instruction_leaves_a_non_temporal_store_pending:
        AdrPortable, [&[NonTemporal(X, 1), Exchange(FLAG, 1)]], [0], [(FLAG, 1), (X, 0)] => true;
    with_eadr_what_another_worker_has_seen_is_durable:
        EadrVisible, [&[Store(X, 1)], &[Load(X)]], [1], [(X, 0)] => false;
    with_eadr_what_a_worker_itself_has_seen_may_be_in_its_store_buffer:
        EadrVisible, [&[Store(X, 1), Load(X)]], [1], [(X, 0)] => true;
    with_eadr_what_a_worker_has_seen_behind_a_full_fence_is_durable:
        EadrVisible, [&[Store(X, 1), FullFence, Load(X)]], [1], [(X, 0)] => false;
}

#[test]
fn clflush_then_clwb_is_as_the_axioms_say_on_one_line_and_on_two() {
    let flusher = |flushed: usize| [StrongFlush(flushed), Flush(Y), StoreFence, Store(Z, 1)];
    let writer = [Store(Y, 1), FullFence, Store(X, 1)];
    for flushed in [X, Y] {
        outcomes(&[&flusher(flushed), &writer], ADR);
    }
}

#[test]
fn a_load_may_overtake_an_earlier_flush_and_its_fence() {
    // Store buffering with a complete persist in between: the fence of stores holds no load back.
    let worker = |mine, other| [Store(mine, 1), Flush(mine), StoreFence, Load(other)];
    let workers: [&[Instruction]; 2] = [&worker(X, Y), &worker(Y, X)];
    let program = LitmusProgram { workers: workers.map(<[_]>::to_vec).to_vec() };
    let found = program.outcomes(ADR, CutTime::End);
    assert!(found.iter().any(|outcome| outcome.registers.concat() == [0, 0]));
    assert!(found.iter().all(|outcome| outcome.memory[X] == 1 && outcome.memory[Y] == 1));
}

#[test]
fn with_eadr_each_worker_s_buffer_is_lost_on_its_own() {
    let (first, second) = (&[Store(X, 1)][..], &[Store(Y, 1)][..]);
    let found = outcomes(&[first, second], PowerFailDomain::EadrVisible);
    let memories: BTreeSet<[u64; 2]> =
        found.iter().map(|outcome| [outcome.memory[X], outcome.memory[Y]]).collect();
    assert_eq!(memories, BTreeSet::from([[0, 0], [0, 1], [1, 0], [1, 1]]));
}
