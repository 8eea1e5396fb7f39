//! Images whose outcome is known from one that was run at another crash point.
//!
//! What is done on an image is a function of the bytes that it reads, of what was recovered and of
//! the operation that was in flight or is the last one; the random choices in it follow from these.
//! Pruning uses that among the images of one crash point. But the images of different crash points
//! differ little too: with nothing persisted that can be reached, there is what was there when the
//! operation before it was acknowledged; with everything persisted, what will be there at the
//! acknowledgement. So for the last few images that were run it is kept what they held in the lines
//! that have changed since, and what was read of the lines that were going to change:
//!
//! ```text
//!                  every byte read by ...
//!  opening, contents, invariants, space, second opening │ operations, and everything again
//!  ─────────────────────────────────────────────────────┼──────────────────────────────────
//!  agrees                                               │ agrees, same operation: known
//!  agrees                                               │ not, or another one: only these are run
//!  differs                                              │ everything is run
//! ```
//!
//! Where no byte of the memory differs, read or not, nothing of the operation in flight is there for
//! others to meet: that is known too, though the operation is another one.
//!
//! A line that differs and was not watched counts as read, all of it.

use std::collections::VecDeque;
use std::rc::Rc;

use lapis_device::{Event, LineBytes, LineRead, Marker, differing_bytes, word_of};

/// Images that are remembered.
const MOST_RUNS: usize = 64;
/// Events, from the crash point on, that are looked at for lines that are going to change.
const EVENTS_AHEAD: usize = 1 << 11;
/// Such lines that are watched.
const LINES_AHEAD: usize = 192;

/// An image that was run and came out well.
#[derive(Debug)]
pub(crate) struct KnownImage {
    /// The operation in flight, or else the last one.
    pub(crate) operation: Option<u32>,
    /// A hash of the state recovered to.
    pub(crate) recovered: u64,
    /// Whether it was checked whole; else only opened, and its contents compared.
    pub(crate) whole: bool,
    /// In ascending order: of no other line is it known what was read.
    pub(crate) watched: Rc<[u32]>,
    /// First read first; places are among `watched`.
    pub(crate) reads: Vec<LineRead>,
    /// So many of them before the operations were tried.
    pub(crate) reads_before_operations: usize,
    /// What the image held where durable contents are something else now, and some lines besides. A
    /// line in which another image was seen to differ comes first: the next one often does too.
    held: Vec<(u32, LineBytes)>,
    /// Those lines in ascending order: of a page there are hundreds.
    lines_held: Vec<u32>,
}

/// Bytes of a word that were read before the operations were tried, and not by a lock: an image that
/// has one of them otherwise is another one.
#[derive(Clone, Copy, Debug)]
struct DistinguishingWord {
    line: u32,
    /// Its number in the line.
    word: usize,
    mask: u64,
    /// What they were.
    bytes: u64,
}

impl DistinguishingWord {
    /// The first of the bytes `differing` that were read in `line`, which held `then`.
    fn among(line: u32, then: &LineBytes, differing: u64) -> Option<Self> {
        let word = (differing != 0).then(|| differing.trailing_zeros() as usize / 8)?;
        let bytes = differing >> (8 * word) & 0xFF;
        let mask = (0..8).fold(0, |mask, at| mask | (((bytes >> at) & 1) * 0xFF) << (8 * at));
        Some(Self { line, word, mask, bytes: word_of(then, word) & mask })
    }

    /// Whether an image differs in it that has these lines otherwise than `durable` says.
    #[inline]
    fn tells(
        &self,
        overrides: &[(u32, LineBytes)],
        durable_word: impl Fn(u32, usize) -> u64,
    ) -> bool {
        let overridden = overrides.iter().find(|(line, _)| *line == self.line);
        let word = match overridden {
            Some((_, bytes)) => word_of(bytes, self.word),
            None => durable_word(self.line, self.word),
        };
        word & self.mask != self.bytes
    }
}

