//! The tests of the modelled machine, linked once.

mod block_device_conformance;
mod bounded_search;
mod c_header;
mod dram_words;
mod epochs;
mod litmus;
mod memory_and_block_devices;
mod modelled;
mod profiles;
mod scheduler;
mod ssd_litmus;
mod trace_file;
mod virtual_time;
