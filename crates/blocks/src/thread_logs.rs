//! A log for each thread, and a sequence number over all.
//!
//! ```text
//!  log of thread 0   │ 1 … │ 4 … │ 5 … │          entry of any log:
//!  log of thread 1   │ 2 … │ 7 … │                   0  8  sequence number
//!  log of thread 2   │ 3 … │ 6 … │                   8  n  payload
//! ```
//!
//! Threads share nothing but the counter, so appends do not wait for each other. The price: an entry
//! is durable when its append returns, and says nothing about entries of other threads with smaller
//! numbers, whose appends were still under way. After a crash such numbers may be missing; what one
//! thread had appended before it began another append never is. A user whose entries depend on each
//! other across threads, and who appends the later one before the earlier has returned, needs
//! [`SharedLog`](crate::shared_log::SharedLog).

use std::iter::Peekable;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{Committed, Domain};

use crate::log::{Damage, Log, LogError, Position};

/// Bytes of the sequence number.
pub const SEQUENCE_BYTES: usize = 8;

/// Logs of one kind that together are one. See the [module documentation](self).
#[derive(Debug)]
pub struct ThreadLogs<D: Domain, L: Log<D>> {
    logs: Vec<L>,
    next: AtomicU64,
    domain: PhantomData<fn() -> D>,
}

/// The sequence number and the payload of an entry.
fn split(position: Position, mut entry: Vec<u8>) -> Result<(u64, Vec<u8>), LogError> {
    let Some((sequence, _)) = entry.split_first_chunk::<SEQUENCE_BYTES>() else {
        let what = "an entry without a sequence number";
        return Err(LogError::Damaged(Damage { what, position, pool_offset: 0 }));
    };
    let sequence = u64::from_le_bytes(*sequence);
    entry.drain(..SEQUENCE_BYTES);
    Ok((sequence, entry))
}

impl<D: Domain, L: Log<D>> ThreadLogs<D, L> {
    /// The logs, open, one per thread; always all that were ever used together, in any order.
    /// Reads them to find the next sequence number, which is not below `first`: 1 for new logs,
    /// later the number that they were last truncated to, since logs that have become empty do not
    /// know it.
    ///
    /// # Errors
    /// [`LogError::Damaged`], also if an entry was not appended through here.
    pub fn new(logs: Vec<L>, first: u64) -> Result<Self, LogError> {
        let mut next = first.max(1);
        for log in &logs {
            for entry in log.entries() {
                let (position, entry) = entry?;
                next = next.max(split(position, entry)?.0 + 1);
            }
        }
        Ok(Self { logs, next: AtomicU64::new(next), domain: PhantomData })
    }

    /// How many logs there are.
    pub fn threads(&self) -> usize {
        self.logs.len()
    }

    /// The log of a thread, for its statistics, check and blocks.
    pub fn log(&self, thread: usize) -> Option<&L> {
        self.logs.get(thread)
    }

    /// Appends an entry to the log of `thread` and returns its sequence number. Durable on return,
    /// for the cost of an append to that log.
    ///
    /// # Errors
    /// As [`Log::append`]; the number is not used again.
    ///
    /// # Panics
    /// If there is no log for that thread.
    #[inline]
    pub fn append(&self, thread: usize, payload: &[u8]) -> Result<u64, LogError> {
        if payload.is_empty() {
            return Err(LogError::EmptyEntry);
        }
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        self.logs[thread].append_parts(&[&sequence.to_le_bytes(), payload])?;
        Ok(sequence)
    }

    /// The sequence number that the next entry will have, at least.
    pub fn end(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The retained entries of all logs by their sequence numbers, which rise and may have gaps.
    /// Nobody should append meanwhile.
    pub fn entries(&self) -> impl Iterator<Item = Result<(u64, Vec<u8>), LogError>> + '_ {
        let streams = self.logs.iter().map(|log| {
            log.entries().map(|entry| entry.and_then(|(at, entry)| split(at, entry))).peekable()
        });
        Merged { streams: streams.collect() }
    }

    /// Drops, of every log, the entries with sequence numbers less than `sequence`. Durable on
    /// return.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::Fault`]; some logs may have been truncated then.
    pub fn truncate(&self, sequence: u64) -> Result<Vec<Committed>, LogError> {
        let mut committed = Vec::with_capacity(self.logs.len());
        for log in &self.logs {
            let mut up_to = log.start();
            for entry in log.entries() {
                let (position, entry) = entry?;
                if split(position, entry)?.0 >= sequence {
                    break;
                }
                up_to = position.next();
            }
            committed.push(log.truncate(up_to)?);
        }
        Ok(committed)
    }
}

struct Merged<I: Iterator> {
    streams: Vec<Peekable<I>>,
}

impl<I: Iterator<Item = Result<(u64, Vec<u8>), LogError>>> Iterator for Merged<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let mut least: Option<(u64, usize)> = None;
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let number = match stream.peek() {
                None => continue,
                // An error comes first: what follows it is not known.
                Some(Err(_)) => 0,
                Some(Ok((number, _))) => *number,
            };
            if least.is_none_or(|(least, _)| number < least) {
                least = Some((number, index));
            }
        }
        self.streams[least?.1].next()
    }
}
