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
//! and each unit alone, missing and present. Very long lists (a word stored over and over and never
//! flushed) are thinned to about [`THIN_STATES`] states, evenly spread.

use lapis_pmem::LINE_BYTES;

/// The contents of a line.
pub type LineBytes = [u8; LINE_BYTES];

/// Up to this many unordered units, every subset is enumerated.
pub(crate) const EXACT_UNITS: usize = 3;
/// About this many states of one line are enumerated at most per kind of unit.
pub(crate) const THIN_STATES: usize = 128;

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
fn close(pending: &[Unit], chosen: &mut [bool]) {
    for later in (0..pending.len()).rev() {
        if !chosen[later] {
            continue;
        }
        let unit = &pending[later];
        for earlier in 0..later {
            let before = &pending[earlier];
            let ordered = !unit.nontemporal && !before.nontemporal && before.group < unit.group;
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
pub(crate) fn line_states(durable: &LineBytes, pending: &[Unit]) -> LineStates {
    let cached: Vec<usize> = (0..pending.len()).filter(|&at| !pending[at].nontemporal).collect();
    let free: Vec<usize> = (0..pending.len()).filter(|&at| pending[at].nontemporal).collect();
    let mut exact = true;
    let cached = cached_choices(pending, &cached, &mut exact);
    let free = subsets(&free, &mut exact);
    let mut states = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut chosen = vec![false; pending.len()];
    for cached in &cached {
        for free in &free {
            chosen.fill(false);
            for &at in cached.iter().chain(free) {
                chosen[at] = true;
            }
            close(pending, &mut chosen);
            let mut state = *durable;
            for (unit, _) in pending.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
                unit.apply(&mut state);
            }
            if seen.insert(state) {
                states.push(state);
            }
        }
    }
    let mut all = *durable;
    for unit in pending {
        unit.apply(&mut all);
    }
    let everything = states.iter().position(|state| *state == all).unwrap_or(0);
    LineStates { states, everything, exact }
}

/// The choices among the cached units: some groups whole, and a subset of the next one.
fn cached_choices(pending: &[Unit], cached: &[usize], exact: &mut bool) -> Vec<Vec<usize>> {
    let groups: Vec<&[usize]> =
        cached.chunk_by(|&a, &b| pending[a].group == pending[b].group).collect();
    let mut choices = vec![Vec::new()];
    let step = groups.len().div_ceil(THIN_STATES).max(1);
    if step > 1 {
        *exact = false;
    }
    let mut before = 0;
    for (number, group) in groups.iter().enumerate() {
        // With groups to skip, the last one is never skipped.
        if (number + 1) % step == 0 || number + 1 == groups.len() {
            for subset in subsets(group, exact).into_iter().skip(1) {
                let whole = cached[..before].iter().copied();
                choices.push(whole.chain(subset).collect());
            }
        }
        before += group.len();
    }
    choices
}

/// Subsets of `units`, the empty one first and the whole last.
fn subsets(units: &[usize], exact: &mut bool) -> Vec<Vec<usize>> {
    let count = units.len();
    if count <= EXACT_UNITS {
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
