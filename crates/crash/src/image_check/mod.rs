//! Recovering on one image and asking the oracle.

mod expectation;
mod guarded;
mod recovery;
mod second_crash;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lapis_device::{
    Config, CrashPoints, CrashStates, Image, LineBytes, LineRead, Modelled, ModelledSsd,
    PersistPointCount, StructuralEvent,
};
use lapis_pmem::{LINE_BYTES, Region, RegionError};

pub(crate) use self::expectation::{Expectation, Known, Recovered};
pub(crate) use self::guarded::{be_quiet, guarded};
use self::recovery::{Extent, Scratch, open, recover};
pub(crate) use self::recovery::{is_checked_whole, seed_after_recovery};
pub(crate) use self::second_crash::{FirstCrash, SecondCrash, shown};
use crate::erased::{AnyState, AnySubject};
use crate::options::ExploreOptions;
use crate::storage::{Contents, attach, contents_of, hold, limit};
use crate::strategy::Strategy;
use crate::subject::WalkMemory;

/// A scratch machine on which images are recovered one after the other.
pub(crate) struct ImageChecker {
    pub(crate) region: Region,
    /// Only tracks, and watches reads.
    light: Modelled,
    /// Tracks and records, for crashes during recovery.
    recording: Modelled,
    /// The block devices of either.
    devices: Vec<ModelledSsd>,
    recording_devices: Vec<ModelledSsd>,
    options: ExploreOptions,
    /// That of the last image after the operations.
    last_state: Cell<Option<AnyState>>,
    /// What walks over the structure may leave out, if whoever checks keeps it true.
    pub(crate) walks: Option<Rc<dyn WalkMemory>>,
    /// Lines that checks have put back to what they held.
    pub(crate) lines_copied: u64,
}

impl ImageChecker {
    /// A machine whose memory and block devices hold `base`.
    pub(crate) fn new(
        subject: &dyn AnySubject,
        base: &Contents,
        options: &ExploreOptions,
    ) -> Result<Self, String> {
        let reserve_bytes = subject.pool_bytes();
        let region =
            Region::anonymous(base.memory.len(), reserve_bytes).map_err(|e| e.to_string())?;
        base.lay_on(&region);
        let watching = options.strategy == Strategy::Pruned;
        let light = Modelled::over(&region, options.on(Config { watching, ..Config::tracking() }));
        let recording = Modelled::over(&region, options.on(Config::tracking_and_tracing()));
        let blocks = subject.device_blocks();
        let (devices, recording_devices) = (attach(&light, &blocks)?, attach(&recording, &blocks)?);
        for devices in [&devices, &recording_devices] {
            limit(devices, &subject.most_blocks(true));
            hold(devices, &base.devices);
        }
        // That the devices are there is nothing that a recovery does.
        recording.take_trace();
        Ok(Self {
            region,
            light,
            recording,
            devices,
            recording_devices,
            options: options.clone(),
            last_state: Cell::default(),
            walks: None,
            lines_copied: 0,
        })
    }

    /// Makes memory and block devices what they are durably at a crash point, from what they were at
    /// the one before.
    pub(crate) fn bring_up_to_date(&mut self, points: &CrashPoints<'_>) -> Result<(), RegionError> {
        points.bring_devices_up_to_date(&self.devices);
        points.bring_devices_up_to_date(&self.recording_devices);
        points.bring_up_to_date(&mut self.region)
    }

    /// Makes them an image.
    pub(crate) fn apply(
        &mut self,
        states: &CrashStates<'_>,
        image: &Image,
    ) -> Result<(), RegionError> {
        states.apply_to_devices(image, &self.devices);
        states.apply_to_devices(image, &self.recording_devices);
        states.apply(image, &mut self.region)
    }

