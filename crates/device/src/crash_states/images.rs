//! Crash images: the states of memory that a crash at one point may leave.
//!
//! The durable contents are common to all of them. Each line with pending units is a *site* with
//! several states of its own, and so is each sector of a block device with unflushed versions. Since
//! lines (rule R3) and sectors (rule D3) persist independently an image is one choice per site: first
//! those of lines, then those of sectors. Its cost is that of what it changes, whatever the size of
//! the pool and of the devices.

use std::collections::{BTreeMap, HashSet};

use lapis_pmem::{LINE_BYTES, Region, RegionError, SECTOR_BYTES};
use serde::Serialize;

use crate::crash_states::pending::LineBytes;
use crate::crash_states::persistence::Persistence;
use crate::crash_states::surviving_caches::BufferState;
use crate::modelled::read_watch::LineRead;
use crate::random::Random;
use crate::ssd::{DeviceContents, DeviceWrite, ModelledSsd, Sector};

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
    /// A sector of a block device: its states, all different, and which of them reads would see if
    /// everything in flight completed.
    Sector { device: u8, sector: u64, states: Vec<Sector>, newest: u32 },
}

impl Site<'_> {
    fn count(&self) -> u32 {
        match self {
            Self::Line { states, .. } => states.len() as u32,
            Self::Buffers(states) => states.len() as u32,
            Self::Sector { states, .. } => states.len() as u32,
        }
    }

    fn everything(&self) -> u32 {
        match self {
            Self::Line { everything, .. } => *everything,
            Self::Buffers(states) => states.len() as u32 - 1,
            Self::Sector { newest, .. } => *newest,
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
            Self::Sector { .. } => Ok(()),
        }
    }
}

