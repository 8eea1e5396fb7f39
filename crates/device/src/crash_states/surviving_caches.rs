//! Where caches survive a power cut (eADR): what is in store buffers is lost, and in what order
//! stores leave them.
//!
//! For litmus programs and whoever reads traces; `lapis crash` does not explore these states.
//!
//! A store that has left its buffer is in a cache or accepted by the memory controller, and durable.
//! Which stores may have left while others have not is x86's order of stores (Sewell, Sarkar, Owens,
//! Zappa Nardelli, Myreen: "x86-TSO", CACM 2010) and its exceptions (Intel's Software Developer's
//! Manual, volume 3, "Memory ordering"; for non-temporal stores also Raad, Maranget, Vafeiadis:
//! "Extending Intel-x86 Consistency and Persistency", POPL 2022), on top of what a compiler may do:
//!
//! * Ordered stores leave in program order, whatever their lines.
//! * Relaxed stores and the words of a copy form *groups*, each up to the next ordered store, fence,
//!   locked operation or `clflush`. Groups leave in order. Within a group any subset may have left:
//!   the compiler may order relaxed stores as it likes, and the processor the words of a wide copy
//!   (`rep movsb` stores in any order; a vector is no unit of visibility; and what is longer than
//!   eight bytes or crosses their boundary tears).
//! * Non-temporal stores wait in write-combining buffers, which no order but that of a word's own
//!   stores concerns: they leave before earlier stores or after later ones, in any 8-byte subset.
//! * A fence and a locked operation leave both kinds of buffer empty.
//! * `clwb` and `clflushopt` order nothing: where caches survive they may be left out altogether.
//!   `clflush` is ordered with cached stores like one of them.
//! * Stores to one word leave in order, and what overlaps an earlier one not without it.
//!
//! An acknowledgement that the trace notes waits for nothing: it may have gone to a device, past the
//! buffers. So what was acknowledged without a fence may be lost.
//!
//! aarch64 keeps ordered stores (`stlr`) behind what is before them but lets relaxed ones overtake
//! them, and gives no promise at a locked operation that is not also a barrier. A machine of that kind
//! whose caches survive has more states than these: groups would have to be open at their front. The
//! model has none, since such a machine does not exist as a product that Lapis knows.
//!
//! A trace of several workers is in the order in which stores became visible, which settles all of
//! this but one thing: the words of one copy are noted one after the other, and any subset of
//! them may have been visible. So there a group is a run of relaxed or non-temporal stores of one
//! worker with no other event in between that could have noticed their order.

use std::collections::HashSet;

use crate::crash_states::line_table::LineTable;
use crate::crash_states::pending::{
    Choices, Dependent, GROUP_UNITS, LineBytes, THIN_STATES, Unit, are_entangled, close,
};

/// A choice among the stores in the buffers: the contents of all lines concerned.
pub(crate) type BufferState = Vec<(u32, LineBytes)>;

/// A store in a buffer.
#[derive(Clone, Debug)]
struct Buffered {
    /// The line's number in the table.
    number: u32,
    /// With the group among all stores, not those of its line.
    unit: Unit,
}

impl Dependent for Buffered {
    fn group(&self) -> u32 {
        self.unit.group
    }

    fn is_nontemporal(&self) -> bool {
        self.unit.nontemporal
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.number == other.number && self.unit.overlaps(&other.unit)
    }
}

/// The stores in all buffers, in the order of execution.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoresInBuffers {
    stores: Vec<Buffered>,
    group: u32,
    group_units: u32,
    /// No further store joins the group.
    group_closed: bool,
}

impl StoresInBuffers {
    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    /// Whether a store of `worker` would be one of the run that is here.
    pub(crate) fn is_run_of(&self, worker: u8) -> bool {
        self.stores.last().is_some_and(|last| last.unit.worker == worker)
    }

    /// A store is executed.
    pub(crate) fn push(&mut self, number: u32, unit: Unit, ordered: bool) {
        if !unit.nontemporal {
            let joins = !ordered && !self.group_closed && self.group_units < GROUP_UNITS;
            if !joins {
                self.group += 1;
                self.group_units = 0;
            }
            self.group_units += 1;
            self.group_closed = ordered;
        }
        self.stores.push(Buffered { number, unit: Unit { group: self.group, ..unit } });
    }

    /// Later stores stay behind all that are here.
    pub(crate) fn close_group(&mut self) {
        self.group_closed = true;
    }

    /// All of them leave, the oldest first.
    pub(crate) fn leave(&mut self) -> impl Iterator<Item = (u32, Unit)> {
        self.group_closed = true;
        self.stores.drain(..).map(|store| (store.number, store.unit))
    }

