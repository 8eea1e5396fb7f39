//! The command line as a user meets it: every test runs the built binary.

mod bad_input;
mod crash_requests;
mod crash_stopped;
mod crash_timeline;
mod demo;
mod documented_json;
mod documents;
mod import_export;
mod json_schema;
mod kills;
mod manual;
mod runner;
mod store_commands;
mod this_machine;
mod toy_index;
mod traces;
mod unchanged_program;
mod workloads;
