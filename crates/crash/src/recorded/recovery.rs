//! Asking the program itself: a command is run on crash images.

use std::collections::HashSet;
use std::fs::File;
use std::hash::Hasher;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{CrashCause, CrashPoint, CrashPoints, CrashStates, Image, ImageBudget};
use lapis_pmem::{LINE_BYTES, Region};

use super::image_file::ImagePages;
use super::{
    Progressing, RECOVER_SECONDS, RecordedError, RecordedFailure, RecordedOptions, RecordedReport,
    RecordedViolation, RecoverCommand, crash_points,
};
use crate::stop_flag::StopFlag;
use crate::structure::Progress;

/// So much of what a command says is kept.
const SAID_BYTES: u64 = 300;

/// Runs the command on the images of a trace.
pub(super) fn check(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    command: &RecoverCommand,
    report: &mut RecordedReport,
    progress: &Progress<'_>,
) -> Result<(), RecordedError> {
    let mut region = super::memory_before(recorded)?;
    let total = count_points(crash_points(&recorded.trace, &region, options));
    let mut points = crash_points(&recorded.trace, &region, options);
    let plan = Plan::of(total, options);
    let mut judge = Judge::new(recorded, command)?;
    let mut progressing = Progressing::default();
    let mut index = 0u64;
    // Of the violations, those found here.
    let mut refusals: Vec<usize> = Vec::new();
    'points: while let Some(point) = points.advance() {
        for (line, bytes) in points.newly_durable() {
            judge.contents ^= line_hash(line, bytes) ^ line_hash(line, line_of(&region, line));
        }
        points.bring_up_to_date(&mut region)?;
        progressing.read(&recorded.trace.events, point.position);
        index += 1;
        let states = points.states();
        let images: Box<dyn Iterator<Item = Image>> = match &options.replay {
            Some((position, _)) if *position != point.position => continue,
            Some((_, choices)) => {
                let image = Image::from_choices(choices.clone());
                if !states.includes(&image) {
                    return Err(RecordedError::NoSuchImage);
                }
                Box::new(std::iter::once(image))
            }
            None if !index.is_multiple_of(plan.stride) => continue,
            None => {
                let seed = options.seed ^ (point.position as u64) << 20;
                let images = states.images(ImageBudget { seed, ..plan.budget });
                report.exhaustive_points += u64::from(images.is_exhaustive());
                // Samples come after the extremes, of which there may be many more.
                Box::new(images.take(plan.per_point))
            }
        };
        report.crash_points += 1;
        for image in images {
            if !judge.is_new(&region, &states, &image, &progressing) {
                continue;
            }
            states.apply(&image, &mut region)?;
            let refused = judge.ask(&region, &progressing, options.stop);
            states.revert(&image, &mut region)?;
            if options.stop.is_raised() {
                break 'points;
            }
            report.images += 1;
            progress(report.images);
            if let Some(failure) = refused? {
                let found = violation(recorded, options, &point, &progressing, &image, failure);
                // Once per place in the source: what is wrong there is wrong each time.
                match refusals.iter().find(|at| report.violations[**at].point == found.point) {
                    Some(&at) => report.violations[at].times += 1,
                    None => {
                        refusals.push(report.violations.len());
                        report.violations.push(found);
                    }
                }
            }
            let enough = options.image_limit > 0 && report.images >= options.image_limit;
            if enough || report.violations.len() >= options.violation_limit {
                break 'points;
            }
        }
    }
    if options.replay.is_some() && report.crash_points == 0 && !options.stop.is_raised() {
        return Err(RecordedError::NoSuchImage);
    }
    report.distinct_states = judge.words.len() as u64;
    Ok(())
}

fn count_points(mut points: CrashPoints<'_>) -> u64 {
    let mut total = 0;
    while points.advance().is_some() {
        total += 1;
    }
    total
}

/// How the images are spread over the crash points.
struct Plan {
    /// Every so many crash points.
    stride: u64,
    budget: ImageBudget,
    per_point: usize,
}

