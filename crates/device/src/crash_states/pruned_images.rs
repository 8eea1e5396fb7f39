//! The images of a crash point, pruned to what the recovery reads.
//!
//! A recovery is a function of the bytes it reads. So, having run it on one image and seen which
//! bytes of the uncertain lines it read ([`LineRead`]), the outcome is known for every image that
//! agrees with this one in those bytes, and what is left are the images that differ in the first of
//! them, those that agree there and differ in the second, and so on (the idea of exploring lazily,
//! at the read, is that of Jaaru: Gorjiara, Xu and Demsky, ASPLOS 2021).
//!
//! ```text
//!  all images ──run one──▶ it read a word of line 4, then one of line 9
//!     ├── word of line 4 differs ─────────────▶ pending
//!     └── it agrees
//!          ├── word of line 9 differs ────────▶ pending
//!          └── it agrees: same outcome, done
//! ```
//!
//! The pending sets are disjoint and together with what is done they are all images, whatever the
//! order of the reads: nothing is lost and nothing tried twice.

use std::rc::Rc;

use crate::crash_states::bytes_of_line::differing_bytes;
use crate::crash_states::images::{CrashStates, Image};
use crate::crash_states::pending::LineBytes;
use crate::modelled::read_watch::LineRead;

/// States of one site.
type States = Rc<[u32]>;

/// Some of the images: for each site named, the states that it may have; of two that name one site,
/// the outer one counts. Sites not named may have any of theirs.
#[derive(Debug)]
struct Restriction {
    site: u32,
    states: States,
    within: Option<Rc<Restriction>>,
}

/// The images that agree with one that was run up to a read, and differ in it.
#[derive(Debug)]
struct Branch {
    before: Option<Rc<Restriction>>,
    read: LineRead,
    /// The state that the site had, and those that it might have had; none if any.
    chosen: u32,
    candidates: Option<States>,
    /// Those that the read tells from the chosen one, by what it sees, once they are asked for.
    classes: Option<Vec<States>>,
}

/// The bytes in which not all of these are alike.
fn varying_bytes(states: &[LineBytes]) -> u64 {
    let Some((first, others)) = states.split_first() else { return 0 };
    others.iter().fold(0, |bytes, other| bytes | differing_bytes(first, other))
}

/// Gives out one image of each class that the recovery can tell apart. See the
/// [module documentation](self).
#[derive(Debug)]
pub struct PrunedImages<'s> {
    lines: Vec<&'s [LineBytes]>,
    /// How many states each uncertain sector has; in an image they come after the lines.
    sectors: Vec<u32>,
    /// The bytes of each in which its states are not all alike.
    varying: Vec<u64>,
    pending: Vec<Branch>,
    /// The set that the image given last was taken from, and the same by site.
    current: Option<Rc<Restriction>>,
    restricted: Vec<Option<States>>,
    choices: Vec<u32>,
    begun: bool,
}

impl<'s> PrunedImages<'s> {
    /// The images of `states`; none if they are not states of lines and sectors that are independent
    /// of each other (with eADR they are not).
    pub fn new(states: &'s CrashStates<'_>) -> Option<Self> {
        let lines = states.line_states()?;
        let sectors = states.uncertain_sectors().map(|(.., states)| states.len() as u32);
        let sectors: Vec<u32> = sectors.collect();
        let sites = lines.len() + sectors.len();
        let varying = lines.iter().map(|states| varying_bytes(states)).collect();
        let (pending, current, begun) = (Vec::new(), None, false);
        let (restricted, choices) = (vec![None; sites], vec![0; sites]);
        Some(Self { lines, sectors, varying, pending, current, restricted, choices, begun })
    }

