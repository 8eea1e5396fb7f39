//! What a structure under test keeps its state on.

use lapis_device::{Modelled, ModelledSsd, SsdConfig, SsdContents};
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

/// What memory and block devices hold before something happens.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) memory: Vec<u8>,
    /// Those of each device; none if they are new.
    pub(crate) devices: Vec<SsdContents>,
}

/// What is not laid on fresh memory where it is zero.
const PIECE_BYTES: usize = 4096;

impl Contents {
    /// Before a subject creates its structure.
    pub(crate) fn before_creation(subject: &dyn AnySubject) -> Self {
        let mut memory = vec![0; subject.created_bytes()];
        memory[subject.prior_range()].fill(subject.prior_contents());
        Self { memory, devices: Vec::new() }
    }

    /// Gives them to fresh memory, which is zero.
    pub(crate) fn lay_on(&self, region: &Region) {
        assert!(self.memory.len() <= region.mapped_bytes(), "there is not so much memory");
        for (number, piece) in self.memory.chunks(PIECE_BYTES).enumerate() {
            if piece.iter().any(|&byte| byte != 0) {
                // SAFETY: freshly mapped, at least as long as `memory`, and not used by anybody yet.
                unsafe {
                    let at = region.base().add(number * PIECE_BYTES);
                    at.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                }
            }
        }
    }
}

/// What block devices hold.
pub(crate) fn contents_of(devices: &[ModelledSsd]) -> Vec<SsdContents> {
    devices.iter().map(ModelledSsd::contents).collect()
}

/// Gives it to them, as far as there is anything to give.
pub(crate) fn hold(devices: &[ModelledSsd], contents: &[SsdContents]) {
    devices.iter().zip(contents).for_each(|(device, held)| device.hold(held));
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
