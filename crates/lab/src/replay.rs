//! Replays a block trace into a table, and compares the table with what it must hold.
//!
//! A write becomes a put of the request's size under the block number (8 bytes, big-endian); its
//! contents follow from the block number and the number of the request, so that nothing but those
//! needs remembering to know what a later read must give. A read becomes a get, and must give the
//! whole value of the last write to that block number, or nothing if there was none. In the end
//! the whole table is compared.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::block_trace::{Operation, Request, TraceError, TraceReader};
use crate::experiment::Findings;
use crate::experiment::table::{Table, grouped, human_bytes};
use crate::key_value::KeyValue;
use crate::keys::scatter;
use crate::plot::Plot;
use crate::progress::{OnProgress, Progress};
use crate::report::{Latencies, Report};

/// Requests between two reports of progress.
const PROGRESS_STEP: u64 = 512;

/// Why a replay ended early. Wrong answers do not end it; they are counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError<E: std::error::Error + 'static> {
    /// The store failed.
    #[error(transparent)]
    Target(E),
    /// The trace has a line that makes no sense.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is nothing to replay.
    #[error("the trace has no requests")]
    Empty,
    /// The table held something before.
    #[error("the table is not empty; a replay needs one that is, to know what reads must give")]
    NotEmpty,
}

/// What a replay did, how fast, and whether every answer was right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// As for any workload. Its records are those the table holds in the end.
    #[serde(flatten)]
    pub report: Report,
    /// Values that were compared, during the replay and in the end, and were right.
    pub verified: u64,
    /// Values that were compared and were wrong, missing or too many.
    pub mismatches: u64,
    /// The first of them, in words.
    pub first_mismatches: Vec<String>,
    /// Reads of blocks that had not been written.
    pub cold_reads: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Findings for ReplayReport {
    fn tables(&self) -> Vec<Table> {
        std::slice::from_ref(&self.report).tables()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = std::slice::from_ref(&self.report).notes();
        notes.push(format!(
            "{} values compared and right, {} wrong; {} reads of blocks never written, {} written",
            grouped(self.verified),
            grouped(self.mismatches),
            grouped(self.cold_reads),
            human_bytes(self.written_bytes)
        ));
        notes.extend(self.first_mismatches.iter().map(|mismatch| format!("! {mismatch}")));
        notes
    }

    fn figure(&self) -> Option<Plot> {
        std::slice::from_ref(&self.report).figure()
    }
}

/// Mismatches that are told in words.
const TOLD_MISMATCHES: usize = 10;

/// What the table must hold under a block number.
#[derive(Clone, Copy, Debug)]
struct Expected {
    bytes: u32,
    request: u64,
}

/// Reads the first `limit` requests of a trace.
///
/// # Errors
/// The first bad line.
pub fn read_trace(input: impl BufRead, limit: usize) -> Result<Vec<Request>, TraceError> {
    TraceReader::new(input).take(limit).collect()
}

/// Replays `requests` one after another into `target`, which must be empty, and compares everything.
///
/// # Errors
/// [`ReplayError`].
pub fn replay<T: KeyValue>(
    target: &T,
    requests: &[Request],
    progress: OnProgress<'_>,
) -> Result<ReplayReport, ReplayError<T::Error>> {
    let mut replay = Replay::new(target)?;
    replay.run(requests, progress)?;
    replay.finish()
}

/// A replay in its two steps, for callers that have something to do between them.
#[derive(Debug)]
pub struct Replay<'t, T> {
    target: &'t T,
    expected: BTreeMap<u64, Expected>,
    verdict: Verdict,
    reads: Latencies,
    writes: Latencies,
    elapsed: Duration,
    requests: u64,
    cold_reads: u64,
    written_bytes: u64,
}

