//! One entry of a timeline.

/// What an entry of a timeline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// An operation begins or is acknowledged.
    Operation,
    /// Events that do not matter here.
    Omitted,
    /// A store, or several that follow each other.
    Store,
    /// A line is written back.
    Flush,
    /// A fence.
    Fence,
    /// A block device is asked, or answers.
    Block,
    /// The power is cut, or the process killed.
    Crash,
    /// What became of a line.
    Line,
    /// The recovery, or the check after it, reads of an uncertain line.
    Read,
    /// What is wrong.
    Verdict,
}

/// What is known of the newest contents of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineState {
    /// Stored, not flushed.
    Pending,
    /// Flushed, not fenced.
    Flushed,
    /// Survives.
    Durable,
    /// Was not durable, and is gone.
    Lost,
    /// Was not durable, and some of it is there.
    Partly,
    /// Was not durable, and is there all the same.
    Persisted,
}

/// A line that an entry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LineChange {
    /// The line.
    pub line: u32,
    /// What is known of it from here on.
    pub state: LineState,
}

/// One entry of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TimelineEntry {
    /// Events before it.
    pub event: usize,
    /// Who does it, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<u8>,
    /// What it is about.
    pub kind: EntryKind,
    /// What happened.
    pub text: String,
    /// The source line that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The lines that it changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineChange>,
}

/// What became of a line that was uncertain.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LineFate {
    /// The line.
    pub line: u32,
    /// Its offset in bytes from the start of the pool.
    pub offset: u64,
    /// Where in the pool that is.
    pub place: String,
    /// How much of it made it.
    pub state: LineState,
}
