//! The indexes from outside: the conformance suite, and what is particular to each of them.

mod art;
mod conformance;
mod fptree;
mod p_clht;
mod radix_writers;
mod wb_tree;
mod wort;
