//! `lapis trace`: records what a program that nobody changed does to a file it maps.

mod places;

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use lapis_device::trace_file::RecordedTrace;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::stop;

/// The emulator, and the package that has it.
const EMULATOR: &str = "qemu-x86_64";
/// How often it is looked whether the program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The plug-in, and what it includes: compiled where it is used, for there is no binary of it that would fit every machine.
const SOURCES: [(&str, &str); 3] = [
    ("pmtrace.c", include_str!("../../../../../tools/qemu/pmtrace.c")),
    ("x86_plugin.h", include_str!("../../../../../tools/qemu/x86_plugin.h")),
    ("lapis_trace.h", include_str!("../../../../../include/lapis_trace.h")),
];

/// Record what an unchanged program does to a file that it maps
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis trace --map pool -o pool.trace -- ./program pool
  lapis trace --map pool --output-acknowledges -- ./server pool
  lapis crash --trace pool.trace --recover './check'

The program (x86-64, as it is) runs in QEMU's user-mode emulation, with a plug-in that sees stores
to the mapped file, clwb, clflushopt, clflush, sfence, mfence, locked instructions, stores past
the caches, and msync, fsync, fdatasync. It takes QEMU 7.2 and a C compiler (Debian 12: apt-get
install qemu-user gcc) and, for source lines, a program compiled with -g and addr2line (binutils).
docs/bring-your-own.md says what such a trace does and does not have.")]
pub struct Arguments {
    /// The file that the program maps (MAP_SHARED); it may create it
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// What the program has said must survive: what a thread stores until it writes to anything but FILE is an operation,
    /// which that acknowledges. Without this, operations are not known
    #[arg(long)]
    output_acknowledges: bool,
    /// Where to write the trace [default: FILE.trace]
    #[arg(long, short, value_name = "TRACE")]
    output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What was recorded, as JSON.
#[derive(Serialize)]
struct Report {
    file: String,
    trace: String,
    region_bytes: u64,
    events: usize,
    places: usize,
    exit_code: Option<i32>,
}

/// Runs `lapis trace`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let emulator = program(EMULATOR, "qemu-user")?;
    let plug_in = compiled()?;
    let scratch = tempfile::tempdir()
        .map_err(|error| Failure::file("write", &std::env::temp_dir(), &error))?;
    let raw = scratch.path().join("raw.trace");
    let mapped = std::path::absolute(&arguments.map)
        .map_err(|error| Failure::file("find", &arguments.map, &error))?;
    let mut options = plug_in.into_os_string();
    for (name, path) in [("map", &mapped), ("out", &raw)] {
        options.push(format!(",{name}={}", path.display().to_string().replace(',', ",,")));
    }
    if arguments.output_acknowledges {
        options.push(",acknowledge=1");
    }
    let mut command = Command::new(emulator);
    command.args(["-cpu", "max", "-plugin"]).arg(options).args(&arguments.program);
    if output.is_json() {
        // Standard output is the object's.
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let status = ended(command).map_err(|it| Failure::file("run", Path::new(EMULATOR), &it))?;
    let file = arguments.map.display();
    let raw_file = File::open(&raw).map_err(|_| {
        let ended = match status.code() {
            Some(0) => String::new(),
            _ => format!(" ({status})"),
        };
        Failure::refused(format!(
            "nothing was recorded: the program never mapped {file} with MAP_SHARED{ended}"
        ))
    })?;
    let recorded = RecordedTrace::read(BufReader::new(raw_file));
    let mut recorded = recorded.map_err(|error| Failure::refused(format!("the trace: {error}")))?;
    if let Ok(text) = std::fs::read_to_string(raw.with_extension("trace.base"))
        && let Ok(address) = text.trim().parse()
    {
        recorded.header.base_address = address;
    }
    places::name(&mut recorded.locations);
    let path = arguments.output.clone().unwrap_or_else(|| {
        let mut name = arguments.map.clone().into_os_string();
        name.push(".trace");
        name.into()
    });
    let failed = |error: std::io::Error| Failure::file("write", &path, &error);
    let sink = BufWriter::new(File::create(&path).map_err(failed)?);
    recorded.write(sink).and_then(|mut sink| sink.flush()).map_err(failed)?;
    let report = Report {
        file: file.to_string(),
        trace: path.display().to_string(),
        region_bytes: recorded.header.region_bytes,
        events: recorded.trace.events.len(),
        places: recorded.locations.len(),
        exit_code: status.code(),
    };
    output.json(&report)?;
    output.line(format_args!(
        "{}: {} events at {} places, of {} bytes of {}",
        report.trace,
        grouped(report.events as u64),
        grouped(report.places as u64),
        grouped(report.region_bytes),
        report.file,
    ))?;
    if !status.success() {
        output.line(format_args!(
            "the program ended with {status}: the trace is of what it did until then"
        ))?;
    }
    Ok(Verdict::Good)
}

/// Runs the program to its end. A signal that would end this process ends the program: the trace is of what it did until
/// then.
fn ended(mut command: Command) -> std::io::Result<ExitStatus> {
    let stop = stop::on_signals();
    let mut child = command.spawn()?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.is_raised() && !std::mem::replace(&mut told, true) {
            Command::new("kill").arg(child.id().to_string()).status()?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The program of that name, or which package has it.
fn program(name: &str, package: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(name));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::refused(format!(
            "lapis trace runs the program in {name}, which is not on this machine: apt-get install {package} (Debian 12)"
        ))
    })
}

