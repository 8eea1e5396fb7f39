//! What building blocks say of themselves, and the lists of them.
//!
//! A log is its module, with its `DECLARATION`, and a line in the list in `lib.rs`; so are cells, in the
//! list in `in_place/mod.rs`, and a page scheme, in the list in `page/mod.rs`. The lists declare the
//! modules, and others go through [`LogKind`](crate::LogKind), [`CellKind`](crate::CellKind),
//! [`PageKind`](crate::PageKind) and the macros beside them.

use lapis_pmem::MutantList;

use crate::log::{Layout, Placement};

/// What a building block says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Declaration<Run: 'static> {
    /// The name used on the command line, in JSON and in file names.
    pub name: &'static str,
    /// Parts of the paths of its source files, whose flushes and fences are to be shown necessary.
    pub sources: &'static [&'static str],
    /// Errors that it can be told to commit.
    pub mutants: MutantList,
    /// The runs that exploring it consists of.
    pub runs: &'static [Run],
    /// Operations of a run that is to survive power cuts.
    pub operations: usize,
    /// Operations of a run in which every flush and fence is passed and missed, and of how many such
    /// runs.
    pub persist_points: (usize, u64),
}

/// A way to lay a log out: a run of the crash checker on it, and what else it is taken for.
#[derive(Clone, Copy, Debug)]
pub struct LogRun {
    /// Its name: the log's, a colon, and a word.
    pub name: &'static str,
    /// Where entries lie.
    pub placement: Placement,
    /// Fields for the size, if the log has them.
    pub size_fields: usize,
    /// An entry that fills the empty log of 4 KiB to its last byte.
    pub filling_bytes: Option<usize>,
    /// The name of the run on cells that are updated by way of such a log.
    pub under_cells: Option<&'static str>,
    /// The name under which experiments compare it with other logs, and its fields for the size there.
    pub compared: Option<(&'static str, usize)>,
}

impl LogRun {
    /// A run and nothing else.
    pub const fn new(name: &'static str, placement: Placement, size_fields: usize) -> Self {
        let (filling_bytes, under_cells, compared) = (None, None, None);
        Self { name, placement, size_fields, filling_bytes, under_cells, compared }
    }

    /// With such an entry.
    pub const fn filled_by(self, bytes: usize) -> Self {
        Self { filling_bytes: Some(bytes), ..self }
    }

    /// With a run on cells.
    pub const fn under_cells(self, name: &'static str) -> Self {
        Self { under_cells: Some(name), ..self }
    }

    /// With a place in experiments, however entries lie there.
    pub const fn compared(self, name: &'static str, size_fields: usize) -> Self {
        Self { compared: Some((name, size_fields)), ..self }
    }

    /// Such a log of so many bytes, or of segments of so many.
    pub const fn layout(&self, bytes: usize) -> Layout {
        Layout { bytes, placement: self.placement, size_fields: self.size_fields }
    }
}

/// A run of the crash checker on cells.
#[derive(Clone, Copy, Debug)]
pub struct CellRun {
    /// Its name: the scheme's, a colon, and a word.
    pub name: &'static str,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// Generates an enumeration of blocks from a list of them, and a macro that calls another one for
/// each. The first argument is a dollar sign, for that macro.
macro_rules! kinds {
    (
        ($d:tt)
        $(#[$doc:meta])*
        $kinds:ident, $run:ident, $for_each:ident:
        $($($number:literal)? $kind:ident $name:ident [$($what:ident)?] = $($declaration:ident)::+;)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "its declaration says what it is")]
        pub enum $kinds {
            $($kind $(= $number)?,)+
        }

        impl $kinds {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($kind)),+].len()] = [$(Self::$kind),+];

            /// What it says of itself.
            pub const fn declaration(self) -> &'static $crate::Declaration<$crate::$run> {
                match self {
                    $(Self::$kind => &crate::$($declaration)::+,)+
                }
            }

            /// The name used on the command line, in JSON and in file names.
            pub const fn name(self) -> &'static str {
                self.declaration().name
            }
        }

        impl std::fmt::Display for $kinds {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        /// Calls a macro for each one: a name for a module of tests, the kind, and what the list
        /// says of it.
        #[macro_export]
        macro_rules! $for_each {
            ($d call:ident) => {
                $($d call! { $name $kind [$($what)?] })+
            };
        }
    };
}

