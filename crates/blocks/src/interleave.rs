//! Interleaving: many operations in flight on one thread, to hide the latency of persistent memory.
//!
//! After section 3.5 of A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building blocks for
//! persistent memory*, The VLDB Journal 29 (2020). An operation that misses the cache, or that waits
//! for a fence, stalls the thread; another operation could run meanwhile. Operations are written as
//! futures, which are stackless tasks; an [`Interleaver`] runs a group of them in turn:
//!
//! * [`Turn::prefetch`] asks for a line and lets the others run while it comes;
//! * [`Turn::fence`] waits for the *group fence*: the task has flushed what it wrote, and when no
//!   task of the group can go on without it, one fence serves all that wait. Each goes on only
//!   after a fence of its own thread that came after its flushes (rule R4 of
//!   [`lapis_pmem::domain`]), so it acknowledges nothing that is not durable;
//! * [`Turn::until`] waits for another task, as for a lock that one holds across a wait.
//!
//! ```text
//!  one by one   write flush fence···· write flush fence···· write flush fence····
//!  group of 3   write flush write flush write flush fence····
//! ```
//!
//! # When to use it
//!
//! For batches of independent operations on a structure that is larger than the caches: lookups gain
//! from the prefetches, updates from the group fence above all (the processor runs ahead across a
//! store fence by itself, and so hides the reads). About twenty in flight give what there is to
//! gain. A single operation gets slower: it waits for its group.
//!
//! # Cost
//!
//! One allocation per task slot and run, none per operation. A switch costs the poll of a future:
//! tens of instructions. Fences: a group of n tasks that each fence k times takes k, not n · k.
//!
//! ```
//! use lapis_blocks::interleave::Interleaver;
//! use lapis_pmem::{Domain, PCell, Pool};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::create_anonymous(1 << 20)?;
//! let domain = pool.domain();
//! let cells: Vec<_> = (0..64).map(|_| PCell::<u64>::new(0)).collect();
//! let mut acknowledged = 0;
//! Interleaver::new(domain, 16).run(
//!     &cells,
//!     |turn, cell| async move {
//!         turn.prefetch(std::ptr::from_ref(cell).cast()).await;
//!         cell.store(domain, 1);
//!         domain.flush(cell);
//!         turn.fence().await // 4 fences in all, one for 16 cells
//!     },
//!     |_committed| acknowledged += 1,
//! );
//! assert_eq!(acknowledged, 64);
//! # Ok(()) }
//! ```

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use lapis_pmem::{Committed, Domain};

/// A task waits for the group fence while others run at most this many rounds: operations that
/// never fence must not keep those that do from being acknowledged.
const MOST_ROUNDS_BEFORE_FENCE: u32 = 16;

/// What a task that is not done asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// To go on in the next round.
    Next,
    /// To go on after a fence.
    Fence,
    /// To look again in the next round whether it can go on.
    Retry,
}

/// Runs groups of tasks on the calling thread. See the [module](self).
#[derive(Debug)]
pub struct Interleaver<'d, D> {
    domain: &'d D,
    group: usize,
    /// What the task that has just been polled asks for.
    request: Cell<Request>,
    /// The latest fence.
    committed: Cell<Option<Committed>>,
    fences: u64,
}

/// A task's way to give up its turn.
#[derive(Debug)]
pub struct Turn<'t, D> {
    domain: &'t D,
    request: &'t Cell<Request>,
    committed: &'t Cell<Option<Committed>>,
}

impl<D> Clone for Turn<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Turn<'_, D> {}

impl<'t, D: Domain> Turn<'t, D> {
    /// Hints that the line at `at` will be read, and lets the others run while it comes.
    #[inline]
    pub async fn prefetch(&self, at: *const u8) {
        self.domain.prefetch(at);
        GiveUp { request: self.request, ask: Some(Request::Next) }.await;
    }

    /// Lets the others run.
    #[inline]
    pub async fn give_way(&self) {
        GiveUp { request: self.request, ask: Some(Request::Next) }.await;
    }

    /// Waits for the group's next fence. What the task has flushed, or copied past the caches,
    /// before is durable then.
    #[inline]
    pub async fn fence(&self) -> Committed {
        GiveUp { request: self.request, ask: Some(Request::Fence) }.await;
        // The interleaver resumes whoever asks for a fence after a fence only.
        self.committed.get().unwrap_or_else(|| Committed::after_fence(self.domain))
    }

    /// Waits until `ready` has something: for what another task of the group, or another thread,
    /// is to give back.
    #[inline]
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = ready() {
                return found;
            }
            GiveUp { request: self.request, ask: Some(Request::Retry) }.await;
        }
    }
}

/// Pending once.
struct GiveUp<'t> {
    request: &'t Cell<Request>,
    ask: Option<Request>,
}