    /// What they hold now, of which nothing was checked yet.
    pub(crate) fn contents(&self) -> Contents {
        let region = &self.region;
        // SAFETY: mapped, and only the caller uses the region.
        let memory = unsafe { std::slice::from_raw_parts(region.base(), region.mapped_bytes()) };
        Contents { memory: memory.to_vec(), devices: contents_of(&self.devices) }
    }

    /// Takes it back.
    pub(crate) fn revert(
        &mut self,
        states: &CrashStates<'_>,
        image: &Image,
    ) -> Result<(), RegionError> {
        self.devices.iter().chain(&self.recording_devices).for_each(ModelledSsd::revert);
        states.revert(image, &mut self.region)
    }

    /// Whether there is something besides memory.
    pub(crate) fn has_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Watches the reads of the lines and sectors that have several states.
    pub(crate) fn watch(&self, states: &CrashStates<'_>) {
        self.light.watch_reads(states.uncertain_lines().into_iter().flatten());
        self.watch_sectors(states);
    }

    /// Watches the reads of the sectors that have several states.
    pub(crate) fn watch_sectors(&self, states: &CrashStates<'_>) {
        for (number, device) in self.devices.iter().enumerate() {
            let sectors = states.uncertain_sectors();
            let own = sectors.filter(|(device, ..)| usize::from(*device) == number);
            device.watch_sectors(own.map(|(_, sector, _)| sector));
        }
    }

    /// Watches the reads of these lines, which are in ascending order.
    pub(crate) fn watch_lines(&self, lines: &[u32]) {
        self.light.watch_reads(lines.iter().copied());
    }

    /// Takes what the last check read of them.
    pub(crate) fn take_reads(&self, reads: &mut Vec<LineRead>) {
        self.light.take_reads(reads);
    }

    /// Adds the sectors that the last check read, whose places are behind those of the lines.
    pub(crate) fn add_sector_reads(&self, states: &CrashStates<'_>, reads: &mut Vec<LineRead>) {
        let lines = states.site_count() - states.uncertain_sectors().count();
        for (number, device) in self.devices.iter().enumerate() {
            for read in device.take_read_sectors() {
                let is_read = |(device, sector, _): (u8, u64, _)| {
                    (usize::from(device), sector) == (number, read)
                };
                let place = states.uncertain_sectors().position(is_read);
                let place = place.map(|place| (lines + place) as u32);
                reads.extend(place.map(|place| LineRead { place, bytes: u64::MAX, by_lock: None }));
            }
        }
    }

