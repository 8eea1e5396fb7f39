//! What a structure under test keeps its state on.

use lapis_device::{Modelled, ModelledSsd, SsdConfig};
use lapis_pmem::{BlockOperation, Pool, Region};

use crate::erased::AnySubject;

/// What a subject creates or opens its structure on: all of it is part of one machine, with one clock
/// and one order of events, and is cut by the same power cut.
#[derive(Debug)]
pub struct Storage {
    /// The pool; none for a subject that asks for no bytes.
    pub pool: Option<Pool<Modelled>>,
    /// The block devices, as many as the subject asks for, in its order.
    pub devices: Vec<ModelledSsd>,
    /// The machine that all of it is part of.
    pub machine: Modelled,
}

impl Storage {
    /// The pool, for a subject that keeps its state in nothing else.
    ///
    /// # Panics
    /// If the subject asked for no bytes.
    pub fn into_pool(self) -> Pool<Modelled> {
        self.pool.expect("a pool is had by asking for its bytes")
    }

    /// Lets go of the pool as a crash would.
    pub(crate) fn abandon(&self) {
        self.pool.iter().for_each(Pool::abandon);
    }
}

/// A request to a block device that fails: of a write, each sector is the old or the new one then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFault {
    /// The operation during which it happens, by number from 1 on.
    pub operation: usize,
    /// The device, from 0 on.
    pub device: usize,
    /// What kind of request.
    pub request: BlockOperation,
    /// So many of its kind come before it.
    pub after: u64,
}

/// Block devices of so many blocks each, at a machine.
pub(crate) fn attach(machine: &Modelled, blocks: &[u64]) -> Result<Vec<ModelledSsd>, String> {
    let device = |&blocks: &u64| ModelledSsd::attached_to(machine, blocks, SsdConfig::default());
    blocks.iter().map(device).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Gives fresh memory what it holds before a subject is created: `base`, of which what lies outside of the subject's
/// range is zero, as the memory is.
pub(crate) fn hold_before(subject: &dyn AnySubject, region: &Region, base: &[u8]) {
    let range = subject.prior_range();
    let held = &base[range.clone()];
    // SAFETY: freshly mapped, as long as `base`, and not used by anybody yet.
    unsafe { region.base().add(range.start).copy_from_nonoverlapping(held.as_ptr(), held.len()) };
}

/// From here on devices grow to so many blocks at most.
pub(crate) fn limit(devices: &[ModelledSsd], most_blocks: &[u64]) {
    devices.iter().zip(most_blocks).for_each(|(device, most)| device.limit_to(*most));
}

/// Lets happen what is planned for an operation.
pub(crate) fn plan_faults(faults: &[DeviceFault], operation: usize, devices: &[ModelledSsd]) {
    for fault in faults.iter().filter(|fault| fault.operation == operation) {
        if let Some(device) = devices.get(fault.device) {
            device.fail_after(fault.request, fault.after);
        }
    }
}