/// The same of logs, whose types are called like their kinds.
macro_rules! logs {
    (($d:tt) $($kind:ident $module:ident [$($ring:ident)?];)+) => {
        $(pub mod $module;)+

        kinds! {
            ($d)
            /// A log.
            LogKind, LogRun, for_each_log:
            $($kind $module [$($ring)?] = $module::DECLARATION;)+
        }

        impl LogKind {
            /// Whether it is a log in a ring.
            pub const fn is_ring(self) -> bool {
                match self {
                    $(Self::$kind => !stringify!($($ring)?).is_empty(),)+
                }
            }
        }

        /// Runs the first body with a name for the [`RingKind`](crate::ring_log::RingKind) of a log in a ring,
        /// the second for another log.
        #[macro_export]
        macro_rules! with_ring {
            ($d kind:expr, |$d ring:ident| $d body:expr, $d otherwise:expr) => {
                match $d kind {
                    $($crate::LogKind::$kind => $crate::if_ring! {
                        [$($crate::$module::$ring)?] |$d ring| { $d body } { $d otherwise }
                    },)+
                }
            };
        }

        /// Runs the body with a name for the type of a log on a domain.
        #[macro_export]
        macro_rules! with_log {
            ($d kind:expr, $d domain:ty, |$d log:ident| $d body:expr) => {
                match $d kind {
                    $($crate::LogKind::$kind => {
                        type $d log = $crate::$module::$kind<$d domain>;
                        $d body
                    })+
                }
            };
        }
    };
}

/// The first block for a log in a ring, the second for another.
#[doc(hidden)]
#[macro_export]
macro_rules! if_ring {
    ([$scheme:ty] |$ring:ident| $body:block $otherwise:block) => {{
        type $ring = $scheme;
        $body
    }};
    ([] |$ring:ident| $body:block $otherwise:block) => {
        $otherwise
    };
}

/// The same of cells. What stands in brackets says that updates go by way of a log.
macro_rules! cells {
    (($d:tt) $($number:literal $kind:ident $module:ident::$cell:ident [$($log:ident)?];)+) => {
        $(pub(crate) mod $module;)+
        $(pub use $module::$cell;)+

        kinds! {
            ($d)
            /// A way to update cells in place.
            CellKind, CellRun, for_each_cell:
            $($number $kind $module [$($log)?] = in_place::$module::DECLARATION;)+
        }

        impl CellKind {
            /// Whether updates go by way of a log.
            pub const fn takes_log(self) -> bool {
                match self {
                    $(Self::$kind => !stringify!($($log)?).is_empty(),)+
                }
            }
        }

        /// Runs the body with a name for the type of cells on a domain. A log of that type serves those
        /// that take one.
        #[macro_export]
        macro_rules! with_cell {
            ($d kind:expr, $d domain:ty, $d log:ty, |$d cell:ident| $d body:expr) => {
                match $d kind {
                    $($crate::CellKind::$kind => {
                        type $d cell = $crate::cell_type! { [$($log)?] $cell, $d domain, $d log };
                        $d body
                    })+
                }
            };
        }
    };
}

/// The type of cells that take a log, or none.
#[doc(hidden)]
#[macro_export]
macro_rules! cell_type {
    ([log] $cell:ident, $domain:ty, $log:ty) => { $crate::in_place::$cell<$domain, $log> };
    ([] $cell:ident, $domain:ty, $log:ty) => { $crate::in_place::$cell };
}

/// The same of page schemes.
macro_rules! page_schemes {
    (($d:tt) $($kind:ident $name:ident $module:ident;)+) => {
        $(pub(crate) mod $module;)+

        kinds! {
            ($d)
            /// A way to write pages, with its variants.
            PageKind, PageRun, for_each_page_scheme:
            $($kind $name [] = page::$module::DECLARATION;)+
        }

        impl PageKind {
            /// Whether a page that exists is written by way of the µlog, and not copied: with so many
            /// dirty lines, where copying is cheaper from `copy_from_lines` on.
            pub(crate) fn logs(self, dirty_lines: usize, copy_from_lines: usize) -> bool {
                match self {
                    $(Self::$kind => crate::page::$module::logs(dirty_lines, copy_from_lines),)+
                }
            }
        }
    };
}
