//! The machine on which histories run, and the one on which their crashes are recovered.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use lapis_device::{
    Config, CrashPoint, CrashPoints, CrashStates, Image, ImageBudget, InterleavedRun, Marker,
    Modelled, ModelledSsd, PersistPoint, PowerFailDomain, RunEnd, SchedulePolicy, SsdContents,
    Trace, WorkerProgram, set_current_worker,
};
use lapis_pmem::{Pool, PoolError, Region};
use parking_lot::Mutex;

use super::first_cut::{AMONG, FirstCut};
use super::history::History;
use super::options::{ConcurrentOptions, Selection};
use super::rule::BrokenRule;
use super::subject::Stop;
use crate::coverage::Coverage;
use crate::erased::{AnyConcurrentSubject, AnyShared, AnyState, AnyValue};
use crate::image_check::{be_quiet, guarded};
use crate::oracle::{Failure, difference};
use crate::run::Events;
use crate::storage::{Storage, attach, contents_of, plan_faults};
use crate::subject::text;
use crate::timeline::clause;

/// Two regions: one to run on, one to recover on.
pub(super) struct Machines<'b> {
    pub(super) subject: &'b dyn AnyConcurrentSubject,
    pub(super) options: &'b ConcurrentOptions,
    pub(super) region: Region,
    pub(super) scratch: Region,
    pub(super) recovering: Modelled,
    /// Block devices to recover on.
    pub(super) devices: Vec<ModelledSsd>,
    /// What is done by whom, and where it starts from.
    pub(super) seed: u64,
    /// What was done beforehand, numbered from one.
    pub(super) before: Vec<(u32, AnyValue)>,
    /// The calls of each worker, numbered worker after worker from one.
    pub(super) calls: Vec<Vec<(u32, AnyValue)>>,
    pub(super) prepared: Vec<u8>,
    pub(super) prepared_devices: Vec<SsdContents>,
    pub(super) initial: Option<AnyState>,
    /// The power cut in the last of what was done beforehand, if there was one.
    pub(super) first_cut: Option<FirstCut>,
    /// Why it was not survived.
    pub(super) not_survived: Option<Failure>,
}

/// A history that was run.
pub(super) struct Ran {
    pub(super) run: InterleavedRun,
    pub(super) trace: Trace,
    /// What memory and block devices held before it.
    base: Vec<u8>,
    devices: Vec<SsdContents>,
    pub(super) history: History<AnyValue, AnyValue>,
    pub(super) passed: Vec<PersistPoint>,
    /// What happened in it, of what the structure's sources name.
    pub(super) events: Events,
    /// What was wrong without a crash.
    pub(super) wrong: Option<Found>,
    /// For each call that ended its number, its worker and the steps of the schedule in between.
    pub(super) spans: Vec<(u32, u8, Range<usize>)>,
}

/// Of what crashes of a history to try: all where it says nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'w> {
    pub(super) position: Option<usize>,
    pub(super) image: Option<&'w [u32]>,
}

/// A violation before it is put into words.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) at: Option<(CrashPoint, Image)>,
    pub(super) rule: BrokenRule,
    pub(super) operation: Option<String>,
    pub(super) what: String,
}

impl Ran {
    pub(super) fn crash_points(&self) -> CrashPoints<'_> {
        CrashPoints::new(&self.trace, &self.base, PowerFailDomain::AdrPortable)
            .with_devices(self.devices.clone())
    }
}

impl Found {
    fn without_crash(rule: BrokenRule, operation: Option<String>, what: String) -> Self {
        Self { at: None, rule, operation, what }
    }

    /// Events before the crash, and its image.
    pub(super) fn crash(&self) -> Option<(usize, &[u32])> {
        self.at.as_ref().map(|(point, image)| (point.position, image.choices()))
    }

    pub(super) fn position(&self) -> Option<usize> {
        self.at.as_ref().map(|(point, _)| point.position)
    }

    pub(super) fn image(&self) -> &[u32] {
        self.at.as_ref().map_or(&[], |(_, image)| image.choices())
    }
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) crash_points: u64,
    pub(super) images: u64,
    pub(super) distinct_states: u64,
}

