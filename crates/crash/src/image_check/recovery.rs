//! Recovering on the memory of one image, and asking what the oracle asks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lapis_device::{Marker, Modelled, ModelledSsd};
use lapis_pmem::{Pool, PoolError, Region};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::expectation::{Expectation, Recovered};
use crate::erased::{AnyLive, AnyState, AnySubject};
use crate::oracle::{Failure, difference};
use crate::storage::Storage;
use crate::subject::{WalkMemory, is_interrupted_creation};

/// The memory that recoveries take place on: a region, and how much of it pools have mapped beyond
/// what it knows of, by growing.
pub(super) struct Scratch<'r> {
    region: &'r Region,
    devices: &'r [ModelledSsd],
    walks: Option<&'r Rc<dyn WalkMemory>>,
    pub(super) mapped: Cell<usize>,
    /// The pool was opened once.
    has_opened: Cell<bool>,
    /// Entries of the log of reads when operations were first tried.
    pub(super) reads_before_operations: Cell<Option<usize>>,
    /// For [`Extent::Operations`]: the state after the recovery, and after each operation that was tried.
    pub(super) states: RefCell<Vec<AnyState>>,
    /// That of the image before after the operations: memory for the next.
    last_state: &'r Cell<Option<AnyState>>,
}

impl<'r> Scratch<'r> {
    pub(super) fn of(
        region: &'r Region,
        devices: &'r [ModelledSsd],
        last_state: &'r Cell<Option<AnyState>>,
    ) -> Self {
        let mapped = Cell::new(region.mapped_bytes());
        let (walks, has_opened, reads_before_operations, states) = Default::default();
        Self {
            region,
            devices,
            walks,
            mapped,
            has_opened,
            reads_before_operations,
            states,
            last_state,
        }
    }

    /// The same, with walks over the structure that may leave out what is known.
    pub(super) fn remembering(self, walks: Option<&'r Rc<dyn WalkMemory>>) -> Self {
        Self { walks, ..self }
    }

    /// # Safety
    /// As for [`Region::alias`].
    unsafe fn alias(&self) -> Region {
        // SAFETY: as the caller vouches; the last pool had so much mapped.
        unsafe { self.region.alias_of(self.mapped.get()) }
    }

    fn note(&self, live: &AnyLive) {
        if let Some(pool) = live.pool() {
            self.mapped.set(pool.region().mapped_bytes());
        }
    }
}

/// Opens the pool and the structure on the memory of `region`; none if there is nothing yet.
///
/// # Safety
/// Nothing else uses the memory while what is returned lives.
pub(super) unsafe fn open(
    subject: &dyn AnySubject,
    scratch: &Scratch<'_>,
    domain: &Modelled,
    expectation: Expectation<'_>,
) -> Result<Option<AnyLive>, Failure> {
    // SAFETY: as the caller vouches.
    let open_pool = || Pool::open(unsafe { scratch.alias() }, domain.clone());
    let pool = match (subject.pool_bytes() > 0).then(open_pool).transpose() {
        Ok(pool) => pool,
        Err(error) if is_interrupted_creation(&error) => return Ok(None),
        // The creation has not begun to show, and what was there before does.
        Err(PoolError::NotAPool)
            if expectation.acknowledged.is_none() && subject.prior_contents() != 0 =>
        {
            return Ok(None);
        }
        Err(error) => return Err(Failure::Open { what: error.to_string() }),
    };
    if let Some(pool) = &pool {
        pool.abandon();
        // What a power cut has left shows the first time.
        let is_first = !scratch.has_opened.replace(true);
        if is_first && pool.roots().iter().any(|(name, ..)| name.is_empty()) {
            let what = "H4: the pool has a root without a name".to_owned();
            return Err(Failure::Invariant { what });
        }
        if expectation.shut_down && (!pool.opened_clean() || pool.needs_reclaim()) {
            let what = "a clean shutdown was acknowledged and is not remembered".to_owned();
            return Err(Failure::Open { what });
        }
    }
    let devices = scratch.devices.to_vec();
    let storage = Storage { pool, devices, machine: domain.clone() };
    let mut live = subject.open(storage).map_err(|what| Failure::Open { what })?;
    if let (Some(live), Some(walks)) = (&mut live, scratch.walks) {
        live.remember_walks(walks);
    }
    Ok(live)
}

