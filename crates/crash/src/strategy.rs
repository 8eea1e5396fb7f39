//! Choosing the images of a crash point.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use lapis_device::{CrashStates, Image, ImageBudget, Images, LineRead, PrunedImages};

/// How the images of a crash point are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Every image, at crash points with up to the limit of them; a sample elsewhere.
    Exhaustive,
    /// One image of each class that recovery and check can tell apart by what they read, up to the
    /// limit; where that does not cover all images, a sample besides.
    #[default]
    Pruned,
    /// A sample: the oldest and the newest image, each line alone late and alone early, and then
    /// random ones.
    Sampled,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exhaustive, Self::Pruned, Self::Sampled];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exhaustive => "exhaustive",
            Self::Pruned => "pruned",
            Self::Sampled => "sampled",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No strategy of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy {name:?}; choose exhaustive, pruned or sampled")]
pub struct UnknownStrategy {
    /// The name.
    pub name: String,
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.name() == name);
        found.ok_or_else(|| UnknownStrategy { name: name.to_owned() })
    }
}

/// Gives out the images of one crash point, one after the other.
pub(crate) struct Candidates<'s> {
    source: Source<'s>,
    states: &'s CrashStates<'s>,
    budget: ImageBudget,
    /// Images that are known by now to have been tried or to come out like one that was.
    covered: u64,
}

enum Source<'s> {
    Given(Option<Image>),
    Plain(Images<'s>),
    Pruned {
        images: PrunedImages<'s>,
        tried: u64,
    },
    /// What pruning left over, sampled: without those that were tried.
    Remainder {
        images: Images<'s>,
        tried: HashSet<Image>,
    },
}

impl<'s> Candidates<'s> {
    pub(crate) fn new(
        states: &'s CrashStates<'s>,
        strategy: Strategy,
        budget: ImageBudget,
    ) -> Self {
        let source = match (strategy, PrunedImages::new(states)) {
            (Strategy::Pruned, Some(images)) => Source::Pruned { images, tried: 0 },
            (Strategy::Sampled, _) => Source::Plain(states.sampled_images(budget)),
            _ => Source::Plain(states.images(budget)),
        };
        Self { source, states, budget, covered: 0 }
    }

    /// Only this image, if any.
    pub(crate) fn only(states: &'s CrashStates<'s>, image: Option<Image>) -> Self {
        let budget = ImageBudget::default();
        Self { source: Source::Given(image), states, budget, covered: 0 }
    }

    /// Whether what is read on an image has to be known before the next is given.
    pub(crate) fn needs_reads(&self) -> bool {
        matches!(self.source, Source::Pruned { .. })
    }

    pub(crate) fn next_image(&mut self) -> Option<Image> {
        loop {
            match &mut self.source {
                Source::Given(image) => return image.take(),
                Source::Plain(images) => {
                    self.covered += 1;
                    let image = images.next();
                    self.covered -= u64::from(image.is_none());
                    return image;
                }
                Source::Pruned { images, tried } => {
                    if images.is_finished() {
                        return None;
                    }
                    if *tried < self.budget.exhaustive_limit.max(1) {
                        *tried += 1;
                        return images.next_image();
                    }
                    let images = self.states.sampled_images(self.budget);
                    self.source = Source::Remainder { images, tried: HashSet::new() };
                }
                Source::Remainder { images, tried } => {
                    let image = images.next()?;
                    if tried.insert(image.clone()) {
                        return Some(image);
                    }
                }
            }
        }
    }

    /// What the recovery and the check of the image given last have read.
    pub(crate) fn learn(&mut self, reads: &[LineRead]) {
        if let Source::Pruned { images, .. } = &mut self.source {
            self.covered = self.covered.saturating_add(images.learn(reads));
        }
    }

    /// Images tried, or known to come out like one that was.
    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    /// Whether every image of the point is covered.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.source {
            Source::Given(_) | Source::Remainder { .. } => false,
            Source::Plain(_) => self.covered >= self.states.image_count(),
            Source::Pruned { images, .. } => images.is_finished(),
        }
    }
}