impl KnownImage {
    /// What was read of these lines, by their place among them.
    pub(crate) fn reads_of<'k>(
        &'k self,
        lines: &'k [u32],
        count: usize,
    ) -> impl Iterator<Item = LineRead> + 'k {
        placed(&self.reads[..count], &self.watched, lines)
    }

    /// Keeps what the image held in a line, unless that is known.
    fn hold(&mut self, line: u32, bytes: &LineBytes) {
        if let Err(place) = self.lines_held.binary_search(&line) {
            self.lines_held.insert(place, line);
            self.held.push((line, *bytes));
        }
    }
}

/// `reads`, whose places are among `watched`, by their place among `lines`; both in ascending order.
pub(crate) fn placed<'r>(
    reads: &'r [LineRead],
    watched: &'r [u32],
    lines: &'r [u32],
) -> impl Iterator<Item = LineRead> + 'r {
    reads.iter().filter_map(|read| {
        let place = lines.binary_search(&watched[read.place as usize]).ok()?;
        Some(LineRead { place: place as u32, ..*read })
    })
}

/// How far an image agrees with one that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// In all that was read of it before the operations.
    BeforeOperations,
    /// In all that was read of it, and the operation is the same; or in everything.
    Entire,
}

/// The images run last.
#[derive(Debug, Default)]
pub(crate) struct KnownImages {
    runs: VecDeque<KnownImage>,
    /// Of each, a word in which another image was seen to differ: most images differ there too. Apart
    /// from the rest, so that looking through them all is quick.
    distinguishing: VecDeque<Option<DistinguishingWord>>,
}

impl KnownImages {
    /// Forgets everything: the memory is another one.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.distinguishing.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// A line is about to hold something else durably than `before`.
    pub(crate) fn changes(&mut self, line: u32, before: &LineBytes) {
        for run in &mut self.runs {
            run.hold(line, before);
        }
    }

    /// An image was run that held `overrides` where it differed from the durable contents.
    pub(crate) fn add(&mut self, run: KnownImage, overrides: &[(u32, LineBytes)]) {
        if self.runs.len() == MOST_RUNS {
            self.runs.pop_front();
            self.distinguishing.pop_front();
        }
        self.distinguishing.push_back(None);
        let mut lines_held: Vec<u32> = overrides.iter().map(|(line, _)| *line).collect();
        lines_held.sort_unstable();
        self.runs.push_back(KnownImage { held: overrides.to_vec(), lines_held, ..run });
    }

    /// One that [`KnownImages::find`] has found.
    pub(crate) fn get(&self, index: usize) -> &KnownImage {
        &self.runs[index]
    }

    /// The one that an image agrees with furthest. `durable` says what a line holds durably; it has
    /// to be known of all of `uncertain` whether they were read.
    pub(crate) fn find(
        &mut self,
        overrides: &[(u32, LineBytes)],
        durable: impl Fn(u32) -> LineBytes,
        durable_word: impl Fn(u32, usize) -> u64,
        uncertain: &[u32],
        operation: Option<u32>,
    ) -> Option<(usize, Agreement)> {
        let mut best = None;
        // Those of one crash point have watched the same lines.
        let mut decided: Option<(Rc<[u32]>, bool)> = None;
        for at in (0..self.runs.len()).rev() {
            if self.distinguishing[at]
                .is_some_and(|distinguishing| distinguishing.tells(overrides, &durable_word))
            {
                continue;
            }
            let run = &mut self.runs[at];
            let all_known = match &decided {
                Some((watched, all_known)) if Rc::ptr_eq(watched, &run.watched) => *all_known,
                _ => {
                    let known =
                        uncertain.iter().all(|line| run.watched.binary_search(line).is_ok());
                    decided = Some((Rc::clone(&run.watched), known));
                    known
                }
            };
            if !all_known {
                continue;
            }
            let found = agreement(run, overrides, &durable, run.operation == operation);
            if let Err(distinguishing) = found {
                self.distinguishing[at] = distinguishing.or(self.distinguishing[at]);
            }
            match found.ok() {
                Some(Agreement::Entire) => return Some((at, Agreement::Entire)),
                Some(_) if best.is_none() => best = Some((at, Agreement::BeforeOperations)),
                _ => {}
            }
        }
        best
    }
}

