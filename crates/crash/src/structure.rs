//! Structures by the names they have on the command line.

use std::fmt;
use std::str::FromStr;

use lapis_blocks::classic_log::ClassicLog;
use lapis_blocks::header_log::HeaderLog;
use lapis_blocks::in_place::{CowCell, FamCell, LogCell};
use lapis_blocks::log::Placement;
use lapis_blocks::page::PageScheme;
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_blocks::pop_ring::PopRing;
use lapis_blocks::rawl::Rawl;
use lapis_blocks::ring_log::RingOptions;
use lapis_device::trace_file::RecordedTrace;
use lapis_device::{Modelled, PersistPoint};
use lapis_index::{
    ArtCow, FastFair, FpTree, IndexOptions, NvTree, PClht, WbTree, WbTreeSlot, Woart, Wort,
};

use crate::explore::explore;
use crate::options::ExploreOptions;
use crate::persist_points::{PersistPointRow, persist_points};
use crate::report::ExploreReport;
use crate::run::Run;
use crate::subjects::{
    AllocatorSubject, FpLeavesSubject, InPlaceSubject, IndexSubject, LogSubject, PageSubject,
    PopLogSubject, StoreSubject,
};

/// Told now and then how many images have been tried.
pub type Progress<'p> = dyn Fn(u64) + Sync + 'p;

/// Why an exploration could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrashError {
    /// No structure of that name.
    #[error("there is no structure {name:?}; choose one of {}", Structure::names())]
    UnknownStructure {
        /// The name.
        name: String,
    },
    /// No histories of several workers are made for it.
    #[error(
        "{structure} is explored with one worker only; several are for the indexes, pop-log, \
         allocator and store"
    )]
    OneWorkerOnly {
        /// The structure.
        structure: &'static str,
    },
    /// It failed without any crash.
    #[error("{structure} fails without any crash: {what}")]
    Failed {
        /// The structure.
        structure: &'static str,
        /// What went wrong.
        what: String,
    },
}

/// Something that can be explored by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// WORT.
    Wort,
    /// FAST & FAIR.
    FastFair,
    /// P-CLHT.
    PClht,
    /// WOART.
    Woart,
    /// ART+CoW.
    ArtCow,
    /// wB+-Tree.
    WbTree,
    /// wB+-Tree, slots only.
    WbTreeSlot,
    /// NV-Tree.
    NvTree,
    /// FPTree.
    FpTree,
    /// The classic log.
    ClassicLog,
    /// The header log.
    HeaderLog,
    /// RAWL.
    Rawl,
    /// The PopLog.
    PopLog,
    /// Pages by copy-on-write, and its variant for comparison that has checksums.
    PageCow,
    /// Pages by µlog.
    PageMulog,
    /// Pages by either, as a cost model says.
    PageHybrid,
    /// Copy-on-write cells.
    CowCell,
    /// Cells with a redo log.
    LogCell,
    /// Failure-atomic memory.
    FamCell,
    /// Leaves as FPTree has them, whose operations are interleaved.
    FpLeaves,
    /// The PopLog in a ring.
    PopRing,
    /// The allocator and the pool.
    Allocator,
    /// The store.
    Store,
}

