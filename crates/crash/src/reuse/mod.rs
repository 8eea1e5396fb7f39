//! Checking the images of one crash point after the other, with the memory of those before.

pub(crate) mod images;
pub(crate) mod walks;

use std::rc::Rc;

use lapis_device::{BytesOfLine, CrashStates, Event, Image, LineBytes, LineRead, differing_bytes};
use lapis_pmem::Region;

use self::images::{Agreement, KnownImage, KnownImages, lines_ahead, placed};
use crate::erased::AnySubject;
use crate::image_check::{
    Expectation, ImageChecker, Recovered, is_checked_whole, read_line, read_word,
    seed_after_recovery,
};
use crate::subject::WalkMemory;

/// What one thread remembers of the images that it has run.
#[derive(Default)]
pub(crate) struct Reuse {
    pub(crate) known: KnownImages,
    walks: Option<Rc<dyn WalkMemory>>,
    /// The lines whose reads are noted, and those of them that are uncertain: both in ascending order.
    watched: Rc<[u32]>,
    uncertain: Vec<u32>,
    /// Where the image at hand differs from what is durable.
    overrides: Vec<(u32, LineBytes)>,
    differing: Vec<BytesOfLine>,
    /// What is read of the uncertain lines in checking the image at hand.
    pub(crate) reads: Vec<LineRead>,
    pub(crate) taken: Vec<LineRead>,
}

/// What is to be known of an image.
pub(crate) struct Question<'q, 'r> {
    pub(crate) subject: &'q dyn AnySubject,
    pub(crate) expectation: Expectation<'r>,
    /// The operation in flight, or else the last one.
    pub(crate) operation: Option<u32>,
    pub(crate) seed: u64,
    pub(crate) whole_check_every: u64,
}

/// How much of a verdict follows from another image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Everything was run.
    None,
    /// Recovery and contents are known; operations were run.
    Partial,
    /// Nothing was run.
    Entire,
}

impl Reuse {
    /// Remembers walks over the structure, too.
    pub(crate) fn with_walks(walks: Option<Rc<dyn WalkMemory>>) -> Self {
        Self { walks, ..Self::default() }
    }

    /// These lines are about to hold something else durably.
    pub(crate) fn lines_change<'l>(
        &mut self,
        lines: impl Iterator<Item = (u32, &'l LineBytes)>,
        region: &Region,
    ) {
        if self.known.is_empty() && self.walks.is_none() {
            return;
        }
        for (line, after) in lines {
            let before = read_line(region, line);
            self.known.changes(line, &before);
            if let Some(walks) = &self.walks {
                let bytes = differing_bytes(&before, after);
                walks.changes_durably(BytesOfLine { line, bytes });
            }
        }
    }

