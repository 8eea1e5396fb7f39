//! A tree on pages of one SSD, with a log on another: power cuts come to both at once, and in recovery.

mod logged;
mod one_worker;
mod several_workers;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
