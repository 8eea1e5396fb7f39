//! The memory model a second time, as an axiom and not as a machine: total orders of all events.
//!
//! An execution is a total order of the instructions of all workers (each takes effect once) that
//! respects the preserved program order of Px86. A load returns the latest store to its word that is
//! before it in the order or earlier in its own program. If the power is cut after some prefix of the
//! order, a set of stores has persisted that is legal if
//!
//! * within a line, with a cached store all cached stores before it have persisted;
//! * with any store all stores to the same word before it;
//! * what was promised: by a `clflush` the cached stores to its line before it; by a `clwb` that is
//!   followed in its program by a fence or locked instruction before the cut, likewise; by a fence
//!   or locked instruction the non-temporal stores before it in its program. (On a portable machine
//!   locked instructions promise nothing.)
//!
//! Nothing of the model's own code is used.

use std::collections::BTreeSet;

use lapis_device::PowerFailDomain;
use lapis_device::litmus::{CutTime, Instruction, LitmusProgram, Outcome};
use proptest::prelude::*;

#[derive(Clone, Copy)]
struct Placed {
    worker: usize,
    /// In its program.
    number: usize,
    instruction: Instruction,
}

fn stored(instruction: Instruction) -> Option<(usize, u64)> {
    match instruction {
        Instruction::Store(word, value)
        | Instruction::NonTemporal(word, value)
        | Instruction::Exchange(word, value) => Some((word, value)),
        _ => None,
    }
}

fn is_cached_store(instruction: Instruction) -> bool {
    matches!(instruction, Instruction::Store(..) | Instruction::Exchange(..))
}

fn is_fence(instruction: Instruction) -> bool {
    matches!(instruction, Instruction::StoreFence | Instruction::FullFence)
}

/// Preserved program order: whether `first` takes effect before `second`, which follows it.
fn preserved(first: Instruction, second: Instruction) -> bool {
    use Instruction::{
        Exchange, Flush, FullFence, Load, NonTemporal, Store, StoreFence, StrongFlush,
    };
    let same_line = |a: usize, b: usize| a / 8 == b / 8;
    match (first, second) {
        (Load(_) | FullFence | Exchange(..), _) | (_, FullFence | Exchange(..)) => true,
        (_, Load(_)) => false,
        (StoreFence, _) | (_, StoreFence) => true,
        (Store(..) | StrongFlush(_), Store(..) | StrongFlush(_)) => true,
        (Store(a, _) | StrongFlush(a), Flush(b)) | (Flush(a), StrongFlush(b)) => same_line(a, b),
        (Store(a, _) | NonTemporal(a, _), NonTemporal(b, _)) | (NonTemporal(a, _), Store(b, _)) => {
            a == b
        }
        (Flush(_), Store(..) | NonTemporal(..) | Flush(_))
        | (StrongFlush(_), NonTemporal(..))
        | (NonTemporal(..), Flush(_) | StrongFlush(_)) => false,
    }
}

struct Reference<'p> {
    program: &'p LitmusProgram,
    domain: PowerFailDomain,
    cut: CutTime,
    order: Vec<Placed>,
    placed: Vec<Vec<bool>>,
    outcomes: BTreeSet<Outcome>,
}

pub fn reference(
    program: &LitmusProgram,
    domain: PowerFailDomain,
    cut: CutTime,
) -> BTreeSet<Outcome> {
    let placed = program.workers.iter().map(|worker| vec![false; worker.len()]).collect();
    let outcomes = BTreeSet::new();
    let mut all = Reference { program, domain, cut, order: Vec::new(), placed, outcomes };
    all.extend(&mut vec![Vec::new(); program.workers.len()]);
    all.outcomes
}

