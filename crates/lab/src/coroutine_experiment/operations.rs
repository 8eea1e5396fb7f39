//! The operations, on this machine and on the modelled one.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use lapis_blocks::fp_leaves::{FpLeaves, FpLeavesRoot, Overlap};
use lapis_blocks::interleave::Interleaver;
use lapis_device::profile::Interleaving;
use lapis_device::{Modelled, Picoseconds, Profile};
use lapis_pmem::{Domain, Hardware, Link, PCell, Pool};

use super::{ExperimentError, Options, Variant};
use crate::experiment::meter::{Meter, ModelMeter, Section, WallClock};
use crate::keys::scatter;

/// Bytes of a leaf, as it lies in memory.
const LEAF_BYTES: usize = 576;
/// Pairs per leaf before the inserts, in the mean. Leaves are full at 32, which with 9 in the mean
/// hardly one in a thousand million is.
const FILL: usize = 8;
/// Lines at the end of a leaf whose slots that many pairs leave free.
const UNUSED_LINES: u64 = 4;
/// Tasks in flight where nobody looks at the clock.
const LOADING_GROUP: usize = 32;

/// Who is told what the core does.
pub(super) trait Core {
    /// The core's own share of an operation that overlaps so much begins, where the clock does not
    /// see it.
    #[inline(always)]
    fn operates(&self, _: Variant, _: Overlap) {}

    /// A task goes on after it has given way.
    #[inline(always)]
    fn resumes(&self, _: Variant) {}
}

/// Nobody: on this machine time passes by itself.
pub(super) struct Nobody;

impl Core for Nobody {}

/// The modelled machine sees memory; what the core does beside is the profile's to say.
pub(super) struct ModelledCore {
    machine: Modelled,
    costs: Interleaving,
}

impl ModelledCore {
    fn spend(&self, ns: f64) {
        self.machine.spend(0, Picoseconds::from_ns(ns));
    }
}

impl Core for ModelledCore {
    fn operates(&self, variant: Variant, overlap: Overlap) {
        self.spend(match variant {
            Variant::Lookup => self.costs.lookup_ns.value,
            _ => self.costs.insert_ns.value,
        });
        // A leaf is on one page, almost always, and none is visited twice in a while.
        let shown = if overlap.reads { self.costs.page_walk_shown.value } else { 1.0 };
        self.spend(self.costs.page_walk_ns.value * shown);
    }

    fn resumes(&self, variant: Variant) {
        self.spend(match variant {
            Variant::Lookup => self.costs.lookup_switch_ns.value,
            _ => self.costs.insert_switch_ns.value,
        });
    }
}

/// An operation that tells when it begins and whenever it is resumed.
async fn observed<C: Core, F: Future>(
    core: &C,
    variant: Variant,
    overlap: Overlap,
    operation: F,
) -> F::Output {
    core.operates(variant, overlap);
    let mut operation = pin!(operation);
    let mut begun = false;
    poll_fn(|context| {
        if std::mem::replace(&mut begun, true) {
            core.resumes(variant);
        }
        operation.as_mut().poll(context)
    })
    .await
}

pub(super) fn pool_bytes(leaves: usize) -> usize {
    (leaves * LEAF_BYTES + (8 << 20)).next_multiple_of(1 << 16)
}

/// Reads the lines of every leaf that hold no pair, which are more than the caches hold: eight lines
/// in nine are slots, and the last four of them are hardly ever used.
fn turn_over_the_caches<D: Domain>(pool: &Pool<D>, root: Link<FpLeavesRoot>, leaves: usize) {
    let first = root.offset() + size_of::<FpLeavesRoot>() as u64;
    for leaf in 0..leaves as u64 {
        for line in LEAF_BYTES as u64 / 64 - UNUSED_LINES..LEAF_BYTES as u64 / 64 {
            let at = first + leaf * LEAF_BYTES as u64 + line * 64;
            pool.at(Link::<PCell<u64>>::from_bits(at)).load(pool.domain());
        }
    }
}

/// The number-th key; never 0.
pub(super) fn key(number: usize) -> u64 {
    scatter(number as u64) | 1 << 63
}

/// Leaves in a new pool, with [`FILL`] pairs each in the mean: those of the keys from 0 on.
pub(super) fn filled_leaves<D: Domain>(
    pool: Pool<D>,
    leaf_count: usize,
) -> Result<(FpLeaves<D>, Link<FpLeavesRoot>, usize), ExperimentError> {
    let pool = Arc::new(pool);
    let made = pool.fence(FpLeaves::create(&pool, leaf_count)?);
    let root = made.link();
    let _ = pool.publish_root("leaves", 0, made)?.persist();
    let leaves = FpLeaves::open(&pool, root)?;
    let loaded = leaf_count * FILL;
    let keys: Vec<u64> = (0..loaded).map(key).collect();
    insert_all(&leaves, &keys, LOADING_GROUP, Variant::InsertOnce, Overlap::BOTH, &Nobody)?;
    Ok((leaves, root, loaded))
}

