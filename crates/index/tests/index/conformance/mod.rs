//! The conformance suite: every structure, with both kinds of keys, through the same tests.
//!
//! The structures are those of the list in `lib.rs`; the tests themselves are functions in
//! `conformance/` that are told which one, and are compiled once for each kind of keys.

/// The tests of one structure with one kind of keys.
macro_rules! suite {
    (@module $arguments:tt $module:ident $($(#[$attribute:meta])* $test:ident)+) => {
        $(suite! { @test $arguments $module $(#[$attribute])* $test })+
    };
    (@test [$tested:expr, $($key:ty)?] $module:ident $(#[$attribute:meta])* $test:ident) => {
        #[test]
        $(#[$attribute])*
        fn $test() {
            $crate::conformance::$module::$test$(::<$key>)?($tested);
        }
    };
    ($arguments:tt $($module:ident: $($(#[$attribute:meta])* $test:ident)+;)+) => {
        $(suite! { @module $arguments $module $($(#[$attribute])* $test)+ })+
    };
}

/// The tests that every structure passes with every kind of keys.
macro_rules! suite_of_every_index {
    ($tested:expr, $key:ty) => {
        suite! { [$tested, $key]
            semantics:
                insert_adds_an_absent_key_and_leaves_a_present_one
                update_changes_a_present_key_only
                put_adds_or_replaces
                remove_takes_a_present_key_only
                the_extreme_keys_and_values_are_ordinary
                an_empty_index_has_nothing;
            patterns:
                dense_keys sparse_keys clustered_keys reverse_keys random_keys
                a_bounded_live_set_takes_bounded_space;
            lifecycle:
                #[cfg_attr(miri, ignore = "files")]
                a_reopened_index_holds_what_it_held
                #[cfg_attr(miri, ignore = "files")]
                an_index_abandoned_as_by_a_crash_holds_what_was_acknowledged
                two_indexes_in_one_pool_do_not_meet
                a_root_of_another_kind_is_refused
                a_root_of_another_key_kind_is_refused
                a_newer_format_is_refused
                a_second_handle_is_refused_unless_locks_are_in_the_pool
                #[cfg_attr(miri, ignore = "time")]
                a_full_pool_refuses_cleanly_and_takes_keys_again_after_removals
                iteration_stops_when_it_is_told_to;
            concurrency:
                four_threads_change_their_own_keys
                threads_that_are_held_up_keep_their_keys
                four_threads_change_the_same_keys
                readers_never_see_a_value_go_back
                keys_that_stay_are_found_while_others_come_and_go
                one_key_contended_by_four_threads_has_one_history;
            beside_writers:
                a_stalled_writer_does_not_stop_lock_free_readers
                a_stalled_writer_does_not_stop_concurrent_writers
                readers_find_what_stays_at_every_fence_of_a_writer
                look_ups_under_way_find_what_stays
                a_reader_that_sees_a_change_before_its_fence_persists_it;
            damage:
                #[cfg_attr(miri, ignore = "files")]
                no_damage_makes_check_or_visit_blocks_panic;
            costs:
                #[cfg_attr(miri, ignore = "time")]
                inserts_cost_what_the_table_says
                what_changes_nothing_costs_nothing;
            model:
                behaves_like_a_sorted_map;
        }
    };
}

macro_rules! suite_of_byte_keys {
    ($tested:expr) => {
        suite! { [$tested,]
            byte_keys:
                keys_of_one_byte_and_of_the_greatest_length
                prefixes_of_each_other_are_different_keys
                zero_bytes_count
                empty_and_overlong_keys_are_refused
                long_common_prefixes;
        }
    };
}

macro_rules! suite_of_ordered_indexes {
    ($tested:expr, $key:ty) => {
        suite! { [$tested, $key]
            ordered:
                iteration_is_in_order
                ranges_of_all_bounds_in_both_directions
                first_and_last
                a_scan_from_a_key_that_is_absent
                whatever_changes_between_two_loads_of_a_scan_it_begins_at_its_bound
                a_range_beside_a_writer_has_all_stable_keys_in_strict_order;
            patterns:
                an_emptied_index_gives_its_blocks_back_in_whatever_order;
        }
    };
}

/// The module of tests of a structure in the list; those whose inner nodes are rebuilt take them once
/// more with these in the pool.
macro_rules! conformance {
    ($module:ident $index:ident [$($trait:ident)*]) => {
        mod $module {
            conformance! { @placed $index Dram [$($trait)*] }
            $(conformance! { @$trait $index })*
        }
    };
    (@ordered $index:ident) => {};
    (@rebuilt $index:ident) => {
        mod in_pool {
            conformance! { @placed $index Pm [ordered] }
        }
    };
    (@placed $index:ident $placement:ident [$($order:ident $($rebuilt:ident)?)?]) => {
        const TESTED: $crate::conformance::harness::Tested =
            $crate::conformance::harness::Tested {
                kind: lapis_index::IndexKind::$index,
                inner_nodes: lapis_index::InnerNodes::$placement,
            };
        mod numbers {
            suite_of_every_index! { super::TESTED, u64 }
            $(conformance! { @scans $order u64 })?
        }
        mod strings {
            suite_of_every_index! { super::TESTED, [u8] }
            suite_of_byte_keys! { super::TESTED }
            $(conformance! { @scans $order [u8] })?
        }
    };
    (@scans ordered $key:ty) => {
        suite_of_ordered_indexes! { super::TESTED, $key }
    };
}

mod beside_writers;
mod byte_keys;
mod concurrency;
mod costs;
mod damage;
mod harness;
mod lifecycle;
mod model;
mod ordered;
mod patterns;
mod semantics;

lapis_index::for_each_index!(conformance);
