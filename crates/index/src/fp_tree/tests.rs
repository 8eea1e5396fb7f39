//! Tests of the whole structure; those of one mechanism are in the modules below.