impl<'b> Machines<'b> {
    /// `watching`: notes what recoveries read of uncertain lines.
    pub(super) fn new(
        subject: &'b dyn AnyConcurrentSubject,
        options: &'b ConcurrentOptions,
        watching: bool,
    ) -> Result<Self, String> {
        let bytes = subject.pool_bytes();
        let region = Region::anonymous(bytes, bytes).map_err(text)?;
        let scratch = Region::anonymous(bytes, bytes).map_err(text)?;
        let (suppress, mutant) = (options.suppress, options.mutant);
        let concurrent = subject.background_workers() > 0;
        let config = Config { suppress, mutant, watching, concurrent, ..Config::tracking() };
        let recovering = Modelled::over(&scratch, config);
        let devices = attach(&recovering, &subject.device_blocks())?;
        Ok(Self {
            subject,
            options,
            region,
            scratch,
            recovering,
            devices,
            seed: 0,
            before: Vec::new(),
            calls: Vec::new(),
            prepared: Vec::new(),
            prepared_devices: Vec::new(),
            initial: None,
            first_cut: None,
            not_survived: None,
        })
    }

    /// Makes the structure from which histories of this seed start.
    pub(super) fn prepare(&mut self, seed: u64, selection: &Selection) -> Result<(), String> {
        self.seed = seed;
        let plan = self.subject.plan(self.options.workers, self.options.ops, seed);
        self.before = (1..).zip(plan.before).filter(|(it, _)| selection.has_before(*it)).collect();
        let mut numbers = 1..;
        self.calls = Vec::new();
        for calls in plan.workers {
            let numbered = calls.into_iter().map(|call| (numbers.next().unwrap_or(0), call));
            self.calls.push(numbered.filter(|(number, _)| selection.has_call(*number)).collect());
        }
        // What an earlier history left would change which stores make a difference.
        // SAFETY: mapped, and no pool is open on the region.
        unsafe { self.region.base().write_bytes(0, self.region.mapped_bytes()) };
        let domain = Modelled::over(&self.region, Config::default());
        set_current_worker(0);
        // SAFETY: the pool is dropped before the region is used again.
        let storage = unsafe { self.storage(&self.region, Pool::create, &domain, None)? };
        let devices = storage.devices.clone();
        let live = self.subject.create(storage)?;
        (self.first_cut, self.not_survived) = (None, None);
        if self.begins_with_cut() {
            let among = if selection.before.is_some() { 1 } else { AMONG };
            return self.prepare_cut(live, &domain, &devices, among);
        }
        for (_, operation) in &self.before {
            self.subject.perform(&live, operation)?;
        }
        self.initial = Some(self.subject.observe(&live)?);
        drop(live);
        self.prepared = contents(&self.region);
        self.prepared_devices = contents_of(&devices);
        Ok(())
    }

    /// What the structure is made or opened on; block devices of its own, if none are given.
    ///
    /// # Safety
    /// The pool is dropped before the region is used again.
    pub(super) unsafe fn storage(
        &self,
        region: &Region,
        make: fn(Region, Modelled) -> Result<Pool<Modelled>, PoolError>,
        machine: &Modelled,
        devices: Option<&[ModelledSsd]>,
    ) -> Result<Storage, String> {
        let devices = match devices {
            Some(devices) => devices.to_vec(),
            None => attach(machine, &self.subject.device_blocks())?,
        };
        // SAFETY: as the caller vouches.
        let pool = || make(unsafe { region.alias() }, machine.clone());
        let pool = (self.subject.pool_bytes() > 0).then(pool).transpose().map_err(text)?;
        Ok(Storage { pool, devices, machine: machine.clone() })
    }

    /// Lets the scratch memory and devices hold what those of a history held before it.
    pub(super) fn fill_scratch(&self, ran: &Ran) {
        fill(&self.scratch, &ran.base);
        self.devices.iter().zip(&ran.devices).for_each(|(device, held)| device.hold(held));
    }

