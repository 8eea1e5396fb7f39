//! Crash points: the instants of a trace at which a power cut has to be tried.
//!
//! They are: just before every fence, locked operation or other event that makes something durable,
//! just after every [`Marker::End`], just before every [`Marker::Begin`] and where the storage grows if
//! something was stored since the last point, and the end of the trace. That is enough. Between two instants at which
//! something pending becomes durable, stores only *add* pending units: whatever subset of the
//! earlier ones was legal before is legal still, with the later ones not persisted. So the states
//! of any instant are among those of the next point, unless the meaning of a state changes in
//! between. It changes in three ways:
//!
//! * An operation is acknowledged. Whoever judges the states just after demands more of them than before, so that
//!   the point after it is enough.
//! * An operation begins. From then on a state may show its effects, so that whoever judges demands less: what other
//!   workers have stored, or what was stored since the last acknowledgement, has to be judged before.
//! * The storage grows: a power cut just before leaves it shorter. (The point there stands for both instants: who
//!   knows how long storage is tries both lengths at it.)
//!
//! Where operations follow one another, and nothing is stored between an acknowledgement and the next beginning, that
//! beginning is no point of its own. Nor is one before which the trace stores nothing: what memory held when a trace began
//! is no work of what it traces.
//!
//! What is said here of lines holds of the sectors of block devices: what a flush covers becomes
//! durable when it is answered, and a write that fails takes back what it might have left. So the
//! answers of flushes and of failed writes are points too, and the states of a point are those of all
//! media together. With eADR the same holds of the store buffers.
//!
//! [`CrashPoints::at_every_store`] stops at every store and flush all the same, for those who would
//! rather see it than believe it.

use lapis_pmem::{Region, RegionError};
use serde::Serialize;

use crate::crash_states::images::{CrashStates, write_line};
use crate::crash_states::pending::LineBytes;
use crate::crash_states::persistence::{Persistence, PowerFailDomain};
use crate::modelled::persist_points::PersistPoint;
use crate::ssd::{ModelledSsd, ReplayedDevices, SsdContents};
use crate::trace::block_devices::BlockEvent;
use crate::trace::{Event, Marker, Trace};

/// Why an instant is a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashCause {
    /// The next event is this fence.
    BeforeFence(PersistPoint),
    /// The next event is a locked operation.
    BeforeLocked,
    /// The next event is a `clflush`.
    BeforeStrongFlush,
    /// The next event is a store, which is durable as soon as it is visible.
    BeforeStore,
    /// The operation of this number has just been acknowledged.
    OperationEnd(u32),
    /// The operation of this number begins next, and shows in no state yet.
    BeforeOperation(u32),
    /// The storage grows here: it may be as long as before, or as long as after.
    StorageGrowth,
    /// The next event is an answer of this block device, after which it holds what a power cut before
    /// may not leave, or no longer what one may.
    BeforeBlockAnswer(u8),
    /// The last event was a store: at every store ([`CrashPoints::at_every_store`]), and before a
    /// marker that tells that several stores are visible which were not ordered until then.
    AfterStore,
    /// The last event was this flush. Only at every store: [`CrashPoints::at_every_store`].
    AfterFlush(PersistPoint),
    /// The trace ends.
    TraceEnd,
}

/// An instant at which the power may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CrashPoint {
    /// How many events of the trace have happened.
    pub position: usize,
    /// Why this is one.
    pub cause: CrashCause,
}

/// Walks through the crash points of a trace. See the [module documentation](self).
///
/// ```text
///  while let Some(point) = points.advance() {
///      points.bring_up_to_date(&mut scratch)?;     newly durable lines
///      let states = points.states();
///      for image in states.images(budget) {
///          states.apply(&image, &mut scratch)?;    lines that differ
///          … recover on a tracking domain, check, revert it …
///          states.revert(&image, &mut scratch)?;
///      }
///  }
/// ```
#[derive(Clone, Debug)]
pub struct CrashPoints<'t> {
    trace: &'t Trace,
    machine: Persistence,
    devices: ReplayedDevices,
    next: usize,
    /// How many growths of the storage came before the next event.
    growths: usize,
    /// The crash point before the next event has been given out.
    stopped: bool,
    /// Something was stored or became durable since the last point, or there was none yet.
    changed: bool,
    /// Something was stored since the trace began.
    stored: bool,
    ended: bool,
    every_store: bool,
}

impl<'t> CrashPoints<'t> {
    /// The crash points of `trace`, which began when memory held `base` durably (and zeroes behind
    /// it). `base` is copied as far as it is needed.
    pub fn new(trace: &'t Trace, base: &[u8], domain: PowerFailDomain) -> Self {
        Self {
            trace,
            machine: Persistence::new(trace, base, domain),
            devices: ReplayedDevices::default(),
            next: 0,
            growths: 0,
            stopped: false,
            changed: true,
            stored: false,
            ended: false,
            every_store: false,
        }
    }

