//! Latches: a version for those who read, a bit for the one who writes.
//!
//! After V. Leis, M. Haubenschild, T. Neumann, *Optimistic lock coupling*, IEEE Data Eng. Bull. 42
//! (2019), which appendix A.1 of the thesis asks for: readers do not write, they look at the version
//! before and after. There is no shared mode: what would want it (copying a page out to write it) takes a
//! microsecond, and a latch that is let go of without a change keeps its version, so that readers who
//! began before notice nothing.
//!
//! ```text
//!  63                                         2         1         0
//! +-------------------------------------------+---------+---------+------+
//! | version                                   | loading | partial | held |
//! +-------------------------------------------+---------+---------+------+
//! ```
//!
//! A frame that lacks lines of its page, or has room for a few only, is *partial*; while a reader loads some, nobody takes the latch
//! (`page/lines.rs`). *Partial* is part of what readers take for the version, *loading* is not. In a latch that is
//! held, *loading* says that a reader who lacked a line has given up.
//!
//! A reader loads the word (acquire), then relaxed words of the page, then an acquire fence and the word
//! again. A writer sets the bit (a locked instruction), a release fence, relaxed stores to the page, and
//! stores the next version (release). So a reader that saw any of the writer's stores sees the bit, or a
//! later version, when it looks again.

use core::sync::atomic::Ordering;

use lapis_pmem::{Domain, DramCell, Observed};

use crate::mutants::{GIVING_UP_UNNOTICED, LINE_LOADED_BESIDE_WRITERS};

/// What was read may have been changed meanwhile, or is being changed: begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was read has been changed meanwhile; begin again")]
pub struct Restart;

const HELD: u64 = 1;
const PARTIAL: u64 = 2;
const LOADING: u64 = 4;
const NEXT_VERSION: u64 = 8;

/// A version at which a latch was not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Version {
    /// Of whoever holds the latch: no reader has it.
    pub(crate) const HELD: Self = Self(HELD);

    #[inline]
    pub(crate) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// Whether the frame lacked lines of its page.
    #[inline]
    pub(crate) fn is_partial(self) -> bool {
        self.0 & PARTIAL != 0
    }
}

/// How an attempt to load lines began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    /// Until it is ended, nobody takes the latch.
    Begun,
    /// Somebody else is loading.
    Busy,
    /// The latch is held, or was since.
    Overtaken,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Latch<D: Domain>(DramCell<u64, D>);

impl<D: Domain> Latch<D> {
    /// The latch of a frame that lacks lines of its page or does not, and of whatever else, which does not.
    pub(crate) fn new(is_partial: bool) -> Self {
        Self(DramCell::new(if is_partial { PARTIAL } else { 0 }))
    }

    /// The version now, for a reader.
    #[inline]
    pub(crate) fn version(&self, domain: &D) -> Result<Version, Restart> {
        let word = self.0.load_acquire(domain);
        if word & HELD == 0 { Ok(Version(word & !LOADING)) } else { Err(Restart) }
    }

    /// Whether everything read since the latch had this version was as it was then.
    #[inline]
    pub(crate) fn validate(&self, domain: &D, version: Version) -> Result<(), Restart> {
        domain.order(Ordering::Acquire);
        if self.0.load(domain) & !LOADING == version.0 { Ok(()) } else { Err(Restart) }
    }

    /// Takes the latch, if it still has this version.
    #[inline]
    pub(crate) fn upgrade(&self, domain: &D, version: Version) -> Result<(), Restart> {
        self.0.compare_exchange(domain, version.0, version.0 | HELD).map_err(|_| Restart)?;
        domain.order(Ordering::Release);
        Ok(())
    }

    /// Takes the latch, if nobody holds it.
    pub(crate) fn try_take(&self, domain: &D) -> Result<Version, Restart> {
        let version = self.version(domain)?;
        self.upgrade(domain, version).map(|()| version)
    }

    /// At which it was taken by whoever holds it and asks.
    pub(crate) fn held(&self, domain: &D) -> Version {
        Version(self.0.load(domain) & !(HELD | LOADING))
    }

    /// Lets go of a latch that was taken at `version`. Returns the version from here on, which is
    /// another one if something has `changed`, or a reader who lacked lines has given up.
    #[inline]
    pub(crate) fn release(&self, domain: &D, version: Version, changed: bool) -> Version {
        if !changed && version.is_partial() {
            let held = version.0 | HELD;
            let untouched = self.0.compare_exchange(domain, held, version.0).is_ok();
            if untouched {
                return version;
            }
        }
        let changed = changed || version.is_partial() && !domain.commits(GIVING_UP_UNNOTICED);
        let next = Version(version.0.wrapping_add(if changed { NEXT_VERSION } else { 0 }));
        self.0.store_release(domain, next.0);
        next
    }

    /// Lets go of a latch that was taken at `version`, of a frame that is partial from here on or not.
    pub(crate) fn release_as(&self, domain: &D, version: Version, partial: bool) -> Version {
        let kind = if partial { PARTIAL } else { 0 };
        let next = Version((version.0 & !PARTIAL | kind).wrapping_add(NEXT_VERSION));
        self.0.store_release(domain, next.0);
        next
    }

