//! The modelled machine: caches, write pending queue, XPLine buffer, counters and crash images.
