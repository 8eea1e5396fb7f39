//! What may become of one line: its pending units and the states in which a crash may leave it.
//!
//! The units of a line are in the order of their visibility. Cached ones form *groups*, numbered
//! upwards: an ordered store is a group of its own, and so is each run of relaxed stores of one
//! worker with no ordered store, flush of the line, fence or locked operation of that worker in
//! between. Groups persist in order (rule R2). Within a group any subset may have persisted,
//! because the compiler may have reordered it. Non-temporal units belong to no group: any subset
//! may have persisted (rule R6). Units that overlap an earlier unit never persist without it
//! (coherence of one address).
//!
//! The subsets of a group are all of them up to [`EXACT_UNITS`] units, beyond that the prefixes
//! and each unit alone, missing and present. Of a long history (a word stored over and over and
//! never flushed) only the newest groups are treated so; the older ones give [`OLDER_STATES`] or so
//! prefixes, evenly spread. Every state given is legal; [`LineStates::exact`] says whether every
//! legal state is given.

use std::collections::HashSet;

use lapis_pmem::LINE_BYTES;

/// The contents of a line.
pub type LineBytes = [u8; LINE_BYTES];

/// Up to this many unordered units, every subset is enumerated.
pub(crate) const EXACT_UNITS: usize = 3;
/// About this many subsets of one group are enumerated at most.
pub(crate) const THIN_STATES: usize = 128;
/// A group ends at this many units even if the compiler might have reordered more.
pub(crate) const GROUP_UNITS: u32 = 64;
/// The newest units of a line, whose subsets are enumerated.
const NEWEST_UNITS: usize = 48;
/// Up to this many units that share no byte, subsets are compared as bits.
const MOST_MASKED_UNITS: usize = 12;
/// About this many prefixes of the older ones are enumerated.
const OLDER_STATES: usize = 32;

/// What decides which of several stores may persist without others of them.
pub(crate) trait Dependent {
    /// Cached units persist group by group.
    fn group(&self) -> u32;

    fn is_nontemporal(&self) -> bool;

    /// Whether they share a byte.
    fn overlaps(&self, other: &Self) -> bool;
}

/// A store that is visible and not durable, within one aligned 8-byte unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) value: u64,
    /// Position in the history of the line.
    pub(crate) sequence: u32,
    pub(crate) group: u32,
    pub(crate) start: u8,
    pub(crate) bytes: u8,
    pub(crate) worker: u8,
    pub(crate) nontemporal: bool,
}

impl Unit {
    #[inline]
    pub(crate) fn apply(&self, line: &mut LineBytes) {
        let (start, bytes) = (usize::from(self.start), usize::from(self.bytes));
        line[start..start + bytes].copy_from_slice(&self.value.to_le_bytes()[..bytes]);
    }

    fn is_held(&self, line: &LineBytes) -> bool {
        let (start, bytes) = (usize::from(self.start), usize::from(self.bytes));
        line[start..start + bytes] == self.value.to_le_bytes()[..bytes]
    }
}

impl Dependent for Unit {
    #[inline]
    fn group(&self) -> u32 {
        self.group
    }

    #[inline]
    fn is_nontemporal(&self) -> bool {
        self.nontemporal
    }

    #[inline]
    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
    }
}

/// Makes the units that `selected` picks durable, and those that they cannot persist without, and
/// removes them from `pending`.
pub(crate) fn retire(
    durable: &mut LineBytes,
    pending: &mut Vec<Unit>,
    selected: impl Fn(&Unit) -> bool,
) {
    if pending.iter().all(&selected) {
        for unit in pending.drain(..) {
            unit.apply(durable);
        }
        return;
    }
    let mut chosen: Vec<bool> = pending.iter().map(selected).collect();
    close(pending, &mut chosen);
    let mut index = 0;
    pending.retain(|unit| {
        let take = chosen[index];
        index += 1;
        if take {
            unit.apply(durable);
        }
        !take
    });
}

/// Adds every unit that a chosen one cannot persist without.
pub(crate) fn close<U: Dependent>(pending: &[U], chosen: &mut [bool]) {
    for later in (0..pending.len()).rev() {
        if !chosen[later] {
            continue;
        }
        let unit = &pending[later];
        for earlier in 0..later {
            let before = &pending[earlier];
            let cached = !unit.is_nontemporal() && !before.is_nontemporal();
            let ordered = cached && before.group() < unit.group();
            chosen[earlier] |= ordered || before.overlaps(unit);
        }
    }
}

