//! The crash checker from outside: on the structures of Lapis, on errors planted in them, and on
//! recorded traces.

/// A test of each structure in the lists, which calls a function with it. The first argument is a
/// dollar sign.
macro_rules! for_each_structure {
    (($d:tt) $test:path) => {
        macro_rules! of_an_index {
            ($d name:ident $d kind:ident $d what:tt) => {
                for_each_structure! { @ $test, $d name, Index(lapis_index::IndexKind::$d kind) }
            };
        }
        macro_rules! of_a_log {
            ($d name:ident $d kind:ident $d what:tt) => {
                for_each_structure! { @ $test, $d name, Log(lapis_blocks::LogKind::$d kind) }
            };
        }
        macro_rules! of_cells {
            ($d name:ident $d kind:ident $d what:tt) => {
                for_each_structure! { @ $test, $d name, Cell(lapis_blocks::CellKind::$d kind) }
            };
        }
        macro_rules! of_pages {
            ($d name:ident $d kind:ident $d what:tt) => {
                for_each_structure! { @ $test, $d name, Page(lapis_blocks::PageKind::$d kind) }
            };
        }
        lapis_index::for_each_index!(of_an_index);
        lapis_blocks::for_each_log!(of_a_log);
        lapis_blocks::for_each_cell!(of_cells);
        lapis_blocks::for_each_page_scheme!(of_pages);
    };
    (@ $test:path, $name:ident, $structure:ident($kind:expr)) => {
        #[test]
        fn $name() {
            $test(lapis_crash::Structure::$structure($kind));
        }
    };
}

mod buffer;
mod concurrent;
mod coverage;
mod crash_points;
mod fptree;
mod inner_nodes_in_pool;
mod mutants;
mod performance;
mod persist_points;
mod recorded;
mod shrinking;
mod shrinking_workers;
mod storage;
mod store;
mod strategies;
mod survives;
mod tree;