    /// Makes them what they are durably at a crash point, from what they were at the one before.
    pub(super) fn bring_up_to_date(&mut self, points: &CrashPoints<'_>) -> Result<(), String> {
        points.bring_devices_up_to_date(&self.devices);
        points.bring_up_to_date(&mut self.scratch).map_err(text)
    }

    /// Makes them an image.
    pub(super) fn apply(&mut self, states: &CrashStates<'_>, image: &Image) -> Result<(), String> {
        states.apply_to_devices(image, &self.devices);
        states.apply(image, &mut self.scratch).map_err(text)
    }

    /// Takes it back, and what a recovery did on it.
    pub(super) fn revert(&mut self, states: &CrashStates<'_>, image: &Image) -> Result<(), String> {
        self.recovering.revert(&mut self.scratch);
        self.devices.iter().for_each(ModelledSsd::revert);
        states.revert(image, &mut self.scratch).map_err(text)
    }

    /// Runs the history on one schedule.
    pub(super) fn run(&mut self, policy: &SchedulePolicy) -> Result<Ran, String> {
        let subject = self.subject;
        fill(&self.region, &self.prepared);
        let (suppress, mutant) = (self.options.suppress, self.options.mutant);
        let config = Config { concurrent: true, suppress, mutant, ..Config::default() };
        let domain = Modelled::over(&self.region, config);
        let opened = match &self.not_survived {
            Some(failure) => Err(failure.clone()),
            None => guarded(|| self.open_prepared(&domain)),
        };
        let (live, devices) = match opened {
            Ok(opened) => opened,
            Err(failure) => return Ok(self.not_opened(&domain, policy, &failure)),
        };
        let base = contents(&self.region);
        let devices_before = contents_of(&devices);
        let faults = subject.device_faults(self.seed);
        domain.set_tracing(true);
        let returned: Vec<Mutex<Vec<AnyValue>>> =
            self.calls.iter().map(|_| Mutex::default()).collect();
        let spans = Mutex::new(Vec::new());
        let stop = Stop::after(self.calls.len());
        let mut programs: Vec<WorkerProgram<'_>> = Vec::new();
        for ((calls, returned), worker) in self.calls.iter().zip(&returned).zip(0u8..) {
            let (live, domain, spans, stop) = (&live, &domain, &spans, &stop);
            let (faults, devices) = (&faults, &devices);
            programs.push(Box::new(move || {
                be_quiet();
                for (number, operation) in calls {
                    plan_faults(faults, *number as usize, devices);
                    let begin = domain.steps_taken();
                    domain.mark(Marker::Begin(*number));
                    match subject.perform(live, operation) {
                        Ok(answer) => returned.lock().push(answer),
                        Err(what) => std::panic::resume_unwind(Box::new(what)),
                    }
                    domain.mark(Marker::End(*number));
                    spans.lock().push((*number, worker, begin..domain.steps_taken()));
                }
                stop.one_has_ended();
            }));
        }
        programs.extend(self.background(&live, &stop));
        let run = domain.run_workers(policy, programs);
        let trace = domain.take_trace();
        domain.set_tracing(false);
        let passed: Vec<_> = domain.persist_points().iter().map(|it| it.point).collect();
        let (own, mut events) =
            (Coverage::none_of(|file| subject.owns_source(file)), Events::default());
        own.count_events(&mut events, domain.events());
        let returned: Vec<Vec<AnyValue>> = returned.into_iter().map(Mutex::into_inner).collect();
        let history = History::of(&trace, &self.calls, &returned);
        let wrong = match &run.end {
            RunEnd::Completed => self.judge_without_crash(&live, &history),
            RunEnd::Deadlock => {
                Some((BrokenRule::Progress, None, "the workers wait for each other".to_owned()))
            }
            RunEnd::TooLong => {
                Some((BrokenRule::Progress, None, "the workers come to no end".to_owned()))
            }
            RunEnd::Panicked { worker, message } => {
                Some((BrokenRule::NoPanic, None, format!("worker {worker} panicked: {message}")))
            }
        };
        drop(live);
        let wrong = wrong.map(|(rule, call, what)| Found::without_crash(rule, call, what));
        let (spans, devices) = (spans.into_inner(), devices_before);
        Ok(Ran { run, trace, base, devices, history, passed, events, wrong, spans })
    }