/// The distinct states in which a crash may leave a line, first the one with nothing pending
/// persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineStates {
    pub(crate) states: Vec<LineBytes>,
    /// Which one has everything pending persisted.
    pub(crate) everything: usize,
    /// Whether these are all legal states.
    pub(crate) exact: bool,
}

/// Enumerates the states of a line.
///
/// All subsets of up to `exact_units` unordered units are among them.
pub(crate) fn line_states(durable: &LineBytes, pending: &[Unit], exact_units: usize) -> LineStates {
    if pending.len() <= MOST_MASKED_UNITS && are_disjoint(pending) {
        states_of_disjoint(durable, pending, exact_units)
    } else {
        states_of_any(durable, pending, exact_units)
    }
}

/// Whether no two share a byte, as with the words of a copy and of most log entries.
fn are_disjoint(pending: &[Unit]) -> bool {
    let bytes = pending.iter().map(|unit| u64::MAX >> (64 - unit.bytes) << unit.start);
    let mut stored = 0;
    bytes.into_iter().all(|bytes| (stored & bytes == 0, stored |= bytes).0)
}

/// [`line_states`] of few units that share no byte: a state is the set of those that are in it and
/// change anything, so sets are compared and not lines.
fn states_of_disjoint(durable: &LineBytes, pending: &[Unit], exact_units: usize) -> LineStates {
    let all = |selected: &dyn Fn(&Unit) -> bool| {
        let bits = pending.iter().enumerate();
        bits.fold(0u32, |mask, (at, unit)| mask | u32::from(selected(unit)) << at)
    };
    let mut exact = true;
    let free = subset_masks(all(&|unit| unit.nontemporal), exact_units, &mut exact);
    let changing = all(&|unit| !unit.is_held(durable));
    let mut cached = vec![0];
    let mut before = 0;
    for unit in pending.iter().filter(|unit| !unit.nontemporal) {
        let group = all(&|other| !other.nontemporal && other.group == unit.group);
        if group & before == 0 {
            let subsets = subset_masks(group, exact_units, &mut exact);
            cached.extend(subsets.into_iter().skip(1).map(|subset| before | subset));
            before |= group;
        }
    }
    let mut seen = [0u64; (1 << MOST_MASKED_UNITS) / 64];
    let mut found = LineStates { states: Vec::with_capacity(32), everything: 0, exact };
    for cached in cached {
        for &free in &free {
            let chosen = (cached | free) & changing;
            let (word, bit) = ((chosen / 64) as usize, 1 << (chosen % 64));
            if seen[word] & bit != 0 {
                continue;
            }
            seen[word] |= bit;
            if chosen == changing {
                found.everything = found.states.len();
            }
            let mut state = *durable;
            let mut left = chosen;
            while left != 0 {
                pending[left.trailing_zeros() as usize].apply(&mut state);
                left &= left - 1;
            }
            found.states.push(state);
        }
    }
    found
}

/// [`subsets`] as bits.
fn subset_masks(units: u32, exact_units: usize, exact: &mut bool) -> Vec<u32> {
    let count = units.count_ones() as usize;
    if count <= exact_units {
        // Counts through the bits that are set.
        let next = |&mask: &u32| Some(mask.wrapping_sub(units) & units).filter(|&mask| mask != 0);
        return std::iter::successors(Some(0), next).collect();
    }
    *exact = false;
    let step = (3 * count).div_ceil(THIN_STATES).max(1);
    let places: Vec<u32> = (0..u32::BITS).filter(|at| units >> at & 1 == 1).collect();
    let mut subsets = vec![0];
    for &at in places.iter().step_by(step) {
        let bit = 1 << at;
        subsets.extend([units & (bit - 1), bit, units & !bit]);
    }
    subsets.push(units);
    subsets
}

/// [`line_states`] of any units.
fn states_of_any(durable: &LineBytes, pending: &[Unit], exact_units: usize) -> LineStates {
    let mut found = Found { states: vec![*durable], seen: HashSet::from([*durable]) };
    let (older, newest) = pending.split_at(older_units(pending));
    let mut exact = older.is_empty();
    let mut base = *durable;
    let step = older.len().div_ceil(OLDER_STATES).max(1);
    let mut skipped = 0;
    for (at, unit) in older.iter().enumerate() {
        if skipped >= step && begins_group(older, at) {
            found.add(base);
            skipped = 0;
        }
        unit.apply(&mut base);
        skipped += 1;
    }
    let choices = Choices::of(newest, exact_units, &mut exact);
    let entangled = are_entangled(newest);
    let mut chosen = vec![false; newest.len()];
    for cached in 0..choices.cached.len() {
        for free in 0..choices.free.len() {
            choices.mark(cached, free, &mut chosen);
            if entangled {
                close(newest, &mut chosen);
            }
            let mut state = base;
            for (unit, _) in newest.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
                unit.apply(&mut state);
            }
            found.add(state);
        }
    }
    for unit in newest {
        unit.apply(&mut base);
    }
    let everything = found.states.iter().position(|state| *state == base).unwrap_or(0);
    LineStates { states: found.states, everything, exact }
}

