//! The indexes from outside: the conformance suite, and what is particular to each of them.

mod at_fence;
mod conformance;
mod costs;
mod counted;
mod flooding;
mod hold_ups;
mod radix_writers;
mod schedules;
mod shapes;

// Compiled already.
use lapis_compiled_indexes as _;
