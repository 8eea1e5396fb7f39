//! The commands, one file each.

pub mod backup;
pub mod check;
pub mod compact;
pub mod crash;
pub mod delete;
pub mod demo;
pub mod export;
pub mod get;
pub mod import;
pub mod info;
pub mod lab;
pub mod manual;
pub mod put;
pub mod replay;
pub mod scan;
pub mod trace;
pub mod ycsb;

use crate::arguments::Command;
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Carries out a command.
pub fn run(command: Command, output: &mut Output) -> Result<Verdict, Failure> {
    match command {
        Command::Demo(arguments) => demo::run(&arguments, output),
        Command::Import(arguments) => import::run(&arguments, output),
        Command::Export(arguments) => export::run(&arguments, output),
        Command::Get(arguments) => get::run(&arguments, output),
        Command::Put(arguments) => put::run(&arguments, output),
        Command::Delete(arguments) => delete::run(&arguments, output),
        Command::Scan(arguments) => scan::run(&arguments, output),
        Command::Info(arguments) => info::run(&arguments, output),
        Command::Check(arguments) => check::run(&arguments, output),
        Command::Ycsb(arguments) => ycsb::run(&arguments, output),
        Command::Replay(arguments) => replay::run(&arguments, output),
        Command::Backup(arguments) => arguments.run(output),
        Command::Restore(arguments) => arguments.run(output),
        Command::Compact(arguments) => compact::run(&arguments, output),
        Command::Crash(arguments) => crash::run(&arguments, output),
        Command::Trace(arguments) => trace::run(&arguments, output),
        Command::Lab(arguments) => lab::run(&arguments, output),
        Command::Help(arguments) => arguments.run(output),
        Command::Completions(arguments) => arguments.run(output),
        Command::Man(arguments) => arguments.run(output),
        Command::DemoWorker(arguments) => demo::run_worker(&arguments),
    }
}
