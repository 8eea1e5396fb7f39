//! What a machine does for the block devices that are attached to it.

use super::Modelled;
use crate::counting::timing::Picoseconds;
use crate::scheduler::Turn;
use crate::scheduler::worker::current_worker;
use crate::trace::Trace;

impl Modelled {
    /// The number of a device that is attached now.
    pub(crate) fn number_device(&self) -> u8 {
        let mut state = self.machine.state.lock();
        let number = state.devices;
        state.devices = number.checked_add(1).expect("at most 255 devices at one machine");
        number
    }

    /// Lets `note` add to the trace what the calling worker does, if it is recorded.
    pub(crate) fn record(&self, note: impl FnOnce(&mut Trace, u8)) {
        let mut state = self.machine.state.lock();
        if state.tracing {
            note(&mut state.trace, current_worker());
        }
    }

    /// The calling worker submits a request. Telling a device is a store that no store buffer holds
    /// back: what the worker has stored is visible before.
    pub(crate) fn request_point(&self) {
        self.empty_own_buffer();
    }

    /// The calling worker waits for answers: others may come first.
    pub(crate) fn answer_point(&self) {
        if let Some(interleaving) = self.interleaving() {
            self.turn(interleaving, Turn::Persists);
        }
    }

    /// How often the clocks were reset, with nothing left on its way anywhere.
    pub(crate) fn clock_resets(&self) -> u64 {
        self.machine.state.lock().clock_resets
    }

    /// The clock of a worker of a machine that counts nothing.
    pub(crate) fn with_plain_clock<T>(
        &self,
        worker: u8,
        look: impl FnOnce(&mut Picoseconds) -> T,
    ) -> T {
        let mut state = self.machine.state.lock();
        let at = usize::from(worker);
        if at >= state.clocks.len() {
            state.clocks.resize(at + 1, Picoseconds::default());
        }
        look(&mut state.clocks[at])
    }

    pub(crate) fn forget_plain_clocks(&self) {
        let mut state = self.machine.state.lock();
        state.clocks.clear();
        state.clock_resets += 1;
    }
}
