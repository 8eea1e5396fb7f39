//! Making the run.

use std::time::Instant;

use lapis_device::{Config, Marker, Modelled};
use lapis_pmem::{Pool, PoolError, Region};

use super::{Events, FirstCut, Phase, Run};
use crate::coverage::Coverage;
use crate::erased::{AnyLive, AnyState, AnySubject, AnyValue};
use crate::options::{ExploreOptions, Replay};
use crate::oracle::Failure;
use crate::storage::{Contents, Storage, attach, hold, limit, plan_faults};

/// After this many operations the pool is closed and opened again, so that crashes in shutdown and
/// in open are among the crash points.
const REOPEN_EVERY: usize = 61;

/// Why there is no run.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// Something went wrong without any crash, for a person.
    Failed(String),
    /// The first power cut was not survived: this image.
    FirstCut(Replay),
    /// It was, but what came after it went wrong, without another.
    AfterCut(Box<FirstCut>, Failure),
}

impl From<String> for RecordError {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

impl From<RecordError> for String {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Failed(what) => what,
            RecordError::FirstCut(Replay { position, .. }) => {
                format!("the first power cut, after {position} events, is not survived")
            }
            RecordError::AfterCut(cut, failure) => {
                format!("after the first power cut, after {} events, {failure}", cut.position)
            }
        }
    }
}

/// Operations with their numbers in the sequence that the seed gives.
pub(super) type Numbered = Vec<(usize, AnyValue)>;

fn add_events(happened: &mut Events, live: &AnyLive) {
    live.events()
        .into_iter()
        .for_each(|(event, count)| *happened.entry(event).or_default() += count);
}

impl Run {
    /// Runs the operations that `options` name. If the power is to be cut in one of them first, what is recorded begins
    /// with what that has left.
    pub(crate) fn record(
        subject: &dyn AnySubject,
        options: &ExploreOptions,
    ) -> Result<Self, RecordError> {
        let all = subject.operations(options.ops, options.seed);
        let planned = all.len();
        let kept = |number: &usize| options.keep.as_ref().is_none_or(|keep| keep.contains(number));
        let mut operations: Numbered = (1..).zip(all).filter(|(number, _)| kept(number)).collect();
        let cut = operations.iter().position(|(number, _)| *number == options.cut_in);
        let Some(cut) = cut else {
            return Ok(Self::record_from(subject, options, planned, operations, None)?);
        };
        let after = operations.split_off(cut + 1);
        let first = Self::record_from(subject, options, planned, operations, None)?;
        let run = first.cuts(subject, options, options.cut_in)?.run(options.cut_in, after)?;
        Ok(Self { begun: first.begun, ..run })
    }

    /// Runs operations on what a power cut has left, or from the creation on.
    pub(super) fn record_from(
        subject: &dyn AnySubject,
        options: &ExploreOptions,
        planned: usize,
        operations: Numbered,
        left: Option<(FirstCut, Contents)>,
    ) -> Result<Self, String> {
        let begun = Instant::now();
        let (first_cut, base) = match left {
            Some((first_cut, base)) => (Some(first_cut), base),
            None => (None, Contents::before_creation(subject)),
        };
        let pool_bytes = subject.pool_bytes();
        let (numbers, operations): (Vec<_>, Vec<_>) = operations.into_iter().unzip();
        let region = Region::anonymous(base.memory.len(), pool_bytes).map_err(|e| e.to_string())?;
        base.lay_on(&region);
        let domain = Modelled::over(&region, options.on(Config::tracing()));
        let devices = attach(&domain, &subject.device_blocks())?;
        limit(&devices, &subject.most_blocks(false));
        if first_cut.is_some() {
            hold(&devices, &base.devices);
            // That the devices are there is nothing that happens now.
            domain.take_trace();
        }
        let faults = subject.device_faults(options.seed);
        type MakePool = fn(Region, Modelled) -> Result<Pool<Modelled>, PoolError>;
        let storage = |make: MakePool, mapped: usize| {
            // SAFETY: `region` outlives every pool made here, and only they use the memory, one
            // after the other: `mapped` is what the last one has mapped.
            let pool = || make(unsafe { region.alias_of(mapped) }, domain.clone());
            let pool = (pool_bytes > 0).then(pool).transpose().map_err(|e| e.to_string())?;
            let devices = devices.clone();
            Ok::<_, String>(Storage { pool, devices, machine: domain.clone() })
        };
        let reopen = |mapped| {
            let reopened = subject.open(storage(Pool::open, mapped)?)?;
            reopened.ok_or_else(|| "the structure is gone after it was opened again".to_owned())
        };
        let mut happened = Events::new();
        let mut mapped = region.mapped_bytes();

        domain.mark(Marker::Begin(0));
        let (mut live, initial, phase) = match &first_cut {
            None => {
                let live = subject.create(storage(Pool::create, mapped)?)?;
                (live, subject.initial(), Phase::Creation)
            }
            Some(cut) => {
                let live = reopen(mapped)?;
                // As a pool in use does in the background.
                if let Some(problem) = live.reclaim_and_audit().problems.first() {
                    return Err(problem.to_string());
                }
                let state = live.observe()?;
                if !cut.allows(&state) {
                    return Err("what a check has found after the cut is not there".to_owned());
                }
                (live, state, Phase::Open)
            }
        };
        domain.mark(Marker::End(0));
        let mut phases = vec![(0, phase), (domain.traced_events(), Phase::Operation)];
        let mut states = vec![initial];
        for (index, operation) in operations.iter().enumerate() {
            let number = index as u32 + 1;
            domain.mark(Marker::Begin(number));
            if numbers[index].is_multiple_of(REOPEN_EVERY) {
                phases.push((domain.traced_events(), Phase::Close));
                add_events(&mut happened, &live);
                drop(live);
                phases.push((domain.traced_events(), Phase::Open));
                live = reopen(mapped)?;
                phases.push((domain.traced_events(), Phase::Operation));
            }
            plan_faults(&faults, numbers[index], &devices);
            let begun = domain.traced_events();
            live.perform(operation)?;
            domain.mark(Marker::End(number));
            let grown = live.pool().map_or(0, |pool| pool.region().mapped_bytes());
            if grown > mapped {
                phases.push((begun, Phase::Growth));
                phases.push((domain.traced_events(), Phase::Operation));
                mapped = grown;
            }
            let mut state = states[index].clone();
            if !live.was_refused() {
                subject.apply(&mut state, operation);
            }
            states.push(state);
        }
        let observed = live.observe()?;
        if Some(&observed) != states.last() {
            let crash = if first_cut.is_some() { "another" } else { "any" };
            return Err(format!("without {crash} crash, the contents differ from the model"));
        }
        let shutdown = operations.len() as u32 + 1;
        domain.mark(Marker::Begin(shutdown));
        phases.push((domain.traced_events(), Phase::Close));
        add_events(&mut happened, &live);
        drop(live);
        domain.mark(Marker::End(shutdown));
        let own = Coverage::none_of(|file| subject.owns_source(file));
        let told = domain.events();
        let first_events = told.iter().map(|(name, event)| (*name, event.first)).collect();
        own.count_events(&mut happened, told);
        states.extend(states.last().cloned());
        let points = domain.persist_points().iter().map(|found| found.point).collect();
        let trace = domain.take_trace();
        let hashes = states.iter().map(AnyState::hash).collect();
        Ok(Self {
            begun,
            trace,
            operations,
            numbers,
            planned,
            states,
            hashes,
            points,
            base,
            first_cut,
            phases,
            events: happened,
            first_events,
        })
    }
}