impl Structure {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Wort,
        Self::FastFair,
        Self::PClht,
        Self::Woart,
        Self::ArtCow,
        Self::WbTree,
        Self::WbTreeSlot,
        Self::NvTree,
        Self::FpTree,
        Self::ClassicLog,
        Self::HeaderLog,
        Self::Rawl,
        Self::PopLog,
        Self::PopRing,
        Self::CowCell,
        Self::LogCell,
        Self::FamCell,
        Self::PageCow,
        Self::PageMulog,
        Self::PageHybrid,
        Self::FpLeaves,
        Self::Allocator,
        Self::Store,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wort => "wort",
            Self::FastFair => "fast-fair",
            Self::PClht => "p-clht",
            Self::Woart => "woart",
            Self::ArtCow => "art-cow",
            Self::WbTree => "wb-tree",
            Self::WbTreeSlot => "wb-tree-slot",
            Self::NvTree => "nv-tree",
            Self::FpTree => "fptree",
            Self::ClassicLog => "classic-log",
            Self::HeaderLog => "header-log",
            Self::Rawl => "rawl",
            Self::PopLog => "pop-log",
            Self::PageCow => "page-cow",
            Self::PageMulog => "page-mulog",
            Self::PageHybrid => "page-hybrid",
            Self::CowCell => "cow-cell",
            Self::LogCell => "log-cell",
            Self::FamCell => "fam-cell",
            Self::FpLeaves => "fp-leaves",
            Self::PopRing => "pop-ring",
            Self::Allocator => "allocator",
            Self::Store => "store",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Structure {
    type Err = CrashError;

    /// Index names may carry the kind of their keys behind a colon, as replay commands do.
    fn from_str(name: &str) -> Result<Self, CrashError> {
        let base = name.split_once(':').map_or(name, |(base, _)| base);
        Self::ALL
            .into_iter()
            .find(|structure| structure.name() == base)
            .ok_or_else(|| CrashError::UnknownStructure { name: name.to_owned() })
    }
}

/// Keys that index operations draw from: enough for several levels, few enough to meet again.
const KEYS: u64 = 160;

type LogCellSubject<L> = InPlaceSubject<LogCell<Modelled, L>>;
type Wort8 = IndexSubject<Wort<Modelled, u64>, u64>;
type WortBytes = IndexSubject<Wort<Modelled, [u8]>, [u8]>;
type FastFair8 = IndexSubject<FastFair<Modelled, u64>, u64>;
type FastFairBytes = IndexSubject<FastFair<Modelled, [u8]>, [u8]>;
type PClht8 = IndexSubject<PClht<Modelled, u64>, u64>;
type PClhtBytes = IndexSubject<PClht<Modelled, [u8]>, [u8]>;
type Woart8 = IndexSubject<Woart<Modelled, u64>, u64>;
type WoartBytes = IndexSubject<Woart<Modelled, [u8]>, [u8]>;
type ArtCow8 = IndexSubject<ArtCow<Modelled, u64>, u64>;
type ArtCowBytes = IndexSubject<ArtCow<Modelled, [u8]>, [u8]>;
type WbTree8 = IndexSubject<WbTree<Modelled, u64>, u64>;
type WbTreeBytes = IndexSubject<WbTree<Modelled, [u8]>, [u8]>;
type WbTreeSlot8 = IndexSubject<WbTreeSlot<Modelled, u64>, u64>;
type WbTreeSlotBytes = IndexSubject<WbTreeSlot<Modelled, [u8]>, [u8]>;
type NvTree8 = IndexSubject<NvTree<Modelled, u64>, u64>;
type NvTreeBytes = IndexSubject<NvTree<Modelled, [u8]>, [u8]>;
type FpTree8 = IndexSubject<FpTree<Modelled, u64>, u64>;
type FpTreeBytes = IndexSubject<FpTree<Modelled, [u8]>, [u8]>;

/// Where the code of all radix trees is, and that of the adaptive ones.
pub(crate) const RADIX: &str = "index/src/radix";
pub(crate) const ART: &str = "index/src/art";

/// Bytes of the rings that are explored: few, so that they are filled often.
const RING_BYTES: usize = 4096;
const RING: &str = "blocks/src/ring_log";

/// Cells whose entries fill such a ring several times.
const LOGGED_BYTES: usize = 200;
/// How a PopLog is cut into small segments.
const SEGMENTS: PopLogOptions = PopLogOptions { segment_bytes: 4096, spare_segments: 2 };

fn ring(placement: Placement, size_fields: usize) -> RingOptions {
    RingOptions { capacity_bytes: RING_BYTES, placement, size_fields }
}

/// Runs `$body` for each subject of a structure, bound to `$subject`.
macro_rules! each_subject {
    ($structure:expr, $subject:ident => $body:expr) => {{
        let small = IndexOptions { node_bytes: 256, ..Default::default() };
        let default = IndexOptions::default();
        // Four buckets, so that the table grows, more than once, within few operations.
        let tight = IndexOptions { expected_entries: 1, ..Default::default() };
        match $structure {
            Structure::Wort => {
                let source = "index/src/wort";
                {
                    let $subject =
                        Wort8::new("wort:u64", source, default.clone(), KEYS).and_source(RADIX);
                    $body
                }
                {
                    let $subject =
                        WortBytes::new("wort:bytes", source, default, KEYS).and_source(RADIX);
                    $body
                }
            }
            Structure::FastFair => {
                let source = "index/src/fast_fair";
                {
                    let $subject = FastFair8::new("fast-fair:u64", source, small.clone(), KEYS);
                    $body
                }
                {
                    let $subject =
                        FastFairBytes::new("fast-fair:bytes", source, small.clone(), KEYS);
                    $body
                }
                {
                    let $subject =
                        FastFair8::new("fast-fair:drained", source, small, KEYS / 2).draining();
                    $body
                }
            }
            Structure::PClht => {
                let source = "index/src/p_clht";
                {
                    let $subject = PClht8::new("p-clht:u64", source, tight.clone(), 4 * KEYS);
                    $body
                }
                {
                    let $subject = PClhtBytes::new("p-clht:bytes", source, tight, 4 * KEYS);
                    $body
                }
            }
            Structure::Woart => {
                {
                    let $subject =
                        Woart8::new("woart:u64", ART, default.clone(), KEYS).and_source(RADIX);
                    $body
                }
                {
                    let $subject =
                        WoartBytes::new("woart:bytes", ART, default, KEYS).and_source(RADIX);
                    $body
                }
                // Nodes of the largest kind, that come and go.
                {
                    let $subject = Woart8::new("woart:wide", ART, IndexOptions::default(), KEYS)
                        .and_source(RADIX)
                        .filled(KEYS)
                        .draining();
                    $body
                }
            }
            Structure::ArtCow => {
                {
                    let $subject =
                        ArtCow8::new("art-cow:u64", ART, default.clone(), KEYS).and_source(RADIX);
                    $body
                }
                {
                    let $subject =
                        ArtCowBytes::new("art-cow:bytes", ART, default, KEYS).and_source(RADIX);
                    $body
                }
                // Nodes of the largest kind, that come and go.
                {
                    let $subject = ArtCow8::new("art-cow:wide", ART, IndexOptions::default(), KEYS)
                        .and_source(RADIX)
                        .filled(KEYS)
                        .draining();
                    $body
                }
            }
            Structure::WbTree => {
                let source = "index/src/wb_tree";
                {
                    let $subject = WbTree8::new("wb-tree:u64", source, small.clone(), KEYS);
                    $body
                }
                {
                    let $subject = WbTreeBytes::new("wb-tree:bytes", source, small.clone(), KEYS);
                    $body
                }
                {
                    let $subject =
                        WbTree8::new("wb-tree:drained", source, small, KEYS / 2).draining();
                    $body
                }
            }
            Structure::WbTreeSlot => {
                let source = "index/src/wb_tree";
                {
                    let $subject =
                        WbTreeSlot8::new("wb-tree-slot:u64", source, default.clone(), KEYS);
                    $body
                }
                {
                    let $subject =
                        WbTreeSlotBytes::new("wb-tree-slot:bytes", source, default, KEYS);
                    $body
                }
            }
            Structure::NvTree => {
                // Four records to a leaf and eight leaves to a node above.
                let least = IndexOptions { node_bytes: 128, ..Default::default() };
                let source = "index/src/nv_tree";
                {
                    let $subject = NvTree8::new("nv-tree:u64", source, least.clone(), KEYS);
                    $body
                }
                {
                    let $subject = NvTreeBytes::new("nv-tree:bytes", source, least.clone(), KEYS);
                    $body
                }
                {
                    let $subject =
                        NvTree8::new("nv-tree:drained", source, least, KEYS / 2).draining();
                    $body
                }
            }
            Structure::FpTree => {
                let source = "index/src/fptree";
                {
                    let $subject = FpTree8::new("fptree:u64", source, small.clone(), KEYS);
                    $body
                }
                {
                    let $subject = FpTreeBytes::new("fptree:bytes", source, small.clone(), KEYS);
                    $body
                }
                {
                    let $subject =
                        FpTree8::new("fptree:drained", source, small, KEYS / 2).draining();
                    $body
                }
            }
            Structure::ClassicLog => {
                {
                    let $subject = LogSubject::<ClassicLog<Modelled>>::new(
                        "classic-log:padded",
                        &[RING, "blocks/src/classic_log"],
                        ring(Placement::Padded, 0),
                        RING_BYTES,
                        Some(4016),
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<ClassicLog<Modelled>>::new(
                        "classic-log:dense",
                        &[RING, "blocks/src/classic_log"],
                        ring(Placement::Dense, 0),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<ClassicLog<Modelled>>::new(
                        "classic-log:streamed",
                        &[RING, "blocks/src/classic_log"],
                        ring(Placement::Streamed, 0),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
            }
            Structure::HeaderLog => {
                {
                    let $subject = LogSubject::<HeaderLog<Modelled>>::new(
                        "header-log:naive",
                        &[RING, "blocks/src/header_log"],
                        ring(Placement::Dense, 1),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<HeaderLog<Modelled>>::new(
                        "header-log:aligned",
                        &[RING, "blocks/src/header_log"],
                        ring(Placement::Padded, 1),
                        RING_BYTES,
                        Some(4080),
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<HeaderLog<Modelled>>::new(
                        "header-log:dancing",
                        &[RING, "blocks/src/header_log"],
                        ring(Placement::Padded, 8),
                        RING_BYTES,
                        Some(4080),
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<HeaderLog<Modelled>>::new(
                        "header-log:streamed",
                        &[RING, "blocks/src/header_log"],
                        ring(Placement::Streamed, 8),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
            }
            Structure::Rawl => {
                {
                    let $subject = LogSubject::<Rawl<Modelled>>::new(
                        "rawl:padded",
                        &[RING, "blocks/src/rawl"],
                        ring(Placement::Padded, 0),
                        RING_BYTES,
                        Some(4016),
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<Rawl<Modelled>>::new(
                        "rawl:dense",
                        &[RING, "blocks/src/rawl"],
                        ring(Placement::Dense, 0),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<Rawl<Modelled>>::new(
                        "rawl:streamed",
                        &[RING, "blocks/src/rawl"],
                        ring(Placement::Streamed, 0),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
            }
            Structure::PopLog => {
                let $subject = PopLogSubject;
                $body
            }
            Structure::PageCow => {
                {
                    let scheme = PageScheme::CopyOnWrite;
                    let $subject = PageSubject::new("page-cow:whole", scheme, 4096);
                    $body
                }
                {
                    let scheme = PageScheme::CopyOnWriteLoading;
                    let $subject = PageSubject::new("page-cow:load", scheme, 4096);
                    $body
                }
                {
                    let scheme = PageScheme::Checksum;
                    let $subject = PageSubject::new("page-cow:checksum", scheme, 4096);
                    $body
                }
            }
            Structure::PageMulog => {
                {
                    let scheme = PageScheme::MicroLog;
                    let $subject = PageSubject::new("page-mulog:4k", scheme, 4096);
                    $body
                }
                // Which lines are logged takes more than one line to say.
                {
                    let scheme = PageScheme::MicroLog;
                    let $subject = PageSubject::new("page-mulog:32k", scheme, 32768);
                    $body
                }
            }
            Structure::PageHybrid => {
                let $subject = PageSubject::new("page-hybrid:4k", PageScheme::Hybrid, 4096);
                $body
            }
            Structure::CowCell => {
                {
                    let $subject = InPlaceSubject::<CowCell>::new("cow-cell:16", 16, ());
                    $body
                }
                {
                    let $subject = InPlaceSubject::<CowCell>::new("cow-cell:100", 100, ());
                    $body
                }
            }
            Structure::LogCell => {
                {
                    let $subject =
                        LogCellSubject::<PopLog<Modelled>>::new("log-cell:16", 16, SEGMENTS);
                    $body
                }
                {
                    let $subject =
                        LogCellSubject::<PopLog<Modelled>>::new("log-cell:100", 100, SEGMENTS);
                    $body
                }
                {
                    let $subject = LogCellSubject::<ClassicLog<Modelled>>::new(
                        "log-cell:classic",
                        LOGGED_BYTES,
                        ring(Placement::Padded, 0),
                    );
                    $body
                }
                {
                    let $subject = LogCellSubject::<HeaderLog<Modelled>>::new(
                        "log-cell:naive",
                        LOGGED_BYTES,
                        ring(Placement::Dense, 1),
                    );
                    $body
                }
                {
                    let $subject = LogCellSubject::<HeaderLog<Modelled>>::new(
                        "log-cell:aligned",
                        LOGGED_BYTES,
                        ring(Placement::Padded, 1),
                    );
                    $body
                }
                {
                    let $subject = LogCellSubject::<HeaderLog<Modelled>>::new(
                        "log-cell:dancing",
                        LOGGED_BYTES,
                        ring(Placement::Padded, 8),
                    );
                    $body
                }
                {
                    let $subject = LogCellSubject::<Rawl<Modelled>>::new(
                        "log-cell:rawl",
                        LOGGED_BYTES,
                        ring(Placement::Padded, 0),
                    );
                    $body
                }
                {
                    let $subject = LogCellSubject::<PopRing<Modelled>>::new(
                        "log-cell:pop-ring",
                        LOGGED_BYTES,
                        ring(Placement::Padded, 0),
                    );
                    $body
                }
            }
            Structure::FamCell => {
                {
                    let $subject = InPlaceSubject::<FamCell>::new("fam-cell:16", 16, ());
                    $body
                }
                {
                    let $subject = InPlaceSubject::<FamCell>::new("fam-cell:100", 100, ());
                    $body
                }
            }
            Structure::FpLeaves => {
                let $subject = FpLeavesSubject;
                $body
            }
            Structure::PopRing => {
                {
                    let $subject = LogSubject::<PopRing<Modelled>>::new(
                        "pop-ring:padded",
                        &[RING, "blocks/src/pop_ring"],
                        ring(Placement::Padded, 0),
                        RING_BYTES,
                        Some(4080),
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<PopRing<Modelled>>::new(
                        "pop-ring:dense",
                        &[RING, "blocks/src/pop_ring"],
                        ring(Placement::Dense, 0),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
                {
                    let $subject = LogSubject::<PopRing<Modelled>>::new(
                        "pop-ring:streamed",
                        &[RING, "blocks/src/pop_ring"],
                        ring(Placement::Streamed, 0),
                        RING_BYTES,
                        None,
                    );
                    $body
                }
            }
            Structure::Allocator => {
                {
                    let $subject = AllocatorSubject::new("allocator:device", 0xA5);
                    $body
                }
                {
                    let $subject = AllocatorSubject::new("allocator:file", 0);
                    $body
                }
                {
                    let $subject = AllocatorSubject::new("allocator:growing", 0).growing();
                    $body
                }
                // A user with locks in its blocks, for the promise about generations.
                {
                    let $subject =
                        PClht8::new("allocator:p-clht", "pmem/src/pool", default, 4 * KEYS);
                    $body
                }
            }
            Structure::Store => {
                let $subject = StoreSubject;
                $body
            }
        }
    }};
}

impl Structure {
    /// The names of the runs that exploring it consists of: for an index, one or more per kind of
    /// keys.
    pub fn subjects(self) -> Vec<&'static str> {
        let mut names = Vec::new();
        each_subject!(self, subject => names.push(crate::Subject::name(&subject)));
        names
    }
}

/// Explores a structure: for an index, with both kinds of keys. `only` restricts it to the subject
/// of that name (`wort:bytes`), as a replay must.
///
/// # Errors
/// [`CrashError::Failed`].
pub fn explore_structure(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, CrashError> {
    let mut total = ExploreReport {
        structure: structure.name().to_owned(),
        seed: options.seed,
        ops: options.ops,
        ..Default::default()
    };
    each_subject!(structure, subject => {
        let name = crate::Subject::name(&subject);
        if only.is_none_or(|only| only == name || only == structure.name()) {
            let base = total.images;
            let report = explore(&subject, options, &|images| progress(base + images))
                .map_err(|what| CrashError::Failed { structure: name, what })?;
            total.add(report);
        }
    });
    Ok(total)
}

/// Every flush and fence that a structure passes in its run, in the order of the source.
///
/// # Errors
/// [`CrashError::Failed`].
pub fn structure_points(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
) -> Result<Vec<PersistPoint>, CrashError> {
    let mut points = Vec::new();
    each_subject!(structure, subject => {
        let name = crate::Subject::name(&subject);
        if only.is_none_or(|only| only == name || only == structure.name()) {
            let run = Run::record(&subject, options)
                .map_err(|what| CrashError::Failed { structure: name, what })?;
            points.extend(run.points);
        }
    });
    points.sort_unstable();
    points.dedup();
    Ok(points)
}

/// Switches off each flush and fence of a structure in turn. A point counts as killed if the
/// structure with either kind of keys is found out without it.
///
/// # Errors
/// [`CrashError::Failed`].
pub fn structure_persist_points(
    structure: Structure,
    options: &ExploreOptions,
    seeds: &[u64],
    progress: &Progress<'_>,
) -> Result<Vec<PersistPointRow>, CrashError> {
    let mut rows: Vec<PersistPointRow> = Vec::new();
    each_subject!(structure, subject => {
        let name = crate::Subject::name(&subject);
        let found = persist_points(&subject, options, seeds, progress)
            .map_err(|what| CrashError::Failed { structure: name, what })?;
        for row in found {
            match rows.iter_mut().find(|known| known.name == row.name) {
                Some(known) => {
                    known.images += row.images;
                    if !known.killed {
                        known.killed = row.killed;
                        known.by = row.by;
                    }
                }
                None => rows.push(row),
            }
        }
    });
    rows.sort_by(|a, b| a.order.cmp(&b.order));
    Ok(rows)
}

/// One run of one subject of a structure.
pub(crate) struct SubjectRun {
    pub(crate) subject: &'static str,
    pub(crate) recorded: RecordedTrace,
    /// The kind of each operation by its number.
    pub(crate) kinds: Vec<String>,
}

/// Runs each subject of a structure once, or the one that `only` names.
pub(crate) fn each_run(
    structure: Structure,
    only: Option<&str>,
    ops: usize,
    seed: u64,
    visit: &mut dyn FnMut(SubjectRun),
) -> Result<(), CrashError> {
    each_subject!(structure, subject => {
        let name = crate::Subject::name(&subject);
        if only.is_none_or(|only| only == name || only == structure.name()) {
            let options = ExploreOptions { ops, seed, ..ExploreOptions::default() };
            let run = Run::record(&subject, &options)
                .map_err(|what| CrashError::Failed { structure: name, what })?;
            let kinds = run.operation_kinds();
            let recorded = RecordedTrace::of_run(run.trace, &run.base);
            visit(SubjectRun { subject: name, recorded, kinds });
        }
    });
    Ok(())
}
