//! How a number of images is spread over the crash points of a trace.
//!
//! Most crash points of a long run are like others: the power is cut at the same place of the source while stores of
//! the same places may be lost. Those are of one *kind*. Every kind comes first with one crash point and many images, then
//! all of them in turn with few. Within a kind those come first at which other lines are uncertain, and of these
//! the ones that lie far from each other in the trace.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hasher;

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{CrashPoint, CrashStates, Event, Image, ImageBudget};
use lapis_pmem::Region;

use super::{RecordedOptions, crash_points};

/// Fewer images of a crash point are hardly worth it: nothing and everything, one line early and one late.
const LEAST: u64 = 4;
/// A crash point has no use for more.
const MOST: u64 = 512;
/// So many times as many next, while there are images left.
const NEXT_TIMES: u64 = 4;

/// What is known of a crash point beforehand.
#[derive(Clone, Copy, Debug)]
struct Known {
    kind: usize,
    /// How many of its kind come before it in importance.
    rank: u64,
    images: u64,
}

/// How the images are spread over the crash points.
#[derive(Debug)]
pub(super) struct Plan {
    known: Vec<Known>,
    /// Images at each crash point, at most.
    given: Vec<u64>,
    /// How many kinds of crash points there are.
    pub(super) kinds: u64,
    exhaustive_limit: u64,
}

impl Plan {
    /// Over the crash points of a trace that begins with what `region` holds.
    pub(super) fn of(recorded: &RecordedTrace, region: &Region, options: &RecordedOptions) -> Self {
        let mut points = crash_points(&recorded.trace, region, options);
        let mut sources = Sources::default();
        let (mut kinds, mut seen) = (HashMap::new(), HashSet::new());
        // Of each kind the crash points with lines that were not uncertain at others of it, then the rest.
        let mut members: Vec<[Vec<usize>; 2]> = Vec::new();
        let mut known = Vec::new();
        while let Some(point) = points.advance() {
            let states = points.states();
            let (kind, lines) = sources.look_at(recorded, &point, &states);
            let next = kinds.len();
            let kind = *kinds.entry(kind).or_insert(next);
            if kind == next {
                members.push(Default::default());
            }
            members[kind][usize::from(!seen.insert((kind, lines)))].push(known.len());
            known.push(Known { kind, rank: 0, images: states.image_count().min(MOST) });
        }
        for (rank, member) in members.iter().flat_map(ranked) {
            known[member].rank = rank;
        }
        let given = match options.image_limit {
            0 => vec![u64::MAX; known.len()],
            limit => spread(&known, limit, options.exhaustive_limit),
        };
        Self { known, given, kinds: kinds.len() as u64, exhaustive_limit: options.exhaustive_limit }
    }

    /// Crash points of the trace.
    pub(super) fn points(&self) -> u64 {
        self.known.len() as u64
    }

    /// The kind of the crash point with this number.
    pub(super) fn kind(&self, number: usize) -> usize {
        self.known[number].kind
    }

    /// Images to try at the crash point with this number, where so many are left over by others: images of which
    /// there were not as many as planned, or that had been tried. What is left over goes to the next crash points,
    /// also those that had been given nothing.
    pub(super) fn images(&self, number: usize, left_over: u64) -> u64 {
        match self.given[number] {
            0 if left_over < LEAST => 0,
            0 => LEAST,
            given => given.saturating_add(left_over),
        }
    }

    /// What is left over when so many have been tried.
    pub(super) fn left_over(&self, number: usize, left_over: u64, tried: u64) -> u64 {
        left_over.saturating_add(self.given[number]).saturating_sub(tried)
    }

    /// The images of a crash point that is given so many, in the order in which they are tried, and whether these
    /// are all that there are.
    pub(super) fn candidates<'s>(
        &self,
        number: usize,
        states: &'s CrashStates<'_>,
        given: u64,
        seed: u64,
    ) -> (Box<dyn Iterator<Item = Image> + 's>, bool) {
        let exhaustive_limit = self.exhaustive_limit.min(given);
        let samples = given.min(ImageBudget::default().samples.into()) as u32;
        let budget = ImageBudget { exhaustive_limit, samples, seed };
        let images = states.images(budget);
        if images.is_exhaustive() {
            return (Box::new(images), true);
        }
        let (nothing, everything) = (states.nothing(), states.everything());
        let sites = states.site_count() as u64;
        let first = self.known[number].rank.wrapping_mul(given.saturating_sub(2).max(1));
        let (from, to) = (nothing.clone(), everything.clone());
        // A site alone is early or late: at another crash point of the kind, others are.
        let single = move |index: u64| {
            let index = first.wrapping_add(index) % (2 * sites);
            let (one, other) = if index.is_multiple_of(2) { (&to, &from) } else { (&from, &to) };
            let (site, mut choices) = ((index / 2) as usize, other.choices().to_vec());
            choices[site] = one.choices()[site];
            Image::from_choices(choices)
        };
        let random = states.sampled_images(budget).skip(2 + 2 * sites as usize);
        (
            Box::new(
                [nothing, everything].into_iter().chain((0..2 * sites).map(single)).chain(random),
            ),
            false,
        )
    }
}

