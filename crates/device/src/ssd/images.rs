//! Crash images of an SSD: the contents that a power cut may leave (rule D3).
//!
//! Each sector with unflushed versions is a *site*: a power cut leaves its durable contents or any
//! of its versions, each site for itself. An image is one choice per site, and costs as much as the
//! sites it changes.

use std::collections::{BTreeMap, HashSet};

use lapis_pmem::SECTOR_BYTES;
use serde::{Deserialize, Serialize};

use super::ModelledSsd;
use super::contents::{Contents, Sector, WriteId};
use crate::images::ImageBudget;
use crate::random::Random;

/// One image: the contents chosen for each site of an [`SsdCrashStates`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SsdImage {
    choices: Vec<u32>,
}

impl SsdImage {
    /// The image of these choices, for replaying one that was reported.
    pub fn from_choices(choices: Vec<u32>) -> Self {
        Self { choices }
    }

    /// The contents of each site; zero is the durable one.
    pub fn choices(&self) -> &[u32] {
        &self.choices
    }
}

#[derive(Debug)]
struct Site {
    sector: u64,
    /// All different; the first is the durable one.
    states: Vec<Sector>,
    /// What reads would see if everything in flight completed.
    newest: u32,
}

/// The site and the state that a write gives it.
type Effect = (usize, u32);

/// Every state that a power cut at one moment may leave. See the module documentation in the
/// source.
#[derive(Debug)]
pub struct SsdCrashStates {
    sites: Vec<Site>,
    /// Of each write that is not durable, what it changes, in order of submission.
    writes: BTreeMap<WriteId, Vec<Effect>>,
    exact: bool,
}

impl SsdCrashStates {
    pub(super) fn of(contents: &Contents) -> Self {
        let mut sites = Vec::new();
        let mut writes: BTreeMap<WriteId, Vec<Effect>> = BTreeMap::new();
        for (sector, versions) in contents.pending() {
            let mut states = vec![contents.durable_sector(sector)];
            let mut newest = 0;
            let mut effects = Vec::new();
            for version in versions {
                let known = states.iter().position(|state| *state == *version.bytes);
                newest = known.unwrap_or(states.len()) as u32;
                if known.is_none() {
                    states.push(*version.bytes);
                }
                effects.push((version.write, newest));
            }
            // A site with one state is none, whatever was written to it.
            if states.len() > 1 {
                for (write, state) in effects {
                    writes.entry(write).or_default().push((sites.len(), state));
                }
                sites.push(Site { sector, states, newest });
            }
        }
        Self { sites, writes, exact: !contents.forgot_versions() }
    }

    /// Sectors that may have several contents.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// The sector (in units of 512 bytes from the start of the device) and the contents it may
    /// have, of each site in order. The first is the durable one.
    pub fn sites(&self) -> impl Iterator<Item = (u64, &[[u8; SECTOR_BYTES]])> {
        self.sites.iter().map(|site| (site.sector, &site.states[..]))
    }

    /// How many images there are, or `u64::MAX` if that is too small a number to tell.
    pub fn image_count(&self) -> u64 {
        self.sites.iter().fold(1, |count, site| count.saturating_mul(site.states.len() as u64))
    }

    /// Whether the images are all legal states. Otherwise some sector was written more often
    /// between flushes than versions are kept.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The image with nothing persisted since the last flush.
    pub fn nothing(&self) -> SsdImage {
        SsdImage { choices: vec![0; self.sites.len()] }
    }

    /// The image with everything persisted, in order.
    pub fn everything(&self) -> SsdImage {
        SsdImage { choices: self.sites.iter().map(|site| site.newest).collect() }
    }

