//! Crash images: the states of memory that a crash at one point may leave.
//!
//! The durable contents are common to all of them. Each line with pending units is a *site* with
//! several states of its own, and since lines persist independently (rule R3) an image is one
//! choice per site. Its cost is that of the lines it changes, whatever the size of the pool.

use std::collections::HashSet;

use lapis_pmem::{LINE_BYTES, Region, RegionError};
use serde::Serialize;

use crate::pending::LineBytes;
use crate::persistence::Persistence;
use crate::random::Random;
use crate::surviving_caches::BufferState;

/// How many images to try at one crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ImageBudget {
    /// Up to this many images, all are tried.
    pub exhaustive_limit: u64,
    /// Beyond that, this many random ones are tried besides the extremes: nothing pending
    /// persisted, everything persisted, each single line late, each single line early.
    pub samples: u32,
    /// Determines the random ones.
    pub seed: u64,
}

impl Default for ImageBudget {
    fn default() -> Self {
        Self { exhaustive_limit: 4096, samples: 256, seed: 0 }
    }
}

/// One image: the state chosen for each site of a [`CrashStates`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Image {
    choices: Vec<u32>,
}

impl Image {
    /// The image of these choices, for replaying one that was reported.
    pub fn from_choices(choices: Vec<u32>) -> Self {
        Self { choices }
    }

    /// The state of each site; zero is the durable one.
    pub fn choices(&self) -> &[u32] {
        &self.choices
    }
}

#[derive(Debug)]
enum Site<'a> {
    /// One line: its states, and which of them has everything persisted.
    Line { line: u32, states: &'a [LineBytes], everything: u32 },
    /// The store buffers (eADR): each state gives all the lines concerned.
    Buffers(Vec<BufferState>),
}

impl Site<'_> {
    fn count(&self) -> u32 {
        match self {
            Self::Line { states, .. } => states.len() as u32,
            Self::Buffers(states) => states.len() as u32,
        }
    }

    fn everything(&self) -> u32 {
        match self {
            Self::Line { everything, .. } => *everything,
            Self::Buffers(states) => states.len() as u32 - 1,
        }
    }

    fn for_each(
        &self,
        choice: u32,
        mut write: impl FnMut(u32, &LineBytes) -> Result<(), RegionError>,
    ) -> Result<(), RegionError> {
        match self {
            Self::Line { line, states, .. } => write(*line, &states[choice as usize]),
            Self::Buffers(states) => {
                states[choice as usize].iter().try_for_each(|(line, bytes)| write(*line, bytes))
            }
        }
    }
}

/// Every state that a crash at one point may leave. See the [module documentation](self).
#[derive(Debug)]
pub struct CrashStates<'a> {
    sites: Vec<Site<'a>>,
    exact: bool,
}

impl<'a> CrashStates<'a> {
    pub(crate) fn of(machine: &'a Persistence) -> Self {
        let mut exact = true;
        let mut sites: Vec<_> = machine
            .uncertain_lines()
            .map(|(line, found)| {
                exact &= found.exact;
                let everything = found.everything as u32;
                Site::Line { line, states: &found.states, everything }
            })
            .collect();
        let (buffers, all) = machine.buffer_states();
        if buffers.len() > 1 {
            exact &= all;
            sites.push(Site::Buffers(buffers));
        }
        Self { sites, exact }
    }

    /// Lines (or, with eADR, sets of store buffers) that have several states.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// The lines that have several states, in ascending order and in the order of an image's choices;
    /// none if not every site is a line.
    pub fn uncertain_lines(&self) -> Option<impl Iterator<Item = u32>> {
        let all_lines = self.sites.iter().all(|site| matches!(site, Site::Line { .. }));
        all_lines.then(|| {
            self.sites.iter().filter_map(|site| match site {
                Site::Line { line, .. } => Some(*line),
                Site::Buffers(_) => None,
            })
        })
    }

    /// The states of each of those lines, the durable one first.
    pub fn line_states(&self) -> Option<Vec<&[LineBytes]>> {
        self.sites
            .iter()
            .map(|site| match site {
                Site::Line { states, .. } => Some(*states),
                Site::Buffers(_) => None,
            })
            .collect()
    }

    /// How many images there are, or `u64::MAX` if that is too small a number to tell.
    pub fn image_count(&self) -> u64 {
        self.sites.iter().fold(1, |count: u64, site| count.saturating_mul(site.count().into()))
    }

