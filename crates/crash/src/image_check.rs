//! Recovering on one image and asking the oracle.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

use lapis_device::{
    Config, CrashPoints, CrashStates, Event, ImageBudget, LineBytes, LineRead, Marker, Modelled,
    PersistPointCount, PowerFailDomain, Trace, set_current_worker, write_line,
};
use lapis_pmem::{LINE_BYTES, Pool, PoolError, Region};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::options::ExploreOptions;
use crate::oracle::{Failure, difference};
use crate::strategy::Strategy;
use crate::subject::{Live, Subject, WalkMemory, is_interrupted_creation};

/// A state that a crash allows.
pub(crate) struct Known<'r, T> {
    pub(crate) state: &'r T,
    /// Of the state.
    pub(crate) hash: u64,
}

impl<T> Clone for Known<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Known<'_, T> {}

impl<'r, T: Hash> Known<'r, T> {
    fn new(state: &'r T) -> Self {
        Self { state, hash: hash_of(state) }
    }
}

pub(crate) fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = Xxh3::new();
    value.hash(&mut hasher);
    hasher.digest()
}

/// What a crash point allows.
pub(crate) struct Expectation<'r, S: Subject> {
    /// The state after the last acknowledged operation; none while the creation is in flight.
    pub(crate) acknowledged: Option<Known<'r, S::State>>,
    /// The state after the operation in flight, if one is.
    pub(crate) in_flight: Option<Known<'r, S::State>>,
    /// The operation in flight, or else the last one: others are tried around it.
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

impl<'r, S: Subject> Expectation<'r, S> {
    /// Which of the states has this hash.
    pub(crate) fn of_hash(&self, hash: u64) -> Option<Known<'r, S::State>> {
        self.acknowledged.into_iter().chain(self.in_flight).find(|known| known.hash == hash)
    }

    /// Which of the states is what is there.
    fn find(&self, live: &S::Live, turn: u64) -> Result<Known<'r, S::State>, Failure> {
        let contents = |what| Failure::Contents { what };
        let found = match (self.acknowledged, self.in_flight) {
            (Some(one), Some(other)) => {
                let found = live.find(&[one.state, other.state], turn).map_err(contents)?;
                found.map(|number| if number == 0 { one } else { other })
            }
            (one, other) => match one.or(other) {
                Some(only) => live.find(&[only.state], turn).map_err(contents)?.map(|_| only),
                None => None,
            },
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let allowed: Vec<_> =
            self.acknowledged.into_iter().chain(self.in_flight).map(|known| known.state).collect();
        let found = live.observe().map_err(contents)?;
        Err(contents(difference(&found, &allowed)))
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
    /// What walks over the structure may leave out, if whoever checks keeps it true.
    pub(crate) walks: Option<Rc<dyn WalkMemory>>,
    /// Lines that checks have put back to what they held.
    pub(crate) lines_copied: u64,
}

/// What a recovery came to: the state, or none if there was nothing yet.
pub(crate) type Recovered<'r, S> = Result<Option<Known<'r, <S as Subject>::State>>, Failure>;

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
        Ok(Self { region, light, recording, options: options.clone(), walks: None, lines_copied: 0 })
    }

    /// Watches the reads of the lines that have several states.
    pub(crate) fn watch(&self, states: &CrashStates<'_>) {
        self.light.watch_reads(states.uncertain_lines().into_iter().flatten());
    }

    /// Watches the reads of these lines, which are in ascending order.
    pub(crate) fn watch_lines(&self, lines: &[u32]) {
        self.light.watch_reads(lines.iter().copied());
    }

    /// Takes what the last check read of them.
    pub(crate) fn take_reads(&self, reads: &mut Vec<LineRead>) {
        self.light.take_reads(reads);
    }

    /// The persist points that checks have passed, and how often.
    pub(crate) fn persist_points(&self) -> Vec<PersistPointCount> {
        self.light.persist_points()
    }

    /// Checks the image that the region holds, and leaves the region as it was. One in
    /// `whole_check_every` of what may have been recovered is checked whole.
    pub(crate) fn check<'r, S: Subject>(
        &mut self,
        subject: &S,
        expectation: Expectation<'r, S>,
        seed: u64,
        whole_check_every: u64,
    ) -> Recovered<'r, S> {
        self.check_to(subject, expectation, seed, Extent::Check { whole_check_every }).0
    }

    /// [`Bench::check`], of which only the operations, and everything after them, are left to do:
    /// that the rest is in order and `recovered` is what is there, is known. Says how much had been
    /// read before the operations; none if they were not tried.
    pub(crate) fn check_from<'r, S: Subject>(
        &mut self,
        subject: &S,
        expectation: Expectation<'r, S>,
        seed: u64,
        whole_check_every: u64,
        recovered: Option<Known<'r, S::State>>,
    ) -> (Recovered<'r, S>, Option<usize>) {
        match recovered {
            None => {
                let extent = Extent::Check { whole_check_every };
                self.check_to(subject, expectation, seed, extent)
            }
            Some(recovered) => {
                // What is there then need not be found out.
                let expectation =
                    Expectation { acknowledged: Some(recovered), in_flight: None, ..expectation };
                self.check_to(subject, expectation, seed, Extent::CheckOperations)
            }
        }
    }

    fn check_to<'r, S: Subject>(
        &mut self,
        subject: &S,
        expectation: Expectation<'r, S>,
        seed: u64,
        extent: Extent,
    ) -> (Recovered<'r, S>, Option<usize>) {
        let storage = Storage { walks: self.walks.as_ref(), ..Storage::of(&self.region) };
        // SAFETY: the pools made from the alias are dropped within the call.
        let result = guarded(|| unsafe {
            recover(subject, &storage, &self.light, expectation, seed, extent)
        });
        let reads_before_operations = storage.reads_before_operations.get();
        self.lines_copied += self.light.revert(&mut self.region) as u64;
        (result, reads_before_operations)
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
            recover(subject, &storage, &self.recording, expectation, seed, Extent::Operations)
        });
        let grown = storage.mapped.get();
        set_current_worker(0);
        let recovery = self.recording.take_trace();
        self.recording.revert(&mut self.region);
        let Some(recovered) = recovered? else { return Ok(SecondCrash::default()) };

        // The states that the probes went through, from where recovery ended up.
        let seed_of_probes = seed_after_recovery(seed, recovered.hash);
        let probes = subject.probes(recovered.state, expectation.interrupted, seed_of_probes);
        let mut states = vec![recovered.state.clone()];
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
                let result = self.check(subject, course.after(ended), seed ^ images, 1);
                crash_states.revert(&image, &mut self.region).map_err(region_failure)?;
                outcome = result.map(|_| ()).map_err(|failure| Failure::DuringRecovery {
                    what: format!(
                        "(event {}, {:?}, image {:?}) {failure}",
                        point.position,
                        point.cause,
                        image.choices()
                    ),
                });
                if outcome.is_err() || self.options.is_over() {
                    break;
                }
            }
            if outcome.is_err() || self.options.is_over() {
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
                acknowledged: Some(Known::new(&self.states[last])),
                in_flight: self.states.get(ended).map(Known::new),
                interrupted: self.probes.get(last),
                shut_down: false,
            },
        }
    }
}

