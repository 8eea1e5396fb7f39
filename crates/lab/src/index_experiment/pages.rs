//! Memory in small pages for a while.

use rustix::thread::disable_transparent_huge_pages;

use super::Pages;
use crate::experiment::ExperimentError;

/// As long as it lives, memory that the process maps has pages of the kind that was asked for.
pub(super) struct WithPages(Pages);

impl WithPages {
    pub(super) fn set(pages: Pages) -> Result<Self, ExperimentError> {
        if pages == Pages::Small {
            disable_transparent_huge_pages(true).map_err(|error| {
                ExperimentError::bad_option(format!("huge pages cannot be switched off: {error}"))
            })?;
        }
        Ok(Self(pages))
    }
}

impl Drop for WithPages {
    fn drop(&mut self) {
        if self.0 == Pages::Small {
            // What could be switched off can be switched on.
            let _ = disable_transparent_huge_pages(false);
        }
    }
}