/// The plug-in, compiled unless it has been before.
fn compiled() -> Result<PathBuf, Failure> {
    let directory = cache_directory();
    make_own(&directory)?;
    let hash = SOURCES
        .iter()
        .fold(0, |hash, (_, text)| xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), hash));
    let plug_in = directory.join(format!("pmtrace-{hash:016x}.so"));
    if plug_in.is_file() {
        return Ok(plug_in);
    }
    let compiler = program("cc", "gcc")?;
    let failed = |error| Failure::file("write", &directory, &error);
    let sources = tempfile::tempdir_in(&directory).map_err(failed)?;
    for (name, text) in SOURCES {
        std::fs::write(sources.path().join(name), text).map_err(failed)?;
    }
    let made = sources.path().join("pmtrace.so");
    let compilation = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([made.as_os_str(), sources.path().join("pmtrace.c").as_os_str()])
        .output()
        .map_err(|error| Failure::file("run", Path::new("cc"), &error))?;
    if !compilation.status.success() {
        let said = String::from_utf8_lossy(&compilation.stderr);
        let first = said.lines().next().unwrap_or_default();
        return Err(Failure::refused(format!("the recorder cannot be compiled: {first}")));
    }
    std::fs::rename(&made, &plug_in).map_err(failed)?;
    Ok(plug_in)
}

/// Where the plug-in is kept.
fn cache_directory() -> PathBuf {
    // The user's: a relative one would be whoever's directory this runs in.
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    match cache {
        Some(cache) => cache.join("lapis"),
        None => std::env::temp_dir().join(format!("lapis-{}", user())),
    }
}

/// Makes a directory that nobody else may write to, or sees that it is one: what lies there is run.
fn make_own(directory: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::file("write", directory, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    // Of a link it would be seen where it leads to now.
    let about = directory.symlink_metadata().map_err(failed)?;
    if about.is_dir() && about.uid() == user() && about.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "lapis trace runs what it keeps in {}, which others may write to: make it a directory of your own that only you \
         write to (chmod go-w), or name another cache in XDG_CACHE_HOME",
        directory.display()
    )))
}

/// Who runs this.
fn user() -> u32 {
    // SAFETY: it reads a number of this process, and cannot fail.
    unsafe { libc::geteuid() }
}

/// What a program printed, if it could be run.
fn said(program: &str, arguments: &[&OsStr]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_is_run_is_kept_where_nobody_else_writes() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a").join("lapis");
        let mode = |mode| std::fs::set_permissions(&directory, PermissionsExt::from_mode(mode));
        make_own(&directory).unwrap();
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        for open in [0o775, 0o757, 0o777] {
            mode(open).unwrap();
            let refused = make_own(&directory).unwrap_err().sentence().unwrap();
            assert!(refused.contains("chmod go-w"), "{refused}");
        }
        mode(0o755).unwrap();
        make_own(&directory).unwrap();
        let link = scratch.path().join("link");
        symlink(&directory, &link).unwrap();
        assert!(make_own(&link).is_err());
        // Another's, where this user may give it away.
        if std::os::unix::fs::chown(&directory, Some(user() + 1), None).is_ok() {
            assert!(make_own(&directory).is_err());
        }
    }
}
