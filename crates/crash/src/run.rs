//! Running a subject's operations once on the modelled machine, and recording what they did.

use std::collections::BTreeMap;

use lapis_device::{Config, Event, Marker, Modelled, PersistPoint, StorageGrowth, Trace};
use lapis_pmem::{Pool, PoolError, Region};

use crate::coverage::Coverage;
use crate::erased::{AnyLive, AnyState, AnySubject, AnyValue};
use crate::image_check::Known;
use crate::options::ExploreOptions;
use crate::storage::{Storage, attach, hold_before, limit, plan_faults};

/// A recorded run. Operation 0 is the creation, operations 1 to n are the subject's, and the last is
/// the clean shutdown.
pub(crate) struct Run {
    pub(crate) trace: Trace,
    pub(crate) operations: Vec<AnyValue>,
    /// The number of each in the sequence that the seed gives, from 1 on: others may have been left
    /// out between them.
    pub(crate) numbers: Vec<usize>,
    /// How long that sequence is.
    planned: usize,
    /// The state after each operation; `states[0]` after the creation. The shutdown, which is the
    /// last, changes nothing.
    pub(crate) states: Vec<AnyState>,
    /// Their hashes.
    pub(crate) hashes: Vec<u64>,
    /// Every persist point that was passed.
    pub(crate) points: Vec<PersistPoint>,
    /// What the memory held before.
    pub(crate) base: Vec<u8>,
    /// What the run was at from which event on.
    phases: Vec<(usize, Phase)>,
    /// How often what happened.
    pub(crate) events: Events,
    /// After how many events of the trace for the first time, of what the structure tells.
    pub(crate) first_events: BTreeMap<&'static str, usize>,
}

/// How often what happened, by name.
pub(crate) type Events = BTreeMap<&'static str, u64>;

/// What a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Creating the pool and the structure.
    Creation,
    /// An operation during which nothing else happens.
    Operation,
    /// An operation during which the pool's storage grows.
    Growth,
    /// Shutting down cleanly.
    Close,
    /// Opening after that.
    Open,
}

/// After this many operations the pool is closed and opened again, so that crashes in shutdown and
/// in open are among the crash points.
const REOPEN_EVERY: usize = 61;

fn add_events(happened: &mut Events, live: &AnyLive) {
    live.events()
        .into_iter()
        .for_each(|(event, count)| *happened.entry(event).or_default() += count);
}

impl Run {
    /// The number that an operation of the trace has in the sequence that the seed gives: 0 for the
    /// creation, and beyond the last for the shutdown.
    pub(crate) fn number(&self, sequential: u32) -> usize {
        match (sequential as usize).checked_sub(1) {
            None => 0,
            Some(index) => self.numbers.get(index).copied().unwrap_or(self.planned + 1),
        }
    }

    /// After how many events the operation of this number, or the first after it, begins.
    pub(crate) fn begin_of(&self, number: usize) -> usize {
        let begins = |event: &Event| match event {
            Event::Marker { marker: Marker::Begin(begun), .. } => self.number(*begun) >= number,
            _ => false,
        };
        self.trace.events.iter().position(begins).unwrap_or(0)
    }

    /// The number of the operation in which the event at `position` happened.
    pub(crate) fn operation_at(&self, position: usize) -> usize {
        let end = position.min(self.trace.events.len());
        let begun = self.trace.events[..end].iter().rev().find_map(|event| match event {
            Event::Marker { marker: Marker::Begin(number), .. } => Some(*number),
            _ => None,
        });
        begun.map_or(0, |begun| self.number(begun))
    }

    /// The state after an operation, as something to expect.
    pub(crate) fn known(&self, operation: u32) -> Known<'_> {
        let at = operation as usize;
        Known { state: &self.states[at], hash: self.hashes[at] }
    }

    /// What the run was at when the event before `position` happened.
    pub(crate) fn phase(&self, position: usize) -> Phase {
        let begun = |(from, _): &&(usize, Phase)| *from < position.max(1);
        self.phases.iter().rfind(begun).map_or(Phase::Creation, |(_, phase)| *phase)
    }

    /// How long the pool's storage may be after so many events.
    pub(crate) fn storage_bytes(&self, position: usize) -> usize {
        self.grown(position, |_| true)
    }

    /// How long a power cut after so many events may leave it, if that is shorter.
    pub(crate) fn durable_storage_bytes(&self, position: usize) -> Option<usize> {
        let durable = self.grown(position, |growth| growth.is_durable);
        (durable < self.storage_bytes(position)).then_some(durable)
    }

    fn grown(&self, position: usize, counts: impl Fn(&StorageGrowth) -> bool) -> usize {
        let mut growths = self.trace.growths.iter();
        let last = growths.rfind(|growth| growth.position <= position && counts(growth));
        last.map_or(self.base.len(), |growth| growth.bytes)
    }

    /// Runs the operations that `options` name.
    pub(crate) fn record(
        subject: &dyn AnySubject,
        options: &ExploreOptions,
    ) -> Result<Self, String> {
        let pool_bytes = subject.pool_bytes();
        let all = subject.operations(options.ops, options.seed);
        let planned = all.len();
        let kept = |number: &usize| options.keep.as_ref().is_none_or(|keep| keep.contains(number));
        let (numbers, operations): (Vec<_>, Vec<_>) =
            (1..).zip(all).filter(|(number, _)| kept(number)).unzip();
        let created_bytes = subject.created_bytes();
        let region = Region::anonymous(created_bytes, pool_bytes).map_err(|e| e.to_string())?;
        let mut base = vec![0; created_bytes];
        base[subject.prior_range()].fill(subject.prior_contents());
        hold_before(subject, &region, &base);
        let domain = Modelled::over(&region, options.on(Config::tracing()));
        let devices = attach(&domain, &subject.device_blocks())?;
        limit(&devices, &subject.most_blocks(false));
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
        let mut phases = vec![(0, Phase::Creation)];
        let mut happened = Events::new();
        let mut mapped = region.mapped_bytes();

        domain.mark(Marker::Begin(0));
        let mut live = subject.create(storage(Pool::create, mapped)?)?;
        domain.mark(Marker::End(0));
        phases.push((domain.traced_events(), Phase::Operation));
        let mut states = vec![subject.initial()];
        for (index, operation) in operations.iter().enumerate() {
            let number = index as u32 + 1;
            domain.mark(Marker::Begin(number));
            if numbers[index].is_multiple_of(REOPEN_EVERY) {
                phases.push((domain.traced_events(), Phase::Close));
                add_events(&mut happened, &live);
                drop(live);
                phases.push((domain.traced_events(), Phase::Open));
                let reopened = subject.open(storage(Pool::open, mapped)?)?;
                live = reopened.ok_or("the structure is gone after a clean reopen")?;
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
            return Err("without any crash, the contents differ from the model".to_owned());
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
            trace,
            operations,
            numbers,
            planned,
            states,
            hashes,
            points,
            base,
            phases,
            events: happened,
            first_events,
        })
    }

    /// The kind of each operation, the creation and the shutdown included: the name of its variant.
    pub(crate) fn operation_kinds(&self) -> Vec<String> {
        let kind = |operation: &AnyValue| {
            let text = format!("{operation:?}");
            let name: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
            if name.is_empty() { "operation".to_owned() } else { name.to_lowercase() }
        };
        let between = self.operations.iter().map(kind);
        let first = std::iter::once("creation".to_owned());
        first.chain(between).chain(std::iter::once("shutdown".to_owned())).collect()
    }
}
