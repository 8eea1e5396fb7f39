//! What trees look like: depths, fill, and the sizes of the papers.

mod wb_tree;
mod wort;