    /// Tells of the persist points that checks and second crashes have passed, and of the events in them.
    pub(crate) fn passed(
        &self,
        mut tell: impl FnMut(&[PersistPointCount], &BTreeMap<&'static str, StructuralEvent>),
    ) {
        for machine in [&self.light, &self.recording] {
            tell(&machine.persist_points(), &machine.events());
        }
    }

    /// The persist points that checks have passed, and how often.
    pub(crate) fn persist_points(&self) -> Vec<PersistPointCount> {
        self.light.persist_points()
    }

    /// Checks the image that the region holds, and leaves the region as it was. One in
    /// `whole_check_every` of what may have been recovered is checked whole.
    pub(crate) fn check<'r>(
        &mut self,
        subject: &dyn AnySubject,
        expectation: Expectation<'r>,
        seed: u64,
        whole_check_every: u64,
    ) -> Recovered<'r> {
        self.check_to(subject, expectation, seed, Extent::Check { whole_check_every }).0
    }

    /// The events that the recovery of the image that the region holds comes to: repairs, that is. Leaves the
    /// region as it was.
    pub(crate) fn repairs(
        &mut self,
        subject: &dyn AnySubject,
        expectation: Expectation<'_>,
    ) -> Vec<&'static str> {
        let before = self.light.events();
        let scratch = Scratch::of(&self.region, &self.devices, &self.last_state);
        let opened = guarded(|| {
            // SAFETY: the pool made from the alias is dropped here.
            unsafe { open(subject, &scratch, &self.light, expectation) }.map(drop)
        });
        self.light.revert(&mut self.region);
        self.devices.iter().for_each(ModelledSsd::revert);
        if opened.is_err() {
            return Vec::new();
        }
        let count = |name| before.get(name).map_or(0, |event| event.count);
        let after = self.light.events().into_iter();
        after.filter(|(name, event)| event.count > count(*name)).map(|(name, _)| name).collect()
    }

    /// [`ImageChecker::check`], of which only the operations, and everything after them, are left to do:
    /// that the rest is in order and `recovered` is what is there, is known. Says how much had been
    /// read before the operations; none if they were not tried.
    pub(crate) fn check_from<'r>(
        &mut self,
        subject: &dyn AnySubject,
        expectation: Expectation<'r>,
        seed: u64,
        whole_check_every: u64,
        recovered: Option<Known<'r>>,
    ) -> (Recovered<'r>, Option<usize>) {
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

    /// [`ImageChecker::check`], where the pool's storage is only `storage_bytes` long.
    pub(crate) fn check_shortened<'r>(
        &mut self,
        subject: &dyn AnySubject,
        storage_bytes: usize,
        expectation: Expectation<'r>,
        seed: u64,
    ) -> Recovered<'r> {
        let lost = self.region.mapped_bytes() - storage_bytes;
        // SAFETY: mapped, and nobody else uses the region.
        let tail = unsafe { self.region.base().add(storage_bytes) };
        // SAFETY: as above; it is copied at once.
        let held = unsafe { std::slice::from_raw_parts(tail, lost) }.to_vec();
        let scratch = Scratch::of(&self.region, &self.devices, &self.last_state);
        scratch.mapped.set(storage_bytes);
        // SAFETY: the pools made from the alias are dropped within the call.
        let result = guarded(|| unsafe {
            let extent = Extent::Check { whole_check_every: 1 };
            recover(subject, &scratch, &self.light, expectation, seed, extent)
        });
        self.light.revert(&mut self.region);
        self.devices.iter().for_each(ModelledSsd::revert);
        // SAFETY: the region has that much mapped, whatever a recovery has mapped there since.
        unsafe { tail.copy_from_nonoverlapping(held.as_ptr(), lost) };
        result
    }

    fn check_to<'r>(
        &mut self,
        subject: &dyn AnySubject,
        expectation: Expectation<'r>,
        seed: u64,
        extent: Extent,
    ) -> (Recovered<'r>, Option<usize>) {
        let scratch = Scratch::of(&self.region, &self.devices, &self.last_state)
            .remembering(self.walks.as_ref());
        // SAFETY: the pools made from the alias are dropped within the call.
        let result = guarded(|| unsafe {
            recover(subject, &scratch, &self.light, expectation, seed, extent)
        });
        let reads_before_operations = scratch.reads_before_operations.get();
        self.lines_copied += self.light.revert(&mut self.region) as u64;
        self.devices.iter().for_each(ModelledSsd::revert);
        (result, reads_before_operations)
    }
}

/// A word of a line, by its number.
#[inline]
pub(crate) fn read_word(region: &Region, line: u32, word: usize) -> u64 {
    let offset = line as usize * LINE_BYTES;
    if offset + LINE_BYTES > region.mapped_bytes() || word >= LINE_BYTES / 8 {
        return 0;
    }
    // SAFETY: mapped, aligned, and only the caller uses the region.
    u64::from_le(unsafe { region.base().add(offset).cast::<u64>().add(word).read() })
}

pub(crate) fn read_line(region: &Region, line: u32) -> LineBytes {
    let offset = line as usize * LINE_BYTES;
    if offset + LINE_BYTES > region.mapped_bytes() {
        return [0; LINE_BYTES];
    }
    // SAFETY: mapped, and only the caller uses the region.
    unsafe { region.base().add(offset).cast::<LineBytes>().read() }
}