impl<'t, T: KeyValue> Replay<'t, T> {
    /// A replay into `target`, which must be empty.
    ///
    /// # Errors
    /// [`ReplayError::NotEmpty`], [`ReplayError::Target`].
    pub fn new(target: &'t T) -> Result<Self, ReplayError<T::Error>> {
        let mut entries = 0u64;
        target.for_each(&mut |_, _| entries += 1).map_err(ReplayError::Target)?;
        if entries > 0 {
            return Err(ReplayError::NotEmpty);
        }
        Ok(Self {
            target,
            expected: BTreeMap::new(),
            verdict: Verdict::default(),
            reads: Latencies::new(),
            writes: Latencies::new(),
            elapsed: Duration::ZERO,
            requests: 0,
            cold_reads: 0,
            written_bytes: 0,
        })
    }

    /// Replays requests, comparing what is read.
    ///
    /// # Errors
    /// [`ReplayError::Target`].
    pub fn run(
        &mut self,
        requests: &[Request],
        progress: OnProgress<'_>,
    ) -> Result<(), ReplayError<T::Error>> {
        let (total, mut contents) = (requests.len() as u64, Vec::new());
        let begin = Instant::now();
        for (done, request) in (1..).zip(requests) {
            match request.operation {
                Operation::Write => self.write(request, &mut contents)?,
                Operation::Read => self.read(request, &mut contents)?,
            }
            self.requests += 1;
            if done % PROGRESS_STEP == 0 || done == total {
                progress(Progress { done, total });
            }
        }
        self.elapsed += begin.elapsed();
        Ok(())
    }

    fn write(
        &mut self,
        request: &Request,
        contents: &mut Vec<u8>,
    ) -> Result<(), ReplayError<T::Error>> {
        let write = Expected { bytes: request.bytes, request: self.requests };
        fill(contents, request.block, write);
        let key = request.block.to_be_bytes();
        let start = Instant::now();
        self.target.write(&key, contents).map_err(ReplayError::Target)?;
        self.writes.record(start.elapsed());
        self.written_bytes += u64::from(request.bytes);
        self.expected.insert(request.block, write);
        Ok(())
    }

    fn read(
        &mut self,
        request: &Request,
        contents: &mut Vec<u8>,
    ) -> Result<(), ReplayError<T::Error>> {
        let key = request.block.to_be_bytes();
        let start = Instant::now();
        let found = self.target.read(&key).map_err(ReplayError::Target)?;
        self.reads.record(start.elapsed());
        let last_write = self.expected.get(&request.block).copied();
        self.cold_reads += u64::from(last_write.is_none());
        let found = found.as_ref().map(AsRef::as_ref);
        self.verdict.compare(request.block, found, last_write, contents);
        Ok(())
    }

    /// Compares the whole table with what it must hold, and reports.
    ///
    /// # Errors
    /// [`ReplayError::Empty`], [`ReplayError::Target`].
    pub fn finish(mut self) -> Result<ReplayReport, ReplayError<T::Error>> {
        if self.requests == 0 {
            return Err(ReplayError::Empty);
        }
        let records = self.expected.len() as u64;
        let (verdict, unseen, mut contents) = (&mut self.verdict, &mut self.expected, Vec::new());
        self.target
            .for_each(&mut |key, value| match key.try_into().map(u64::from_be_bytes) {
                // Whatever is visited a second time is no longer expected.
                Ok(block) => {
                    verdict.compare(block, Some(value), unseen.remove(&block), &mut contents);
                }
                Err(_) => verdict.wrong(|| format!("the key {} is none", key.escape_ascii())),
            })
            .map_err(ReplayError::Target)?;
        for &block in unseen.keys() {
            verdict.wrong(|| format!("block {block} is missing in the end"));
        }
        let kinds = BTreeMap::from([("read", self.reads), ("write", self.writes)]);
        Ok(ReplayReport {
            report: Report::new("replay", records, 1, self.elapsed, &kinds),
            verified: self.verdict.verified,
            mismatches: self.verdict.mismatches,
            first_mismatches: self.verdict.told,
            cold_reads: self.cold_reads,
            written_bytes: self.written_bytes,
        })
    }
}

