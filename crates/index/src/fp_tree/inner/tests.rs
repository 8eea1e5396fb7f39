//! The inner nodes against a sorted map.