impl Plan {
    fn of(points: u64, options: &RecordedOptions) -> Self {
        /// Fewer images of a crash point are hardly worth it: nothing and everything.
        const LEAST: u64 = 4;
        let ImageBudget { samples, .. } = ImageBudget::default();
        let exhaustive_limit = options.exhaustive_limit;
        if options.image_limit == 0 {
            let budget = ImageBudget { exhaustive_limit, samples, seed: 0 };
            return Self { stride: 1, budget, per_point: usize::MAX };
        }
        let stride = (points * LEAST).div_ceil(options.image_limit).clamp(1, points.max(1));
        let per_point = (options.image_limit / points.div_ceil(stride).max(1)).max(LEAST);
        let budget = ImageBudget {
            exhaustive_limit: exhaustive_limit.min(per_point),
            samples: samples.min(per_point as u32),
            seed: 0,
        };
        Self { stride, budget, per_point: per_point as usize }
    }
}

/// The contents of a line of a region that the trace is of.
fn line_of(region: &Region, line: u32) -> &[u8; LINE_BYTES] {
    let offset = line as usize * LINE_BYTES;
    assert!(offset + LINE_BYTES <= region.mapped_bytes(), "a line that is not mapped");
    // SAFETY: mapped (checked above), any bytes are an array of bytes, and nobody writes to the
    // region while it is borrowed.
    unsafe { &*region.base().add(offset).cast() }
}

fn line_hash(line: u32, bytes: &[u8; LINE_BYTES]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.write_u32(line);
    hasher.write(bytes);
    hasher.finish()
}

/// Runs the command.
pub(super) struct Judge<'r> {
    command: &'r RecoverCommand,
    pages: ImagePages,
    directory: tempfile::TempDir,
    /// Changes with the durable contents.
    contents: u64,
    /// Images tried, with what was promised of them.
    seen: HashSet<(u64, Option<u32>, Option<String>)>,
    /// What the command said of images it took.
    words: HashSet<Vec<u8>>,
}

impl<'r> Judge<'r> {
    pub(super) fn new(
        recorded: &RecordedTrace,
        command: &'r RecoverCommand,
    ) -> Result<Self, RecordedError> {
        let directory = tempfile::tempdir().map_err(|error| RecordedError::Io {
            doing: "a directory for crash images cannot be made",
            error,
        })?;
        Ok(Self {
            command,
            pages: ImagePages::of(recorded),
            directory,
            contents: 0,
            seen: HashSet::new(),
            words: HashSet::new(),
        })
    }

    /// Whether the same memory has not been judged with the same operations acknowledged and in
    /// flight. To start a process takes long, and many images of neighbouring crash points are one.
    fn is_new(
        &mut self,
        region: &Region,
        states: &CrashStates<'_>,
        image: &Image,
        progressing: &Progressing,
    ) -> bool {
        let changed = states.overrides(image).into_iter().fold(self.contents, |hash, it| {
            let (line, bytes) = it;
            hash ^ line_hash(line, &bytes) ^ line_hash(line, line_of(region, line))
        });
        self.seen.insert((changed, progressing.acknowledged, progressing.operation()))
    }

