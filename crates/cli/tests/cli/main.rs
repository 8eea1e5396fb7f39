//! The command line as a user meets it: every test runs the built binary.

mod bad_input;
mod demo;
mod documented_json;
mod import_export;
mod kills;
mod runner;
mod store_commands;
mod traces;
mod workloads;
