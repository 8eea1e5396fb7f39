//! What is shown of the examples.

mod flat_map;
mod ring;
mod side_by_side;