    /// The images to try within `budget`, each once: all of them, or else the adversarial ones and
    /// as many random ones as it says. Adversarial are nothing; everything; and for each write, it
    /// alone, everything but it, and it alone or lacking with its first or second half torn off.
    pub fn images(&self, budget: ImageBudget) -> SsdImages<'_> {
        let exhaustive = self.image_count() <= budget.exhaustive_limit;
        SsdImages {
            states: self,
            exhaustive,
            given: 0,
            adversarial: if exhaustive { Vec::new() } else { self.adversarial() },
            choices: vec![0; self.sites.len()],
            samples_left: budget.samples,
            random: Random::new(budget.seed),
            seen: HashSet::new(),
        }
    }

    /// Turns `after`, which holds the durable contents ([`ModelledSsd::after_power_cut`] of the same
    /// moment), into `image`. [`ModelledSsd::revert`] turns it back.
    ///
    /// # Panics
    /// If the image is one of other states.
    pub fn apply(&self, image: &SsdImage, after: &ModelledSsd) {
        assert_eq!(image.choices.len(), self.sites.len(), "an image of other states");
        let mut state = after.shared.state.lock();
        let chosen = self.sites.iter().zip(&image.choices);
        for (site, &choice) in chosen.filter(|(_, choice)| **choice != 0) {
            state.contents.set_durable(site.sector, &site.states[choice as usize]);
        }
    }

    /// The images for [`SsdCrashStates::images`] to begin with, the likeliest to hurt last, so that
    /// they can be popped.
    fn adversarial(&self) -> Vec<SsdImage> {
        let (nothing, everything) = (self.nothing(), self.everything());
        let mut images = vec![nothing.clone(), everything.clone()];
        for effects in self.writes.values() {
            let half = effects.len() / 2;
            for part in [&effects[..], &effects[..half], &effects[half..]] {
                let (mut alone, mut lacking) = (nothing.clone(), everything.clone());
                for &(site, state) in part {
                    alone.choices[site] = state;
                    // What the sector held before this write: a state that came earlier.
                    lacking.choices[site] = state.saturating_sub(1);
                }
                images.push(alone);
                images.push(lacking);
            }
        }
        images.reverse();
        images
    }
}

/// Iterates over the images of one moment.
#[derive(Debug)]
pub struct SsdImages<'a> {
    states: &'a SsdCrashStates,
    exhaustive: bool,
    given: u64,
    adversarial: Vec<SsdImage>,
    choices: Vec<u32>,
    samples_left: u32,
    random: Random,
    seen: HashSet<SsdImage>,
}

impl SsdImages<'_> {
    /// Whether every image will be given.
    pub fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    /// Counts `choices` up, the first site fastest.
    fn next_exhaustive(&mut self) -> Option<SsdImage> {
        if self.given > 0 {
            let advanced = self.choices.iter_mut().zip(&self.states.sites).any(|(choice, site)| {
                *choice = (*choice + 1) % site.states.len() as u32;
                *choice != 0
            });
            if !advanced {
                return None;
            }
        }
        self.given += 1;
        Some(SsdImage { choices: self.choices.clone() })
    }

    fn next_sampled(&mut self) -> Option<SsdImage> {
        loop {
            let image = if let Some(image) = self.adversarial.pop() {
                image
            } else if self.samples_left > 0 {
                self.samples_left -= 1;
                self.random_image()
            } else {
                return None;
            };
            if self.seen.insert(image.clone()) {
                return Some(image);
            }
        }
    }

    /// Most random images lean to one side, because few early or few late sectors are what
    /// software overlooks, and choose by write as often as by sector.
    fn random_image(&mut self) -> SsdImage {
        let lean = self.random.below(3);
        let mut image = if lean == 0 { self.states.everything() } else { self.states.nothing() };
        if self.random.below(2) == 0 {
            let one_in = [2, 2, 8][self.random.below(3)];
            for effects in self.states.writes.values() {
                if self.random.below(one_in) == 0 {
                    for &(site, state) in effects {
                        image.choices[site] = if lean == 0 { 0 } else { state };
                    }
                }
            }
        } else {
            let one_in = [1, 2, 8][self.random.below(3)];
            for (choice, site) in image.choices.iter_mut().zip(&self.states.sites) {
                if self.random.below(one_in) == 0 {
                    *choice = self.random.below(site.states.len()) as u32;
                }
            }
        }
        image
    }
}

impl Iterator for SsdImages<'_> {
    type Item = SsdImage;

    fn next(&mut self) -> Option<SsdImage> {
        if self.exhaustive { self.next_exhaustive() } else { self.next_sampled() }
    }
}