/// The members of a kind and their ranks: coarsely spread over the trace first, and then ever closer.
fn ranked(of_kind: &[Vec<usize>; 2]) -> impl Iterator<Item = (u64, usize)> {
    let spread = of_kind.iter().flat_map(|part| {
        let mut order: Vec<usize> = (0..part.len()).collect();
        order.sort_by_key(|index| index.reverse_bits());
        order.into_iter().map(|index| part[index])
    });
    (0..).zip(spread)
}

/// How many images each crash point is given.
fn spread(known: &[Known], limit: u64, exhaustive_limit: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..known.len()).collect();
    order.sort_by_key(|&number| (known[number].rank, number));
    let first: Vec<usize> = order.iter().copied().filter(|&it| known[it].rank == 0).collect();
    let mut given = vec![0; known.len()];
    let mut left = limit;
    let mut give = |to: &[usize], keep: u64, most: u64| {
        let mut goal = LEAST;
        while goal <= most {
            for &number in to {
                let more = goal.min(known[number].images).saturating_sub(given[number]);
                let more = more.min(left.saturating_sub(keep));
                given[number] += more;
                left -= more;
            }
            goal *= NEXT_TIMES;
        }
    };
    give(&first, 0, LEAST);
    give(&first, limit / 2, exhaustive_limit);
    give(&order, 0, MOST * NEXT_TIMES);
    given
}

/// Where in the source what may be lost was stored.
#[derive(Default)]
struct Sources {
    read: usize,
    /// By line, the place of the last store to it.
    last: HashMap<u32, u32>,
}

impl Sources {
    /// A number for the kind of a crash point, and one for the lines that are uncertain at it.
    fn look_at(
        &mut self,
        recorded: &RecordedTrace,
        point: &CrashPoint,
        states: &CrashStates<'_>,
    ) -> (u64, u64) {
        for position in self.read..point.position {
            if let Event::Store { line, .. }
            | Event::OrderedStore { line, .. }
            | Event::Locked { line, .. }
            | Event::NonTemporal { line, .. } = recorded.trace.events[position]
            {
                self.last.insert(line, recorded.places[position]);
            }
        }
        self.read = point.position;
        let (mut kind, mut all) = (xxhash_rust::xxh3::Xxh3::new(), xxhash_rust::xxh3::Xxh3::new());
        kind.write_u32(recorded.places.get(point.position).copied().unwrap_or_default());
        let mut places = BTreeSet::new();
        for line in states.uncertain_lines().into_iter().flatten() {
            all.write_u32(line);
            places.extend(self.last.get(&line));
        }
        places.into_iter().for_each(|place| kind.write_u32(place));
        (kind.finish(), all.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kinds: &[usize], images: u64) -> Vec<Known> {
        let mut ranks = HashMap::<usize, u64>::new();
        let mut next = |kind| {
            let rank = ranks.entry(kind).or_default();
            *rank += 1;
            *rank - 1
        };
        kinds.iter().map(|&kind| Known { kind, rank: next(kind), images }).collect()
    }

    #[test]
    fn what_is_rare_in_a_trace_is_given_as_much_as_what_is_frequent() {
        let mut kinds = vec![0; 1000];
        kinds[700] = 1;
        let given = spread(&known(&kinds, 100), 200, 64);
        assert_eq!((given[0], given[700]), (64, 36), "{given:?}");
        assert_eq!(given.iter().sum::<u64>(), 200);
        assert_eq!(given.iter().filter(|&&images| images == LEAST).count(), 25);
    }

    #[test]
    fn a_budget_that_suffices_is_given_out_whole_and_none_to_where_there_is_nothing_to_try() {
        let given = spread(&known(&[0, 0, 1], 5), 1000, 64);
        assert_eq!(given, [5, 5, 5]);
    }

    #[test]
    fn members_of_a_kind_lie_far_from_each_other_first() {
        let part: Vec<usize> = (0..8).collect();
        let order: Vec<usize> = ranked(&[part, vec![9]]).map(|(_, member)| member).collect();
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7, 9]);
    }
}
