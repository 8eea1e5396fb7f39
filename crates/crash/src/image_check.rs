//! Recovering on one image and asking the oracle.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use lapis_device::{
    Config, CrashPoints, CrashStates, Event, ImageBudget, LineBytes, LineRead, Marker, Modelled,
    PowerFailDomain, Trace, set_current_worker, write_line,
};
use lapis_pmem::{LINE_BYTES, Pool, PoolError, Region};
use xxhash_rust::xxh3::Xxh3;

use crate::options::ExploreOptions;
use crate::oracle::{Failure, difference};
use crate::strategy::Strategy;
use crate::subject::{Live, Subject, is_interrupted_creation};

/// What a crash point allows.
pub(crate) struct Expectation<'r, S: Subject> {
    /// The state after the last acknowledged operation; none while the creation is in flight.
    pub(crate) acknowledged: Option<&'r S::State>,
    /// The state after the operation in flight, if one is.
    pub(crate) in_flight: Option<&'r S::State>,
    /// The operation in flight.
    pub(crate) interrupted: Option<&'r S::Operation>,
    /// A clean shutdown has been acknowledged, so that nothing may have to be recovered.
    pub(crate) shut_down: bool,
}

impl<S: Subject> Clone for Expectation<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Subject> Copy for Expectation<'_, S> {}

impl<S: Subject> Expectation<'_, S> {
    fn allows(&self, state: &S::State) -> bool {
        self.acknowledged == Some(state) || self.in_flight == Some(state)
    }

    fn listed(&self) -> Vec<&S::State> {
        self.acknowledged.into_iter().chain(self.in_flight).collect()
    }
}

/// A scratch machine on which images are recovered one after the other.
pub(crate) struct Bench {
    pub(crate) region: Region,
    /// Only tracks, and watches reads.
    light: Modelled,
    /// Tracks and records, for crashes during recovery.
    recording: Modelled,
    options: ExploreOptions,
    /// Lines that checks have put back to what they held.
    pub(crate) lines_copied: u64,
}

/// What a recovery came to: the state, or none if there was nothing yet.
pub(crate) type Recovered<S> = Result<Option<<S as Subject>::State>, Failure>;

impl Bench {
    /// A machine whose memory holds `base`.
    pub(crate) fn new(
        base: &[u8],
        reserve_bytes: usize,
        options: &ExploreOptions,
    ) -> Result<Self, String> {
        let region = Region::anonymous(base.len(), reserve_bytes).map_err(|e| e.to_string())?;
        // SAFETY: freshly mapped, that long, and not used by anybody yet.
        unsafe { region.base().copy_from_nonoverlapping(base.as_ptr(), base.len()) };
        let watching = options.strategy == Strategy::Pruned;
        let light = Modelled::over(&region, options.on(Config { watching, ..Config::tracking() }));
        let recording = Modelled::over(&region, options.on(Config::tracking_and_tracing()));
        Ok(Self { region, light, recording, options: options.clone(), lines_copied: 0 })
    }

    /// Watches the reads of the lines that have several states.
    pub(crate) fn watch(&self, states: &CrashStates<'_>) {
        self.light.watch_reads(states.uncertain_lines().into_iter().flatten());
    }

    /// Takes what the last check read of them.
    pub(crate) fn take_reads(&self, reads: &mut Vec<LineRead>) {
        self.light.take_reads(reads);
    }

    /// Checks the image that the region holds, and leaves the region as it was.
    pub(crate) fn check<S: Subject>(
        &mut self,
        subject: &S,
        expectation: Expectation<'_, S>,
        seed: u64,
    ) -> Recovered<S> {
        let storage = Storage::of(&self.region);
        // SAFETY: the pools made from the alias are dropped within the call.
        let result = guarded(|| unsafe {
            recover(subject, &storage, &self.light, expectation, seed, false)
        });
        self.lines_copied += self.light.revert(&mut self.region) as u64;
        result
    }

