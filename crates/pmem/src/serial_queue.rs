//! A queue of requests that does each one as it comes, for devices that can do no better.

use std::collections::VecDeque;

use crate::block_device::{BlockDevice, BlockError, BlockQueue, Completion, Request};

/// See the [module](self). It keeps its device open.
#[derive(Debug)]
pub(crate) struct SerialQueue<B> {
    device: B,
    depth: u32,
    answered: VecDeque<Completion>,
}

impl<B: BlockDevice> SerialQueue<B> {
    /// One of a depth that a queue can have.
    pub(crate) fn new(device: B, depth: u32) -> Self {
        Self { device, depth, answered: VecDeque::new() }
    }

    fn answer(&self, request: Request) -> Completion {
        let operation = request.operation();
        match request {
            Request::Read { tag, first_block, mut buffer } => {
                let outcome = self.device.read_blocks(first_block, &mut buffer);
                Completion { tag, operation, buffer: Some(buffer), outcome }
            }
            Request::Write { tag, first_block, buffer } => {
                let outcome = self.device.write_blocks(first_block, &buffer);
                Completion { tag, operation, buffer: Some(buffer), outcome }
            }
            Request::Flush { tag } => {
                Completion { tag, operation, buffer: None, outcome: self.device.flush() }
            }
        }
    }
}

impl<B: BlockDevice> BlockQueue for SerialQueue<B> {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.answered.len() as u32
    }

    fn submit(&mut self, requests: &mut Vec<Request>) -> Result<u32, BlockError> {
        let room = (self.depth - self.in_flight()) as usize;
        let taken = requests.len().min(room);
        for request in requests.drain(..taken) {
            let answer = self.answer(request);
            self.answered.push_back(answer);
        }
        Ok(taken as u32)
    }

    fn complete(
        &mut self,
        _at_least: u32,
        completions: &mut Vec<Completion>,
    ) -> Result<u32, BlockError> {
        let given = self.in_flight();
        completions.extend(self.answered.drain(..));
        Ok(given)
    }
}