/// Every state that a crash at one point may leave. See the [module documentation](self).
#[derive(Debug)]
pub struct CrashStates<'a> {
    sites: Vec<Site<'a>>,
    /// How many sites come before those of sectors.
    memory_sites: usize,
    /// Of each write to a block device that is not durable, the sites and the states it gives them.
    writes: Vec<Vec<(usize, u32)>>,
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
        Self { memory_sites: sites.len(), sites, exact, ..Self::none() }
    }

    /// Of no memory and no device.
    pub(crate) fn none() -> Self {
        Self { sites: Vec::new(), memory_sites: 0, writes: Vec::new(), exact: true }
    }

    /// Adds what a device may hold.
    pub(crate) fn add_device(&mut self, device: u8, contents: &DeviceContents) {
        let mut writes: BTreeMap<DeviceWrite, Vec<(usize, u32)>> = BTreeMap::new();
        for (sector, versions) in contents.pending() {
            let mut states = vec![contents.durable_sector(sector)];
            let (mut newest, mut effects) = (0, Vec::new());
            for (write, bytes) in versions {
                let known = states.iter().position(|state| state == bytes);
                newest = known.unwrap_or(states.len()) as u32;
                if known.is_none() {
                    states.push(*bytes);
                }
                effects.push((write, newest));
            }
            // A site with one state is none, whatever was written to it.
            if states.len() > 1 {
                for (write, state) in effects {
                    writes.entry(write).or_default().push((self.sites.len(), state));
                }
                self.sites.push(Site::Sector { device, sector, states, newest });
            }
        }
        self.writes.extend(writes.into_values());
        self.exact &= !contents.forgot_versions();
    }

    /// The sectors that may have several contents, in the order of an image's choices, which follow
    /// those of lines: the device, the sector (in units of 512 bytes from its start), and the contents,
    /// of which the first are the durable ones.
    pub fn uncertain_sectors(&self) -> impl Iterator<Item = (u8, u64, &[[u8; SECTOR_BYTES]])> {
        self.sites.iter().filter_map(|site| match site {
            Site::Sector { device, sector, states, .. } => Some((*device, *sector, &states[..])),
            _ => None,
        })
    }

    /// Appends the uncertain sectors that were read of block devices which watch them
    /// ([`ModelledSsd::watch_sectors`]), for [`PrunedImages`](crate::PrunedImages).
    pub fn add_sector_reads(&self, devices: &[ModelledSsd], reads: &mut Vec<LineRead>) {
        for (device, number) in devices.iter().zip(0..) {
            let read = device.take_read_sectors();
            let places = (0..).zip(&self.sites).filter(|(_, site)| match site {
                Site::Sector { device, sector, .. } => *device == number && read.contains(sector),
                _ => false,
            });
            let read = |place| LineRead { place, bytes: u64::MAX, by_lock: None };
            reads.extend(places.map(|(place, _)| read(place)));
        }
    }

    /// Lines (or, with eADR, sets of store buffers) and sectors that have several states.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// The lines that have several states, in ascending order and in the order of an image's choices;
    /// none if a site is a set of store buffers.
    pub fn uncertain_lines(&self) -> Option<impl Iterator<Item = u32>> {
        let lines = &self.sites[..self.memory_sites];
        let all_lines = lines.iter().all(|site| matches!(site, Site::Line { .. }));
        all_lines.then(|| {
            lines.iter().filter_map(|site| match site {
                Site::Line { line, .. } => Some(*line),
                _ => None,
            })
        })
    }

    /// The states of each of those lines, the durable one first.
    pub fn line_states(&self) -> Option<Vec<&[LineBytes]>> {
        self.sites[..self.memory_sites]
            .iter()
            .map(|site| match site {
                Site::Line { states, .. } => Some(*states),
                _ => None,
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
            extremes: 2 + 2 * self.sites.len() as u64,
            choices: vec![0; self.sites.len()],
            samples_left: budget.samples,
            random: Random::new(budget.seed),
            further: if exhaustive { Vec::new() } else { self.extremes_of_devices() },
            seen: HashSet::new(),
        }
    }

    /// All of memory and nothing of the devices, and the other way round; and of each write to a
    /// device it alone, everything but it, and the same with its first or second half torn off. The
    /// likeliest to hurt last, so that they can be popped.
    fn extremes_of_devices(&self) -> Vec<Vec<u32>> {
        if self.memory_sites == self.sites.len() {
            return Vec::new();
        }
        let (nothing, everything) = (self.nothing().choices, self.everything().choices);
        let split = |memory: &[u32], devices: &[u32]| {
            [&memory[..self.memory_sites], &devices[self.memory_sites..]].concat()
        };
        let (memory, devices) = (split(&everything, &nothing), split(&nothing, &everything));
        let mut images = vec![memory.clone(), devices.clone()];
        for effects in &self.writes {
            let half = effects.len() / 2;
            for part in [&effects[..], &effects[..half], &effects[half..]] {
                for of_memory in [&nothing, &everything] {
                    let mut alone = split(of_memory, &nothing);
                    let mut lacking = split(of_memory, &everything);
                    for &(site, state) in part {
                        alone[site] = state;
                        // What the sector held before this write: a state that came earlier.
                        lacking[site] = state.saturating_sub(1);
                    }
                    images.extend([alone, lacking]);
                }
            }
        }
        images.reverse();
        images
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

    /// Turns block devices, which hold the durable contents, into `image`: one for each of the
    /// trace, in the order of their numbers. [`ModelledSsd::revert`] turns them back.
    ///
    /// # Panics
    /// If the image is one of other states, or a device is missing.
    pub fn apply_to_devices(&self, image: &Image, devices: &[ModelledSsd]) {
        let _ = self.for_each_changed(image, |site, choice| {
            if let Site::Sector { device, sector, states, .. } = site {
                devices[usize::from(*device)].set_sector(*sector, &states[choice as usize]);
            }
            Ok(())
        });
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
    /// Extremes of lines and sectors: nothing, everything, each but one late, each but one early.
    extremes: u64,
    choices: Vec<u32>,
    samples_left: u32,
    random: Random,
    /// Extremes that block devices add.
    further: Vec<Vec<u32>>,
    seen: HashSet<u128>,
}

impl ModelledSsd {
    /// The states that a power cut now may leave, requests in flight included.
    pub fn crash_states(&self) -> CrashStates<'static> {
        let mut states = CrashStates::none();
        self.with_contents(|contents| states.add_device(0, contents));
        states
    }
}

impl Images<'_> {
    /// Whether every image will be given.
    pub fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    /// The same, if they are [sampled](CrashStates::sampled_images), without those in which one line or sector
    /// differs from all others: they are twice as many as there are lines, and each is as long as those.
    pub fn without_single_sites(self) -> Self {
        Self { extremes: 2, ..self }
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
        loop {
            let choices: Vec<u32> = if self.given < self.extremes {
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
            } else if let Some(choices) = self.further.pop() {
                choices
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
        let memory_sites = &self.states.sites[..self.states.memory_sites];
        let mut choices: Vec<u32> = memory_sites.iter().map(&mut choose).collect();
        if choices.len() < self.states.sites.len() {
            self.choose_sectors(&mut choices);
        }
        choices
    }

    /// Leans to one side too, and chooses by write as often as by sector.
    fn choose_sectors(&mut self, choices: &mut Vec<u32>) {
        let sectors = &self.states.sites[choices.len()..];
        let first = choices.len();
        let all = self.random.below(3) == 0;
        choices.extend(sectors.iter().map(|site| if all { site.everything() } else { 0 }));
        if self.random.below(2) == 0 {
            let one_in = [2, 2, 8][self.random.below(3)];
            for effects in &self.states.writes {
                if self.random.below(one_in) == 0 {
                    for &(site, state) in effects {
                        choices[site] = if all { 0 } else { state };
                    }
                }
            }
        } else {
            let one_in = [1, 2, 8][self.random.below(3)];
            for (choice, site) in choices[first..].iter_mut().zip(sectors) {
                if self.random.below(one_in) == 0 {
                    *choice = self.random.below(site.count() as usize) as u32;
                }
            }
        }
    }
}

impl Iterator for Images<'_> {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        if self.exhaustive { self.next_exhaustive() } else { self.next_sampled() }
    }
}
