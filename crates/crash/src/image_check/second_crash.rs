//! Crashes during a recovery, and during the operations after it.

use std::collections::HashMap;

use lapis_device::{
    CrashPoints, Event, ImageBudget, Marker, ModelledSsd, PowerFailDomain, Trace,
    set_current_worker, write_line,
};

use super::expectation::{Expectation, Known};
use super::guarded::guarded;
use super::recovery::{Extent, Scratch, recover, seed_after_recovery};
use super::{ImageChecker, read_line};
use crate::erased::{AnyState, AnySubject, AnyValue};
use crate::oracle::Failure;
use crate::spread::Spread;
use crate::storage::{Contents, contents_of, hold};
use crate::subject::Kills;

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
        base: &'t Contents,
    },
}

fn region_failure(error: lapis_pmem::RegionError) -> Failure {
    Failure::Open { what: error.to_string() }
}

/// What came of a crash during a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SecondCrash {
    /// Images tried.
    pub(crate) images: u64,
    /// The pool's storage grew after the first crash.
    pub(crate) grew: bool,
}

/// Images of one second crash of what has block devices, about: its recovery has thousands, it is one of many, and
/// each is tried at crash points of its own.
const IMAGES_WITH_DEVICES: u64 = 400;

/// What a recovery and the operations after it lead through.
struct Course<'r> {
    expectation: Expectation<'r>,
    /// The state after the recovery, and after each probe.
    states: Vec<AnyState>,
    probes: Vec<AnyValue>,
}

impl Course<'_> {
    /// What a crash allows after so many ends: of the recovery first, then of the probes.
    fn after(&self, ended: usize) -> Expectation<'_> {
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

impl ImageChecker {
    /// Cuts the power again during the recovery from what the region holds and during the
    /// operations after it, and checks every image of that. Leaves the region as it was.
    pub(crate) fn check_second_crash(
        &mut self,
        subject: &dyn AnySubject,
        first: FirstCrash<'_>,
        expectation: Expectation<'_>,
        seed: u64,
        budget: ImageBudget,
    ) -> Result<SecondCrash, Failure> {
        let mapped = self.region.mapped_bytes();
        self.devices.iter().for_each(ModelledSsd::revert);
        let durable = contents_of(&self.devices);
        let image_devices = contents_of(&self.recording_devices);
        // After a kill another process goes on, whose fences do not complete what the first one
        // has flushed.
        let is_killed = matches!(first, FirstCrash::Killed { .. });
        set_current_worker(u8::from(is_killed));
        self.recording.set_same_boot(is_killed && subject.kills() == Kills::WrittenBack);
        let scratch = Scratch::of(&self.region, &self.recording_devices, &self.last_state);
        // SAFETY: the pools made from the alias are dropped within the call.
        let recovered = guarded(|| unsafe {
            recover(subject, &scratch, &self.recording, expectation, seed, Extent::Operations)
        });
        let (grown, states) = (scratch.mapped.get(), scratch.states.take());
        set_current_worker(0);
        self.recording.set_same_boot(false);
        let recovery = self.recording.take_trace();
        self.recording.revert(&mut self.region);
        self.recording_devices.iter().for_each(ModelledSsd::revert);
        let Some(recovered) = recovered? else { return Ok(SecondCrash::default()) };

        let seed_of_probes = seed_after_recovery(seed, recovered.hash);
        let probes = subject.probes(recovered.state, expectation.interrupted, seed_of_probes);
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
                let points = points.with_devices(image_devices.clone());
                hold(&self.devices, &image_devices);
                let images = self.follow(subject, points, &recovery, 0, &course, seed, budget);
                hold(&self.devices, &durable);
                images?
            }
            FirstCrash::Killed { trace, position, base } => {
                let trace = trace.continued(position, &recovery);
                let options = &self.options;
                let mut from_start =
                    Self::new(subject, base, options).map_err(|what| Failure::Open { what })?;
                from_start.region.grow_to(grown).map_err(region_failure)?;
                let points = CrashPoints::new(&trace, &base.memory, PowerFailDomain::AdrPortable);
                from_start.follow(subject, points, &trace, position, &course, seed, budget)?
            }
        };
        Ok(SecondCrash { images, grew: grown > mapped })
    }

    /// Checks the images of the crash points behind the first `begin` events; returns how many.
    #[allow(clippy::too_many_arguments)]
    fn follow(
        &mut self,
        subject: &dyn AnySubject,
        mut points: CrashPoints<'_>,
        trace: &Trace,
        begin: usize,
        course: &Course<'_>,
        seed: u64,
        budget: ImageBudget,
    ) -> Result<u64, Failure> {
        let mut overwritten = HashMap::new();
        let (mut images, mut ended, mut seen) = (0, 0, begin);
        let mut outcome = Ok(());
        // What is shown again, with fewer operations perhaps, is looked for everywhere.
        let everywhere = self.options.replay.is_some() || self.devices.is_empty();
        let spread = match everywhere {
            true => Spread::ALL,
            false => Spread::behind(points.clone(), begin, IMAGES_WITH_DEVICES),
        };
        let mut number = (seed % spread.stride) as usize;
        while let Some(point) = points.advance() {
            for (line, _) in points.newly_durable() {
                overwritten.entry(line).or_insert_with(|| read_line(&self.region, line));
            }
            points.bring_devices_up_to_date(&self.devices);
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
            number += 1;
            if !spread.takes(number) {
                continue;
            }
            let crash_states = points.states();
            for image in crash_states.images(budget).take(spread.per_point as usize) {
                images += 1;
                crash_states.apply_to_devices(&image, &self.devices);
                crash_states.apply(&image, &mut self.region).map_err(region_failure)?;
                let result = self.check(subject, course.after(ended), seed ^ images, 1);
                crash_states.revert(&image, &mut self.region).map_err(region_failure)?;
                outcome = result.map(|_| ()).map_err(|failure| Failure::DuringRecovery {
                    what: format!(
                        "(event {}, {:?}, image {}) {failure}",
                        point.position,
                        point.cause,
                        shown(image.choices())
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

/// The choices of an image for a sentence: a recovery that zeroes a segment has thousands of lines.
pub(crate) fn shown(choices: &[u32]) -> String {
    const MOST: usize = 12;
    let first: Vec<String> = choices.iter().take(MOST).map(u32::to_string).collect();
    let first = first.join(",");
    if choices.len() <= MOST { first } else { format!("{first},… of {} lines", choices.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choices_of_many_lines_are_cut_short() {
        assert_eq!(shown(&[1, 0, 22]), "1,0,22");
        assert_eq!(shown(&[3; 2000]), format!("{},… of 2000 lines", ["3"; 12].join(",")));
    }
}