    /// What the block devices held durably when the trace began, in the order of their numbers. One
    /// that is not named was attached later, or empty.
    #[must_use]
    pub fn with_devices(self, contents: Vec<SsdContents>) -> Self {
        Self { devices: ReplayedDevices::holding(contents), ..self }
    }

    /// Also after every store and every flush. Their states are among those of the points between
    /// which they lie, so nothing more can be found; but what is found is found where it happens.
    #[must_use]
    pub fn at_every_store(self) -> Self {
        Self { every_store: true, ..self }
    }

    /// Enumerates every subset of up to so many unordered stores of a line, where the default thins
    /// sets of more than three.
    pub fn with_exact_units(mut self, units: usize) -> Self {
        self.machine.set_exact_units(units);
        self
    }

    /// Goes on to the next crash point.
    pub fn advance(&mut self) -> Option<CrashPoint> {
        self.machine.clear_newly_durable();
        if self.next > 0 || self.stopped {
            self.devices.clear_newly_durable();
        }
        let cause = loop {
            let Some(event) = self.trace.events.get(self.next) else {
                if std::mem::replace(&mut self.ended, true) || !self.changed {
                    return None;
                }
                break CrashCause::TraceEnd;
            };
            let grows = self.storage_grows();
            let begins = matches!(event, Event::Marker { marker: Marker::Begin(_), .. });
            let means_more = self.stored && (grows || begins);
            let completes = || self.machine.completes(event) || self.devices.completes(event);
            if self.changed && !self.stopped && (means_more || completes()) {
                self.stopped = true;
                break match *event {
                    _ if grows => CrashCause::StorageGrowth,
                    Event::Fence { point, .. } => {
                        CrashCause::BeforeFence(self.trace.points[usize::from(point)])
                    }
                    Event::StrongFlush { .. } => CrashCause::BeforeStrongFlush,
                    Event::Locked { .. } => CrashCause::BeforeLocked,
                    Event::Marker { marker: Marker::Begin(operation), .. } => {
                        CrashCause::BeforeOperation(operation)
                    }
                    Event::Marker { .. } => CrashCause::AfterStore,
                    Event::Block { device, .. } => CrashCause::BeforeBlockAnswer(device),
                    _ => CrashCause::BeforeStore,
                };
            }
            let changes = match event {
                Event::Flush { .. } | Event::FlushLines { .. } | Event::Marker { .. } => false,
                Event::Fence { .. } | Event::StrongFlush { .. } => self.machine.completes(event),
                Event::Block { what: BlockEvent::Write { .. }, .. } => true,
                Event::Block { .. } => self.devices.completes(event),
                _ => true,
            };
            self.changed |= changes;
            self.stored |= changes;
            self.machine.apply(self.trace, event);
            self.devices.apply(self.trace, event);
            self.stopped = false;
            self.next += 1;
            if let Event::Marker { marker: Marker::End(operation), .. } = *event {
                break CrashCause::OperationEnd(operation);
            }
            if self.every_store {
                match *event {
                    Event::Flush { point, .. } | Event::FlushLines { point, .. } => {
                        break CrashCause::AfterFlush(self.trace.points[usize::from(point)]);
                    }
                    Event::Fence { .. } | Event::Marker { .. } => {}
                    Event::Block { what, .. } if !matches!(what, BlockEvent::Write { .. }) => {}
                    _ => break CrashCause::AfterStore,
                }
            }
        };
        self.changed = false;
        Some(CrashPoint { position: self.next, cause })
    }

    /// Whether the storage grows just before the next event.
    fn storage_grows(&mut self) -> bool {
        let ahead = &self.trace.growths[self.growths..];
        let here = ahead.iter().take_while(|growth| growth.position <= self.next);
        let (past, last) = here.fold((0, None), |(count, _), growth| (count + 1, Some(growth)));
        self.growths += past;
        last.is_some_and(|growth| growth.position == self.next)
    }

    /// Lines whose durable contents changed since the previous crash point, with those contents.
    pub fn newly_durable(&self) -> impl Iterator<Item = (u32, &LineBytes)> {
        self.machine.newly_durable()
    }

    /// Writes the newly durable lines to `scratch`, which held the durable contents of the previous
    /// crash point.
    ///
    /// # Errors
    /// [`RegionError`] if the region had to grow and could not.
    pub fn bring_up_to_date(&self, scratch: &mut Region) -> Result<(), RegionError> {
        self.newly_durable().try_for_each(|(line, bytes)| write_line(scratch, line, bytes))
    }

    /// Gives block devices what they hold durably at the current point, if that is not what they were
    /// given at the previous one: [`ModelledSsd::revert`] takes them back to it.
    ///
    /// # Panics
    /// If these are fewer devices than the trace names.
    pub fn bring_devices_up_to_date(&self, scratch: &[ModelledSsd]) {
        self.devices.give_to(scratch);
    }

    /// The states that a crash at the current point may leave. They are enumerated here: a point that is passed by costs
    /// nothing of it.
    pub fn states(&mut self) -> CrashStates<'_> {
        self.machine.enumerate();
        let mut states = CrashStates::of(&self.machine);
        self.devices.add_sites(&mut states);
        states
    }
}