    /// Cuts the power again during the recovery from what the region holds and during the
    /// operations after it, and checks every image of that. Leaves the region as it was.
    pub(crate) fn check_second_crash<S: Subject>(
        &mut self,
        subject: &S,
        first: FirstCrash<'_>,
        expectation: Expectation<'_, S>,
        seed: u64,
        budget: ImageBudget,
    ) -> Result<SecondCrash, Failure> {
        let mapped = self.region.mapped_bytes();
        // After a kill another process goes on, whose fences do not complete what the first one
        // has flushed.
        set_current_worker(u8::from(matches!(first, FirstCrash::Killed { .. })));
        let storage = Storage::of(&self.region);
        // SAFETY: the pools made from the alias are dropped within the call.
        let recovered = guarded(|| unsafe {
            recover(subject, &storage, &self.recording, expectation, seed, true)
        });
        let grown = storage.mapped.get();
        set_current_worker(0);
        let recovery = self.recording.take_trace();
        self.recording.revert(&mut self.region);
        let Some(start) = recovered? else { return Ok(SecondCrash::default()) };

        // The states that the probes went through, from where recovery ended up.
        let probes =
            subject.probes(&start, expectation.interrupted, seed_after_recovery(seed, &start));
        let mut states = vec![start];
        for probe in &probes {
            let mut state = states[states.len() - 1].clone();
            subject.apply(&mut state, probe);
            states.push(state);
        }
        let course = Course { expectation, states, probes };
        let images = match first {
            FirstCrash::PowerCut => {
                self.region.grow_to(grown).map_err(region_failure)?;
                // SAFETY: mapped, and what the recovery is about to be traced over is copied from
                // it before anything changes it.
                let points = unsafe {
                    let image = std::slice::from_raw_parts(self.region.base(), mapped);
                    CrashPoints::new(&recovery, image, PowerFailDomain::AdrPortable)
                };
                self.follow(subject, points, &recovery, 0, &course, seed, budget)?
            }
            FirstCrash::Killed { trace, position, base } => {
                let trace = continued(trace, position, recovery);
                let options = &self.options;
                let mut from_start = Self::new(base, self.region.reserved_bytes(), options)
                    .map_err(|what| Failure::Open { what })?;
                from_start.region.grow_to(grown).map_err(region_failure)?;
                let points = CrashPoints::new(&trace, base, PowerFailDomain::AdrPortable);
                from_start.follow(subject, points, &trace, position, &course, seed, budget)?
            }
        };
        Ok(SecondCrash { images, grew: grown > mapped })
    }

    /// Checks the images of the crash points behind the first `begin` events; returns how many.
    #[allow(clippy::too_many_arguments)]
    fn follow<S: Subject>(
        &mut self,
        subject: &S,
        mut points: CrashPoints<'_>,
        trace: &Trace,
        begin: usize,
        course: &Course<'_, S>,
        seed: u64,
        budget: ImageBudget,
    ) -> Result<u64, Failure> {
        let mut overwritten = HashMap::new();
        let (mut images, mut ended, mut seen) = (0, 0, begin);
        let mut outcome = Ok(());
        while let Some(point) = points.advance() {
            for (line, _) in points.newly_durable() {
                overwritten.entry(line).or_insert_with(|| read_line(&self.region, line));
            }
            points.bring_up_to_date(&mut self.region).map_err(region_failure)?;
            if point.position <= begin {
                continue;
            }
            for event in &trace.events[seen..point.position] {
                if let Event::Marker { marker: Marker::End(number), .. } = event {
                    ended = *number as usize;
                }
            }
            seen = point.position;
            let crash_states = points.states();
            for image in crash_states.images(budget) {
                images += 1;
                crash_states.apply(&image, &mut self.region).map_err(region_failure)?;
                let result = self.check(subject, course.after(ended), seed ^ images);
                crash_states.revert(&image, &mut self.region).map_err(region_failure)?;
                outcome = result.map(|_| ()).map_err(|failure| Failure::DuringRecovery {
                    what: format!(
                        "(event {}, {:?}, image {:?}) {failure}",
                        point.position,
                        point.cause,
                        image.choices()
                    ),
                });
                if outcome.is_err() {
                    break;
                }
            }
            if outcome.is_err() {
                break;
            }
        }
        for (line, bytes) in overwritten {
            write_line(&mut self.region, line, &bytes).map_err(region_failure)?;
        }
        outcome.map(|()| images)
    }
}