pub(crate) fn read_line(region: &Region, line: u32) -> LineBytes {
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
    walks: Option<&'r Rc<dyn WalkMemory>>,
    mapped: Cell<usize>,
    /// Entries of the log of reads when operations were first tried.
    reads_before_operations: Cell<Option<usize>>,
}

impl<'r> Storage<'r> {
    fn of(region: &'r Region) -> Self {
        let mapped = Cell::new(region.mapped_bytes());
        Self { region, walks: None, mapped, reads_before_operations: Cell::new(None) }
    }

    /// # Safety
    /// As for [`Region::alias`].
    unsafe fn alias(&self) -> Region {
        // SAFETY: as the caller vouches; the last pool had so much mapped.
        unsafe { self.region.alias_of(self.mapped.get()) }
    }

    fn note<O, T: Eq>(&self, live: &impl Live<O, T>) {
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
    let mut live = subject.open(pool).map_err(|what| Failure::Open { what })?;
    if let (Some(live), Some(walks)) = (&mut live, storage.walks) {
        live.remember_walks(walks);
    }
    Ok(live)
}

/// How far [`recover`] goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
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
unsafe fn recover<'r, S: Subject>(
    subject: &S,
    storage: &Storage<'_>,
    domain: &Modelled,
    expectation: Expectation<'r, S>,
    seed: u64,
    extent: Extent,
) -> Recovered<'r, S> {
    // SAFETY: as the caller vouches; the pools are dropped before this function returns.
    let open = |expectation| unsafe { open(subject, storage, domain, expectation) };
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
        storage.note(&live);
        return Ok(Some(recovered));
    }
    if extent == Extent::Operations {
        domain.mark(Marker::End(1));
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
        storage.note(&live);
        drop(live);
        // A second recovery changes nothing.
        live = open(Expectation { shut_down: false, ..expectation })?.ok_or(Failure::Gone)?;
        if extent != Extent::CheckOperations {
            holds(&live, recovered.state, seed, |what| Failure::NotIdempotent { what })?;
        }
        storage.reads_before_operations.set(Some(domain.read_count()));
    }
    // It still works.
    let mut state = recovered.state.clone();
    let probes = subject.probes(recovered.state, expectation.interrupted, seed);
    for (index, probe) in probes.iter().enumerate() {
        live.perform(probe)
            .map_err(|what| Failure::Broken { what: format!("{probe:?}: {what}") })?;
        subject.apply(&mut state, probe);
        if extent == Extent::Operations {
            domain.mark(Marker::End(index as u32 + 2));
        }
    }
    storage.note(&live);
    if extent != Extent::Operations {
        holds(&live, &state, seed.rotate_left(32), |what| Failure::Broken { what })?;
        if !live.audit_checks() {
            check(&live)?;
        }
        audit(&live)?;
    }
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
fn holds<O, T: Eq + Debug>(
    live: &impl Live<O, T>,
    state: &T,
    turn: u64,
    failure: impl Fn(String) -> Failure,
) -> Result<(), Failure> {
    if live.find(&[state], turn).map_err(&failure)?.is_some() {
        return Ok(());
    }
    let found = live.observe().map_err(&failure)?;
    Err(failure(difference(&found, &[state])))
}

fn check<O, T: Eq>(live: &impl Live<O, T>) -> Result<(), Failure> {
    match live.check().into_iter().next() {
        Some(what) => Err(Failure::Invariant { what }),
        None => Ok(()),
    }
}

fn audit<O, T: Eq>(live: &impl Live<O, T>) -> Result<(), Failure> {
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
