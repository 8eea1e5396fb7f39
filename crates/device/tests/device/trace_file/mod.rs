//! The format of trace files: what is written comes back, and what is damaged, cut or unknown is
//! told apart.

mod damage;
mod fixture;
mod harness;
mod round_trip;
