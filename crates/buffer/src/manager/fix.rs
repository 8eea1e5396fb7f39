//! Fixing, loading, allocating and freeing pages.

use std::sync::atomic::Ordering;
use std::time::Instant;

use lapis_pmem::Domain;

use super::evict::Wanted;
use super::swizzle::refers_to_frames;
use super::{BufferManager, ExclusivePage, OptimisticPage, Storage, count};
use crate::error::{BufferError, Interruption};
use crate::latch::{Patience, Restart};
use crate::page::{PageDamage, PageKind, PageNumber};
use crate::space::SpaceError;

/// Where a page that is to be freed was found.
enum Found<'m, D: Domain> {
    InDram(ExclusivePage<'m, D>),
    /// It was in PM, and is freed.
    Freed,
    Nowhere,
}

impl<D: Domain> BufferManager<D> {
    /// A page, to be read optimistically. It is loaded if it is not in memory.
    ///
    /// # Errors
    /// [`Interruption`].
    pub fn fix(&self, number: PageNumber) -> Result<OptimisticPage<'_, D>, Interruption> {
        let domain = &self.domain;
        let Some(at) = self.table.find(domain, number)? else { return self.load(number) };
        let Some(frame) = self.frames.get(at) else { return self.load_from_tier(number, at) };
        let version = frame.latch.version(domain)?;
        if frame.page(domain) != Some(number) {
            return Err(Restart.into());
        }
        frame.latch.validate(domain, version)?;
        if !frame.is_used(domain) {
            self.note_use(at)?;
        }
        Ok(OptimisticPage { manager: self, frame, version })
    }

    /// A page alone, to be changed.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn fix_exclusive(&self, number: PageNumber) -> Result<ExclusivePage<'_, D>, BufferError> {
        self.relieve()?;
        self.retry(|| Ok(self.fix(number)?.exclusive()?))
    }

    fn load(&self, number: PageNumber) -> Result<OptimisticPage<'_, D>, Interruption> {
        let Storage::Space(space) = &self.storage else {
            return Err(BufferError::NotInUse { number }.into());
        };
        if let Some(slot) = self.load_into_tier(number)? {
            return self.load_from_tier(number, slot);
        }
        let mut page = self.take_frame(Wanted::Full)?;
        // B1: whoever comes now waits for the latch.
        page.frame.set_page(&self.domain, Some(number));
        if !self.table.insert(&self.domain, number, page.at()) {
            page.frame.set_page(&self.domain, None);
            return Err(Restart.into());
        }
        let begun = Instant::now();
        let loaded = space.read(number, |bytes| page.write_unlogged().copy_from(0, bytes));
        let took = begun.elapsed().as_nanos() as u64;
        let swizzled = SpaceError::Page { number, damage: PageDamage::SwizzledReference };
        let loaded = loaded
            .and_then(|()| if refers_to_frames(page.read()) { Err(swizzled) } else { Ok(()) });
        if let Err(error) = loaded {
            self.table.remove(&self.domain, number);
            page.frame.set_page(&self.domain, None);
            return Err(error.into());
        }
        count(&self.counters.loads);
        self.counters.reading_ns.fetch_add(took, Ordering::Relaxed);
        Ok(page.into_optimistic())
    }

    /// An empty page. `log` notes the allocation of this number in the log, and tells by which change it
    /// is (0 if there is no log).
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn allocate_page(
        &self,
        kind: PageKind,
        log: impl FnOnce(PageNumber) -> u64,
    ) -> Result<ExclusivePage<'_, D>, BufferError> {
        self.relieve()?;
        let mut page = self.reserve_page(kind)?;
        page.write(log(page.number()));
        Ok(page)
    }

    /// An empty page that nobody else knows of. It counts as unchanged until it is written, and whoever has
    /// it writes it or frees it. For those who have latched other pages: they relieve the manager before.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn reserve_page(&self, kind: PageKind) -> Result<ExclusivePage<'_, D>, BufferError> {
        let number = match &self.storage {
            Storage::Space(space) => {
                let number = space.allocate()?;
                if let Err(error) = self.forget_in_tier(number) {
                    space.unreserve(number);
                    return Err(error);
                }
                number
            }
            Storage::None(numbers) => {
                let mut numbers = numbers.lock();
                let reused = numbers.free.pop_first();
                let next = numbers.next;
                numbers.next += u64::from(reused.is_none());
                reused.or(PageNumber::new(next)).ok_or(SpaceError::Full)?
            }
        };
        let mut page = match self.take_frame(Wanted::Full) {
            Ok(page) => page,
            Err(error) => {
                self.unreserve(number)?;
                return Err(error);
            }
        };
        page.frame.set_page(&self.domain, Some(number));
        let mut patience = Patience::default();
        // Whoever follows an old reference to the number enters it for a moment, finds that there is no
        // such page, and takes it out again. Who is about to have freed it takes it out, too, or leaves it in PM.
        while !self.table.insert(&self.domain, number, page.at()) {
            patience.wait(&self.domain);
            if let Err(error) = self.forget_in_tier(number) {
                page.frame.set_page(&self.domain, None);
                self.unreserve(number)?;
                return Err(error);
            }
        }
        page.write_unlogged().begin(kind, number);
        Ok(page)
    }

    /// The page of this number, empty, as the change `lsn` made it: to redo an allocation. The number is in
    /// use from here on, whatever the device has of it. Nobody else does anything to it meanwhile.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn allocate_page_again(
        &self,
        number: PageNumber,
        kind: PageKind,
        lsn: u64,
    ) -> Result<ExclusivePage<'_, D>, BufferError> {
        self.relieve()?;
        let Some(space) = self.space() else { return Err(BufferError::NotInUse { number }) };
        space.allocate_again(number)?;
        if !space.contains(number) {
            self.forget_in_tier(number)?;
        }
        let mut page = self.retry(|| {
            if let Some(at) = self.table.find(&self.domain, number)? {
                let Some(frame) = self.frames.get(at) else {
                    // All of it is written anew.
                    return self.enter_dram(number, at, Wanted::Full, true, |_, _, page| {
                        let masks = page.frame.masks.as_deref();
                        masks.into_iter().for_each(|masks| masks.mark_all(&self.domain));
                        Ok(())
                    });
                };
                let version = frame.latch.version(&self.domain)?;
                let page = OptimisticPage { manager: self, frame, version };
                return Ok(page.exclusive()?);
            }
            let page = self.take_frame(Wanted::Full)?;
            page.frame.set_page(&self.domain, Some(number));
            if !self.table.insert(&self.domain, number, page.at()) {
                page.frame.set_page(&self.domain, None);
                return Err(Restart.into());
            }
            Ok(page)
        })?;
        page.unswizzle_all();
        page.write_unlogged().begin(kind, number);
        page.write(lsn);
        Ok(page)
    }

    /// Frees a page, by the change `lsn` of the log (0 if there is none). Its parent refers to it no
    /// more, or by its number.
    ///
    /// # Errors
    /// [`BufferError::StillReferredTo`], [`SpaceError::NotInUse`].
    pub fn free_page(&self, page: ExclusivePage<'_, D>, lsn: u64) -> Result<(), BufferError> {
        self.free_by(page, |number| self.give_back(number, lsn))
    }

    /// Takes back a page of [`BufferManager::reserve_page`] that nobody came to know of: neither the log nor the
    /// device has anything of it, so it may be given out again at once.
    ///
    /// # Errors
    /// [`BufferError::StillReferredTo`].
    pub fn unreserve_page(&self, page: ExclusivePage<'_, D>) -> Result<(), BufferError> {
        self.free_by(page, |number| self.unreserve(number))
    }

    fn free_by(
        &self,
        mut page: ExclusivePage<'_, D>,
        give_back: impl FnOnce(PageNumber) -> Result<(), BufferError>,
    ) -> Result<(), BufferError> {
        let (domain, frame, number) = (&self.domain, page.frame, page.number());
        if frame.parent(domain).is_some() {
            return Err(BufferError::StillReferredTo { number });
        }
        page.unswizzle_all();
        // First, so that nobody loads it who does not find it in the table.
        give_back(number)?;
        (page.changed, page.partial) = (true, false);
        self.count_unchanged(page.at());
        if !self.free_in_place(&page) {
            self.free_in_tier(page.at(), number);
            frame.set_page(domain, None);
        }
        Ok(())
    }

    /// Frees a page that nothing refers to any more, and that nobody will look for, without reading it.
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`].
    pub fn free_unread(&self, number: PageNumber, lsn: u64) -> Result<(), BufferError> {
        let found = self.retry(|| match self.table.find(&self.domain, number)? {
            Some(slot) if slot >= self.frames.len() => {
                self.free_unread_in_tier(number, slot, lsn).map(|()| Found::Freed)
            }
            Some(_) => Ok(Found::InDram(self.fix(number)?.exclusive()?)),
            None => Ok(Found::Nowhere),
        });
        match found? {
            Found::InDram(page) => self.free_page(page, lsn),
            Found::Freed => Ok(()),
            Found::Nowhere => self.give_back(number, lsn),
        }
    }

    fn unreserve(&self, number: PageNumber) -> Result<(), BufferError> {
        match &self.storage {
            Storage::Space(space) => {
                space.unreserve(number);
                Ok(())
            }
            Storage::None(_) => self.give_back(number, 0),
        }
    }

    pub(super) fn give_back(&self, number: PageNumber, lsn: u64) -> Result<(), BufferError> {
        match &self.storage {
            Storage::Space(space) => Ok(space.free(number, lsn)?),
            Storage::None(numbers) => {
                numbers.lock().free.insert(number);
                Ok(())
            }
        }
    }
}