/// What came of a crash during a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SecondCrash {
    /// Images tried.
    pub(crate) images: u64,
    /// The pool's storage grew after the first crash.
    pub(crate) grew: bool,
}

/// What a recovery and the operations after it lead through.
struct Course<'r, S: Subject> {
    expectation: Expectation<'r, S>,
    /// The state after the recovery, and after each probe.
    states: Vec<S::State>,
    probes: Vec<S::Operation>,
}

impl<S: Subject> Course<'_, S> {
    /// What a crash allows after so many ends: of the recovery first, then of the probes.
    fn after(&self, ended: usize) -> Expectation<'_, S> {
        match ended.checked_sub(1) {
            None => Expectation { shut_down: false, ..self.expectation },
            Some(last) => Expectation {
                acknowledged: Some(&self.states[last]),
                in_flight: self.states.get(ended),
                interrupted: self.probes.get(last),
                shut_down: false,
            },
        }
    }
}

fn read_line(region: &Region, line: u32) -> LineBytes {
    let offset = line as usize * LINE_BYTES;
    if offset + LINE_BYTES > region.mapped_bytes() {
        return [0; LINE_BYTES];
    }
    // SAFETY: mapped, and only the caller uses the region.
    unsafe { region.base().add(offset).cast::<LineBytes>().read() }
}

/// The memory that recoveries take place on: a region, and how much of it pools have mapped beyond
/// what it knows of, by growing.
struct Storage<'r> {
    region: &'r Region,
    mapped: Cell<usize>,
}

impl<'r> Storage<'r> {
    fn of(region: &'r Region) -> Self {
        Self { region, mapped: Cell::new(region.mapped_bytes()) }
    }

    /// # Safety
    /// As for [`Region::alias`].
    unsafe fn alias(&self) -> Region {
        // SAFETY: as the caller vouches; the last pool had so much mapped.
        unsafe { self.region.alias_of(self.mapped.get()) }
    }

    fn note<O, T>(&self, live: &impl Live<O, T>) {
        self.mapped.set(live.pool().region().mapped_bytes());
    }
}

/// What happened before a recovery during which the power is cut.
#[derive(Clone, Copy)]
pub(crate) enum FirstCrash<'t> {
    /// The power was cut: what had not persisted is gone.
    PowerCut,
    /// The process was killed and the machine ran on: what had not persisted is in the caches, and
    /// may yet be lost.
    Killed {
        /// What the first process did.
        trace: &'t Trace,
        /// Events of it that happened.
        position: usize,
        /// What the memory held before.
        base: &'t [u8],
    },
}

/// The first `position` events of `trace`, and then `recovery`.
fn continued(trace: &Trace, position: usize, recovery: Trace) -> Trace {
    let offset = trace.points.len() as u16;
    let mut events = trace.events[..position].to_vec();
    events.extend(recovery.events.into_iter().map(|event| match event {
        Event::Flush { worker, point, line } => {
            Event::Flush { worker, point: point + offset, line }
        }
        Event::Fence { worker, point } => Event::Fence { worker, point: point + offset },
        other => other,
    }));
    let points = [&trace.points[..], &recovery.points[..]].concat();
    Trace { events, points }
}

fn region_failure(error: lapis_pmem::RegionError) -> Failure {
    Failure::Open { what: error.to_string() }
}