fn agreement(
    run: &mut KnownImage,
    overrides: &[(u32, LineBytes)],
    durable: &impl Fn(u32) -> LineBytes,
    same_operation: bool,
) -> Result<Agreement, Option<DistinguishingWord>> {
    let (mut entire, mut identical) = (same_operation, true);
    let mut compare = |run: &KnownImage, line: u32, then: &LineBytes, now: &LineBytes| {
        let differing = differing_bytes(then, now);
        if differing == 0 {
            return Ok(());
        }
        identical = false;
        let place = run.watched.binary_search(&line).map_err(|_| None)? as u32;
        let differs = |read: &LineRead| read.place == place && read.tells_apart(then, now);
        let (before, after) = run.reads.split_at(run.reads_before_operations);
        if let Some(read) = before.iter().find(|read| differs(read)) {
            let told = read.by_lock.is_none().then_some(read.bytes & differing);
            return Err(told.and_then(|bytes| DistinguishingWord::among(line, then, bytes)));
        }
        entire &= !after.iter().any(differs);
        Ok(())
    };
    for at in 0..run.held.len() {
        let (line, then) = &run.held[at];
        let agrees = match overrides.binary_search_by_key(line, |(other, _)| *other) {
            Ok(at) => compare(run, *line, then, &overrides[at].1),
            Err(_) => compare(run, *line, then, &durable(*line)),
        };
        if let Err(distinguishing) = agrees {
            run.held.swap(0, at);
            return Err(distinguishing);
        }
    }
    for (line, now) in overrides {
        if run.lines_held.binary_search(line).is_err() {
            let then = durable(*line);
            if let Err(distinguishing) = compare(run, *line, &then, now) {
                run.hold(*line, &then);
                let last = run.held.len() - 1;
                run.held.swap(0, last);
                return Err(distinguishing);
            }
        }
    }
    Ok(if entire || identical { Agreement::Entire } else { Agreement::BeforeOperations })
}

/// The lines that are stored to from the crash point to the end of the second operation from there
/// on that stores anything: in them the images of these crash points differ.
pub(crate) fn lines_ahead(events: &[Event], lines: &mut Vec<u32>) {
    let (mut operations, mut stores, mut last) = (0, false, u32::MAX);
    let before = lines.len();
    for event in events.iter().take(EVENTS_AHEAD) {
        if let Event::Marker { marker: Marker::End(_), .. } = *event {
            operations += u32::from(std::mem::take(&mut stores));
            if operations == 2 {
                break;
            }
        }
        for line in event.stored_lines() {
            stores = true;
            if line != last {
                lines.push(line);
                last = line;
            }
            if lines.len() - before >= LINES_AHEAD {
                return;
            }
        }
    }
}

