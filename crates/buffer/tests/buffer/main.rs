//! The space of pages from outside, on a device that misbehaves.

mod space;
