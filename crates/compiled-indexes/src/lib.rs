//! Every index, compiled for the machines and the keys that the checker and the laboratory use.
//!
//! The indexes are generic, so each crate that uses them compiles all of them, and so does its binary of
//! unit tests. In builds that are optimised little, as those of tests are, the compiler takes what a crate
//! beneath has compiled already. This is that crate, and `use lapis_compiled_indexes as _` is how it is
//! used. A release build compiles nothing here: it would not be taken.

#[cfg(debug_assertions)]
mod compiled {
    use std::hint::black_box;

    use lapis_device::Modelled;
    use lapis_index::{AnyIndex, IndexKey};
    use lapis_pmem::{Domain, Hardware};

    /// Never called: what it names is compiled with it.
    pub fn all() {
        each::<Modelled, u64>();
        each::<Modelled, [u8]>();
        each::<Hardware, u64>();
        each::<Hardware, [u8]>();
    }

    macro_rules! compile {
        ($($method:ident)*) => {
            /// What an index of one machine and one kind of keys does.
            fn each<D: Domain, K: IndexKey + ?Sized>() {
                $(_ = black_box(AnyIndex::<D, K>::$method as *const ());)*
                _ = black_box(std::ptr::drop_in_place::<AnyIndex<D, K>> as *const ());
            }
        };
    }
    compile! {
        create create_named open open_kind open_with_threads pool kind get get_pinned get_many approach insert_many change scan_leaves range first for_each for_each_by_part
        check statistics visit_blocks
    }
}

#[cfg(debug_assertions)]
pub use compiled::all;
