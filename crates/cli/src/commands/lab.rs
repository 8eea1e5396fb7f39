//! lab
use crate::failure::*;
use crate::output::Output;
use clap::Args;
/// x
#[derive(Debug, Args)]
pub struct Arguments {}
/// x
pub fn run(_: &Arguments, _: &mut Output) -> Result<Verdict, Failure> {
    todo!()
}