    /// Forgets everything: the memory is another one.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
        if let Some(walks) = &self.walks {
            walks.forget();
        }
    }

    /// How many parts of walks were passed over.
    pub(crate) fn parts_passed(&self) -> u64 {
        self.walks.as_ref().map_or(0, |walks| walks.passed())
    }

    /// Watches the lines in which images of this crash point and of the next ones, on which `events`
    /// lead, differ.
    pub(crate) fn look_ahead(
        &mut self,
        checker: &ImageChecker,
        states: &CrashStates<'_>,
        events: &[Event],
    ) {
        self.uncertain.clear();
        self.uncertain.extend(states.uncertain_lines().into_iter().flatten());
        let mut lines = self.uncertain.clone();
        lines_ahead(events, &mut lines);
        lines.sort_unstable();
        lines.dedup();
        self.watched = lines.into();
        if let Some(walks) = &self.walks {
            walks.begin_point(&self.watched);
        }
        checker.watch_lines(&self.watched);
    }

    /// The image at hand is this one; the region still holds what is durable.
    pub(crate) fn take_image(
        &mut self,
        checker: &ImageChecker,
        states: &CrashStates<'_>,
        image: &Image,
    ) {
        self.overrides = states.overrides(image);
        self.differing.clear();
        if self.walks.is_some() {
            let differing = self.overrides.iter().map(|&(line, ref bytes)| {
                let bytes = differing_bytes(&read_line(&checker.region, line), bytes);
                BytesOfLine { line, bytes }
            });
            self.differing.extend(differing);
        }
    }

    /// The image run before that the one at hand agrees with furthest, if one does; while the region
    /// holds what is durable.
    pub(crate) fn find(
        &mut self,
        checker: &ImageChecker,
        operation: Option<u32>,
    ) -> Option<(usize, Agreement)> {
        let durable = |line| read_line(&checker.region, line);
        let word = |line, word| read_word(&checker.region, line, word);
        self.known.find(&self.overrides, durable, word, &self.uncertain, operation)
    }

    /// Lets walks over the image at hand leave out what is known, at a crash point at which
    /// [`Reuse::look_ahead`] was called, while `check` runs.
    pub(crate) fn remembering<T>(
        &self,
        checker: &mut ImageChecker,
        check: impl FnOnce(&mut ImageChecker) -> T,
    ) -> T {
        if let Some(walks) = &self.walks {
            walks.begin_run(&self.differing);
        }
        checker.walks.clone_from(&self.walks);
        let result = check(checker);
        checker.walks = None;
        result
    }

    /// Checks the image that the region holds, as far as it is not known from the one `found`.
    pub(crate) fn check<'r>(
        &mut self,
        checker: &mut ImageChecker,
        found: Option<(usize, Agreement)>,
        question: Question<'_, 'r>,
    ) -> (Recovered<'r>, Proof) {
        let Question { subject, expectation, operation, seed, whole_check_every } = question;
        // Before there is anything, and after a clean shutdown, more is asked.
        let ordinary =
            expectation.acknowledged.is_some() && !expectation.shut_down && !checker.has_devices();
        let known = found.filter(|_| ordinary).and_then(|(index, agreement)| {
            let run = self.known.get(index);
            // What is not allowed is run, to say what it is.
            let recovered = expectation.of_hash(run.recovered)?;
            let seed = seed_after_recovery(seed, recovered.hash);
            match agreement {
                _ if !is_checked_whole(seed, whole_check_every) => {
                    Some((run, recovered, Proof::Entire, run.reads_before_operations))
                }
                _ if !run.whole => None,
                Agreement::Entire => Some((run, recovered, Proof::Entire, run.reads.len())),
                Agreement::BeforeOperations => {
                    Some((run, recovered, Proof::Partial, run.reads_before_operations))
                }
            }
        });
        self.reads.clear();
        if let Some((run, recovered, proof, count)) = known {
            self.reads.extend(run.reads_of(&self.uncertain, count));
            if proof == Proof::Entire {
                return (Ok(Some(recovered)), proof);
            }
        }
        let recovered = known.map(|(_, recovered, ..)| recovered);
        let (outcome, before_operations) = self.remembering(checker, |checker| {
            checker.check_from(subject, expectation, seed, whole_check_every, recovered)
        });
        checker.take_reads(&mut self.taken);
        self.reads.extend(placed(&self.taken, &self.watched, &self.uncertain));
        let proof = known.map_or(Proof::None, |(_, _, proof, _)| proof);
        if let (Ok(Some(recovered)), true) = (&outcome, ordinary) {
            let hash = recovered.hash;
            let image = match known {
                None => {
                    let (watched, reads) = (Rc::clone(&self.watched), self.taken.clone());
                    KnownImage::new(operation, hash, watched, reads, before_operations)
                }
                Some((run, _, _, count)) => {
                    // Of other lines it is not known of both whether they were read.
                    let both = |line: &&u32| run.watched.binary_search(line).is_ok();
                    let watched: Rc<[u32]> = self.watched.iter().filter(both).copied().collect();
                    let mut reads: Vec<_> = run.reads_of(&watched, count).collect();
                    let (before, after) = self.taken.split_at(before_operations.unwrap_or(0));
                    reads.extend(placed(before, &self.watched, &watched));
                    let before_operations = reads.len();
                    reads.extend(placed(after, &self.watched, &watched));
                    KnownImage::new(operation, hash, watched, reads, Some(before_operations))
                }
            };
            self.known.add(image, &self.overrides);
        }
        (outcome, proof)
    }
}