    /// What is wrong with the image that the region holds. Nothing is known of it once `stop` is raised.
    pub(super) fn ask(
        &mut self,
        region: &Region,
        progressing: &Progressing,
        stop: StopFlag,
    ) -> Result<Option<RecordedFailure>, RecordedError> {
        let io = |doing| move |error| RecordedError::Io { doing, error };
        let image = self.directory.path().join("image");
        let output = self.directory.path().join("output");
        self.pages.write(region, &image).map_err(io("a crash image cannot be written"))?;
        let sink = File::create(&output).map_err(io("a file for output cannot be made"))?;
        let both = sink.try_clone().map_err(io("a file for output cannot be made"))?;
        let acknowledged = progressing.acknowledged.map(|number| number.to_string());
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{} \"$1\"", self.command.command))
            .arg("sh")
            .arg(&image)
            .env("LAPIS_ACKNOWLEDGED", acknowledged.unwrap_or_default())
            .env("LAPIS_IN_FLIGHT", progressing.operation().unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(sink)
            .stderr(both)
            // A group of its own, so that what it starts can be ended with it.
            .process_group(0)
            .spawn()
            .map_err(io("the command cannot be started"))?;
        let started = Instant::now();
        let mut pause = Duration::from_micros(200);
        let status = loop {
            if let Some(status) =
                child.try_wait().map_err(io("the command cannot be waited for"))?
            {
                break Some(status);
            }
            if stop.is_raised() || started.elapsed() >= self.command.time_limit {
                break None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        };
        let Some(status) = status else {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.kill();
            let _ = child.wait();
            let seconds = self.command.time_limit.as_secs_f64();
            let ended = format!("did not end within {seconds} s");
            return Ok(Some(RecordedFailure::Refused { ended, said: said(&output) }));
        };
        let ended = match (status.code(), status.signal()) {
            (Some(0), _) => {
                let word = std::fs::read(&output).map_err(io("the output cannot be read"))?;
                self.words.insert(word);
                return Ok(None);
            }
            // What the shell says of a command that is not there or not to be executed.
            (Some(126 | 127), _) => {
                return Err(RecordedError::NoCommand { said: said(&output) });
            }
            (Some(code), _) => format!("refused the image with exit code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended in an unknown way".to_owned(),
        };
        Ok(Some(RecordedFailure::Refused { ended, said: said(&output) }))
    }
}

/// The first line that the command said.
fn said(output: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(output) {
        let _ = file.take(SAID_BYTES).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

fn violation(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    point: &CrashPoint,
    progressing: &Progressing,
    image: &Image,
    failure: RecordedFailure,
) -> RecordedViolation {
    let point_text = match point.cause {
        CrashCause::OperationEnd(_) => match recorded.event_location(point.position - 1) {
            Some(location) => format!("just after {location}"),
            None => "the end of an operation".to_owned(),
        },
        CrashCause::TraceEnd => "the end of the trace".to_owned(),
        _ => match recorded.event_location(point.position) {
            Some(location) => format!("just before {location}"),
            None => "just before a fence or locked store".to_owned(),
        },
    };
    RecordedViolation {
        position: point.position,
        point: point_text,
        operation: progressing.operation(),
        acknowledged: progressing.acknowledged,
        image: image.choices().to_vec(),
        what: failure.to_string(),
        failure,
        times: 1,
        replay: replay_command(options, point.position, image),
        shrunk: None,
        stores: Vec::new(),
    }
}

/// The command that shows an image to the program's own check again.
pub(super) fn replay_command(options: &RecordedOptions, position: usize, image: &Image) -> String {
    let choices = image.choices().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let choices = if choices.is_empty() { "-".to_owned() } else { choices };
    let (mut command, mut seconds) = ("", String::new());
    if let Some(recover) = &options.recover {
        command = &recover.command;
        if recover.time_limit != Duration::from_secs(RECOVER_SECONDS) {
            seconds = format!(" --recover-seconds {}", recover.time_limit.as_secs().max(1));
        }
    }
    format!(
        "lapis crash --trace {} --recover {}{seconds} --at {position} --image {choices}",
        quoted(&options.file),
        quoted(command),
    )
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a/b.trace"), "a/b.trace");
        assert_eq!(quoted("./ring check"), "'./ring check'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_small_budget_is_spread_over_all_crash_points() {
        let options = RecordedOptions { image_limit: 100, ..RecordedOptions::default() };
        let plan = Plan::of(1000, &options);
        assert_eq!((plan.stride, plan.per_point), (40, 4));
        let plan = Plan::of(10, &options);
        assert_eq!((plan.stride, plan.per_point), (1, 10));
    }
}