/// How far [`recover`] goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Only the recovery and the probes are run, each followed by an end marker (number 1 for the
    /// recovery, then one per probe), for the sake of their trace.
    Operations,
    /// The contents are compared, and for one in so many everything the oracle asks is asked.
    Check { whole_check_every: u64 },
    /// What was acknowledged is known to be there, at a second opening too, and to be in order: the
    /// rest of the check.
    CheckOperations,
}

/// Recovers on the memory of `region` and asks what the oracle asks.
///
/// # Safety
/// Nothing else uses the memory of `region` during the call.
pub(super) unsafe fn recover<'r>(
    subject: &dyn AnySubject,
    scratch: &Scratch<'_>,
    domain: &Modelled,
    expectation: Expectation<'r>,
    seed: u64,
    extent: Extent,
) -> Recovered<'r> {
    // SAFETY: as the caller vouches; the pools are dropped before this function returns.
    let open = |expectation| unsafe { open(subject, scratch, domain, expectation) };
    let Some(mut live) = open(expectation)? else {
        return if expectation.acknowledged.is_none() { Ok(None) } else { Err(Failure::Gone) };
    };
    let recovered = match (extent, expectation.acknowledged) {
        (Extent::CheckOperations, Some(known)) => known,
        _ => expectation.find(&live, seed)?,
    };
    let seed = seed_after_recovery(seed, recovered.hash);
    if let Extent::Check { whole_check_every } = extent
        && !is_checked_whole(seed, whole_check_every)
    {
        scratch.note(&live);
        return Ok(Some(recovered));
    }
    if extent == Extent::Operations {
        domain.mark(Marker::End(1));
        scratch.states.borrow_mut().push(recovered.state.clone());
    } else {
        if extent != Extent::CheckOperations {
            // The other half goes on without having found its free space again.
            let audits = seed.is_multiple_of(2);
            if !(audits && live.audit_checks()) {
                check(&live)?;
            }
            if audits {
                audit(&live)?;
            }
        }
        scratch.note(&live);
        drop(live);
        // A second recovery changes nothing.
        live = open(Expectation { shut_down: false, ..expectation })?.ok_or(Failure::Gone)?;
        if extent != Extent::CheckOperations {
            holds(&live, recovered.state, seed, |what| Failure::NotIdempotent { what })?;
        }
        scratch.reads_before_operations.set(Some(domain.read_count()));
    }
    // It still works.
    let mut state = scratch.last_state.take().unwrap_or_else(|| recovered.state.clone());
    state.become_copy_of(recovered.state);
    let probes = subject.probes(recovered.state, expectation.interrupted, seed);
    // Of every other image: it is opened once more when so many have been tried.
    let draw = |bits: u32, every: usize| {
        (seed.rotate_left(bits) % (every * probes.len().max(1)) as u64) as usize
    };
    let tried_before_opening = 1 + draw(24, 2);
    // Of one in eight: its free space is found again then, as a pool in use does in the background. What the others make of
    // that is compared in the end.
    let tried_before_reclaiming = draw(48, 8);
    for (index, probe) in probes.iter().enumerate() {
        if index == tried_before_reclaiming {
            audit(&live)?;
        }
        live.perform(probe)
            .map_err(|what| Failure::Broken { what: format!("{probe:?}: {what}") })?;
        if !live.was_refused() {
            subject.apply(&mut state, probe);
        }
        if extent != Extent::Operations && index + 1 == tried_before_opening {
            // What a power cut has left may harm what was written after it, once it is recovered from again.
            scratch.note(&live);
            // Every other one is shut down cleanly, with its free space found again or not.
            if let (true, Some(pool)) = (seed.rotate_left(40).is_multiple_of(2), live.pool()) {
                pool.keep();
            }
            drop(live);
            live = open(Expectation { shut_down: false, ..expectation })?.ok_or(Failure::Gone)?;
            holds(&live, &state, seed, |what| Failure::Broken {
                what: format!("opened again after {} operations: {what}", index + 1),
            })?;
        }
        if extent == Extent::Operations {
            domain.mark(Marker::End(index as u32 + 2));
            scratch.states.borrow_mut().push(state.clone());
        }
    }
    scratch.note(&live);
    if extent != Extent::Operations {
        holds(&live, &state, seed.rotate_left(32), |what| Failure::Broken { what })?;
        if !live.audit_checks() {
            check(&live)?;
        }
        audit(&live)?;
    }
    scratch.last_state.set(Some(state));
    Ok(Some(recovered))
}

