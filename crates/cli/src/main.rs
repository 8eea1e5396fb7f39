//! The `lapis` command line.

fn main() {}
