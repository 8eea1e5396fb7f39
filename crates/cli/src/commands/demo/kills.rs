//! Starts the process that writes, and kills it without warning.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use lapis_crash::StopFlag;

use super::worker::READY;
use crate::failure::{Failure, reason};

/// How long the process may take to open the store.
const LONGEST_START: Duration = Duration::from_secs(60);

/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What came of a round.
#[derive(Debug)]
pub struct Round {
    /// The reports of acknowledged writes, in the order in which they came.
    pub reports: Vec<u64>,
    /// From the beginning of the work to the kill.
    pub worked: Duration,
}

/// How a round is to go.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub store: &'a Path,
    pub keys: &'a Path,
    pub seed: u64,
    pub round: u32,
    pub threads: u8,
    /// When the kill comes, after the beginning of the work.
    pub kill_after: Duration,
    /// Or when this is raised.
    pub stop: StopFlag,
}

/// Runs the process, kills it, and returns what it had reported.
pub fn run(plan: Plan<'_>) -> Result<Round, Failure> {
    let mut child = start(plan)?;
    let Some(mut pipe) = child.stdout.take() else {
        return Err(Failure::refused("the demo's second process has no output"));
    };
    let (ready_sender, ready) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut reports = Vec::new();
        let mut ready_sender = Some(ready_sender);
        let mut buffer = [0; 1 << 16];
        let mut filled = 0;
        // An error is the end of the pipe too: what has been read has been reported.
        while let Ok(read @ 1..) = pipe.read(&mut buffer[filled..]) {
            filled += read;
            let whole = filled / 8 * 8;
            for bytes in buffer[..whole].chunks_exact(8) {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                match u64::from_le_bytes(word) {
                    READY => drop(ready_sender.take().map(|sender| sender.send(()))),
                    report => reports.push(report),
                }
            }
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
        reports
    });
    let is_ready = ready.recv_timeout(LONGEST_START);
    let began = Instant::now();
    if is_ready.is_ok() {
        while began.elapsed() < plan.kill_after && !plan.stop.is_raised() {
            std::thread::sleep(LOOK.min(plan.kill_after.saturating_sub(began.elapsed())));
        }
    }
    let ended_itself = child.try_wait().ok().flatten();
    let worked = began.elapsed();
    // SIGKILL: the process gets no chance to write anything back or to close anything.
    let _ = child.kill();
    let _ = child.wait();
    let reports =
        reader.join().map_err(|_| Failure::refused("the demo's reports could not be read"))?;
    match (ended_itself, is_ready) {
        (None, Ok(())) => Ok(Round { reports, worked }),
        (Some(status), _) if status.code() == Some(1) => Err(Failure::NotThere(
            "the store gave a wrong answer before any kill, as the line above says".to_owned(),
        )),
        (None, Err(RecvTimeoutError::Timeout)) => Err(Failure::refused(
            "the demo's second process did not open the store within a minute; use a faster disk",
        )),
        _ => Err(Failure::refused(
            "the demo's second process ended by itself; the line above says why, else run it with -vv",
        )),
    }
}

fn start(plan: Plan<'_>) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("cannot start a second process for the demo: {}", reason(&error)))
    };
    Command::new(std::env::current_exe().map_err(failed)?)
        .arg("demo-worker")
        .arg("--dir")
        .arg(plan.store)
        .arg("--keys")
        .arg(plan.keys)
        .args(["--seed", &plan.seed.to_string()])
        .args(["--round", &plan.round.to_string()])
        .args(["--threads", &plan.threads.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)
}