/// Distinct states in the order in which they were found.
struct Found {
    states: Vec<LineBytes>,
    seen: HashSet<LineBytes>,
}

impl Found {
    fn add(&mut self, state: LineBytes) {
        if self.seen.insert(state) {
            self.states.push(state);
        }
    }
}

/// How many units are too old for their subsets to be enumerated: whole groups.
fn older_units(pending: &[Unit]) -> usize {
    let most = pending.len().saturating_sub(NEWEST_UNITS);
    (0..=most).rev().find(|&at| begins_group(pending, at)).unwrap_or(0)
}

/// Whether the units before `at` may persist without those from `at` on.
fn begins_group(pending: &[Unit], at: usize) -> bool {
    let before = pending[..at].iter().rfind(|unit| !unit.nontemporal);
    let after = pending[at..].iter().find(|unit| !unit.nontemporal);
    match (before, after) {
        (Some(before), Some(after)) => before.group != after.group,
        _ => true,
    }
}

/// Whether a choice that respects the groups may yet contain a unit without one it depends on.
pub(crate) fn are_entangled<U: Dependent>(pending: &[U]) -> bool {
    pending.iter().enumerate().any(|(at, unit)| {
        pending[..at].iter().any(|before| {
            let free = unit.is_nontemporal() || before.is_nontemporal();
            before.overlaps(unit) && (free || before.group() == unit.group())
        })
    })
}

/// The choices among units, if those that overlap are left to [`close`].
pub(crate) struct Choices {
    /// The places of the cached units.
    cached_units: Vec<usize>,
    /// Of the cached units: how many come first, in groups that are whole, and a subset of the next.
    pub(crate) cached: Vec<(usize, Vec<usize>)>,
    /// Of the non-temporal ones: subsets.
    pub(crate) free: Vec<Vec<usize>>,
}

impl Choices {
    /// First nothing and last everything, among the cached units and among the others.
    pub(crate) fn of<U: Dependent>(pending: &[U], exact_units: usize, exact: &mut bool) -> Self {
        let (free, cached_units): (Vec<usize>, Vec<usize>) =
            (0..pending.len()).partition(|&at| pending[at].is_nontemporal());
        let groups = cached_units.chunk_by(|&a, &b| pending[a].group() == pending[b].group());
        let mut cached = vec![(0, Vec::new())];
        let mut before = 0;
        for group in groups {
            let subsets = subsets(group, exact_units, exact).into_iter().skip(1);
            cached.extend(subsets.map(|subset| (before, subset)));
            before += group.len();
        }
        Self { cached, free: subsets(&free, exact_units, exact), cached_units }
    }

    /// Notes what is in a choice of each kind.
    pub(crate) fn mark(&self, cached: usize, free: usize, chosen: &mut [bool]) {
        chosen.fill(false);
        let (whole, subset) = &self.cached[cached];
        for &at in self.cached_units[..*whole].iter().chain(subset).chain(&self.free[free]) {
            chosen[at] = true;
        }
    }
}

