//! What a result was found with: the build and the machine.

use lapis_pmem::Hardware;
use serde::Serialize;

/// The build that found a result, and the machine that it ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The version of Lapis.
    pub version: &'static str,
    /// The commit it was built from, where whoever built it said so in the environment
    /// (`LAPIS_COMMIT`), or else `unknown`.
    pub commit: &'static str,
    /// The processor.
    pub processor: String,
    /// The flush instruction.
    pub flush: &'static str,
    /// Bytes of a small page of memory.
    pub page_bytes: usize,
    /// When the kernel gives huge ones for ordinary memory: `always`, to who asks (`madvise`; Lapis does), `never`;
    /// `unknown` if it does not say.
    pub huge_pages: String,
    /// Threads that run at a time.
    pub cores: usize,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("LAPIS_COMMIT").unwrap_or("unknown"),
            processor: processor(),
            flush: Hardware::detect().method().name(),
            page_bytes: rustix::param::page_size(),
            huge_pages: huge_pages(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// A result as JSON, with what it was found with.
#[derive(Clone, Debug, Serialize)]
pub struct Labelled<'r, R> {
    /// The machine.
    pub machine: Machine,
    /// What the random numbers started from; null where nothing is left to chance.
    pub seed: Option<u64>,
    /// The result.
    #[serde(flatten)]
    pub result: &'r R,
}

/// What the kernel says of huge pages: of the words in its file, the one in brackets.
fn huge_pages() -> String {
    let policy = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let policy = policy.unwrap_or_default();
    let chosen = policy.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("unknown", |(chosen, _)| chosen).to_owned()
}

/// What the processor calls itself.
pub fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |name: &str| {
        let line =
            known.lines().find(|line| line.split(':').next().unwrap_or("").trim() == name)?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    match (of("model name"), of("cpu family"), of("model")) {
        (Some(name), Some(family), Some(model)) => {
            format!("{name} (family {family}, model {model})")
        }
        (Some(name), ..) => name,
        _ => format!("a processor of {}", std::env::consts::ARCH),
    }
}
