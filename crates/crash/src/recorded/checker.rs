//! The program's own check, asked about image after image.
//!
//! # How a command is asked
//!
//! The command is run with the path of the first image. If it ends, its exit code is the verdict, and it is run again
//! for each further image. It may instead stay and be asked about all of them: `LAPIS_CHECKER` in its environment is
//! the path of a Unix socket, to which it connects before it looks at the image. `lapis_check` of
//! `include/lapis_check.h` does this, and forks for each image. Lines of text go over the socket:
//!
//! ```text
//!  command   lapis checker 1                               the version of these lines
//!  Lapis     check ACKNOWLEDGED IN_FLIGHT PATH             `-` for no operation
//!  command   exit CODE  |  signal NUMBER                   exit 0: the image is one to go on from
//!            …
//!  Lapis closes the socket; the command ends
//! ```
//!
//! The path is the same each time, and the file is not written anew but changed where the images differ: it lies in
//! memory if there is any (`/dev/shm`), and a command that stays maps it privately and does not write to it. What the
//! command says about an image is what stands in its standard output and error when it answers. A command that breaks
//! off has given its verdict by the way it ended, and is started again.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lapis_device::trace_file::RecordedTrace;
use lapis_pmem::Region;

use super::image_file::ImageFile;
use super::{Progressing, RecordedError, RecordedFailure, RecoverCommand};
use crate::stop_flag::StopFlag;

/// So much of what a command says is kept.
const SAID_BYTES: u64 = 300;
/// The first line of a command that stays.
const GREETING: &str = "lapis checker 1";
/// A command that stayed has so long to end.
const END_WITHIN: Duration = Duration::from_secs(1);
/// Whether there is something new is looked at this often while a command that stays is silent.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the command made of an image.
pub(super) enum Verdict {
    /// It took it, with these words.
    Taken(Vec<u8>),
    /// It did not.
    Refused(RecordedFailure),
    /// Nobody waited for what it would have said.
    Unknown,
}

/// How the command, or what it ran, ended.
enum Ended {
    Code(i32),
    Signal(i32),
    TooLate,
    Unknown,
}

/// Runs the command.
pub(super) struct Checker<'c> {
    command: &'c RecoverCommand,
    stop: StopFlag,
    base_address: u64,
    directory: tempfile::TempDir,
    image: ImageFile,
    /// One that stays.
    staying: Option<Staying>,
    stays: bool,
}

struct Staying {
    child: Child,
    stream: BufReader<UnixStream>,
    output: File,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> RecordedError {
    move |error| RecordedError::Io { doing, error }
}

impl<'c> Checker<'c> {
    /// For images that `region` will hold.
    pub(super) fn new(
        recorded: &RecordedTrace,
        command: &'c RecoverCommand,
        stop: StopFlag,
        region: &Region,
    ) -> Result<Self, RecordedError> {
        let in_memory = tempfile::tempdir_in("/dev/shm").and_then(|directory| {
            let image = ImageFile::new(recorded, region, directory.path())?;
            Ok((directory, image))
        });
        let (directory, image) = match in_memory {
            Ok(both) => both,
            Err(_) => {
                let directory =
                    tempfile::tempdir().map_err(failed("a directory for images cannot be made"))?;
                let image = ImageFile::new(recorded, region, directory.path())
                    .map_err(failed("a crash image cannot be written"))?;
                (directory, image)
            }
        };
        let base_address = recorded.header.base_address;
        Ok(Self { command, stop, base_address, directory, image, staying: None, stays: false })
    }

    /// Whether the command has stayed to be asked again.
    pub(super) fn stays(&self) -> bool {
        self.stays
    }

    /// A line of the region is not what it was.
    pub(super) fn line_changes(&mut self, line: u32) {
        self.image.line_changes(line);
    }

    /// Asks about the image that the region holds, which it made of the durable contents by changing `lines`.
    pub(super) fn ask(
        &mut self,
        region: &Region,
        lines: &[u32],
        progressing: &Progressing,
    ) -> Result<Verdict, RecordedError> {
        lines.iter().for_each(|&line| self.image.line_changes(line));
        let written = match self.stays {
            true => self.image.renew(region),
            // The last one may have changed it.
            false => self.image.write(region),
        };
        written.map_err(failed("a crash image cannot be written"))?;
        // They are taken back after it.
        lines.iter().for_each(|&line| self.image.line_changes(line));
        let ended = match self.staying.take() {
            Some(staying) => self.ask_again(staying, progressing)?,
            None => self.start(progressing)?,
        };
        let said = || said(&self.directory.path().join("output"));
        let refused = |ended| Verdict::Refused(RecordedFailure::Refused { ended, said: said() });
        Ok(match ended {
            Ended::Code(0) => {
                let words = std::fs::read(self.directory.path().join("output"));
                Verdict::Taken(words.map_err(failed("the output cannot be read"))?)
            }
            // What the shell says of a command that is not there or not to be executed.
            Ended::Code(126 | 127) => return Err(RecordedError::NoCommand { said: said() }),
            Ended::Code(code) => refused(format!("refused the image with exit code {code}")),
            Ended::Signal(signal) => refused(format!("was ended by signal {signal}")),
            Ended::TooLate => {
                let after_s = self.command.time_limit.as_secs_f64();
                Verdict::Refused(RecordedFailure::DidNotEnd { after_s, said: said() })
            }
            Ended::Unknown => Verdict::Unknown,
        })
    }

    fn is_late(&self, started: Instant) -> bool {
        self.stop.is_raised() || started.elapsed() >= self.command.time_limit
    }

    /// What it is when the time is up, or somebody asks for the end.
    fn too_late(&self, mut child: Child) -> Ended {
        kill(&mut child);
        if self.stop.is_raised() { Ended::Unknown } else { Ended::TooLate }
    }

