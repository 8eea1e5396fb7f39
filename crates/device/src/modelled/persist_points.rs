//! Persist points: the places in a structure's source that flush, fence or copy non-temporally.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use serde::Serialize;

/// What a persist point does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistKind {
    /// Writes lines back.
    Flush,
    /// Completes earlier flushes and non-temporal stores.
    Fence,
    /// Copies or zeroes past the caches.
    NonTemporal,
}

impl PersistKind {
    /// The name users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Fence => "fence",
            Self::NonTemporal => "non-temporal",
        }
    }
}

/// A flush, fence or non-temporal copy, named by the source line that asked for it. A `persist` is
/// two points of one location, a flush and a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PersistPoint {
    /// Path of the source file, as the compiler saw it.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What happens there.
    pub kind: PersistKind,
}

impl PersistPoint {
    /// The point of `kind` at `location`.
    pub fn at(location: &'static Location<'static>, kind: PersistKind) -> Self {
        Self { file: location.file(), line: location.line(), column: location.column(), kind }
    }
}

impl fmt::Display for PersistPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{} {}", self.file, self.line, self.column, self.kind.name())
    }
}

/// A persist point and how often it was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PersistPointCount {
    /// The point.
    pub point: PersistPoint,
    /// How often it was passed, suppressed or not.
    pub passed: u64,
}

/// A power of two.
const RECENT: usize = 256;

/// All points seen so far, numbered in the order of their first passing.
#[derive(Debug)]
pub(crate) struct PersistPoints {
    seen: Vec<PersistPointCount>,
    /// By address of the location: one source line may have several, which `by_point` unites.
    by_address: HashMap<(usize, PersistKind), u16>,
    by_point: HashMap<PersistPoint, u16>,
    /// What lookups found last, by a few bits of the address: a loop passes few points many times.
    recent: [Option<((usize, PersistKind), u16)>; RECENT],
    suppressed: Option<PersistPoint>,
    suppressed_id: Option<u16>,
}

impl PersistPoints {
    pub(crate) fn new(suppressed: Option<PersistPoint>) -> Self {
        Self {
            seen: Vec::new(),
            by_address: HashMap::new(),
            by_point: HashMap::new(),
            recent: [None; RECENT],
            suppressed,
            suppressed_id: None,
        }
    }

    /// Notes one passing. `None` if the point is suppressed, else its number.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        location: &'static Location<'static>,
        kind: PersistKind,
    ) -> Option<u16> {
        let key = (std::ptr::from_ref(location).addr(), kind);
        // Locations are 24 bytes long; a persist is a flush and a fence of one location.
        let slot = (key.0 / 8 + kind as usize) % RECENT;
        let id = match self.recent[slot] {
            Some((recent, id)) if recent == key => id,
            _ => {
                let id = self.find(key, location);
                self.recent[slot] = Some((key, id));
                id
            }
        };
        self.seen[usize::from(id)].passed += 1;
        (self.suppressed_id != Some(id)).then_some(id)
    }

    /// Whether the point is the one that is switched off.
    pub(crate) fn suppresses(
        &self,
        location: &'static Location<'static>,
        kind: PersistKind,
    ) -> bool {
        self.suppressed.is_some_and(|point| point == PersistPoint::at(location, kind))
    }

    fn find(&mut self, key: (usize, PersistKind), location: &'static Location<'static>) -> u16 {
        match self.by_address.get(&key) {
            Some(&id) => id,
            None => self.intern(key, PersistPoint::at(location, key.1)),
        }
    }

    #[cold]
    fn intern(&mut self, key: (usize, PersistKind), point: PersistPoint) -> u16 {
        let fresh = u16::try_from(self.seen.len()).expect("fewer than 65536 persist points");
        let id = *self.by_point.entry(point).or_insert(fresh);
        if id == fresh {
            self.seen.push(PersistPointCount { point, passed: 0 });
            if self.suppressed == Some(point) {
                self.suppressed_id = Some(id);
            }
        }
        self.by_address.insert(key, id);
        id
    }

    pub(crate) fn counts(&self) -> Vec<PersistPointCount> {
        self.seen.clone()
    }

    pub(crate) fn points(&self) -> Vec<PersistPoint> {
        self.seen.iter().map(|count| count.point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_location_has_a_point_per_kind_and_counts_its_passings() {
        let here = Location::caller();
        let mut points = PersistPoints::new(None);
        for _ in 0..3 {
            assert_eq!(points.pass(here, PersistKind::Flush), Some(0));
            assert_eq!(points.pass(here, PersistKind::Fence), Some(1));
        }
        let counts = points.counts();
        assert_eq!(counts.len(), 2);
        assert!(counts.iter().all(|count| count.passed == 3));
    }

    #[test]
    fn a_suppressed_point_is_counted_but_not_passed_on() {
        let here = Location::caller();
        let fence = PersistPoint::at(here, PersistKind::Fence);
        let mut points = PersistPoints::new(Some(fence));
        assert_eq!(points.pass(here, PersistKind::Flush), Some(0));
        assert_eq!(points.pass(here, PersistKind::Fence), None);
        assert_eq!(points.counts()[1], PersistPointCount { point: fence, passed: 1 });
    }
}
