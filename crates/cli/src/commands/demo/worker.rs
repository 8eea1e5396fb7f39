//! The process that is killed: it writes from several threads and reports each write that the
//! store has acknowledged, eight bytes each, through standard output.
//!
//! ```text
//!  63     56 55                                              0
//! +---------+-------------------------------------------------+
//! | thread  | number of the operation                         |   READY: all ones
//! +---------+-------------------------------------------------+
//! ```
//!
//! One `write` per report: a pipe takes eight bytes whole or not at all, so that reports of threads
//! do not mix and the kill cannot cut one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::Args;
use lapis::{Store, Table};

use super::operations::{Action, Actions, Keys, Stamp};
use crate::failure::{Failure, Verdict};

/// The report that the store is open and the work begins.
pub const READY: u64 = u64::MAX;

/// Bits of the operation's number in a report.
const NUMBER_BITS: u32 = 56;

/// A report of an acknowledged write.
pub fn report(thread: usize, number: u64) -> u64 {
    ((thread as u64) << NUMBER_BITS) | number
}

/// Thread and number of a report.
pub fn parse_report(report: u64) -> (usize, u64) {
    ((report >> NUMBER_BITS) as usize, report & ((1 << NUMBER_BITS) - 1))
}

/// The process that `lapis demo` starts and kills
#[derive(Debug, Args)]
pub struct Arguments {
    /// The store's directory
    #[arg(long)]
    pub dir: PathBuf,
    /// The file of keys
    #[arg(long)]
    pub keys: PathBuf,
    #[arg(long)]
    pub seed: u64,
    #[arg(long)]
    pub round: u32,
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub threads: u8,
}

/// Works until it is killed.
pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let keys = Keys::load(&arguments.keys)
        .map_err(|error| Failure::file("read", &arguments.keys, &error))?;
    let store = Store::open(super::config(&arguments.dir).create(false))?;
    let [records, lengths] = super::TABLES.map(|name| store.table(name));
    let (records, lengths) = (records?, lengths?);
    let pipe = || -> Result<File, Failure> {
        let descriptor = io::stdout().as_fd().try_clone_to_owned();
        descriptor.map(File::from).map_err(|error| crate::output::closed(&error))
    };
    pipe()?.write_all(&READY.to_le_bytes()).map_err(|error| crate::output::closed(&error))?;
    let threads = usize::from(arguments.threads);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let actions =
                    Actions::new(arguments.seed, arguments.round, thread, threads, keys.len());
                let worker = Worker {
                    keys: &keys,
                    store: &store,
                    records: &records,
                    lengths: &lengths,
                    round: arguments.round,
                    thread,
                    written: HashMap::new(),
                };
                let pipe = pipe()?;
                Ok(scope.spawn(move || worker.run(actions, pipe)))
            })
            .collect::<Result<_, Failure>>()?;
        for worker in workers {
            worker.join().map_err(|_| Failure::refused("a thread of the demo ended early"))??;
        }
        Ok(Verdict::Good)
    })
}

/// A thread of the work.
struct Worker<'a> {
    keys: &'a Keys,
    store: &'a Store,
    records: &'a Table,
    lengths: &'a Table,
    round: u32,
    thread: usize,
    /// What this thread has written: the number of the put, or none for a delete.
    written: HashMap<usize, Option<u64>>,
}

impl Worker<'_> {
    fn run(mut self, actions: Actions, mut pipe: File) -> Result<(), Failure> {
        for (number, action) in actions {
            self.act(number, action)?;
            if action.written_key().is_some() {
                let report = report(self.thread, number).to_le_bytes();
                pipe.write_all(&report).map_err(|error| crate::output::closed(&error))?;
            }
        }
        Ok(())
    }

    fn act(&mut self, number: u64, action: Action) -> Result<(), Failure> {
        match action {
            Action::Put { key } => {
                let value = self.keys.value(key, self.stamp(number));
                self.store.retry(|transaction| {
                    let length = super::length_of(&value);
                    transaction.put(self.lengths, self.keys.key(key), &length)?;
                    transaction.put(self.records, self.keys.key(key), &value)
                })?;
                self.written.insert(key, Some(number));
            }
            Action::Delete { key } => {
                self.store.retry(|transaction| {
                    transaction.delete(self.lengths, self.keys.key(key))?;
                    transaction.delete(self.records, self.keys.key(key))
                })?;
                self.written.insert(key, None);
            }
            Action::Get { key } => {
                let snapshot = self.store.snapshot()?;
                let found = snapshot.get(self.records, self.keys.key(key))?;
                let length = snapshot.get(self.lengths, self.keys.key(key))?;
                if length.as_deref()
                    != found.as_deref().map(super::length_of).as_ref().map(|it| &it[..])
                {
                    return Err(self.wrong("a snapshot has half of a transaction", key));
                }
                // What an earlier round wrote is known to the other process only, which checks it.
                if let Some(&written) = self.written.get(&key) {
                    let expected = written.map(|number| self.keys.value(key, self.stamp(number)));
                    if found.as_deref() != expected.as_deref() {
                        return Err(self.wrong("a get did not give what the last put wrote", key));
                    }
                }
            }
            Action::Range { from, limit } => {
                let start = self.keys.key(from);
                let mut previous: Option<Vec<u8>> = None;
                for entry in self.records.range(start..)?.take(limit) {
                    let (key, _) = entry?;
                    let in_order = match &previous {
                        Some(previous) => key > *previous,
                        None => key.as_slice() >= start,
                    };
                    if !in_order {
                        return Err(self.wrong("a range was out of order", from));
                    }
                    previous = Some(key);
                }
            }
        }
        Ok(())
    }

    fn stamp(&self, number: u64) -> Stamp {
        Stamp { round: self.round, thread: self.thread as u32, number }
    }

    /// The store answered wrongly: exit code 1, unlike every other failure.
    fn wrong(&self, what: &str, key: usize) -> Failure {
        let key = crate::json_bytes::shown(self.keys.key(key));
        Failure::NotThere(format!("{what} (key `{key}`, thread {})", self.thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_holds_thread_and_number() {
        assert_eq!(parse_report(report(3, 1 << 40)), (3, 1 << 40));
        assert_ne!(report(254, (1 << NUMBER_BITS) - 1), READY);
    }
}
