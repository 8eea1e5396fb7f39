//! Recorded traces: what they show of themselves, what the program's own check says of its crash
//! images, and a program in C from end to end.

mod budget;
mod c_program;
mod checkers;
mod claims;
mod commands;
mod minimal;
mod program;
mod reference;
mod structures;
