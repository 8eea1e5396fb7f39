//! What hash tables share: the word that refers to a table, buckets, and the locks in them.

pub(crate) mod bucket;
pub(crate) mod counter;
pub(crate) mod locks;
pub(crate) mod table;
pub(crate) mod writer;