/// Makes the contents that a write gives a block.
fn fill(contents: &mut Vec<u8>, block: u64, write: Expected) {
    let start = scatter(scatter(block) ^ write.request);
    let words = (write.bytes as usize).div_ceil(8) as u64;
    contents.clear();
    contents.reserve(8 * words as usize);
    for i in 0..words {
        contents.extend_from_slice(&scatter(start.wrapping_add(i)).to_le_bytes());
    }
    contents.truncate(write.bytes as usize);
}

#[derive(Debug, Default)]
struct Verdict {
    verified: u64,
    mismatches: u64,
    told: Vec<String>,
}

impl Verdict {
    fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.mismatches += 1;
        if self.told.len() < TOLD_MISMATCHES {
            self.told.push(what());
        }
    }

    fn compare(
        &mut self,
        block: u64,
        found: Option<&[u8]>,
        expected: Option<Expected>,
        space: &mut Vec<u8>,
    ) {
        match (found, expected) {
            (None, None) => self.verified += 1,
            (Some(_), None) => self.wrong(|| format!("block {block} holds what it must not")),
            (None, Some(write)) => {
                self.wrong(|| format!("block {block} lost the write of request {}", write.request));
            }
            (Some(found), Some(write)) => {
                fill(space, block, write);
                if found == space {
                    self.verified += 1;
                } else {
                    self.wrong(|| {
                        format!(
                            "block {block} holds {} bytes that are not the {} of request {}",
                            found.len(),
                            write.bytes,
                            write.request
                        )
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_value::volatile::Volatile;

    const TRACE: &str = "version,time,op,size,lbn\n\
        1,1,28,512,9\n1,2,2a,512,7\n1,3,2a,1536,7\n1,4,28,512,7\n1,5,2a,4096,8\n1,6,2a,0,6\n";

    fn requests(text: &str) -> Vec<Request> {
        read_trace(text.as_bytes(), usize::MAX).unwrap()
    }

    #[test]
    fn reads_give_the_last_write_and_the_end_is_compared() {
        let target = Volatile::default();
        let report = replay(&target, &requests(TRACE), &|_| ()).unwrap();
        // Two reads and three entries.
        assert_eq!((report.verified, report.mismatches), (5, 0), "{:?}", report.first_mismatches);
        assert_eq!((report.cold_reads, report.written_bytes), (1, 512 + 1536 + 4096));
        assert_eq!((report.report.records, report.report.operations), (3, 6));
        let entries = target.entries.lock().unwrap();
        assert_eq!(entries[7u64.to_be_bytes().as_slice()].len(), 1536);
    }

    #[test]
    fn a_lost_write_is_a_mismatch_when_read_and_in_the_end() {
        let mut target = Volatile::default();
        target.loses_every = Some(2);
        let report = replay(&target, &requests(TRACE), &|_| ()).unwrap();
        // The second and the fourth write are lost: the read of 7, the final 7, the final 6.
        assert_eq!((report.verified, report.mismatches), (2, 3), "{:?}", report.first_mismatches);
        assert_eq!(report.first_mismatches.len(), 3);
    }

    #[test]
    fn a_table_that_holds_something_is_refused() {
        let target = Volatile::default();
        target.write(b"12345678", b"").unwrap();
        let error = replay(&target, &requests(TRACE), &|_| ()).unwrap_err();
        assert!(matches!(error, ReplayError::NotEmpty));
    }

    #[test]
    fn a_trace_without_requests_is_refused() {
        let error = replay(&Volatile::default(), &[], &|_| ()).unwrap_err();
        assert!(matches!(error, ReplayError::Empty));
    }

    #[test]
    fn rewriting_a_block_changes_its_contents() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        fill(&mut first, 7, Expected { bytes: 20, request: 1 });
        fill(&mut second, 7, Expected { bytes: 20, request: 2 });
        assert_eq!((first.len(), second.len()), (20, 20));
        assert_ne!(first, second);
    }

    #[test]
    fn the_report_has_the_shape_of_other_workloads() {
        let report = replay(&Volatile::default(), &requests(TRACE), &|_| ()).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["workload"], "replay");
        assert_eq!(json["mismatches"], 0);
        assert!(json["latency_ns"]["p9999"].is_u64() && json["ops_per_s"].is_f64());
    }
}
