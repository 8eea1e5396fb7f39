//! What stands in the experiment: the structures of Lapis, and those of whoever uses this crate.

use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_compiled_indexes::ModelledKey;
use lapis_device::Modelled;
use lapis_index::{
    AnyIndex, Change, Direction, Index, IndexError, IndexFamily, IndexKind, IndexOf, IndexOptions,
    Statistics, with_index,
};
use lapis_pmem::{Domain, Hardware, Pool};

use super::engine::{AnyContender, Erased};
use crate::experiment::ExperimentError;

/// The name of an index of Lapis in its pool.
pub(crate) const ROOT_NAME: &str = "index";

/// An index of one's own that is to stand beside those of Lapis: a map from integers to integers in a pool.
///
/// All methods may be called from many threads, and a change is durable when the call returns. The experiment checks
/// every answer; whether the index survives a power cut, `lapis-crash` tells. `examples/bring-your-own` has one.
pub trait OwnIndex<D: Domain>: Send + Sync + Sized {
    /// Makes an empty index in a new pool. [`IndexOptions::expected_entries`] are the keys it is to have room for
    /// at once, or 0.
    ///
    /// # Errors
    /// [`IndexError`].
    fn create(pool: Arc<Pool<D>>, options: &IndexOptions) -> Result<Self, IndexError>;

    /// Makes a change to a key, and tells the value that it had before.
    ///
    /// # Errors
    /// [`IndexError`]; the index is as it was.
    fn change(&self, key: u64, change: Change) -> Result<Option<u64>, IndexError>;

    /// The value of a key.
    fn get(&self, key: u64) -> Option<u64>;

    /// The values of many keys: `answer` is called with the place of each in `keys` and its value, in any order. Called
    /// with 64 keys at most.
    fn get_many(&self, keys: &[&u64], answer: &mut dyn FnMut(usize, Option<u64>)) {
        keys.iter().enumerate().for_each(|(place, key)| answer(place, self.get(**key)));
    }

    /// Adds many entries, in their order: `answer` is called with the place of each and the value that its key had.
    /// Called with 64 entries at most.
    ///
    /// # Errors
    /// [`IndexError`], of the first that cannot be added.
    fn insert_many(
        &self,
        entries: &[(&u64, u64)],
        answer: &mut dyn FnMut(usize, Option<u64>),
    ) -> Result<(), IndexError> {
        for (place, (key, value)) in entries.iter().enumerate() {
            answer(place, self.change(**key, Change::Insert(*value))?);
        }
        Ok(())
    }

    /// Visits the entries from a key on, in order, until the visitor breaks. Called if the index is
    /// [`in_order`](Contender::in_order).
    fn scan(&self, _from: &u64, _visit: &mut dyn FnMut(&u64, u64) -> ControlFlow<()>) {}

    /// Its size and depth, for the tables.
    fn statistics(&self) -> Statistics;
}

pub(crate) type Make<D> =
    fn(Pool<D>, &IndexOptions) -> Result<Box<dyn AnyContender>, ExperimentError>;

/// A structure that stands in the experiment. One of Lapis is made `from` its [`IndexKind`].
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    name: &'static str,
    is_ordered: bool,
    /// Makes an empty one in a pool, here or on the modelled machine.
    pub(super) on_hardware: Make<Hardware>,
    pub(crate) on_model: Make<Modelled>,
}

impl Contender {
    /// An index of one's own, by its types on this machine and on the modelled one.
    pub fn own<H, M>(name: &'static str) -> Self
    where
        H: OwnIndex<Hardware> + 'static,
        M: OwnIndex<Modelled> + 'static,
    {
        Self { name, is_ordered: false, on_hardware: make::<_, H>, on_model: make::<_, M> }
    }

    /// The same, and it keeps its keys in order: [`OwnIndex::scan`] is there.
    pub fn in_order(self) -> Self {
        Self { is_ordered: true, ..self }
    }

    /// What tables call it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether there are scans.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

impl From<IndexKind> for Contender {
    fn from(kind: IndexKind) -> Self {
        let own = with_index!(kind, |F| Self::own::<Here<F>, OnModel<F>>(kind.name()));
        if kind.is_ordered() { own.in_order() } else { own }
    }
}

/// Two of one name are the same.
impl PartialEq for Contender {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

fn make<D: Domain, T: OwnIndex<D> + 'static>(
    pool: Pool<D>,
    options: &IndexOptions,
) -> Result<Box<dyn AnyContender>, ExperimentError> {
    Ok(Box::new(Erased::<D, T>(T::create(Arc::new(pool), options)?, PhantomData)))
}

/// A structure of Lapis on this machine. It is compiled with the loops that are measured.
struct Here<F: IndexFamily>(IndexOf<F, Hardware, u64>);

/// A structure of Lapis on the modelled machine, where what is counted is the same behind a call.
struct OnModel<F>(AnyIndex<Modelled, u64>, PhantomData<fn(F)>);

macro_rules! of_lapis {
    ($structure:ident on $machine:ty, $create:expr, $scan:expr) => {
        impl<F: IndexFamily> OwnIndex<$machine> for $structure<F> {
            fn create(
                pool: Arc<Pool<$machine>>,
                options: &IndexOptions,
            ) -> Result<Self, IndexError> {
                $create(&pool, options)
            }

            #[inline]
            fn change(&self, key: u64, change: Change) -> Result<Option<u64>, IndexError> {
                Ok(self.0.change(&key, change)?.previous)
            }

            #[inline]
            fn get(&self, key: u64) -> Option<u64> {
                self.0.get(&key)
            }

            fn get_many(&self, keys: &[&u64], answer: &mut dyn FnMut(usize, Option<u64>)) {
                self.0.get_many(keys, answer);
            }

            fn insert_many(
                &self,
                entries: &[(&u64, u64)],
                answer: &mut dyn FnMut(usize, Option<u64>),
            ) -> Result<(), IndexError> {
                self.0.insert_many(entries, &mut |place, outcome| answer(place, outcome.previous))
            }

            #[inline]
            fn scan(&self, from: &u64, visit: &mut dyn FnMut(&u64, u64) -> ControlFlow<()>) {
                $scan(&self.0, Bound::Included(from), Direction::Forward, visit);
            }

            fn statistics(&self) -> Statistics {
                self.0.statistics()
            }
        }
    };
}
of_lapis!(
    Here on Hardware,
    |pool, options| Index::create_named(pool, ROOT_NAME, options).map(Self),
    F::scan
);
of_lapis!(
    OnModel on Modelled,
    |pool, options| {
        let index = u64::indexes().create_named(F::KIND, pool, ROOT_NAME, options)?;
        Ok(Self(index, PhantomData))
    },
    |index: &AnyIndex<Modelled, u64>, from, direction, visit| index.scan(from, direction, visit)
);
