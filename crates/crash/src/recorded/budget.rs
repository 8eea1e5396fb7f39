//! How a number of images is spread over the crash points of a trace.
//!
//! Most crash points of a long run are like others: the power is cut at the same place of the source while stores of
//! the same places may be lost. Those are of one *kind*. Every kind comes first with one crash point and many images, then
//! all of them in turn with few. Within a kind those come first at which other lines are uncertain, and of these
//! the ones that lie far from each other in the trace.

use std::collections::{HashMap, HashSet};

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{CrashPoints, CrashStates, Image, ImageBudget, Stored};
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
        let mut uncertain = Uncertain::default();
        let (mut kinds, mut seen) = (HashMap::new(), HashSet::new());
        // Of each kind the crash points with lines that were not uncertain at others of it, then the rest.
        let mut members: Vec<[Vec<usize>; 2]> = Vec::new();
        let mut known = Vec::new();
        while let Some(point) = points.advance() {
            if options.stop.is_raised() {
                break;
            }
            uncertain.advance(recorded, &points, point.position);
            let cut = recorded.places.get(point.position).copied().unwrap_or_default();
            let next = kinds.len();
            let kind = *kinds.entry((cut, uncertain.places)).or_insert(next);
            if kind == next {
                members.push(Default::default());
            }
            members[kind][usize::from(!seen.insert((kind, uncertain.lines)))].push(known.len());
            known.push(Known { kind, rank: 0, images: uncertain.images(&mut points) });
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
        let random = states.sampled_images(budget).without_single_sites().skip(2);
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

/// The lines that may be lost, and where in the source they were last stored to: as far as can be told without a look at
/// all of them at each crash point, of which there may be many more than stores.
#[derive(Default)]
struct Uncertain {
    read: usize,
    place_of: HashMap<u32, u32>,
    /// How many lines each place has.
    lines_of: HashMap<u32, u32>,
    /// Changes with the places that there are, and with the lines.
    places: u64,
    lines: u64,
}

impl Uncertain {
    /// Goes on to a crash point.
    fn advance(&mut self, recorded: &RecordedTrace, points: &CrashPoints<'_>, position: usize) {
        // What the fence at the last crash point has completed, and then what was stored since.
        for (line, _) in points.newly_durable() {
            if let Some(place) = self.place_of.remove(&line) {
                self.lines ^= hash(1, line);
                self.forget(place);
            }
        }
        for at in self.read..position {
            if let Some(Stored { line, .. }) = recorded.trace.events[at].stored() {
                let place = recorded.places[at];
                match self.place_of.insert(line, place) {
                    Some(before) => self.forget(before),
                    None => self.lines ^= hash(1, line),
                }
                let lines = self.lines_of.entry(place).or_default();
                *lines += 1;
                if *lines == 1 {
                    self.places ^= hash(0, place);
                }
            }
        }
        self.read = position;
    }

    fn forget(&mut self, place: u32) {
        let lines = self.lines_of.entry(place).or_default();
        *lines = lines.saturating_sub(1);
        if *lines == 0 {
            self.places ^= hash(0, place);
        }
    }

    /// How many images there are, or [`MOST`] if that many.
    fn images(&self, points: &mut CrashPoints<'_>) -> u64 {
        match 1_u64.checked_shl(self.place_of.len() as u32) {
            Some(images) if images < MOST => points.states().image_count().min(MOST),
            _ => MOST,
        }
    }
}

fn hash(what: u32, number: u32) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), what.into())
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
