//! Workloads and experiments over the indexes and the store.