impl Future for GiveUp<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.ask.take() {
            Some(ask) => {
                self.request.set(ask);
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

/// A task and what it waits for.
struct Slot<F> {
    task: Pin<Box<Option<F>>>,
    waits_for_fence: bool,
}

impl<'d, D: Domain> Interleaver<'d, D> {
    /// An interleaver of `group` tasks at a time, at least one.
    pub fn new(domain: &'d D, group: usize) -> Self {
        Self {
            domain,
            group: group.max(1),
            request: Cell::new(Request::Next),
            committed: Cell::new(None),
            fences: 0,
        }
    }

    /// Fences executed so far.
    pub fn fences(&self) -> u64 {
        self.fences
    }

    /// Begins a task for each input, keeps a group of them in flight until all are done, and gives
    /// each result to `done`, in the order in which they are done. An operation whose result has
    /// been given is durable if its task has fenced after its flushes.
    ///
    /// A task waits by what its [`Turn`] offers; other futures that are not ready are polled again
    /// and again, since nothing here listens for them.
    pub fn run<'t, I, B, F>(&'t mut self, inputs: I, mut begin: B, mut done: impl FnMut(F::Output))
    where
        I: IntoIterator,
        B: FnMut(Turn<'t, D>, I::Item) -> F,
        F: Future,
    {
        let Self { domain, group, request, committed, fences } = self;
        let (domain, request, committed) = (*domain, &*request, &*committed);
        let turn = Turn { domain, request, committed };
        let mut context = Context::from_waker(Waker::noop());
        let mut inputs = inputs.into_iter();
        let empty = || Slot { task: Box::pin(None), waits_for_fence: false };
        let mut slots: Vec<Slot<F>> = std::iter::repeat_with(empty).take(*group).collect();
        let mut rounds_waited = 0;
        loop {
            let (mut live, mut waiting, mut moved) = (0, 0, false);
            for slot in &mut slots {
                if slot.task.is_none() {
                    let Some(input) = inputs.next() else { continue };
                    slot.task.set(Some(begin(turn, input)));
                }
                live += 1;
                if slot.waits_for_fence {
                    waiting += 1;
                    continue;
                }
                request.set(Request::Retry);
                let Some(task) = slot.task.as_mut().as_pin_mut() else { continue };
                match task.poll(&mut context) {
                    Poll::Ready(result) => {
                        slot.task.set(None);
                        done(result);
                        moved = true;
                    }
                    Poll::Pending => {
                        slot.waits_for_fence = request.get() == Request::Fence;
                        waiting += usize::from(slot.waits_for_fence);
                        moved |= request.get() != Request::Retry;
                    }
                }
            }
            if live == 0 {
                return;
            }
            rounds_waited = if waiting > 0 { rounds_waited + 1 } else { 0 };
            if waiting == live || waiting > 0 && !moved || rounds_waited > MOST_ROUNDS_BEFORE_FENCE
            {
                committed.set(Some(Committed::after_fence(domain)));
                *fences += 1;
                rounds_waited = 0;
                slots.iter_mut().for_each(|slot| slot.waits_for_fence = false);
            } else if !moved {
                // All wait for something that this thread does not do.
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use lapis_pmem::{Hardware, Pool};

    use super::*;

    fn pool() -> Pool<Hardware> {
        Pool::create_anonymous(1 << 20).unwrap()
    }

    #[test]
    fn every_input_gives_its_result_whatever_the_group() {
        let pool = pool();
        for group in [0, 1, 3, 64] {
            let mut results = Vec::new();
            Interleaver::new(pool.domain(), group).run(
                0..10,
                |turn, number| async move {
                    for _ in 0..number % 3 {
                        turn.give_way().await;
                    }
                    number * 2
                },
                |result| results.push(result),
            );
            results.sort_unstable();
            assert_eq!(results, (0..10).map(|n| n * 2).collect::<Vec<_>>(), "group of {group}");
        }
    }

    #[test]
    fn a_group_shares_one_fence() {
        let pool = pool();
        for (group, fences) in [(1, 64), (2, 32), (16, 4), (64, 1), (100, 1)] {
            let mut interleaver = Interleaver::new(pool.domain(), group);
            interleaver.run(0..64, |turn, _| async move { turn.fence().await }, |_| ());
            assert_eq!(interleaver.fences(), fences, "group of {group}");
        }
    }

    #[test]
    fn no_task_passes_its_fence_before_the_others_have_come_to_theirs() {
        let pool = pool();
        let order = RefCell::new(Vec::new());
        let order = &order;
        Interleaver::new(pool.domain(), 3).run(
            0..3,
            |turn, number| async move {
                order.borrow_mut().push(("flushed", number));
                turn.fence().await;
                order.borrow_mut().push(("fenced", number));
            },
            |()| (),
        );
        let steps: Vec<_> = order.borrow().iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, ["flushed", "flushed", "flushed", "fenced", "fenced", "fenced"]);
    }

    #[test]
    fn a_task_waits_for_what_another_holds_across_its_fence() {
        let pool = pool();
        let taken = Cell::new(false);
        let (taken, order) = (&taken, &RefCell::new(Vec::new()));
        let mut interleaver = Interleaver::new(pool.domain(), 4);
        interleaver.run(
            0..4,
            |turn, number| async move {
                turn.until(|| (!taken.replace(true)).then_some(())).await;
                order.borrow_mut().push(number);
                turn.fence().await;
                order.borrow_mut().push(number);
                taken.set(false);
            },
            |()| (),
        );
        let order = order.borrow();
        assert!(order.chunks(2).all(|pair| pair[0] == pair[1]), "one at a time: {order:?}");
        assert_eq!(interleaver.fences(), 4);
    }

    #[test]
    fn tasks_that_never_fence_do_not_keep_a_fence_away() {
        let pool = pool();
        let fenced_after = Cell::new(None);
        let (fenced_after, others) = (&fenced_after, &Cell::new(0));
        Interleaver::new(pool.domain(), 2).run(
            0..1000,
            |turn, number| async move {
                if number == 0 {
                    turn.fence().await;
                    fenced_after.set(Some(others.get()));
                } else {
                    turn.give_way().await;
                    others.set(others.get() + 1);
                }
            },
            |()| (),
        );
        assert!(fenced_after.get().is_some_and(|others| others < 20), "{fenced_after:?}");
    }
}