/// Subsets of `units`, the empty one first and the whole last.
fn subsets(units: &[usize], exact_units: usize, exact: &mut bool) -> Vec<Vec<usize>> {
    let count = units.len();
    if count <= exact_units {
        let member = |mask: usize| {
            (0..count).filter(move |bit| mask & (1 << bit) != 0).map(|bit| units[bit]).collect()
        };
        return (0..1usize << count).map(member).collect();
    }
    *exact = false;
    let step = (3 * count).div_ceil(THIN_STATES).max(1);
    let mut subsets = vec![Vec::new()];
    for at in (0..count).step_by(step) {
        subsets.push(units[..at].to_vec());
        subsets.push(vec![units[at]]);
        subsets.push(units.iter().copied().filter(|&unit| unit != units[at]).collect());
    }
    subsets.push(units.to_vec());
    subsets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, subset by subset: legal if no chosen unit lacks one it depends on.
    fn states_by_definition(durable: &LineBytes, pending: &[Unit]) -> HashSet<LineBytes> {
        let depends = |later: &Unit, earlier: &Unit| {
            let same_bytes = (earlier.start..earlier.start + earlier.bytes)
                .any(|byte| (later.start..later.start + later.bytes).contains(&byte));
            let both_cached = !later.nontemporal && !earlier.nontemporal;
            same_bytes || (both_cached && earlier.group < later.group)
        };
        let mut states = HashSet::new();
        for mask in 0..1u32 << pending.len() {
            let chosen = |at: usize| mask & (1 << at) != 0;
            let legal = (0..pending.len()).all(|later| {
                !chosen(later)
                    || (0..later).all(|earlier| {
                        chosen(earlier) || !depends(&pending[later], &pending[earlier])
                    })
            });
            if legal {
                let mut state = *durable;
                (0..pending.len())
                    .filter(|&at| chosen(at))
                    .for_each(|at| pending[at].apply(&mut state));
                states.insert(state);
            }
        }
        states
    }

    /// Units of a few groups on a few words, some narrower than others, some non-temporal.
    fn pending(longest: usize) -> impl Strategy<Value = Vec<Unit>> {
        let unit = (0u8..3, prop::sample::select(vec![1u8, 4, 8]), any::<bool>(), 0u8..5);
        proptest::collection::vec(unit, 0..longest).prop_map(|units| {
            let mut group = 0;
            let numbered = units.into_iter().enumerate();
            numbered
                .map(|(at, (word, bytes, new_group, kind))| {
                    group += u32::from(new_group);
                    Unit {
                        value: (at as u64 % 255 + 1) * 0x0101_0101_0101_0101,
                        sequence: at as u32,
                        group,
                        start: word * 8,
                        bytes,
                        worker: 0,
                        nontemporal: kind == 0,
                    }
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn states_are_those_of_the_definition(pending in pending(9)) {
            let durable = [0; LINE_BYTES];
            let found = line_states(&durable, &pending, EXACT_UNITS);
            let expected = states_by_definition(&durable, &pending);
            let states: HashSet<LineBytes> = found.states.iter().copied().collect();
            prop_assert_eq!(states.len(), found.states.len());
            prop_assert_eq!(found.states[0], durable);
            prop_assert!(states.is_subset(&expected));
            if found.exact {
                prop_assert_eq!(states, expected);
            }
        }

        #[test]
        fn comparing_sets_of_disjoint_units_gives_what_comparing_lines_gives(
            pending in pending(13), exact_units in 0usize..5,
        ) {
            let mut stored = 0u64;
            let disjoint: Vec<Unit> = pending
                .into_iter()
                .map(|unit| Unit { start: unit.start + 24 * (unit.sequence % 2) as u8, ..unit })
                .filter(|unit| {
                    let bytes = u64::MAX >> (64 - unit.bytes) << unit.start;
                    (stored & bytes == 0, stored |= bytes).0
                })
                .collect();
            prop_assert!(are_disjoint(&disjoint));
            // Some units store what is there.
            let durable = [1; LINE_BYTES];
            let found = states_of_disjoint(&durable, &disjoint, exact_units);
            prop_assert_eq!(found, states_of_any(&durable, &disjoint, exact_units));
        }

        #[test]
        fn states_of_long_histories_are_few_and_end_with_everything(pending in pending(400)) {
            let found = line_states(&[0; LINE_BYTES], &pending, EXACT_UNITS);
            let mut everything = [0; LINE_BYTES];
            pending.iter().for_each(|unit| unit.apply(&mut everything));
            prop_assert_eq!(found.states[found.everything], everything);
        }

        #[test]
        fn retiring_leaves_a_legal_state_and_keeps_the_final_contents(
            pending in pending(9), mark in 0u32..9,
        ) {
            let mut everything = [0; LINE_BYTES];
            pending.iter().for_each(|unit| unit.apply(&mut everything));
            let expected = states_by_definition(&[0; LINE_BYTES], &pending);
            let (mut durable, mut left) = ([0; LINE_BYTES], pending.clone());
            retire(&mut durable, &mut left, |unit| !unit.nontemporal && unit.sequence < mark);
            prop_assert!(expected.contains(&durable));
            prop_assert!(left.iter().all(|unit| unit.nontemporal || unit.sequence >= mark));
            left.iter().for_each(|unit| unit.apply(&mut durable));
            prop_assert_eq!(durable, everything);
        }
    }
}