    /// Whether the images are all legal states. Otherwise some line has so many that a choice was
    /// made among them.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The images to try within `budget`, each once.
    pub fn images(&self, budget: ImageBudget) -> Images<'_> {
        let exhaustive = self.image_count() <= budget.exhaustive_limit;
        Images {
            states: self,
            exhaustive,
            given: 0,
            choices: vec![0; self.sites.len()],
            samples_left: budget.samples,
            random: Random::new(budget.seed),
            seen: HashSet::new(),
        }
    }

    /// Whether `image` is one of these.
    pub fn includes(&self, image: &Image) -> bool {
        let sites = self.sites.iter().zip(&image.choices);
        image.choices.len() == self.sites.len() && sites.into_iter().all(|(s, &c)| c < s.count())
    }

    /// A sample within `budget` even where there are few images: the extremes first.
    pub fn sampled_images(&self, budget: ImageBudget) -> Images<'_> {
        Images { exhaustive: false, ..self.images(budget) }
    }

    /// The image with nothing pending persisted.
    pub fn nothing(&self) -> Image {
        Image { choices: vec![0; self.sites.len()] }
    }

    /// The image with everything pending persisted.
    pub fn everything(&self) -> Image {
        Image { choices: self.sites.iter().map(Site::everything).collect() }
    }

    /// In how many sites `image` differs from the durable contents.
    pub fn changed_sites(&self, image: &Image) -> usize {
        image.choices.iter().filter(|&&choice| choice != 0).count()
    }

    /// The lines in which `image` may differ from the durable contents, with their contents.
    pub fn overrides(&self, image: &Image) -> Vec<(u32, LineBytes)> {
        let mut lines = Vec::new();
        let _ = self.for_each_changed(image, |site, choice| {
            site.for_each(choice, |line, bytes| {
                lines.push((line, *bytes));
                Ok(())
            })
        });
        lines
    }

    /// Turns `scratch`, which holds the durable contents, into `image`.
    ///
    /// # Errors
    /// [`RegionError`] if the region had to grow and could not.
    ///
    /// # Panics
    /// If the image is one of other states.
    pub fn apply(&self, image: &Image, scratch: &mut Region) -> Result<(), RegionError> {
        self.for_each_changed(image, |site, choice| {
            site.for_each(choice, |line, bytes| write_line(scratch, line, bytes))
        })
    }

    /// Turns `scratch`, which holds `image`, into the durable contents.
    ///
    /// # Errors
    /// [`RegionError`] if the region had to grow and could not.
    ///
    /// # Panics
    /// If the image is one of other states.
    pub fn revert(&self, image: &Image, scratch: &mut Region) -> Result<(), RegionError> {
        self.for_each_changed(image, |site, _| {
            site.for_each(0, |line, bytes| write_line(scratch, line, bytes))
        })
    }

    fn for_each_changed(
        &self,
        image: &Image,
        mut visit: impl FnMut(&Site<'a>, u32) -> Result<(), RegionError>,
    ) -> Result<(), RegionError> {
        assert_eq!(image.choices.len(), self.sites.len(), "an image of other states");
        let chosen = self.sites.iter().zip(&image.choices);
        chosen
            .filter(|(_, choice)| **choice != 0)
            .try_for_each(|(site, &choice)| visit(site, choice))
    }
}

/// Writes one line of a region, growing it if the line is not mapped yet.
///
/// # Errors
/// [`RegionError`] if it had to grow and could not.
pub fn write_line(region: &mut Region, line: u32, bytes: &LineBytes) -> Result<(), RegionError> {
    let offset = line as usize * LINE_BYTES;
    if offset + LINE_BYTES > region.mapped_bytes() {
        region.grow_to(offset + LINE_BYTES)?;
    }
    // SAFETY: inside mapped memory of the region, which is borrowed exclusively.
    unsafe { region.base().add(offset).cast::<LineBytes>().write(*bytes) };
    Ok(())
}

/// Iterates over the images of a crash point.
#[derive(Debug)]
pub struct Images<'a> {
    states: &'a CrashStates<'a>,
    exhaustive: bool,
    /// Images (exhaustive) or extremes (sampled) considered so far.
    given: u64,
    choices: Vec<u32>,
    samples_left: u32,
    random: Random,
    seen: HashSet<u128>,
}

impl Images<'_> {
    /// Whether every image will be given.
    pub fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    /// Counts `choices` up, the first site fastest.
    fn next_exhaustive(&mut self) -> Option<Image> {
        if self.given > 0 {
            let advanced = self.choices.iter_mut().zip(&self.states.sites).any(|(choice, site)| {
                *choice = (*choice + 1) % site.count();
                *choice != 0
            });
            if !advanced {
                return None;
            }
        }
        self.given += 1;
        Some(Image { choices: self.choices.clone() })
    }

    /// The extremes in order, then random choices.
    fn next_sampled(&mut self) -> Option<Image> {
        let sites = &self.states.sites;
        let extremes = 2 + 2 * sites.len() as u64;
        loop {
            let choices: Vec<u32> = if self.given < extremes {
                let index = self.given;
                self.given += 1;
                let single = (index / 2).wrapping_sub(1) as usize;
                let early = index.is_multiple_of(2);
                let choose = |(at, site): (usize, &Site<'_>)| {
                    if (at == single) == early && index >= 2 || index == 1 {
                        site.everything()
                    } else {
                        0
                    }
                };
                sites.iter().enumerate().map(choose).collect()
            } else if self.samples_left > 0 {
                self.samples_left -= 1;
                self.random_choices()
            } else {
                return None;
            };
            let bytes: Vec<u8> = choices.iter().flat_map(|choice| choice.to_le_bytes()).collect();
            if self.seen.insert(xxhash_rust::xxh3::xxh3_128(&bytes)) {
                return Some(Image { choices });
            }
        }
    }

    /// Violations tend to need most lines late and few early or the other way round, which uniform
    /// choices rarely give: so most images lean to one side.
    fn random_choices(&mut self) -> Vec<u32> {
        let lean = self.random.below(5);
        let random = &mut self.random;
        let mut choose = |site: &Site<'_>| match (lean, random.below(8)) {
            (0 | 1, 2..) => 0,
            (2 | 3, 2..) => site.everything(),
            _ => random.below(site.count() as usize) as u32,
        };
        self.states.sites.iter().map(&mut choose).collect()
    }
}

impl Iterator for Images<'_> {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        if self.exhaustive { self.next_exhaustive() } else { self.next_sampled() }
    }
}
