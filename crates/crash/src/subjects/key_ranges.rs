//! What an ordered index holds, found out by ranges of keys.
//!
//! The ranges are the same for all images of a run. Each is scanned from its first key on until a
//! key of the next one comes, and each of its keys is looked up: reads that depend on nothing else
//! than what they read, so that a range in whose lines nothing can have changed is known
//! ([`KnownParts`]).

use std::fmt;
use std::ops::{Bound, ControlFlow};

use lapis_device::Modelled;
use lapis_index::{Index, IndexRoot};
use lapis_pmem::{Link, LockGeneration};

use super::entries::Entries;
use super::index::KeySpace;
use crate::known_parts::{KnownParts, MOST_PARTS, PartsOf};

/// Keys of a range, of those that a run draws from: few, so that a change concerns few keys, and
/// enough that descents to ranges are few.
const KEYS_OF_RANGE: usize = 8;

/// Scans an index forward from a bound on.
pub(super) type RangeScan<I, K> = fn(&I, Bound<&K>, &mut dyn FnMut(&K, u64) -> ControlFlow<()>);

type Entry<K> = (<K as lapis_index::IndexKey>::Buf, u64);

/// How the keys of an index are cut into ranges.
pub(super) struct KeyRanges<I, K: KeySpace + ?Sized> {
    scan: RangeScan<I, K>,
    /// The first key of each range but the first, which begins before all keys.
    begins: Vec<K::Buf>,
}

impl<I, K: KeySpace + ?Sized> fmt::Debug for KeyRanges<I, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRanges({})", self.count())
    }
}

/// Whether looking up a key finds this value; if not, what it finds.
type LookUp<'l, K> = &'l dyn Fn(&<K as lapis_index::IndexKey>::Buf, u64) -> Result<(), String>;

impl<I, K: KeySpace + ?Sized> KeyRanges<I, K> {
    pub(super) fn new(keys: impl Iterator<Item = K::Buf>, scan: RangeScan<I, K>) -> Self {
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let each = KEYS_OF_RANGE.max(keys.len().div_ceil(MOST_PARTS));
        let begins = keys.into_iter().step_by(each).skip(1).collect();
        Self { scan, begins }
    }

    fn count(&self) -> usize {
        self.begins.len() + 1
    }
}

impl<I: Index<Modelled, K>, K: KeySpace + ?Sized> KeyRanges<I, K> {
    /// Which of a few states the index at `root` is in.
    pub(super) fn find(
        &self,
        index: &I,
        root: Link<IndexRoot>,
        expected: &[&Entries<K::Buf>],
        look_up: LookUp<'_, K>,
        known: &mut KnownParts,
    ) -> Result<Option<usize>, String> {
        let generation = LockGeneration::of(index.pool().generation());
        let domain = index.pool().domain();
        let mut parts = known.known_on(domain, generation, root.offset(), self.count());
        let found = self.compare(index, expected, look_up, &mut parts, known);
        known.keep(parts);
        found
    }

    fn compare(
        &self,
        index: &I,
        expected: &[&Entries<K::Buf>],
        look_up: LookUp<'_, K>,
        parts: &mut PartsOf<Vec<Entry<K>>>,
        known: &mut KnownParts,
    ) -> Result<Option<usize>, String> {
        let mut rest: Vec<_> = expected.iter().map(|state| state.as_slice()).collect();
        let mut range = rest.clone();
        let mut possible = (1u64 << expected.len()) - 1;
        for number in 0..self.count() {
            let until = self.begins.get(number);
            if let Some(contents) = parts.contents(number) {
                known.known_times += 1;
                // Where they are the next entries of a state, and those behind are not of this range.
                let behind = |after: &[Entry<K>]| {
                    after.first().is_none_or(|entry| until.is_some_and(|until| entry.0 >= *until))
                };
                for (number, rest) in rest.iter_mut().enumerate() {
                    match rest.strip_prefix(contents.as_slice()).filter(|after| behind(after)) {
                        Some(after) => *rest = after,
                        None => possible &= !(1 << number),
                    }
                }
                if possible == 0 {
                    return Ok(None);
                }
                continue;
            }
            for (range, rest) in range.iter_mut().zip(&mut rest) {
                let is_before = |entry: &&Entry<K>| until.is_none_or(|until| entry.0 < *until);
                (*range, *rest) = rest.split_at(rest.iter().take_while(is_before).count());
            }
            known.found_out_times += 1;
            let recording = known.wants(number).then(|| Recording::on(index.pool().domain()));
            let from = number.checked_sub(1).map(|before| K::borrow(&self.begins[before]));
            possible &= self.compare_range(index, from, until.map(K::borrow), &range);
            if possible == 0 {
                return Ok(None);
            }
            let found = range[possible.trailing_zeros() as usize];
            found.iter().try_for_each(|(key, value)| look_up(key, *value))?;
            if let Some(record) = recording.and_then(Recording::end) {
                known.learn(parts, number, found.to_vec(), record);
            }
        }
        Ok((0..expected.len()).find(|number| possible & 1 << number != 0))
    }

    /// Which of a few lists of entries, a bit for each, are what a scan of a range finds.
    fn compare_range(
        &self,
        index: &I,
        from: Option<&K>,
        until: Option<&K>,
        expected: &[&[Entry<K>]],
    ) -> u64 {
        let (mut possible, mut at) = ((1u64 << expected.len()) - 1, 0);
        (self.scan)(index, from.map_or(Bound::Unbounded, Bound::Included), &mut |key, value| {
            if until.is_some_and(|until| key >= until) {
                return ControlFlow::Break(());
            }
            possible &= holding(expected, |entries| {
                let same = |(other, there): &Entry<K>| {
                    *there == value && K::borrow(other).cmp(key).is_eq()
                };
                entries.get(at).is_some_and(same)
            });
            at += 1;
            if possible == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        possible & holding(expected, |entries| entries.len() == at)
    }
}

/// A bit for each of the lists of which `is_so`.
fn holding<T>(lists: &[&[T]], is_so: impl Fn(&&[T]) -> bool) -> u64 {
    let bits = lists.iter().enumerate().map(|(number, list)| u64::from(is_so(list)) << number);
    bits.fold(0, |all, bit| all | bit)
}

/// Reads are recorded until this ends or is dropped.
struct Recording<'d> {
    domain: &'d Modelled,
    records: bool,
}

impl<'d> Recording<'d> {
    fn on(domain: &'d Modelled) -> Self {
        Self { domain, records: domain.record_reads() }
    }

    /// What was read; none if that was not recorded.
    fn end(self) -> Option<lapis_device::ReadRecord> {
        self.records.then(|| self.domain.take_record())
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.domain.take_record();
    }
}