    /// A run that came to nothing, because what was prepared cannot be opened.
    fn not_opened(&self, domain: &Modelled, policy: &SchedulePolicy, failure: &Failure) -> Ran {
        let rule = BrokenRule::Recovery(clause(failure));
        let what = format!("before the history begins, {failure}");
        let trace = domain.take_trace();
        Ran {
            run: domain.run_workers(policy, Vec::new()),
            base: self.prepared.clone(),
            devices: self.prepared_devices.clone(),
            history: History::of(&trace, &self.calls, &[]),
            passed: Vec::new(),
            events: Events::default(),
            wrong: Some(Found::without_crash(rule, None, what)),
            spans: Vec::new(),
            trace,
        }
    }

    /// The structure's own workers.
    fn background<'p>(&'p self, live: &'p AnyShared, stop: &'p Stop) -> Vec<WorkerProgram<'p>> {
        let program = |worker| -> WorkerProgram<'p> {
            Box::new(move || {
                be_quiet();
                let outcome = self.subject.work_in_background(live, worker, stop);
                outcome.unwrap_or_else(|what| std::panic::resume_unwind(Box::new(what)));
            })
        };
        (0..self.subject.background_workers()).map(program).collect()
    }

    fn judge_without_crash(
        &self,
        live: &AnyShared,
        history: &History<AnyValue, AnyValue>,
    ) -> Option<(BrokenRule, Option<String>, String)> {
        let observed = guarded(|| {
            let state = self.subject.observe(live).map_err(|what| Failure::Contents { what })?;
            match self.subject.problems(live).into_iter().next() {
                Some(what) => Err(Failure::Invariant { what }),
                None => Ok(state),
            }
        });
        let state = match observed {
            Ok(state) => state,
            Err(failure) => {
                let rule = BrokenRule::WithoutCrash;
                return Some((rule, None, format!("without any crash {failure}")));
            }
        };
        let initial = self.initial.as_ref()?;
        let judged = self.subject.judge(initial, history.calls(), &state);
        let told = |what| format!("without any crash {what}");
        judged.err().map(|it| (BrokenRule::Linearizable, it.operation, told(it.what)))
    }

    /// Tries crash points of a run; returns the first violation.
    pub(super) fn cut_power(
        &mut self,
        ran: &Ran,
        wanted: Wanted<'_>,
        tally: &mut Tally,
    ) -> Result<Option<Found>, String> {
        let Some(initial) = self.initial.clone() else { return Ok(None) };
        self.fill_scratch(ran);
        let mut points = ran.crash_points();
        let mut states = HashSet::new();
        while let Some(point) = points.advance() {
            self.bring_up_to_date(&points)?;
            if wanted.position.is_some_and(|position| position != point.position) {
                continue;
            }
            if self.options.stop.is_raised() && tally.crash_points > 0 {
                break;
            }
            let crash_states = points.states();
            if wanted.image.is_some_and(|choices| {
                !crash_states.includes(&Image::from_choices(choices.to_vec()))
            }) {
                continue;
            }
            tally.crash_points += 1;
            let calls = ran.history.until(point.position);
            let budget = ImageBudget {
                exhaustive_limit: self.options.exhaustive_limit,
                samples: self.options.samples,
                seed: self.seed ^ (point.position as u64) << 20,
            };
            let given: Box<dyn Iterator<Item = Image>> = match wanted.image {
                None => Box::new(crash_states.images(budget)),
                Some(choices) => Box::new(std::iter::once(Image::from_choices(choices.to_vec()))),
            };
            // States that the calls explain; histories do not change between images.
            let mut explained = HashSet::new();
            for image in given {
                tally.images += 1;
                self.apply(&crash_states, &image)?;
                let audited = wanted.image.is_some() || image_is_audited(&point, &image);
                let recovered = self.recover(audited);
                self.revert(&crash_states, &image)?;
                let (rule, operation, what) = match recovered {
                    Ok(state) => {
                        if !explained.insert(state.clone()) {
                            continue;
                        }
                        let judged = self.subject.judge(&initial, &calls, &state);
                        let broken = judged.err().map(|offence| {
                            let rule = BrokenRule::of(self.subject, &initial, &calls, &state);
                            (rule, offence.operation, offence.what)
                        });
                        states.insert(state);
                        match broken {
                            None => continue,
                            Some(broken) => broken,
                        }
                    }
                    Err(failure) => {
                        (BrokenRule::Recovery(clause(&failure)), None, failure.to_string())
                    }
                };
                tally.distinct_states += states.len() as u64;
                return Ok(Some(Found { at: Some((point, image)), rule, operation, what }));
            }
        }
        tally.distinct_states += states.len() as u64;
        Ok(None)
    }

    /// Lets the structure's own workers work on what was recovered, while another looks at it: it
    /// stays what it is.
    fn work_again(&self, live: &AnyShared, recovered: &AnyState) -> Result<(), Failure> {
        let broken = |what| Failure::Broken { what };
        let (seen, stop) = (Mutex::new(Vec::new()), Stop::after(1));
        let mut programs: Vec<WorkerProgram<'_>> = vec![Box::new(|| {
            seen.lock().push(self.subject.observe(live));
            stop.one_has_ended();
        })];
        programs.extend(self.background(live, &stop));
        let policy = SchedulePolicy::Random { seed: self.seed };
        match self.recovering.run_workers(&policy, programs).end {
            RunEnd::Completed => {}
            RunEnd::Panicked { message, .. } => return Err(Failure::Panic { what: message }),
            end => return Err(broken(format!("its own workers: {end:?}"))),
        }
        let after = self.subject.observe(live);
        for found in seen.into_inner().into_iter().chain([after]) {
            let found = found.map_err(broken)?;
            if found != *recovered {
                return Err(broken(difference(&found, &[recovered])));
            }
        }
        Ok(())
    }

    pub(super) fn recover(&self, audited: bool) -> Result<AnyState, Failure> {
        let subject = self.subject;
        guarded(|| {
            let devices = Some(&self.devices[..]);
            // SAFETY: the pool is dropped before the region is used again.
            let storage =
                unsafe { self.storage(&self.scratch, Pool::open, &self.recovering, devices) };
            let storage = storage.map_err(|what| Failure::Open { what })?;
            storage.abandon();
            let live = subject.open(storage).map_err(|what| Failure::Open { what })?;
            let state = subject.observe(&live).map_err(|what| Failure::Contents { what })?;
            if subject.background_workers() > 0 {
                self.work_again(&live, &state)?;
            }
            if let Some(what) = subject.problems(&live).into_iter().next() {
                return Err(Failure::Invariant { what });
            }
            if audited {
                let audit = subject.audit(&live);
                if !audit.is_clean() {
                    return Err(Failure::Space { what: format!("{audit:?}") });
                }
            }
            Ok(state)
        })
    }
}

/// What a region holds that nobody uses.
pub(super) fn contents(region: &Region) -> Vec<u8> {
    // SAFETY: mapped, and nothing else touches the region during this call.
    unsafe { std::slice::from_raw_parts(region.base(), region.mapped_bytes()) }.to_vec()
}

/// Writes the first bytes of a region nobody uses.
pub(super) fn fill(region: &Region, contents: &[u8]) {
    assert!(contents.len() <= region.mapped_bytes());
    // SAFETY: mapped for that long, and no pool is open on the region.
    unsafe { region.base().copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
}

/// The audit walks everything; one image in four is enough to find what leaks.
fn image_is_audited(point: &CrashPoint, image: &Image) -> bool {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    point.position.hash(&mut hasher);
    image.choices().hash(&mut hasher);
    hasher.finish().is_multiple_of(4)
}
