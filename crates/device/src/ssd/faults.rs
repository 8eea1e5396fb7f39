//! What goes wrong in an SSD, by script or by seed.

use std::collections::HashMap;

use lapis_pmem::BlockOperation;
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Faults that come at random, determined by a seed. Rates are in parts per million; the default is
/// a device without faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SsdFaults {
    /// Determines which requests fail and which bits rot.
    pub seed: u64,
    /// Reads that fail.
    pub read_errors_per_million: u32,
    /// Writes that fail: each sector of them is then old or new.
    pub write_errors_per_million: u32,
    /// Flushes that fail.
    pub flush_errors_per_million: u32,
    /// Written blocks in which one bit rots at once. The device does not notice.
    pub rotten_blocks_per_million: u32,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockDamage {
    /// Reads fail until the block is written again, which moves it elsewhere on the media.
    UntilWritten,
    /// Reads and writes fail for good.
    Permanent,
}

/// A failure of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strike {
    /// The block that the error names.
    pub(super) block: u64,
    /// That block is never written again.
    pub(super) dead: bool,
}

#[derive(Debug)]
pub(super) struct FaultState {
    rates: SsdFaults,
    random: Random,
    /// Requests of each kind to come before one fails; the next fails at zero.
    scripted: HashMap<BlockOperation, Vec<u64>>,
    damaged: HashMap<u64, BlockDamage>,
}

impl FaultState {
    pub(super) fn new(rates: SsdFaults) -> Self {
        Self {
            rates,
            random: Random::new(rates.seed),
            scripted: HashMap::new(),
            damaged: HashMap::new(),
        }
    }

    /// Lets the request of this kind fail that comes after `requests` others.
    pub(super) fn fail_after(&mut self, operation: BlockOperation, requests: u64) {
        self.scripted.entry(operation).or_default().push(requests);
    }

    pub(super) fn damage(&mut self, block: u64, damage: BlockDamage) {
        self.damaged.insert(block, damage);
    }

    /// Where a request fails, if it does.
    pub(super) fn strike(
        &mut self,
        operation: BlockOperation,
        first_block: u64,
        blocks: u64,
    ) -> Option<Strike> {
        let mut fails = false;
        if let Some(countdowns) = self.scripted.get_mut(&operation) {
            countdowns.retain_mut(|left| {
                fails |= *left == 0;
                *left = left.wrapping_sub(1);
                *left != u64::MAX
            });
        }
        let rate = match operation {
            BlockOperation::Read => self.rates.read_errors_per_million,
            BlockOperation::Write => self.rates.write_errors_per_million,
            BlockOperation::Flush => self.rates.flush_errors_per_million,
            BlockOperation::Discard => 0,
        };
        fails |= self.happens(rate);
        if fails {
            return Some(Strike { block: first_block, dead: false });
        }
        let run = first_block..first_block + blocks;
        match operation {
            BlockOperation::Flush => None,
            BlockOperation::Read => {
                let block = run.into_iter().find(|at| self.damaged.contains_key(at))?;
                Some(Strike { block, dead: false })
            }
            BlockOperation::Write | BlockOperation::Discard => {
                let lost = |at: &u64| self.damaged.get(at) == Some(&BlockDamage::Permanent);
                let found = run.clone().find(lost);
                if found.is_none() {
                    run.for_each(|at| _ = self.damaged.remove(&at));
                }
                Some(Strike { block: found?, dead: true })
            }
        }
    }

    /// Which bit of a block that is being written rots, if one does.
    pub(super) fn rot(&mut self, block_bits: usize) -> Option<usize> {
        let rots = self.happens(self.rates.rotten_blocks_per_million);
        rots.then(|| self.random.below(block_bits))
    }

    /// Whether a sector of a failed write is the new one.
    pub(super) fn lands(&mut self) -> bool {
        self.random.below(2) == 1
    }

    fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.random.below(1_000_000) < per_million as usize
    }
}