/// What is tried after a recovery depends on the operation in flight, or the last one, and on what
/// was recovered, and on nothing else: images that recovery cannot tell apart come out alike.
pub(crate) fn seed_after_recovery(seed: u64, state_hash: u64) -> u64 {
    xxh3_64_with_seed(&state_hash.to_le_bytes(), seed)
}

/// Whether an image with this [`seed_after_recovery`] is among those checked whole.
pub(crate) fn is_checked_whole(seed: u64, whole_check_every: u64) -> bool {
    whole_check_every <= 1 || seed.rotate_left(16).is_multiple_of(whole_check_every)
}

/// `state` is what is there.
fn holds(
    live: &AnyLive,
    state: &AnyState,
    turn: u64,
    failure: impl Fn(String) -> Failure,
) -> Result<(), Failure> {
    if live.find(&[state], turn).map_err(&failure)?.is_some() {
        return Ok(());
    }
    let found = live.observe().map_err(&failure)?;
    Err(failure(difference(&found, &[state])))
}

fn check(live: &AnyLive) -> Result<(), Failure> {
    match live.check().into_iter().next() {
        Some(what) => Err(Failure::Invariant { what }),
        None => Ok(()),
    }
}

fn audit(live: &AnyLive) -> Result<(), Failure> {
    let audit = live.reclaim_and_audit();
    if let Some(problem) = audit.problems.first() {
        return Err(Failure::Space { what: problem.to_string() });
    }
    if let Some(offset) = audit.unallocated.first() {
        let what = format!("the block at {offset:#x} is reachable but free");
        return Err(Failure::Space { what });
    }
    if let Some(offset) = audit.leaked.first() {
        let count = audit.leaked.len();
        let what = format!("{count} blocks are allocated but unreachable, at {offset:#x} first");
        return Err(Failure::Space { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Expectation;
    use crate::explore::explore_any;
    use crate::faulty_sum::FaultySum;
    use crate::options::ExploreOptions;
    use crate::run::Run;

    #[test]
    fn what_is_not_there_at_the_next_opening_is_found() {
        let options =
            ExploreOptions { ops: 4, crash_in_recovery_every: 0, ..ExploreOptions::default() };
        let report = explore_any(&FaultySum::Forgetful, &options, &|_| {}).unwrap();
        let what = &report.violations[0].what;
        let expected = "it no longer works: opened again after 1 operations: found ";
        assert!(what.starts_with(expected), "{what}");
    }

    #[test]
    fn a_root_without_a_name_is_found() {
        let (subject, options) =
            (FaultySum::WornOut, ExploreOptions { ops: 1, ..Default::default() });
        let run = Run::record(&subject, &options).unwrap();
        let mut checker = run.checker(&subject, &options).unwrap();
        let mut points = run.crash_points(&options);
        while points.advance().is_some() {
            checker.bring_up_to_date(&points).unwrap();
        }
        let known = run.known(1);
        let expectation = Expectation {
            acknowledged: Some(known),
            in_flight: None,
            interrupted: None,
            shut_down: false,
        };
        assert!(checker.check(&subject, expectation, 1, 1).is_ok());
        let bytes = checker.contents().memory;
        let name = bytes.windows(8).position(|it| it == b"sum\0\0\0\0\0").unwrap();
        // SAFETY: mapped, and nobody else uses the region.
        unsafe { checker.region.base().add(name).write_bytes(0, 8) };
        let Err(failure) = checker.check(&subject, expectation, 1, 1) else { panic!("it is not") };
        let what = "an invariant is broken: H4: the pool has a root without a name";
        assert_eq!(failure.to_string(), what);
    }
}
