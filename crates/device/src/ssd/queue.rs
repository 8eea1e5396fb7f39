//! Queues of a modelled SSD: requests take effect when their completion is given.

use lapis_pmem::{BlockBuffer, BlockError, BlockOperation, BlockQueue, Completion, Request};

use super::{ModelledSsd, Payload, Started};

#[derive(Debug)]
pub(super) struct ModelledQueue {
    device: ModelledSsd,
    depth: u32,
    flights: Vec<Flight>,
    /// Requests that the device never saw.
    refused: Vec<Completion>,
}

#[derive(Debug)]
struct Flight {
    tag: u64,
    buffer: Option<BlockBuffer>,
    started: Started,
}

impl ModelledQueue {
    pub(super) fn new(device: ModelledSsd, depth: u32) -> Self {
        Self { device, depth, flights: Vec::new(), refused: Vec::new() }
    }

    fn start(&mut self, request: Request) -> Result<(), Completion> {
        let operation = request.operation();
        let (tag, first_block, mut buffer) = request.into_parts();
        let bytes = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let shared = &*self.device.shared;
        shared.request_point();
        let mut state = shared.state.lock();
        let blocks = match BlockError::check_run(state.capacity_blocks, first_block, bytes) {
            Ok(blocks) => blocks,
            Err(error) => return Err(Completion { tag, operation, buffer, outcome: Err(error) }),
        };
        shared.counters.count(operation, bytes);
        if let Err(error) = state.check_not_lost(operation) {
            return Err(Completion { tag, operation, buffer, outcome: Err(error) });
        }
        let started =
            state.start(shared, operation, first_block, blocks, &payload(operation, &mut buffer));
        drop(state);
        self.flights.push(Flight { tag, buffer, started });
        Ok(())
    }
}

fn payload(operation: BlockOperation, buffer: &mut Option<BlockBuffer>) -> Payload<'_> {
    match (operation, buffer) {
        (BlockOperation::Read, Some(buffer)) => Payload::Read(buffer),
        (_, Some(buffer)) => Payload::Write(buffer),
        (_, None) => Payload::None,
    }
}

impl BlockQueue for ModelledQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        (self.flights.len() + self.refused.len()) as u32
    }

    fn submit(&mut self, requests: &mut Vec<Request>) -> Result<u32, BlockError> {
        let room = (self.depth - self.in_flight()) as usize;
        let taken = requests.len().min(room);
        for request in requests.drain(..taken) {
            if let Err(refused) = self.start(request) {
                self.refused.push(refused);
            }
        }
        Ok(taken as u32)
    }

    fn complete(
        &mut self,
        at_least: u32,
        completions: &mut Vec<Completion>,
    ) -> Result<u32, BlockError> {
        let mut given = self.refused.len();
        completions.append(&mut self.refused);
        self.flights.sort_by_key(|flight| flight.started.done_at);
        let shared = &*self.device.shared;
        shared.answer_point();
        let mut state = shared.state.lock();
        // Waits for as many as are still missing; whatever is done by then comes too.
        let missing = (at_least as usize).saturating_sub(given).min(self.flights.len());
        if missing > 0 {
            shared.wait_until(&mut state, self.flights[missing - 1].started.done_at.0);
        }
        let now_ns = shared.now_ns(&state);
        let done = self.flights.partition_point(|flight| flight.started.done_at.0 <= now_ns);
        let taken = match &mut state.reorder {
            None => done,
            // An answer may be on its way when the queue is asked.
            Some(random) => missing + random.below(done - missing + 1),
        };
        for Flight { tag, mut buffer, started } in self.flights.drain(..taken) {
            let operation = started.operation;
            let outcome = state.finish(shared, started, &mut payload(operation, &mut buffer));
            completions.push(Completion { tag, operation, buffer, outcome });
            given += 1;
        }
        Ok(given as u32)
    }
}

impl Drop for ModelledQueue {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while self.in_flight() > 0 {
            let _ = self.complete(self.in_flight(), &mut completions);
        }
    }
}
