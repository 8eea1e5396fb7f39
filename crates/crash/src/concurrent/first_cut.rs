//! Histories that begin with what a power cut has left.
//!
//! What is half done when the power is cut is often made right not by the recovery but by the next worker who comes
//! there, beside others who read it, and who may come there too. So in one history of four the power is cut once before
//! it begins: in the one of the last operations beforehand that has the most fences.

use lapis_device::{
    Config, CrashPoints, Event, Modelled, ModelledSsd, PowerFailDomain, SsdContents, Trace,
};
use lapis_pmem::Pool;

use super::machines::{Machines, contents, fill};
use crate::erased::{AnyShared, AnyState, hash_of};
use crate::image_check::guarded;
use crate::oracle::{Failure, difference};
use crate::run::one_image;
use crate::storage::{contents_of, hold};

/// Operations among which the one is chosen; of a selection of them it is the last.
pub(super) const AMONG: usize = 16;

/// The power cut before a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstCut {
    /// Events of the last operation beforehand that had happened.
    pub(super) position: usize,
    /// The state chosen for each uncertain line.
    pub(super) image: Vec<u32>,
}

/// An operation in which the power may be cut.
struct Candidate {
    /// How many operations there are up to this one.
    operations: usize,
    fences: usize,
    /// What memory and devices held before it.
    memory: Vec<u8>,
    devices: Vec<SsdContents>,
    trace: Trace,
    /// What there may be after the cut.
    allowed: [AnyState; 2],
}

/// Whether a history of this seed begins with a power cut.
fn begins_with_cut(seed: u64) -> bool {
    hash_of(&seed).is_multiple_of(4)
}

impl Machines<'_> {
    /// Whether the history begins with a power cut: one of many for one seed does not, and where nothing is beforehand
    /// there is nothing to cut.
    pub(super) fn begins_with_cut(&self) -> bool {
        self.options.most_deviations.is_none()
            && begins_with_cut(self.seed)
            && !self.before.is_empty()
    }

    /// Does what is beforehand up to some operation, cuts the power in that one, and leaves what comes of it for the
    /// history to be opened on.
    pub(super) fn prepare_cut(
        &mut self,
        live: AnyShared,
        domain: &Modelled,
        devices: &[ModelledSsd],
        among: usize,
    ) -> Result<(), String> {
        let candidate = self.most_fences(&live, domain, devices, among)?;
        drop(live);
        let Candidate { operations, memory, devices, trace, allowed, .. } = candidate;
        self.before.truncate(operations);
        let number = self.before.last().map(|(number, _)| *number);
        let choice = hash_of(&(self.seed, number)) as usize;
        let points = || {
            CrashPoints::new(&trace, &memory, PowerFailDomain::AdrPortable)
                .with_devices(devices.clone())
        };
        let mut positions = Vec::new();
        let mut all = points();
        while let Some(point) = all.advance() {
            positions.push(point.position);
        }
        fill(&self.scratch, &memory);
        hold(&self.devices, &devices);
        let mut cut = FirstCut { position: 0, image: Vec::new() };
        if let Some(&position) = positions.get(choice % positions.len().max(1)) {
            let mut points = points();
            loop {
                let point = points.advance().ok_or("there is no such crash point")?;
                self.bring_up_to_date(&points)?;
                if point.position == position {
                    break;
                }
            }
            let states = points.states();
            let image = one_image(&states, choice as u64, choice / positions.len());
            self.apply(&states, &image)?;
            cut = FirstCut { position, image: image.choices().to_vec() };
        }
        self.prepared = contents(&self.scratch);
        self.prepared_devices = contents_of(&self.devices);
        self.first_cut = Some(cut);
        match self.what_is_left(&allowed) {
            Ok(state) => self.initial = Some(state),
            Err(failure) => self.not_survived = Some(failure),
        }
        Ok(())
    }

    /// Does what is beforehand; of the last operations the one with the most fences.
    fn most_fences(
        &self,
        live: &AnyShared,
        domain: &Modelled,
        devices: &[ModelledSsd],
        among: usize,
    ) -> Result<Candidate, String> {
        let mut best: Option<Candidate> = None;
        let from = self.before.len().saturating_sub(among);
        for (_, operation) in &self.before[..from] {
            self.subject.perform(live, operation)?;
        }
        let mut before = self.subject.observe(live)?;
        for (index, (_, operation)) in self.before.iter().enumerate().skip(from) {
            let (memory, held) = (contents(&self.region), contents_of(devices));
            domain.set_tracing(true);
            self.subject.perform(live, operation)?;
            let trace = domain.take_trace();
            domain.set_tracing(false);
            let after = self.subject.observe(live)?;
            let is_fence = |event: &&Event| matches!(event, Event::Fence { .. });
            let fences = trace.events.iter().filter(is_fence).count();
            if best.as_ref().is_none_or(|best| best.fences <= fences) {
                best = Some(Candidate {
                    operations: index + 1,
                    fences,
                    memory,
                    devices: held,
                    trace,
                    allowed: [before, after.clone()],
                });
            }
            before = after;
        }
        best.ok_or_else(|| "there is nothing beforehand".to_owned())
    }

    /// What there is after the cut, once it is recovered; a failure if that is not what was there before the operation or
    /// after it.
    fn what_is_left(&self, allowed: &[AnyState; 2]) -> Result<AnyState, Failure> {
        fill(&self.region, &self.prepared);
        let machine = Modelled::over(&self.region, Config::default());
        guarded(|| {
            let live = self.open_prepared(&machine)?.0;
            let contents = |what| Failure::Contents { what };
            let state = self.subject.observe(&live).map_err(contents)?;
            let [before, after] = allowed;
            match allowed.contains(&state) {
                true => Ok(state),
                false => Err(contents(difference(&state, &[before, after]))),
            }
        })
    }

    /// Opens what was prepared, on a machine over the region that holds it; and the block devices.
    pub(super) fn open_prepared(
        &self,
        machine: &Modelled,
    ) -> Result<(AnyShared, Vec<ModelledSsd>), Failure> {
        let open = |what| Failure::Open { what };
        // SAFETY: the pool is dropped before the region is used again.
        let storage = unsafe { self.storage(&self.region, Pool::open, machine, None) };
        let storage = storage.map_err(open)?;
        let devices = storage.devices.clone();
        hold(&devices, &self.prepared_devices);
        storage.abandon();
        let live = self.subject.open(storage).map_err(open)?;
        if self.first_cut.is_some() {
            // As a pool in use does in the background.
            let audit = self.subject.audit(&live);
            if !audit.is_clean() {
                return Err(Failure::Space { what: format!("{audit:?}") });
            }
        }
        Ok((live, devices))
    }
}

