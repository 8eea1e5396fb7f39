//! Roots: the names by which what a pool holds is found again.

use super::header::encode_name;
use super::{Pool, RootError};
use crate::cell::{Link, PCell, Persistent};
use crate::commit::Visible;
use crate::domain::Domain;
use crate::owned::{Durable, Owned};

impl<D: Domain> Pool<D> {
    /// The root called `name`, if it has been published.
    pub fn root<T: Persistent>(&self, name: &str) -> Option<Link<T>> {
        let name = encode_name(name)?;
        let entry = self.header().roots.iter().find(|entry| {
            !entry.link.load(&self.domain).is_null() && entry.name_is(&self.domain, &name)
        })?;
        Some(entry.link.load(&self.domain).cast())
    }

    /// Every root: name, kind, link.
    pub fn roots(&self) -> Vec<(String, u64, Link<PCell<u64>>)> {
        let domain = &self.domain;
        let used = self.header().roots.iter().filter(|entry| !entry.link.load(domain).is_null());
        used.map(|entry| {
            (entry.name_text(domain), entry.kind.load(domain), entry.link.load(domain))
        })
        .collect()
    }

    /// Makes `node` the root called `name`. `kind` is the caller's to define: it says what the
    /// root is. 1 flush and 1 fence, those of persisting the result (H4). Callers take turns.
    ///
    /// # Errors
    /// [`RootError`]; the node goes back to the allocator.
    #[track_caller]
    pub fn publish_root<'a, T: Persistent>(
        &'a self,
        name: &str,
        kind: u64,
        node: Owned<'a, D, T, Durable>,
    ) -> Result<Visible<'a, D>, RootError> {
        let words = encode_name(name).ok_or(RootError::BadName)?;
        if self.root::<T>(name).is_some() {
            return Err(RootError::Exists);
        }
        let domain = &self.domain;
        let free = self.header().roots.iter().find(|entry| entry.link.load(domain).is_null());
        let entry = free.ok_or(RootError::Full)?;
        // H4: one line, in this order.
        for (cell, word) in entry.name.iter().zip(words) {
            cell.store_ordered(domain, word);
        }
        entry.kind.store_ordered(domain, kind);
        let link = node.into_link();
        Ok(entry.link.redirect(domain, link.cast()))
    }

    /// Removes the root called `name`: null if there is none, else what it referred to. The caller
    /// retires what hung from it, with the proof that persisting gives.
    pub fn unpublish_root(&self, name: &str) -> Option<Visible<'_, D>> {
        let name = encode_name(name)?;
        let domain = &self.domain;
        let entry = self
            .header()
            .roots
            .iter()
            .find(|entry| !entry.link.load(domain).is_null() && entry.name_is(domain, &name))?;
        Some(entry.link.redirect(domain, Link::NULL))
    }
}
