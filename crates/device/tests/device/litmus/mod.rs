//! Each rule of `lapis_pmem::domain` as litmus tests: a few instructions, and the exact set of values
//! that a power cut may leave.
//!
//! Words are named by line and place in it: `a0` and `a1` share a line, `b0` lies in another.

mod bench;
mod crash_points;
mod pairs;
mod power_fail;
mod programs;
mod reference;
mod rules;
mod tearing;
mod visible_order;
