//! Removing a page.

use std::sync::atomic::Ordering;

use lapis_pmem::{Committed, Domain, host_lock};

use super::{PageError, PageStore, Place, mutants};

impl<D: Domain> PageStore<D> {
    /// Removes a page; its slot can be used for another. Durable on return. 1 flush and 1 fence; one
    /// flush more if the page was last written through the µlog, and 1 flush and 1 fence more if the
    /// page was the last one of its lane to be copied.
    ///
    /// # Errors
    /// [`PageError::IdOutOfRange`], [`PageError::NoSuchPage`]: nothing was changed.
    /// [`PageError::Fault`].
    pub fn delete_page(&self, id: u64) -> Result<Committed, PageError> {
        let number = self.check_id(id)?;
        let mut lane = host_lock::write(self.pool.domain(), self.lane(number));
        let Some(current) = self.place(&mut lane, number).get() else {
            return Err(PageError::NoSuchPage { id });
        };
        let domain = self.pool.domain();
        if let Some(spare) = &mut lane.spare
            && spare.names == Some(number)
            && !domain.commits(mutants::SPARE_SURVIVES_DELETION)
        {
            domain.happens("an outdated copy goes with its page");
            // I3: before the current slot ceases to be, or the older version would be the latest.
            let _: Committed = self.header(spare.slot).page.publish(domain, 0).persist();
            spare.names = None;
        }
        let cleared = self.header(current.slot).page.publish(domain, 0).flush();
        let committed =
            if lane.logged == Some(number) && !domain.commits(mutants::LOG_SURVIVES_DELETION) {
                domain.happens("a log goes with its page");
                // I6: in either order; without its page the log is made invalid when the store is opened, and
                // without the log the page is what it is.
                let log = self.pool.at(self.geometry.log(self.root, self.geometry.lane_of(number)));
                lane.logged = None;
                let invalid = log.target.publish(domain, 0).flush();
                cleared.and(invalid).fence(domain)
            } else {
                cleared.fence(domain)
            };
        *self.place(&mut lane, number) = Place::NONE;
        drop(lane);
        self.free.lock().push(current.slot);
        self.live_pages.fetch_sub(1, Ordering::Relaxed);
        domain.health()?;
        Ok(committed)
    }
}
