//! The indexes from outside: the conformance suite, and what is particular to each of them.

mod conformance;
mod costs;
mod hold_ups;
mod radix_writers;
mod shapes;
mod watched;

// Compiled already.
use lapis_compiled_indexes as _;