    /// Runs the command, until it ends or connects.
    fn start(&mut self, progressing: &Progressing) -> Result<Ended, RecordedError> {
        let failed_output = failed("a file for output cannot be made");
        let output = File::create(self.directory.path().join("output")).map_err(&failed_output)?;
        let copy = || output.try_clone().map_err(&failed_output);
        let socket = self.directory.path().join("socket");
        let _ = std::fs::remove_file(&socket);
        // A directory whose name is too long for a socket: the command is then run for each image.
        let listener = UnixListener::bind(&socket).ok();
        if let Some(listener) = &listener {
            listener.set_nonblocking(true).map_err(failed("the socket cannot be watched"))?;
        }
        let acknowledged = progressing.acknowledged.map(|number| number.to_string());
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{} \"$1\"", self.command.command))
            .arg("sh")
            .arg(self.image.path())
            .env("LAPIS_ACKNOWLEDGED", acknowledged.unwrap_or_default())
            .env("LAPIS_IN_FLIGHT", progressing.operation().unwrap_or_default())
            .env("LAPIS_BASE_ADDRESS", format!("{:#x}", self.base_address))
            .stdin(Stdio::null())
            .stdout(copy()?)
            .stderr(copy()?)
            // A group of its own, so that what it starts can be ended with it.
            .process_group(0);
        if listener.is_some() {
            command.env("LAPIS_CHECKER", &socket);
        }
        let mut child = command.spawn().map_err(failed("the command cannot be started"))?;
        let started = Instant::now();
        loop {
            if let Some((stream, _)) = listener.as_ref().and_then(|it| it.accept().ok()) {
                stream
                    .set_nonblocking(false)
                    .and_then(|()| stream.set_read_timeout(Some(LOOK_EVERY)))
                    .map_err(failed("the socket cannot be used"))?;
                let mut staying = Staying { child, stream: BufReader::new(stream), output };
                return match self.line_of(&mut staying) {
                    Line::Is(line) if line == GREETING => {
                        self.stays = true;
                        self.ask_again(staying, progressing)
                    }
                    Line::Is(line) => {
                        kill(&mut staying.child);
                        Err(RecordedError::Greeting { line })
                    }
                    Line::None => self.end_of(staying.child, started),
                    Line::TooLate => Ok(self.too_late(staying.child)),
                };
            }
            if let Some(status) = status_of(&mut child)? {
                return Ok(Ended::of(status));
            }
            if self.is_late(started) {
                return Ok(self.too_late(child));
            }
            // Not much longer than it has taken anyway.
            let pause = started.elapsed() / 8;
            std::thread::sleep(pause.clamp(Duration::from_micros(50), Duration::from_millis(10)));
        }
    }

    /// Asks a command that stays.
    fn ask_again(
        &mut self,
        mut staying: Staying,
        progressing: &Progressing,
    ) -> Result<Ended, RecordedError> {
        let started = Instant::now();
        // The command goes on where the file ends.
        let emptied = staying.output.rewind().and_then(|()| staying.output.set_len(0));
        emptied.map_err(failed("the output cannot be emptied"))?;
        let none = || "-".to_owned();
        let acknowledged = progressing.acknowledged.map_or_else(none, |it| it.to_string());
        let in_flight = progressing.operation().unwrap_or_else(none);
        let path = self.image.path().display();
        let request = format!("check {acknowledged} {in_flight} {path}\n");
        if staying.stream.get_mut().write_all(request.as_bytes()).is_err() {
            return self.end_of(staying.child, started);
        }
        match self.line_of(&mut staying) {
            Line::Is(line) => match Ended::read(&line) {
                Some(ended) => {
                    self.staying = Some(staying);
                    Ok(ended)
                }
                None => {
                    kill(&mut staying.child);
                    Err(RecordedError::Greeting { line })
                }
            },
            Line::None => self.end_of(staying.child, started),
            Line::TooLate => Ok(self.too_late(staying.child)),
        }
    }

    fn line_of(&self, staying: &mut Staying) -> Line {
        let (started, mut line) = (Instant::now(), Vec::new());
        loop {
            match staying.stream.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => {
                    return Line::Is(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
                Ok(_) => return Line::None,
                Err(error) if is_for_now(&error) => {
                    if self.is_late(started) {
                        return Line::TooLate;
                    }
                }
                Err(_) => return Line::None,
            }
        }
    }

    /// The verdict of one that has closed its socket.
    fn end_of(&self, mut child: Child, started: Instant) -> Result<Ended, RecordedError> {
        loop {
            if let Some(status) = status_of(&mut child)? {
                return Ok(Ended::of(status));
            }
            if self.is_late(started) {
                return Ok(self.too_late(child));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Checker<'_> {
    fn drop(&mut self) {
        let Some(Staying { mut child, stream, .. }) = self.staying.take() else { return };
        drop(stream);
        let started = Instant::now();
        while started.elapsed() < END_WITHIN && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(&mut child);
    }
}

/// What came over the socket.
enum Line {
    Is(String),
    /// It was closed.
    None,
    TooLate,
}

impl Ended {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }

    fn read(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ')?;
        match word {
            "exit" => number.parse().ok().map(Self::Code),
            "signal" => number.parse().ok().map(Self::Signal),
            _ => None,
        }
    }
}

fn is_for_now(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn status_of(child: &mut Child) -> Result<Option<ExitStatus>, RecordedError> {
    child.try_wait().map_err(failed("the command cannot be waited for"))
}

/// Ends a command and what it has started.
fn kill(child: &mut Child) {
    let group = format!("-{}", child.id());
    if matches!(child.try_wait(), Ok(None)) {
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = child.kill();
        let _ = child.wait();
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