    /// The next image to try. [`Self::learn`] is called with what was read on it before the next.
    pub fn next_image(&mut self) -> Option<Image> {
        self.choices.fill(0);
        self.restricted.fill(None);
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Image::from_choices(self.choices.clone()));
        }
        let mut branch = self.pending.pop()?;
        let mut classes = branch.classes.take().unwrap_or_else(|| self.classes_of(&branch));
        if let Some(states) = classes.pop() {
            let (site, within) = (branch.read.place, branch.before.clone());
            self.current = Some(Rc::new(Restriction { site, states, within }));
        }
        if !classes.is_empty() {
            branch.classes = Some(classes);
            self.pending.push(branch);
        }
        let mut restriction = self.current.as_deref();
        while let Some(Restriction { site, states, within }) = restriction {
            let place = &mut self.restricted[*site as usize];
            if place.is_none() {
                self.choices[*site as usize] = states[0];
                *place = Some(Rc::clone(states));
            }
            restriction = within.as_deref();
        }
        Some(Image::from_choices(self.choices.clone()))
    }

    /// Whether there are images left to try.
    pub fn is_finished(&self) -> bool {
        self.begun && self.pending.is_empty()
    }

    fn state_count(&self, site: usize) -> u32 {
        match self.lines.get(site) {
            Some(states) => states.len() as u32,
            None => self.sectors[site - self.lines.len()],
        }
    }

    /// Whether a read sees another thing in one state of its site than in another.
    fn tells_apart(&self, read: &LineRead, one: u32, other: u32) -> bool {
        // Of a sector that was read, everything counts as read.
        let Some(states) = self.lines.get(read.place as usize) else { return one != other };
        read.tells_apart(&states[one as usize], &states[other as usize])
    }

    fn classes_of(&self, branch: &Branch) -> Vec<States> {
        let mut classes: Vec<Vec<u32>> = Vec::new();
        let mut sort = |state: u32| {
            if !self.tells_apart(&branch.read, branch.chosen, state) {
                return;
            }
            let is_of = |class: &&mut Vec<u32>| !self.tells_apart(&branch.read, class[0], state);
            match classes.iter_mut().find(is_of) {
                Some(class) => class.push(state),
                None => classes.push(vec![state]),
            }
        };
        match &branch.candidates {
            Some(candidates) => candidates.iter().for_each(|&state| sort(state)),
            None => (0..self.state_count(branch.read.place as usize)).for_each(sort),
        }
        classes.into_iter().map(States::from).collect()
    }

    /// What was read on the image given last, first read first; sectors that were read, of which all
    /// bytes count as read, have the places after those of lines. Returns how many images have the
    /// same outcome, this one included; `u64::MAX` if that is too small a number to tell.
    pub fn learn(&mut self, reads: &[LineRead]) -> u64 {
        for read in reads {
            let place = read.place as usize;
            let varying = self.varying.get(place).copied().unwrap_or(u64::MAX);
            if read.bytes & varying == 0 {
                continue;
            }
            let (chosen, count) = (self.choices[place], self.state_count(place));
            // One that sees every byte in which any two states differ tells all of them apart.
            let sees_all = read.by_lock.is_none() && read.bytes & varying == varying;
            let is_alike = |state: &u32| !self.tells_apart(read, chosen, *state);
            let candidates = self.restricted[place].clone();
            let alike: States = match &candidates {
                Some(candidates) if candidates.iter().all(is_alike) => continue,
                None if (0..count).all(|state| is_alike(&state)) => continue,
                _ if sees_all => [chosen].into(),
                Some(candidates) => candidates.iter().copied().filter(is_alike).collect(),
                None => (0..count).filter(is_alike).collect(),
            };
            let (before, site, states) = (self.current.take(), read.place, Rc::clone(&alike));
            let within = before.clone();
            self.current = Some(Rc::new(Restriction { site, states, within }));
            self.pending.push(Branch { before, read: *read, chosen, candidates, classes: None });
            self.restricted[place] = Some(alike);
        }
        let left = self.restricted.iter().enumerate().map(|(site, restricted)| {
            restricted.as_ref().map_or(self.state_count(site) as usize, |alike| alike.len())
        });
        left.fold(1, |count: u64, left| count.saturating_mul(left as u64))
    }
}

impl Drop for Restriction {
    /// A long chain is not taken apart by recursion.
    fn drop(&mut self) {
        let mut within = self.within.take();
        while let Some(mut restriction) = within.and_then(Rc::into_inner) {
            within = restriction.within.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lapis_pmem::{PCell, Region};

    use super::*;
    use crate::modelled::{Config, Modelled};
    use crate::{CrashPoints, PowerFailDomain};

    const LINES: usize = 4;

    fn cells(region: &Region) -> &[[PCell<u64>; 8]; LINES] {
        // SAFETY: mapped, aligned, and any bytes are cells.
        unsafe { &*region.base().cast() }
    }

    /// Reads word 0 of line 0; if it is 1 word 0 of line 1, else words 0 and 1 of line 2.
    fn recover(cells: &[[PCell<u64>; 8]; LINES], domain: &Modelled) -> (u64, u64, u64) {
        let first = cells[0][0].load(domain);
        let (second, third) = if first == 1 {
            (cells[1][0].load(domain), 0)
        } else {
            (cells[2][0].load(domain), cells[2][1].load(domain))
        };
        (first, second, third)
    }

    #[test]
    fn pruned_images_reach_every_outcome_in_fewer_runs_and_cover_all_images() {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let domain = Modelled::over(&region, Config::tracing());
        for line in cells(&region) {
            for value in 1..4 {
                line[0].store_ordered(&domain, value);
                line[1].store_ordered(&domain, value);
            }
            line[7].store_ordered(&domain, 9);
        }
        let trace = domain.take_trace();
        let mut points = CrashPoints::new(&trace, &[0; 0], PowerFailDomain::Adr);
        points.advance().unwrap();
        let states = points.states();
        let mut bench = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let watching = Modelled::over(&bench, Config { watching: true, ..Config::tracking() });
        let mut outcome = |image: &Image| {
            states.apply(image, &mut bench).unwrap();
            let outcome = recover(cells(&bench), &watching);
            states.revert(image, &mut bench).unwrap();
            outcome
        };
        let count = states.image_count();
        let exhaustive: HashSet<_> = states
            .images(crate::ImageBudget { exhaustive_limit: count, ..Default::default() })
            .map(|image| outcome(&image))
            .collect();

        let mut pruned = PrunedImages::new(&states).unwrap();
        watching.watch_reads(states.uncertain_lines().into_iter().flatten());
        let (mut found, mut runs, mut covered, mut reads) = (HashSet::new(), 0, 0, Vec::new());
        while let Some(image) = pruned.next_image() {
            found.insert(outcome(&image));
            watching.take_reads(&mut reads);
            covered += pruned.learn(&reads);
            runs += 1;
        }
        assert_eq!(found, exhaustive);
        assert_eq!(covered, count, "each image belongs to exactly one class");
        assert_eq!(runs, found.len(), "this recovery's outcome tells all that it read");
        assert!(count > 1000 && runs < 40, "{runs} runs for {count} images");
    }
}
