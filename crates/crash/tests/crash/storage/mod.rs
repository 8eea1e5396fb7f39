//! Structures on persistent memory and an SSD together, with failing requests and with a worker of
//! their own that writes back; and structures with words in DRAM.

mod one_worker;
mod page_store;
mod several_workers;
mod words_in_dram;
