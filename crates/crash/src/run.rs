//! Running a subject's operations once on the modelled machine, and recording what they did.

use lapis_device::{Config, Marker, Modelled, PersistPoint, Trace};
use lapis_pmem::{Pool, Region};

use crate::options::ExploreOptions;
use crate::subject::{Live, Subject};

/// A recorded run. Operation 0 is the creation, operations 1 to n are the subject's, and the last is
/// the clean shutdown.
pub(crate) struct Run<S: Subject> {
    pub(crate) trace: Trace,
    pub(crate) operations: Vec<S::Operation>,
    /// The number of each in the sequence that the seed gives, from 1 on: others may have been left
    /// out between them.
    pub(crate) numbers: Vec<usize>,
    /// The state after each operation; `states[0]` after the creation. The shutdown, which is the
    /// last, changes nothing.
    pub(crate) states: Vec<S::State>,
    /// Every persist point that was passed.
    pub(crate) points: Vec<PersistPoint>,
    /// What the memory held before.
    pub(crate) base: Vec<u8>,
}

/// After this many operations the pool is closed and opened again, so that crashes in shutdown and
/// in open are among the crash points.
const REOPEN_EVERY: usize = 61;

impl<S: Subject> Run<S> {
    /// Runs the operations that `options` name.
    pub(crate) fn record(subject: &S, options: &ExploreOptions) -> Result<Self, String> {
        let pool_bytes = subject.pool_bytes();
        let kept = |number: &usize| options.keep.as_ref().is_none_or(|keep| keep.contains(number));
        let (numbers, operations): (Vec<_>, Vec<_>) = (1..)
            .zip(subject.operations(options.ops, options.seed))
            .filter(|(number, _)| kept(number))
            .unzip();
        let region = Region::anonymous(pool_bytes, pool_bytes).map_err(|e| e.to_string())?;
        let base = vec![subject.prior_contents(); pool_bytes];
        // SAFETY: freshly mapped, that long, and not used by anybody yet.
        unsafe { region.base().copy_from_nonoverlapping(base.as_ptr(), pool_bytes) };
        let domain = Modelled::over(&region, options.on(Config::tracing()));
        // SAFETY: `region` outlives every pool made here, and only they use the memory.
        let alias = || unsafe { region.alias() };

        domain.mark(Marker::Begin(0));
        let pool = Pool::create(alias(), domain.clone()).map_err(|e| e.to_string())?;
        let mut live = subject.create(pool)?;
        domain.mark(Marker::End(0));
        let mut states = vec![subject.initial()];
        for (index, operation) in operations.iter().enumerate() {
            let number = index as u32 + 1;
            domain.mark(Marker::Begin(number));
            if numbers[index].is_multiple_of(REOPEN_EVERY) {
                drop(live);
                let pool = Pool::open(alias(), domain.clone()).map_err(|e| e.to_string())?;
                live = subject.open(pool)?.ok_or("the structure is gone after a clean reopen")?;
            }
            live.perform(operation)?;
            domain.mark(Marker::End(number));
            let mut state = states[index].clone();
            subject.apply(&mut state, operation);
            states.push(state);
        }
        let observed = live.observe()?;
        if Some(&observed) != states.last() {
            return Err("without any crash, the contents differ from the model".to_owned());
        }
        let shutdown = operations.len() as u32 + 1;
        domain.mark(Marker::Begin(shutdown));
        drop(live);
        domain.mark(Marker::End(shutdown));
        states.extend(states.last().cloned());
        let points = domain.persist_points().iter().map(|found| found.point).collect();
        let trace = domain.take_trace();
        Ok(Self { trace, operations, numbers, states, points, base })
    }
}