    /// Keeps everybody from taking the latch, if it still has this version, to load lines.
    pub(crate) fn begin_loading(&self, domain: &D, version: Version) -> Loading {
        if domain.commits(LINE_LOADED_BESIDE_WRITERS) {
            return self.validate(domain, version).map_or(Loading::Overtaken, |()| Loading::Begun);
        }
        loop {
            match self.0.compare_exchange(domain, version.0, version.0 | LOADING) {
                Ok(_) => {
                    domain.order(Ordering::Release);
                    return Loading::Begun;
                }
                Err(found) if found == version.0 | LOADING => return Loading::Busy,
                // Who holds it is told that somebody has given up.
                Err(found) if found == version.0 | HELD => {
                    if self.0.compare_exchange(domain, found, found | LOADING).is_ok() {
                        return Loading::Overtaken;
                    }
                }
                Err(_) => return Loading::Overtaken,
            }
        }
    }

    /// Ends what [`Latch::begin_loading`] began. Readers begin again who `lack` what was to be loaded.
    pub(crate) fn end_loading(&self, domain: &D, version: Version, lack: bool) {
        let next = if lack { version.0.wrapping_add(NEXT_VERSION) } else { version.0 };
        if lack || !domain.commits(LINE_LOADED_BESIDE_WRITERS) {
            self.0.store_release(domain, next);
        }
    }
}

/// What is done between two attempts: more and more of nothing.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    attempts: u32,
}

impl Patience {
    const SPINS: u32 = 64;

    /// Waits a little. Returns how often it has.
    pub(crate) fn wait<D: Domain>(&mut self, domain: &D) -> u32 {
        self.attempts = self.attempts.saturating_add(1);
        if !D::DETERMINISTIC && self.attempts > Self::SPINS {
            // Whoever holds the latch may be waiting for the device.
            std::thread::yield_now();
        } else {
            Observed::pause(domain);
        }
        self.attempts
    }
}

#[cfg(all(test, loom))]
mod every_order;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn a_reader_notices_a_change_and_no_mere_holding() {
        let (domain, latch) = (test_domain(), Latch::new(false));
        let before = latch.version(&domain).unwrap();
        latch.upgrade(&domain, before).unwrap();
        assert_eq!(latch.version(&domain), Err(Restart));
        assert_eq!(latch.validate(&domain, before), Err(Restart));
        assert_eq!(latch.try_take(&domain), Err(Restart));
        assert_eq!(latch.release(&domain, before, false), before);
        assert_eq!(latch.validate(&domain, before), Ok(()));
        let taken = latch.try_take(&domain).unwrap();
        let after = latch.release(&domain, taken, true);
        assert_eq!(latch.validate(&domain, before), Err(Restart));
        assert_eq!(latch.validate(&domain, after), Ok(()));
        assert_eq!(latch.upgrade(&domain, before), Err(Restart));
    }

    #[test]
    fn who_loads_lines_keeps_writers_out_and_lets_readers_go_on() {
        let (domain, latch) = (test_domain(), Latch::new(false));
        let taken = latch.try_take(&domain).unwrap();
        let version = latch.release_as(&domain, taken, true);
        assert!(version.is_partial() && !taken.is_partial());
        assert_eq!(latch.begin_loading(&domain, version), Loading::Begun);
        assert_eq!(latch.begin_loading(&domain, version), Loading::Busy);
        assert_eq!(
            (latch.version(&domain), latch.validate(&domain, version)),
            (Ok(version), Ok(()))
        );
        assert_eq!(latch.try_take(&domain), Err(Restart));
        latch.end_loading(&domain, version, false);
        // Nobody notices what changes nothing.
        assert_eq!(latch.try_take(&domain), Ok(version));
        assert_eq!(latch.release(&domain, version, false), version);
        assert_eq!(latch.try_take(&domain), Ok(version));
        assert_eq!(latch.begin_loading(&domain, version), Loading::Overtaken);
        assert_eq!(latch.begin_loading(&domain, version), Loading::Overtaken);
        // Nothing has changed, but a reader may have given up.
        let next = latch.release(&domain, version, false);
        assert_eq!(latch.validate(&domain, version), Err(Restart));
        assert!(next.is_partial());
    }

    #[test]
    fn readers_never_accept_half_of_a_change() {
        let (domain, latch) = (test_domain(), Latch::new(false));
        let words = [const { AtomicU64::new(0) }; 8];
        let rounds: u64 = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut patience = Patience::default();
                        let version = loop {
                            match latch.try_take(&domain) {
                                Ok(version) => break version,
                                Err(Restart) => _ = patience.wait(&domain),
                            }
                        };
                        let next = words[0].load(Ordering::Relaxed) + 1;
                        words.iter().for_each(|word| word.store(next, Ordering::Relaxed));
                        latch.release(&domain, version, true);
                    }
                });
            }
            scope.spawn(|| {
                let mut accepted = 0;
                while accepted < rounds / 10 {
                    let Ok(version) = latch.version(&domain) else { continue };
                    let seen = words.each_ref().map(|word| word.load(Ordering::Relaxed));
                    if latch.validate(&domain, version).is_ok() {
                        assert_eq!(seen, [seen[0]; 8]);
                        accepted += 1;
                    }
                }
            });
        });
        assert_eq!(words[0].load(Ordering::Relaxed), 2 * rounds);
    }
}