/// Opens the pool and the structure on the memory of `region`; none if there is nothing yet.
///
/// # Safety
/// Nothing else uses the memory while what is returned lives.
unsafe fn open<S: Subject>(
    subject: &S,
    storage: &Storage<'_>,
    domain: &Modelled,
    expectation: Expectation<'_, S>,
) -> Result<Option<S::Live>, Failure> {
    // SAFETY: as the caller vouches.
    let pool = match Pool::open(unsafe { storage.alias() }, domain.clone()) {
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
    pool.abandon();
    if expectation.shut_down && (!pool.opened_clean() || pool.needs_reclaim()) {
        let what = "a clean shutdown was acknowledged and is not remembered".to_owned();
        return Err(Failure::Open { what });
    }
    subject.open(pool).map_err(|what| Failure::Open { what })
}

/// Recovers on the memory of `region` and asks everything the oracle asks.
///
/// With `stop_early` only the recovery and the probes are run, each followed by an end marker
/// (number 1 for the recovery, then one per probe), for the sake of their trace.
///
/// # Safety
/// Nothing else uses the memory of `region` during the call.
unsafe fn recover<S: Subject>(
    subject: &S,
    storage: &Storage<'_>,
    domain: &Modelled,
    expectation: Expectation<'_, S>,
    seed: u64,
    stop_early: bool,
) -> Recovered<S> {
    // SAFETY: as the caller vouches; the pools are dropped before this function returns.
    let open = |expectation| unsafe { open(subject, storage, domain, expectation) };
    let Some(mut live) = open(expectation)? else {
        return if expectation.acknowledged.is_none() { Ok(None) } else { Err(Failure::Gone) };
    };
    let mut state = live.observe().map_err(|what| Failure::Contents { what })?;
    if !expectation.allows(&state) {
        let what = difference(&state, &expectation.listed());
        return Err(Failure::Contents { what });
    }
    let recovered = state.clone();
    let seed = seed_after_recovery(seed, &recovered);
    if stop_early {
        domain.mark(Marker::End(1));
    } else {
        check(&live)?;
        if seed.is_multiple_of(2) {
            // The other half goes on without having found its free space again.
            audit(&live)?;
        }
        storage.note(&live);
        drop(live);
        // A second recovery changes nothing.
        live = open(Expectation { shut_down: false, ..expectation })?.ok_or(Failure::Gone)?;
        let again = live.observe().map_err(|what| Failure::NotIdempotent { what })?;
        if again != recovered {
            let what = difference(&again, &[&recovered]);
            return Err(Failure::NotIdempotent { what });
        }
    }
    // It still works.
    for (index, probe) in
        subject.probes(&recovered, expectation.interrupted, seed).iter().enumerate()
    {
        live.perform(probe)
            .map_err(|what| Failure::Broken { what: format!("{probe:?}: {what}") })?;
        subject.apply(&mut state, probe);
        if stop_early {
            domain.mark(Marker::End(index as u32 + 2));
        }
    }
    storage.note(&live);
    if !stop_early {
        let found = live.observe().map_err(|what| Failure::Broken { what })?;
        if found != state {
            let what = difference(&found, &[&state]);
            return Err(Failure::Broken { what });
        }
        check(&live)?;
        audit(&live)?;
    }
    Ok(Some(recovered))
}

/// What is tried after a recovery depends on the crash point and on what was recovered, and on
/// nothing else of the image: images that recovery cannot tell apart come out alike.
fn seed_after_recovery<T: Hash>(seed: u64, state: &T) -> u64 {
    let mut hasher = Xxh3::with_seed(seed);
    state.hash(&mut hasher);
    hasher.digest()
}

fn check<O, T>(live: &impl Live<O, T>) -> Result<(), Failure> {
    match live.check().into_iter().next() {
        Some(what) => Err(Failure::Invariant { what }),
        None => Ok(()),
    }
}

fn audit<O, T>(live: &impl Live<O, T>) -> Result<(), Failure> {
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

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Turns a panic of `check` into a failure. The message is not printed: a checker that tries a
/// million images on a faulty structure would print a million of them.
pub(crate) fn guarded<T>(check: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(check));
    QUIET.set(false);
    result.unwrap_or_else(|payload| {
        let what = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "for an unknown reason".to_owned());
        Err(Failure::Panic { what })
    })
}
