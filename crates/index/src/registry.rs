//! The list of structures, and what is generated from it.
//!
//! The list itself is in `lib.rs`. A line names the number on the medium, the module, the structure,
//! and what its type has beside [`Index`](crate::Index): `ordered` for
//! [`OrderedIndex`](crate::OrderedIndex), `rebuilt` for inner nodes that are volatile. The module has
//! the structure's `DECLARATION` and its `mutants`. Nothing else in the workspace names a structure
//! in order to reach all of them.

/// Declares the modules of the list and generates [`IndexKind`], the families, `with_index!` and
/// `for_each_index!`. The first argument is a dollar sign, for the macros that it makes.
macro_rules! registry {
    (($d:tt) $($number:literal $module:ident::$index:ident [$($trait:ident)*];)+) => {
        $(mod $module;)+
        $(pub use $module::$index;)+

        /// Which structure an index is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum IndexKind {
            $(
                #[doc = concat!("[`", stringify!($index), "`].")]
                $index = $number,
            )+
        }

        impl IndexKind {
            /// All kinds, in the order of the capability table.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$index),+];

            /// What the structure says of itself.
            pub const fn declaration(self) -> &'static Declaration {
                match self {
                    $(Self::$index => &$module::DECLARATION,)+
                }
            }

            /// What the list says of its type.
            const fn traits(self) -> &'static [&'static str] {
                match self {
                    $(Self::$index => &[$(stringify!($trait)),*],)+
                }
            }
        }

        pub mod families {
            //! Every structure as an [`IndexFamily`].
            use super::{Domain, IndexFamily, IndexKey, IndexKind};

            $(
                #[doc = concat!("[`", stringify!($index), "`](crate::", stringify!($index), ").")]
                #[derive(Debug)]
                pub enum $index {}

                impl IndexFamily for $index {
                    const KIND: IndexKind = IndexKind::$index;
                    type Of<D: Domain, K: IndexKey + ?Sized> = crate::$index<D, K>;
                    family_scan! { $($trait)* }
                }
            )+
        }

        #[doc(hidden)]
        pub mod mutants {
            //! Errors of published implementations that the indexes can be told to commit
            //! ([`lapis_pmem::Observed::commits`]), for showing that the crash checker finds them.
            $(pub use crate::$module::mutants as $module;)+
        }

        /// Runs the body with a name for the [`IndexFamily`] of a kind.
        #[macro_export]
        macro_rules! with_index {
            ($d kind:expr, |$d family:ident| $d body:expr) => {{
                #[allow(unreachable_patterns, reason = "reachable outside of this crate")]
                match $d kind {
                    $($crate::IndexKind::$index => {
                        #[allow(dead_code, reason = "not every body needs the type")]
                        type $d family = $crate::families::$index;
                        $d body
                    })+
                    _ => unreachable!("every kind has its line"),
                }
            }};
        }

        /// Calls a macro for each structure, with its module, its name and what it is: for making a
        /// test of each.
        #[macro_export]
        macro_rules! for_each_index {
            ($d call:ident) => {
                $($d call! { $module $index [$($trait)*] })+
            };
        }
    };
}

/// [`IndexFamily::scan_leaves`](crate::IndexFamily::scan_leaves) of a structure with these traits.
macro_rules! family_scan {
    (ordered $($trait:ident)*) => {
        #[inline]
        fn scan_leaves<D: Domain, K: IndexKey + ?Sized>(
            index: &Self::Of<D, K>,
            from: std::ops::Bound<&K>,
            direction: crate::Direction,
            visit: crate::OnLeaf<'_, D, K>,
        ) -> bool {
            crate::OrderedIndex::scan_leaves(index, from, direction, visit);
            true
        }
    };
    () => {};
}
