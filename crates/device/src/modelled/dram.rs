//! Words of ordinary memory on the modelled machine.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{DramWord, Word};

use super::Modelled;

/// A word of ordinary memory whose accesses the scheduler sees. Shared with the store buffers that
/// hold stores to it, which may leave after the structure has let go of it.
#[derive(Debug)]
pub struct ModelledWord<W> {
    word: Arc<AtomicU64>,
    width: PhantomData<W>,
}

impl<W: Word> DramWord<W, Modelled> for ModelledWord<W> {
    fn new(value: W) -> Self {
        Self { word: Arc::new(AtomicU64::new(value.widen())), width: PhantomData }
    }

    fn load(&self, domain: &Modelled, _order: Ordering) -> W {
        W::narrow(match domain.interleaving() {
            Some(interleaving) => domain.load_dram_buffered(interleaving, &self.word),
            None => self.word.load(Ordering::Acquire),
        })
    }

    fn store(&self, domain: &Modelled, value: W, _order: Ordering) {
        match domain.interleaving() {
            Some(interleaving) => domain.buffer_dram(interleaving, &self.word, value.widen()),
            None => self.word.store(value.widen(), Ordering::Release),
        }
    }

    fn swap(&self, domain: &Modelled, value: W) -> W {
        domain.empty_own_buffer();
        W::narrow(self.word.swap(value.widen(), Ordering::AcqRel))
    }

    fn compare_exchange(&self, domain: &Modelled, current: W, new: W) -> Result<W, W> {
        domain.empty_own_buffer();
        let (current, new) = (current.widen(), new.widen());
        let orders = (Ordering::AcqRel, Ordering::Acquire);
        let found = self.word.compare_exchange(current, new, orders.0, orders.1);
        found.map(W::narrow).map_err(W::narrow)
    }
}
