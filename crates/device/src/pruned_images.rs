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

use crate::images::{CrashStates, Image};
use crate::line_bytes::differing_bytes;
use crate::pending::LineBytes;
use crate::read_watch::LineRead;

/// Some of the images: for each line named, the states that it may have; the last mention counts.
/// Lines not named may have any of theirs.
type Restriction = Vec<(u32, Rc<[u32]>)>;

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
    /// The bytes of each in which its states are not all alike.
    varying: Vec<u64>,
    pending: Vec<Restriction>,
    /// The set that the image given last was taken from.
    current: Restriction,
    choices: Vec<u32>,
}

impl<'s> PrunedImages<'s> {
    /// The images of `states`; none if they are not states of lines that are independent of each
    /// other (with eADR they are not).
    pub fn new(states: &'s CrashStates<'_>) -> Option<Self> {
        let lines = states.line_states()?;
        let choices = vec![0; lines.len()];
        let varying = lines.iter().map(|states| varying_bytes(states)).collect();
        Some(Self { lines, varying, pending: vec![Vec::new()], current: Vec::new(), choices })
    }

    /// The next image to try. [`Self::learn`] is called with what was read on it before the next.
    pub fn next_image(&mut self) -> Option<Image> {
        self.current = self.pending.pop()?;
        self.choices.fill(0);
        for (line, states) in &self.current {
            self.choices[*line as usize] = states[0];
        }
        Some(Image::from_choices(self.choices.clone()))
    }

    /// Whether there are images left to try.
    pub fn is_finished(&self) -> bool {
        self.pending.is_empty()
    }

    /// What was read on the image given last, first read first. Returns how many images have the
    /// same outcome, this one included; `u64::MAX` if that is too small a number to tell.
    pub fn learn(&mut self, reads: &[LineRead]) -> u64 {
        let mut restricted: Vec<Option<Rc<[u32]>>> = vec![None; self.lines.len()];
        for (line, states) in &self.current {
            restricted[*line as usize] = Some(Rc::clone(states));
        }
        for read in reads {
            let place = read.place as usize;
            if read.bytes & self.varying[place] == 0 {
                continue;
            }
            let states = self.lines[place];
            let chosen_state = &states[self.choices[place] as usize];
            let chosen = read.seen_in(chosen_state);
            let differs = |state: u32| {
                let state = &states[state as usize];
                match read.by_lock {
                    None => differing_bytes(state, chosen_state) & read.bytes != 0,
                    Some(_) => read.seen_in(state) != chosen,
                }
            };
            let tells_apart = match &restricted[place] {
                Some(candidates) => candidates.iter().any(|&state| differs(state)),
                None => (0..states.len() as u32).any(differs),
            };
            if !tells_apart {
                continue;
            }
            let candidates = restricted[place]
                .clone()
                .unwrap_or_else(|| (0..states.len() as u32).collect::<Rc<[u32]>>());
            let mut others: Vec<(LineBytes, Vec<u32>)> = Vec::new();
            let mut alike = Vec::new();
            for &candidate in &*candidates {
                if !differs(candidate) {
                    alike.push(candidate);
                    continue;
                }
                let seen = read.seen_in(&states[candidate as usize]);
                if let Some((_, others)) = others.iter_mut().find(|(key, _)| *key == seen) {
                    others.push(candidate);
                } else {
                    others.push((seen, vec![candidate]));
                }
            }
            for (_, other) in others {
                let mut restriction = self.current.clone();
                restriction.push((read.place, other.into()));
                self.pending.push(restriction);
            }
            let alike: Rc<[u32]> = alike.into();
            self.current.push((read.place, Rc::clone(&alike)));
            restricted[place] = Some(alike);
        }
        let counts = self.lines.iter().zip(&restricted);
        counts.fold(1, |count: u64, (states, restricted)| {
            let left = restricted.as_ref().map_or(states.len(), |alike| alike.len());
            count.saturating_mul(left as u64)
        })
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
