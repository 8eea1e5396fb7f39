//! A structure as such: before the machine and the kind of keys are chosen.

use lapis_index::{Index, IndexKey};
use lapis_pmem::Domain;

use super::inner_nodes_in_pool::InPool;

/// A structure on any machine and with any keys.
pub trait Family {
    /// The structure.
    type Of<D: Domain, K: IndexKey + ?Sized>: Index<D, K> + 'static;
}

macro_rules! families {
    ($($structure:ident)+) => {
        $(
            /// The structure of this name.
            pub struct $structure;
            impl Family for $structure {
                type Of<D: Domain, K: IndexKey + ?Sized> = lapis_index::$structure<D, K>;
            }
        )+
    };
}

families!(Wort FastFair PClht Woart ArtCow WbTree WbTreeSlot NvTree FpTree);

macro_rules! families_in_pool {
    ($($name:ident: $structure:ident)+) => {
        $(
            /// The structure of this name, its inner nodes in the pool.
            pub struct $name;
            impl Family for $name {
                type Of<D: Domain, K: IndexKey + ?Sized> = InPool<lapis_index::$structure<D, K>>;
            }
        )+
    };
}

families_in_pool!(NvTreeInPool: NvTree FpTreeInPool: FpTree);