#[cfg(test)]
mod tests {
    use lapis_device::SchedulePolicy;
    use lapis_index::{IndexKind, IndexOptions};

    use super::*;
    use crate::concurrent::options::{ConcurrentOptions, Selection};
    use crate::concurrent::subjects::ConcurrentIndex;

    fn subject() -> ConcurrentIndex<u64> {
        ConcurrentIndex::new(IndexKind::Wort, "wort:u64", &["wort"], IndexOptions::default(), 64)
    }

    fn seeds() -> impl Iterator<Item = u64> {
        (1..200).filter(|&seed| begins_with_cut(seed))
    }

    #[test]
    fn one_history_of_four_begins_with_a_cut_if_there_is_anything_to_cut() {
        assert!((40..60).contains(&seeds().count()), "{}", seeds().count());
        let (subject, options) = (subject(), ConcurrentOptions::default());
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        let seed = seeds().next().unwrap();
        machines.prepare(seed, &Selection::default()).unwrap();
        assert!(machines.first_cut.is_some());
        machines
            .prepare(seed, &Selection { before: Some(Vec::new()), ..Selection::default() })
            .unwrap();
        assert!(machines.first_cut.is_none());
        let other = (1..200).find(|&seed| !begins_with_cut(seed)).unwrap();
        machines.prepare(other, &Selection::default()).unwrap();
        assert!(machines.first_cut.is_none());
    }

    #[test]
    fn all_schedules_of_one_history_begin_without() {
        let options =
            ConcurrentOptions { most_deviations: Some(1), ..ConcurrentOptions::default() };
        let subject = subject();
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        machines.prepare(seeds().next().unwrap(), &Selection::default()).unwrap();
        assert!(machines.first_cut.is_none());
    }

    #[test]
    fn what_was_done_up_to_the_cut_alone_gives_the_same_cut() {
        let (subject, options) = (subject(), ConcurrentOptions::default());
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        for seed in seeds().take(12) {
            machines.prepare(seed, &Selection::default()).unwrap();
            let done: Vec<u32> = machines.before.iter().map(|(number, _)| *number).collect();
            let (cut, left) = (machines.first_cut.clone(), machines.prepared.clone());
            machines
                .prepare(seed, &Selection { before: Some(done), ..Selection::default() })
                .unwrap();
            assert_eq!(machines.first_cut, cut);
            assert!(machines.prepared == left, "seed {seed} leaves something else");
        }
    }

    #[test]
    fn something_is_lost_in_some_cuts_and_the_history_goes_on_from_there() {
        let (subject, options) = (subject(), ConcurrentOptions::default());
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        let mut lossy = 0;
        for seed in seeds().take(12) {
            machines.prepare(seed, &Selection::default()).unwrap();
            let cut = machines.first_cut.as_ref().unwrap();
            lossy += usize::from(cut.image.contains(&0));
            let ran = machines.run(&SchedulePolicy::Random { seed }).unwrap();
            assert!(ran.wrong.is_none() && !ran.history.calls().is_empty());
        }
        assert!(lossy > 2, "{lossy}");
    }

    #[test]
    fn a_cut_that_leaves_something_else_is_a_violation_and_no_failure() {
        let (subject, options) = (subject(), ConcurrentOptions::default());
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        machines.prepare(seeds().nth(1).unwrap(), &Selection::default()).unwrap();
        let other = machines.initial.clone().unwrap();
        machines.prepare(seeds().next().unwrap(), &Selection::default()).unwrap();
        machines.not_survived = machines.what_is_left(&[other.clone(), other]).err();
        let ran = machines.run(&SchedulePolicy::Random { seed: 1 }).unwrap();
        let wrong = ran.wrong.unwrap().what;
        assert!(
            wrong.starts_with("before the history begins, its contents are wrong: "),
            "{wrong}"
        );
        // The next history has nothing to do with it.
        machines.prepare(seeds().nth(1).unwrap(), &Selection::default()).unwrap();
        assert!(machines.run(&SchedulePolicy::Random { seed: 1 }).unwrap().wrong.is_none());
    }

    #[test]
    fn what_cannot_be_opened_is_a_violation_and_no_failure() {
        let (subject, options) = (subject(), ConcurrentOptions::default());
        let mut machines = Machines::new(&subject, &options, false).unwrap();
        machines.prepare(seeds().next().unwrap(), &Selection::default()).unwrap();
        machines.prepared.fill(0);
        let ran = machines.run(&SchedulePolicy::Random { seed: 1 }).unwrap();
        let wrong = ran.wrong.unwrap();
        assert!(wrong.what.starts_with("before the history begins, "), "{}", wrong.what);
        assert!(wrong.at.is_none());
    }
}