impl Reference<'_> {
    fn extend(&mut self, registers: &mut Vec<Vec<u64>>) {
        let total: usize = self.program.workers.iter().map(Vec::len).sum();
        if self.cut == CutTime::Any || self.order.len() == total {
            self.cut_power(registers);
        }
        for worker in 0..self.program.workers.len() {
            let instructions = &self.program.workers[worker];
            for number in 0..instructions.len() {
                let instruction = instructions[number];
                let blocked = self.placed[worker][number]
                    || (0..number).any(|earlier| {
                        !self.placed[worker][earlier]
                            && preserved(instructions[earlier], instruction)
                    });
                if blocked {
                    continue;
                }
                let value = match instruction {
                    Instruction::Load(word) | Instruction::Exchange(word, _) => {
                        Some(self.value(worker, number, word))
                    }
                    _ => None,
                };
                registers[worker].extend(value);
                self.order.push(Placed { worker, number, instruction });
                self.placed[worker][number] = true;
                self.extend(registers);
                self.placed[worker][number] = false;
                self.order.pop();
                if value.is_some() {
                    registers[worker].pop();
                }
            }
        }
    }

    fn value(&self, worker: usize, number: usize, word: usize) -> u64 {
        let own = self.program.workers[worker][..number].iter().enumerate().rev();
        for (earlier, &instruction) in own {
            match stored(instruction) {
                // Later in the order than everything there is.
                Some((at, value)) if at == word && !self.placed[worker][earlier] => return value,
                _ => {}
            }
        }
        let before = self.order.iter().rev().filter_map(|event| stored(event.instruction));
        before.filter(|&(at, _)| at == word).map(|(_, value)| value).next().unwrap_or(0)
    }

    fn is_promised(&self, store: usize) -> bool {
        let event = self.order[store];
        let durable_fence = |it: &Placed| {
            let locked = matches!(it.instruction, Instruction::Exchange(..));
            is_fence(it.instruction) || locked && self.domain != PowerFailDomain::AdrPortable
        };
        let (word, _) = stored(event.instruction).expect("a store");
        if !is_cached_store(event.instruction) {
            let after = &self.order[store + 1..];
            return after.iter().any(|later| {
                later.worker == event.worker && later.number > event.number && durable_fence(later)
            });
        }
        let after = self.order.iter().enumerate().skip(store + 1);
        after.into_iter().any(|(at, later)| match later.instruction {
            Instruction::StrongFlush(flushed) => flushed / 8 == word / 8,
            Instruction::Flush(flushed) if flushed / 8 == word / 8 => {
                self.order[at + 1..].iter().any(|fence| {
                    fence.worker == later.worker
                        && fence.number > later.number
                        && durable_fence(fence)
                })
            }
            _ => false,
        })
    }

    fn cut_power(&mut self, registers: &[Vec<u64>]) {
        let stores: Vec<usize> = (0..self.order.len())
            .filter(|&at| stored(self.order[at].instruction).is_some())
            .collect();
        let visible_is_durable = self.domain == PowerFailDomain::EadrVisible;
        let promised: Vec<bool> =
            stores.iter().map(|&at| visible_is_durable || self.is_promised(at)).collect();
        for mask in 0..1u32 << stores.len() {
            let persisted = |at: usize| mask & (1 << at) != 0;
            let legal = (0..stores.len()).all(|later| {
                let here = self.order[stores[later]].instruction;
                let (word, _) = stored(here).expect("a store");
                let complete = (0..later).all(|earlier| {
                    let before = self.order[stores[earlier]].instruction;
                    let (other, _) = stored(before).expect("a store");
                    let cached = is_cached_store(here) && is_cached_store(before);
                    let ordered = other == word || (cached && other / 8 == word / 8);
                    !ordered || persisted(earlier)
                });
                if persisted(later) { complete } else { !promised[later] }
            });
            if !legal {
                continue;
            }
            let mut memory = vec![0; self.program.word_count()];
            for (at, &store) in stores.iter().enumerate() {
                if persisted(at)
                    && let Some((word, value)) = stored(self.order[store].instruction)
                {
                    memory[word] = value;
                }
            }
            self.outcomes.insert(Outcome { registers: registers.to_vec(), memory });
        }
    }
}

/// Random programs over two words of one line and one word of each of two others.
fn programs() -> impl Strategy<Value = LitmusProgram> {
    let instruction = (0u8..14, prop::sample::select(vec![0usize, 0, 1, 8, 16]));
    let worker = |longest| proptest::collection::vec(instruction.clone(), 1..=longest);
    let workers = prop_oneof![
        proptest::collection::vec(worker(6), 1),
        proptest::collection::vec(worker(3), 2),
        proptest::collection::vec(worker(2), 3),
        (worker(4), worker(3)).prop_map(|(first, second)| vec![first, second]),
    ];
    workers.prop_map(|workers| {
        let mut value = 0;
        let mut make = |(kind, word): (u8, usize)| {
            value += 1;
            match kind {
                0..=2 => Instruction::Store(word, value),
                3..=4 => Instruction::Load(word),
                5..=6 => Instruction::Flush(word),
                7 => Instruction::StrongFlush(word),
                8..=9 => Instruction::StoreFence,
                10 => Instruction::FullFence,
                11 => Instruction::Exchange(word, value),
                _ => Instruction::NonTemporal(word, value),
            }
        };
        let workers =
            workers.into_iter().map(|worker| worker.into_iter().map(&mut make).collect()).collect();
        LitmusProgram { workers }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_machine_and_the_axioms_agree_on_random_programs(program in programs()) {
        for domain in [
            PowerFailDomain::Adr,
            PowerFailDomain::AdrPortable,
            PowerFailDomain::EadrVisible,
        ] {
            let machine = program.outcomes(domain, CutTime::Any);
            let axioms = reference(&program, domain, CutTime::Any);
            let more: Vec<_> = machine.difference(&axioms).collect();
            let fewer: Vec<_> = axioms.difference(&machine).collect();
            prop_assert!(
                more.is_empty() && fewer.is_empty(),
                "{:?}: the machine leaves {:?} and does not leave {:?}", domain, more, fewer
            );
        }
    }
}
