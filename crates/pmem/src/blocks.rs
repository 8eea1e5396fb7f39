//! Several blocks as one: what one fence makes durable, and what one word makes reachable.

use crate::cell::Persistent;
use crate::domain::Domain;
use crate::owned::{Durable, InFlight, Owned};

/// Says that the step is taken in its place in the order. Made in this crate alone, so nobody else
/// can call the methods that take one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct InOrder(pub(crate) ());

/// What one fence can make durable: an in-flight block or a tuple, option or vector of them.
pub trait Batch {
    /// The same, durable.
    type Durable;
    #[doc(hidden)]
    fn fenced(self, order: InOrder) -> Self::Durable;
}

/// What one word makes reachable, in persistence state `S`: a block or a tuple, option or vector of
/// blocks. One of them has its link in the word; the others hang from it, or lie in a place that the
/// word makes count.
pub trait Blocks<S> {
    /// Gives up ownership: from here the structure is responsible for the blocks.
    #[doc(hidden)]
    fn hand_over(self, order: InOrder);
}

impl<'p, D: Domain, T: Persistent> Batch for Owned<'p, D, T, InFlight> {
    type Durable = Owned<'p, D, T, Durable>;
    #[inline(always)]
    fn fenced(self, _: InOrder) -> Self::Durable {
        Owned::fenced(self)
    }
}

impl<D: Domain, T: Persistent, S> Blocks<S> for Owned<'_, D, T, S> {
    #[inline(always)]
    fn hand_over(self, _: InOrder) {
        let _ = self.into_link();
    }
}

impl Batch for () {
    type Durable = ();
    #[inline(always)]
    fn fenced(self, _: InOrder) {}
}

/// Nothing: the word leads to what is reachable already.
impl<S> Blocks<S> for () {
    #[inline(always)]
    fn hand_over(self, _: InOrder) {}
}

impl<B: Batch> Batch for Vec<B> {
    type Durable = Vec<B::Durable>;
    fn fenced(self, order: InOrder) -> Self::Durable {
        self.into_iter().map(|block| block.fenced(order)).collect()
    }
}

impl<S, B: Blocks<S>> Blocks<S> for Vec<B> {
    fn hand_over(self, order: InOrder) {
        self.into_iter().for_each(|block| block.hand_over(order));
    }
}

impl<B: Batch> Batch for Option<B> {
    type Durable = Option<B::Durable>;
    #[inline(always)]
    fn fenced(self, order: InOrder) -> Self::Durable {
        self.map(|block| block.fenced(order))
    }
}

impl<S, B: Blocks<S>> Blocks<S> for Option<B> {
    #[inline(always)]
    fn hand_over(self, order: InOrder) {
        if let Some(block) = self {
            block.hand_over(order);
        }
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        #[allow(non_snake_case)]
        impl<$($name: Batch),+> Batch for ($($name,)+) {
            type Durable = ($($name::Durable,)+);
            #[inline(always)]
            fn fenced(self, order: InOrder) -> Self::Durable {
                let ($($name,)+) = self;
                ($($name.fenced(order),)+)
            }
        }

        #[allow(non_snake_case)]
        impl<S, $($name: Blocks<S>),+> Blocks<S> for ($($name,)+) {
            #[inline(always)]
            fn hand_over(self, order: InOrder) {
                let ($($name,)+) = self;
                $($name.hand_over(order);)+
            }
        }
    };
}
tuple!(A B);
tuple!(A B C);
tuple!(A B C E);

#[cfg(test)]
mod tests {
    use crate::{Committed, PCell, Pool, Rejected};

    #[test]
    fn a_word_takes_the_blocks_only_if_it_is_published() {
        let pool = Pool::create_anonymous(1 << 20).unwrap();
        let allocated = || pool.usage().allocated_bytes;
        let top = PCell::new(7u64);
        let made = || pool.allocate::<PCell<u64>>().unwrap().flush();
        let before = allocated();
        let pair = pool.fence((made(), made()));
        let with = allocated();
        let (first, second) = (pair.0.link(), pair.1.link());
        let rejected = top
            .publish_word_if(pool.domain(), 8, pair, |(first, _)| first.link().bits() | 1)
            .err()
            .unwrap();
        let Rejected { found, blocks } = rejected;
        assert_eq!((found, blocks.0.link(), blocks.1.link()), (7, first, second));
        let published =
            top.publish_word_if(pool.domain(), 7, blocks, |(first, _)| first.link().bits() | 1);
        let _: Committed = published.unwrap().persist();
        assert_eq!(top.load(pool.domain()), first.bits() | 1);
        assert!(before < with && allocated() == with, "the blocks are the structure's");
        drop(pool.fence(made()));
        assert_eq!(allocated(), with, "a block that was not published goes back");
    }
}