/// Inserts keys with so many in flight, in the variant's order; the value of a key is its complement.
pub(super) fn insert_all<D: Domain>(
    leaves: &FpLeaves<D>,
    keys: &[u64],
    group: usize,
    variant: Variant,
    overlap: Overlap,
    core: &impl Core,
) -> Result<(), ExperimentError> {
    let mut failed = None;
    let mut interleaver = Interleaver::new(leaves.pool().domain(), group);
    if variant == Variant::InsertOnce {
        interleaver.run(
            keys,
            |turn, &key| observed(core, variant, overlap, leaves.insert(turn, key, !key, overlap)),
            |inserted| failed = inserted.err().or(failed.take()),
        );
    } else {
        interleaver.run(
            keys,
            |turn, &key| {
                let insert = leaves.insert_as_published(turn, key, !key, overlap);
                observed(core, variant, overlap, insert)
            },
            |inserted| failed = inserted.err().or(failed.take()),
        );
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Looks keys up with so many in flight; how many do not have their value.
pub(super) fn look_up_all<D: Domain>(
    leaves: &FpLeaves<D>,
    keys: &[u64],
    group: usize,
    overlap: Overlap,
    core: &impl Core,
) -> u64 {
    let mut wrong = 0;
    Interleaver::new(leaves.pool().domain(), group).run(
        keys,
        |turn, &key| async move {
            let get = leaves.get(turn, key, overlap);
            let found = observed(core, Variant::Lookup, overlap, get);
            found.await == Some(!key)
        },
        |right| wrong += u64::from(!right),
    );
    wrong
}

/// Removes keys; how many were not there.
pub(super) fn remove_all<D: Domain>(leaves: &FpLeaves<D>, keys: &[u64]) -> u64 {
    let mut missing = 0;
    Interleaver::new(leaves.pool().domain(), LOADING_GROUP).run(
        keys,
        |turn, &key| leaves.remove(turn, key, Overlap::BOTH),
        |removed| missing += u64::from(!removed),
    );
    missing
}

/// Leaves on one machine, on which rows are run one after the other.
pub(super) struct Bench<D: Domain, M, C> {
    leaves: FpLeaves<D>,
    root: Link<FpLeavesRoot>,
    leaf_count: usize,
    loaded: usize,
    operations: usize,
    seed: u64,
    /// Rows that were run.
    rows: usize,
    meter: M,
    core: C,
}

impl Bench<Hardware, WallClock, Nobody> {
    /// On this machine.
    pub(super) fn here(options: &Options) -> Result<Self, ExperimentError> {
        let pool = Pool::create_anonymous(pool_bytes(options.leaves))?;
        Self::new(pool, WallClock, Nobody, options.leaves, options.operations, options.seed)
    }
}

impl Bench<Modelled, ModelMeter, ModelledCore> {
    /// On the machine of a profile, whose core's own share is `costs`.
    pub(super) fn modelled(
        options: &Options,
        profile: &Profile,
        costs: Interleaving,
    ) -> Result<Self, ExperimentError> {
        let (leaves, operations) = (options.modelled_leaves, options.modelled_operations);
        let bytes = pool_bytes(leaves);
        let (meter, pool) = ModelMeter::with_pool(profile.machine(), bytes, bytes)?;
        let core = ModelledCore { machine: meter.machine().clone(), costs };
        Self::new(pool, meter, core, leaves, operations, options.seed)
    }
}

impl<D: Domain, M: Meter, C: Core> Bench<D, M, C> {
    fn new(
        pool: Pool<D>,
        meter: M,
        core: C,
        leaf_count: usize,
        operations: usize,
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let (leaves, root, loaded) = filled_leaves(pool, leaf_count)?;
        Ok(Self { leaves, root, leaf_count, loaded, operations, seed, rows: 0, meter, core })
    }

    /// A row: so many operations in groups.
    pub(super) fn run(
        &mut self,
        variant: Variant,
        group: usize,
    ) -> Result<Section, ExperimentError> {
        let (leaves, operations, core) = (&self.leaves, self.operations, &self.core);
        let overlap = variant.overlap(group);
        // Spread over all that is loaded; others for each row.
        let number = |at| (self.rows * operations + at) as u64;
        let chosen =
            (0..operations).map(|at| scatter(number(at) ^ self.seed << 32) as usize % self.loaded);
        let chosen: Vec<u64> = chosen.map(key).collect();
        let fresh: Vec<u64> =
            (0..operations).map(|at| key(self.loaded + number(at) as usize)).collect();
        turn_over_the_caches(leaves.pool(), self.root, self.leaf_count);
        let (mut wrong, section) = self.meter.section(1, || match variant {
            Variant::Lookup => Ok(look_up_all(leaves, &chosen, group, overlap, core)),
            _ => insert_all(leaves, &fresh, group, variant, overlap, core).map(|()| 0),
        })?;
        if variant != Variant::Lookup {
            // The next group finds the leaves as this one did.
            wrong += remove_all(leaves, &fresh);
        }
        if wrong > 0 {
            return Err(wrong_answers(wrong, group));
        }
        self.rows += 1;
        Ok(section)
    }
}

/// Lookups that did not find what was inserted.
pub(super) fn wrong_answers(wrong: u64, group: usize) -> ExperimentError {
    ExperimentError::wrong(format!("{wrong} lookups in groups of {group} gave wrong answers"))
}
