//! What building blocks say of themselves, and the lists of them.
//!
//! A log is its module, with its `DECLARATION`, and a line in the list of [`LogKind`]; so is a page
//! scheme ([`PageKind`]), and a scheme of cells ([`CellKind`]). Others go through the lists.

use lapis_pmem::MutantList;

use crate::log::Placement;
use crate::page::PageScheme;

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

/// A run of the crash checker on a log.
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
}

impl LogRun {
    /// A run without such an entry.
    pub const fn new(name: &'static str, placement: Placement, size_fields: usize) -> Self {
        Self { name, placement, size_fields, filling_bytes: None }
    }

    /// The same with one.
    pub const fn filled_by(self, bytes: usize) -> Self {
        Self { filling_bytes: Some(bytes), ..self }
    }
}

/// A run of the crash checker on pages.
#[derive(Clone, Copy, Debug)]
pub struct PageRun {
    /// Its name: the scheme's, a colon, and a word.
    pub name: &'static str,
    /// The scheme, which may be a variant for comparison.
    pub scheme: PageScheme,
    /// Bytes of a page.
    pub page_bytes: usize,
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
        $($kind:ident $name:ident [$($ring:ident)?] = $($declaration:ident)::+;)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "its declaration says what it is")]
        pub enum $kinds {
            $($kind,)+
        }

        impl $kinds {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($kind)),+].len()] = [$(Self::$kind),+];

            /// What it says of itself.
            pub const fn declaration(self) -> &'static Declaration<$run> {
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
                $($d call! { $name $kind [$($ring)?] })+
            };
        }
    };
}

/// The same of logs, whose types are called like their kinds.
macro_rules! logs {
    (($d:tt) $($kind:ident $module:ident [$($ring:ident)?];)+) => {
        kinds! {
            ($d)
            /// A log.
            LogKind, LogRun, for_each_log:
            $($kind $module [$($ring)?] = $module::DECLARATION;)+
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

// The log, its module, and what it is as a log in a ring, if it is one.
logs! { ($)
    ClassicLog classic_log [Classic];
    HeaderLog header_log [Header];
    Rawl rawl [Raw];
    PopLog pop_log [];
    PopRing pop_ring [Pop];
}

kinds! { ($)
    /// A way to update cells in place.
    CellKind, CellRun, for_each_cell:
    Cow cow_cell [] = in_place::cow_cell::DECLARATION;
    Log log_cell [] = in_place::log_cell::DECLARATION;
    Fam fam_cell [] = in_place::fam_cell::DECLARATION;
}

kinds! { ($)
    /// A way to write pages.
    PageKind, PageRun, for_each_page_scheme:
    CopyOnWrite page_cow [] = page::copy_on_write::DECLARATION;
    MicroLog page_mulog [] = page::micro_log::DECLARATION;
    Hybrid page_hybrid [] = page::cost_model::DECLARATION;
}