    /// What may have left, first nothing and last everything, and whether that is all. `line` gives
    /// the line of a number and its durable contents.
    pub(crate) fn states<'l>(
        &self,
        line: impl Fn(u32) -> (u32, &'l LineBytes),
        exact_units: usize,
    ) -> (Vec<BufferState>, bool) {
        let mut exact = true;
        let choices = Choices::of(&self.stores, exact_units, &mut exact);
        let (cached, free) = (choices.cached.len(), choices.free.len());
        let step = thinning(cached * free, free);
        let entangled = are_entangled(&self.stores);
        let mut chosen = vec![false; self.stores.len()];
        let mut seen = HashSet::new();
        let mut states = Vec::new();
        let everything = std::iter::once(cached * free - 1);
        for choice in (0..cached * free).step_by(step).chain(everything) {
            choices.mark(choice / free, choice % free, &mut chosen);
            if entangled {
                close(&self.stores, &mut chosen);
            }
            let all = chosen.iter().all(|&left| left);
            // Everything is last, however often it is met before.
            if (!all || choice == cached * free - 1) && seen.insert(chosen.clone()) {
                states.push(self.state(&line, &chosen));
            }
        }
        (states, step == 1 && exact)
    }

    fn state<'l>(
        &self,
        line: &impl Fn(u32) -> (u32, &'l LineBytes),
        chosen: &[bool],
    ) -> BufferState {
        let mut table = LineTable::new();
        let mut state = BufferState::new();
        for (store, &left) in self.stores.iter().zip(chosen) {
            let (line, durable) = line(store.number);
            let (place, new) = table.number(line);
            if new {
                state.push((line, *durable));
            }
            if left {
                store.unit.apply(&mut state[place as usize].1);
            }
        }
        state
    }
}

/// Of `choices` choices, `free` for each among the cached stores, only each so many-th is taken; of
/// the others' subsets each has its turn.
fn thinning(choices: usize, free: usize) -> usize {
    let step = choices.div_ceil(THIN_STATES).max(1);
    let divisor = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (step..).find(|&step| divisor(step, free) == 1).unwrap_or(step)
}

#[cfg(test)]
mod tests {
    use lapis_pmem::LINE_BYTES;
    use proptest::prelude::*;

    use super::*;

    /// What has left may have left without what has not, by the definition at the top of the module.
    fn is_legal(stores: &[Buffered], left: impl Fn(usize) -> bool) -> bool {
        (0..stores.len()).filter(|&later| left(later)).all(|later| {
            (0..later).filter(|&earlier| !left(earlier)).all(|earlier| {
                let (later, earlier) = (&stores[later], &stores[earlier]);
                let (a, b) = (&later.unit, &earlier.unit);
                let same_bytes = later.number == earlier.number
                    && (a.start..a.start + a.bytes)
                        .any(|at| (b.start..b.start + b.bytes).contains(&at));
                let in_order = !a.nontemporal && !b.nontemporal && b.group < a.group;
                !same_bytes && !in_order
            })
        })
    }

    fn buffers(longest: usize) -> impl Strategy<Value = StoresInBuffers> {
        let store = (0u32..3, 0u8..2, prop::sample::select(vec![1u8, 4, 8]), 0u8..6);
        proptest::collection::vec(store, 0..longest).prop_map(|stores| {
            let mut buffers = StoresInBuffers::default();
            for (at, (number, word, bytes, kind)) in stores.into_iter().enumerate() {
                let unit = Unit {
                    value: (at as u64 % 255 + 1) * 0x0101_0101_0101_0101,
                    sequence: at as u32,
                    group: 0,
                    start: word * 8,
                    bytes,
                    worker: 0,
                    nontemporal: kind == 0,
                };
                buffers.push(number, unit, kind < 3);
                if kind == 5 {
                    buffers.close_group();
                }
            }
            buffers
        })
    }

    const BLANK: LineBytes = [0; LINE_BYTES];

    proptest! {
        #[test]
        fn states_are_those_of_the_definition(buffers in buffers(8)) {
            let stores = &buffers.stores;
            let (found, exact) = buffers.states(|number| (number, &BLANK), 8);
            let legal = (0..1u32 << stores.len()).filter(|mask| {
                is_legal(stores, |at| mask & (1 << at) != 0)
            });
            let expected: HashSet<BufferState> = legal.map(|mask| {
                let chosen: Vec<bool> = (0..stores.len()).map(|at| mask & (1 << at) != 0).collect();
                buffers.state(&|number| (number, &BLANK), &chosen)
            }).collect();
            let distinct: HashSet<BufferState> = found.iter().cloned().collect();
            prop_assert!(distinct.is_subset(&expected));
            if exact {
                prop_assert_eq!(distinct, expected);
            }
        }

        #[test]
        fn states_of_many_stores_are_few_begin_with_nothing_and_end_with_everything(
            buffers in buffers(300),
        ) {
            let (found, _) = buffers.states(|number| (number, &BLANK), 3);
            let whole = |left: bool| {
                buffers.state(&|number| (number, &BLANK), &vec![left; buffers.stores.len()])
            };
            prop_assert!(found.len() <= THIN_STATES + 1);
            prop_assert_eq!(found.first(), Some(&whole(false)));
            prop_assert_eq!(found.last(), Some(&whole(true)));
        }
    }
}