impl KnownImage {
    /// `reads` have places among `watched`.
    pub(crate) fn new(
        operation: Option<u32>,
        recovered: u64,
        watched: Rc<[u32]>,
        reads: Vec<LineRead>,
        reads_before_operations: Option<usize>,
    ) -> Self {
        let whole = reads_before_operations.is_some();
        let reads_before_operations = reads_before_operations.unwrap_or(reads.len());
        Self {
            operation,
            recovered,
            whole,
            watched,
            reads,
            reads_before_operations,
            held: Vec::new(),
            lines_held: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: u8) -> LineBytes {
        [value; 64]
    }

    fn read(place: u32) -> LineRead {
        LineRead { place, bytes: 0xFF, by_lock: None }
    }

    /// An image in operation 5 of which lines 10 and, by the operations tried, 12 were read; of
    /// lines 10 to 13 it would be known.
    fn known(overrides: &[(u32, LineBytes)]) -> KnownImages {
        let mut images = KnownImages::default();
        let reads = vec![read(0), read(2)];
        let run = KnownImage::new(Some(5), 77, Rc::from([10, 11, 12, 13]), reads, Some(1));
        images.add(run, overrides);
        images
    }

    fn find(
        images: &mut KnownImages,
        overrides: &[(u32, LineBytes)],
        uncertain: &[u32],
        operation: u32,
    ) -> Option<Agreement> {
        let durable = |_| line(0);
        let word = |_, _| 0;
        images.find(overrides, durable, word, uncertain, Some(operation)).map(|(_, how)| how)
    }

    #[test]
    fn what_differs_in_bytes_that_were_not_read_comes_out_alike() {
        let mut images = known(&[]);
        assert_eq!(find(&mut images, &[(11, line(1))], &[11], 5), Some(Agreement::Entire));
        let mut second_word = line(0);
        second_word[8..].fill(1);
        assert_eq!(find(&mut images, &[(10, second_word)], &[10], 5), Some(Agreement::Entire));
        assert_eq!(find(&mut images, &[(10, line(1))], &[10], 5), None);
    }

    #[test]
    fn what_only_the_operations_read_or_another_operation_needs_them_again() {
        let mut images = known(&[]);
        let again = Some(Agreement::BeforeOperations);
        assert_eq!(find(&mut images, &[(12, line(1))], &[12], 5), again);
        assert_eq!(find(&mut images, &[(11, line(1))], &[11], 6), again);
    }

    #[test]
    fn of_another_operation_that_has_left_nothing_everything_is_known() {
        let mut images = known(&[(10, line(3))]);
        assert_eq!(find(&mut images, &[(10, line(3))], &[10], 6), Some(Agreement::Entire));
    }

    #[test]
    fn a_line_that_was_not_watched_counts_as_read() {
        let mut images = known(&[]);
        assert_eq!(find(&mut images, &[(14, line(1))], &[11], 5), None, "it may have been read");
        assert_eq!(find(&mut images, &[], &[14], 5), None, "nobody knows what to tell apart by");
    }

    #[test]
    fn what_became_durable_since_is_compared_with_what_the_image_held() {
        let mut images = known(&[(10, line(3))]);
        images.changes(10, &line(9));
        images.changes(13, &line(0));
        // Line 10 holds 3 durably now, as the image did.
        let durable = |number| if number == 10 { line(3) } else { line(4) };
        let word = |line, word| word_of(&durable(line), word);
        let mut found =
            |overrides| images.find(overrides, durable, word, &[], Some(5)).map(|(_, how)| how);
        assert_eq!(found(&[]), Some(Agreement::Entire));
        assert_eq!(found(&[(10, line(9))]), None);
        images.clear();
        assert!(images.is_empty());
    }

    #[test]
    fn an_image_that_is_told_apart_by_one_word_is_found_again_when_it_agrees() {
        let mut images = known(&[]);
        for value in [1, 2, 0, 3, 0] {
            let expected = (value == 0).then_some(Agreement::Entire);
            assert_eq!(find(&mut images, &[(10, line(value))], &[10], 5), expected);
        }
        assert!(images.distinguishing[0].is_some());
        // In another byte of that word nothing was read.
        let mut other_byte = line(0);
        other_byte[9] = 1;
        assert_eq!(find(&mut images, &[(10, other_byte)], &[10], 5), Some(Agreement::Entire));
    }

    #[test]
    fn lines_are_looked_for_to_the_end_of_the_second_operation_that_stores() {
        let store = |line| Event::Store { worker: 0, start: 0, bytes: 8, line, value: 0 };
        let end = |number| Event::Marker { worker: 0, marker: Marker::End(number) };
        let events = [store(3), store(3), end(1), end(2), store(7), end(3), store(9)];
        let mut lines = vec![1];
        lines_ahead(&events, &mut lines);
        assert_eq!(lines, [1, 3, 7]);
    }
}
