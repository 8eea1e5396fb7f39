//! The buffer manager: the space of pages by itself, and pages over an SSD with a log in persistent
//! memory. Power cuts come to both media at once, and again during recovery.

mod paged;
mod several_workers;
mod space;

use lapis_buffer::{PageNumber, SpaceOptions};

/// The smallest pages, and batches that a few of them fill.
const SPACE: SpaceOptions = SpaceOptions { page_bytes: 4096, batch_pages: 6 };

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn number(bits: u64) -> Result<PageNumber, String> {
    PageNumber::new(bits).ok_or_else(|| format!("{bits:#x} is no page number"))
}
