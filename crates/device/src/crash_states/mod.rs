//! What a power cut may leave: from a trace to crash points, to the states of lines and of sectors,
//! to images.

pub(crate) mod bytes_of_line;
pub mod crash_points;
pub mod images;
pub(crate) mod line_table;
pub(crate) mod pending;
pub mod persistence;
pub mod pruned_images;
pub(crate) mod surviving_caches;
