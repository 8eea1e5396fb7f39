//! What goes wrong in an SSD, by script or by seed.

use std::collections::{HashMap, HashSet};

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
    /// Requests of each kind so far.
    requests: HashMap<BlockOperation, u64>,
    /// Those that are to fail: what they do, and their number among those.
    scripted: HashSet<(BlockOperation, u64)>,
    damaged: HashMap<u64, BlockDamage>,
}

impl FaultState {
    pub(super) fn new(rates: SsdFaults) -> Self {
        Self {
            rates,
            random: Random::new(rates.seed),
            requests: HashMap::new(),
            scripted: HashSet::new(),
            damaged: HashMap::new(),
        }
    }

    /// As it was made, with the script and the damage.
    pub(super) fn begin_again(&mut self) {
        self.requests.clear();
        self.random = Random::new(self.rates.seed);
    }

    /// Lets a request fail, by its number among those of its kind.
    pub(super) fn fail(&mut self, operation: BlockOperation, number: u64) {
        self.scripted.insert((operation, number));
    }

    /// How many requests of this kind there have been.
    pub(super) fn requests(&self, operation: BlockOperation) -> u64 {
        self.requests.get(&operation).copied().unwrap_or_default()
    }

    /// The number of a request that is submitted.
    pub(super) fn number(&mut self, operation: BlockOperation) -> u64 {
        let next = self.requests.entry(operation).or_default();
        *next += 1;
        *next - 1
    }

    pub(super) fn damage(&mut self, block: u64, damage: BlockDamage) {
        self.damaged.insert(block, damage);
    }

    /// Where a request fails, if it does.
    pub(super) fn strike(
        &mut self,
        operation: BlockOperation,
        number: u64,
        first_block: u64,
        blocks: u64,
    ) -> Option<Strike> {
        let scripted = self.scripted.contains(&(operation, number));
        let rate = match operation {
            BlockOperation::Read => self.rates.read_errors_per_million,
            BlockOperation::Write => self.rates.write_errors_per_million,
            BlockOperation::Flush => self.rates.flush_errors_per_million,
            BlockOperation::Discard => 0,
        };
        if scripted | self.happens(rate) {
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
