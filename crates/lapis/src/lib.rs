//! An embedded, ordered, transactional key-value store for DRAM, persistent memory and SSD.
