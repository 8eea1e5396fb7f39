//! Who may have a file open beside others: one who writes, or any number who read.

use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To read and write. Nobody else has it open meanwhile.
    #[default]
    Write,
    /// To read. Others may read it, too; nobody writes it meanwhile.
    Read,
}

/// Who has a file open that was to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process, where the kernel tells.
    pub process: Option<u32>,
    /// The name of that process's program.
    pub program: Option<String>,
    /// What it has the file open for, as far as can be told: a reader is refused because of a writer alone.
    pub access: Access,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, &self.program) {
            (Some(process), _) if process == std::process::id() => {
                f.write_str("this process has it open elsewhere,")?;
            }
            (Some(process), Some(program)) => {
                write!(f, "it is open in another process, {process} ({program}),")?;
            }
            (Some(process), None) => write!(f, "it is open in another process, {process},")?,
            (None, _) => f.write_str("it is open in another process, or elsewhere in this one,")?,
        }
        f.write_str(match self.access {
            Access::Write => {
                " to write, and has what it wrote last in its own memory; close it there first"
            }
            Access::Read => " to read, and it must not change under a reader; close it there first",
        })
    }
}

/// Why a file was not locked.
#[derive(Debug)]
pub(crate) enum LockError {
    Held(LockHolder),
    Os(Errno),
}

/// An open file that is locked until this is dropped.
///
/// Closing the file is not enough to give the lock back: a process that this one has started holds the same
/// open file until it executes its program, and with it the lock, so an opening right after could be refused.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    /// Who locked it. A copy of this that a forked process drops takes no lock from its parent.
    process: u32,
}

impl LockedFile {
    /// Locks the file, or says who has it.
    pub(crate) fn new(file: File, access: Access) -> Result<Self, LockError> {
        let operation = match access {
            Access::Write => FlockOperation::NonBlockingLockExclusive,
            Access::Read => FlockOperation::NonBlockingLockShared,
        };
        match flock(&file, operation) {
            Ok(()) => Ok(Self { file, process: std::process::id() }),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held(holder(&file))),
            Err(errno) => Err(LockError::Os(errno)),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Failing that, it goes when the last copy is closed.
            let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
        }
    }
}

/// Who has the file locked. It may have gone meanwhile; and kernels tell of their own namespace's processes only.
fn holder(file: &File) -> LockHolder {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let found = file.metadata().ok().and_then(|about| find(&locks, about.dev(), about.ino()));
    let Some((process, access)) = found else {
        return LockHolder { process: None, program: None, access: Access::Write };
    };
    let program = std::fs::read_to_string(format!("/proc/{process}/comm"));
    let program = program.ok().map(|name| name.trim_end().to_owned());
    LockHolder { process: Some(process), program, access }
}

/// The process that has a file locked, and for what, by the kernel's list:
/// `1: FLOCK  ADVISORY  WRITE 2566 fe:00:9980231 0 EOF`.
fn find(locks: &str, device: u64, inode: u64) -> Option<(u32, Access)> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        if words.next()? != "FLOCK" {
            return None;
        }
        let access = match words.nth(1)? {
            "WRITE" => Access::Write,
            _ => Access::Read,
        };
        let process = words.next()?.parse().ok().filter(|&process| process > 0)?;
        (words.next()? == place).then_some((process, access))
    })
}

// Miri has no such files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> File {
        File::open(path).unwrap()
    }

    fn locked(path: &std::path::Path, access: Access) -> LockedFile {
        LockedFile::new(open(path), access).unwrap()
    }

    fn refused(path: &std::path::Path, access: Access) -> LockHolder {
        match LockedFile::new(open(path), access) {
            Err(LockError::Held(holder)) => holder,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn readers_share_a_file_and_a_writer_shares_it_with_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let readers = [(); 2].map(|()| locked(file.path(), Access::Read));
        refused(file.path(), Access::Write);
        drop(readers);
        let _writer = locked(file.path(), Access::Write);
        refused(file.path(), Access::Read);
        refused(file.path(), Access::Write);
    }

    #[test]
    fn a_copy_of_the_open_file_does_not_keep_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = locked(file.path(), Access::Write);
        // What a process has between fork and exec.
        let _copy = writer.try_clone().unwrap();
        refused(file.path(), Access::Write);
        drop(writer);
        locked(file.path(), Access::Write);
    }

    #[test]
    fn who_has_the_file_is_found_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:99 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 fe:01:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:99 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  4711 fe:00:99 0 EOF\n";
        let device = rustix::fs::makedev(0xFE, 0);
        assert_eq!(find(locks, device, 99), Some((4711, Access::Read)));
        assert_eq!(find(locks, device, 98), None);
        assert_eq!(find("garbage\n1: FLOCK\n", device, 99), None);
    }

    #[test]
    fn it_is_said_who_has_the_file_and_why_that_matters() {
        let mut holder =
            LockHolder { process: Some(1), program: Some("lapis".into()), access: Access::Write };
        assert!(holder.to_string().contains("another process, 1 (lapis), to write"), "{holder}");
        holder.process = Some(std::process::id());
        assert!(holder.to_string().starts_with("this process"), "{holder}");
        (holder.process, holder.access) = (None, Access::Read);
        assert!(holder.to_string().contains("to read"), "{holder}");
    }
}
