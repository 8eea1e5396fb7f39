//! The conformance suite: every structure, with both kinds of keys, through the same tests.
//!
//! The structures are those of the list in `lib.rs`; the tests themselves are generic functions in
//! `conformance/`.

/// The tests of one structure, given the type arguments that they take.
macro_rules! suite {
    (@module $arguments:tt $module:ident $($test:ident)+) => {
        $(suite! { @test $arguments $module $test })+
    };
    (@test [$($argument:ty),+] $module:ident $test:ident) => {
        #[test]
        fn $test() {
            $crate::conformance::$module::$test::<$($argument),+>();
        }
    };
    ($arguments:tt $($module:ident: $($test:ident)+;)+) => {
        $(suite! { @module $arguments $module $($test)+ })+
    };
}

/// The tests that every structure passes with every kind of keys.
macro_rules! suite_of_every_index {
    ($index:ty, $key:ty) => {
        suite! { [$index, $key]
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
                a_reopened_index_holds_what_it_held
                an_index_abandoned_as_by_a_crash_holds_what_was_acknowledged
                two_indexes_in_one_pool_do_not_meet
                a_root_of_another_kind_is_refused
                a_root_of_another_key_kind_is_refused
                a_newer_format_is_refused
                a_full_pool_refuses_cleanly_and_takes_keys_again_after_removals
                iteration_stops_when_it_is_told_to;
            concurrency:
                four_threads_change_their_own_keys
                four_threads_change_the_same_keys
                readers_never_see_a_value_go_back
                keys_that_stay_are_found_while_others_come_and_go
                one_key_contended_by_four_threads_has_one_history
                a_stalled_writer_does_not_stop_lock_free_readers
                a_stalled_writer_does_not_stop_concurrent_writers;
            damage:
                no_damage_makes_check_or_trace_panic;
            costs:
                inserts_cost_what_the_table_says;
            model:
                behaves_like_a_sorted_map;
        }
    };
}

macro_rules! suite_of_byte_keys {
    ($index:ty) => {
        suite! { [$index]
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
    ($index:ty, $key:ty) => {
        suite! { [$index, $key]
            ordered:
                iteration_is_in_order
                ranges_of_all_bounds_in_both_directions
                first_and_last
                a_scan_from_a_key_that_is_absent
                a_range_beside_a_writer_has_all_stable_keys_in_strict_order;
        }
    };
}

/// The module of tests of a structure in the list; those whose inner nodes are rebuilt take them once
/// more with these in the pool.
macro_rules! conformance {
    ($module:ident $index:ident [$($trait:ident)*]) => {
        mod $module {
            conformance! { @family lapis_index::families::$index [$($trait)*] }
            $(conformance! { @$trait $index })*
        }
    };
    (@ordered $index:ident) => {};
    (@rebuilt $index:ident) => {
        mod in_pool {
            conformance! {
                @family
                $crate::conformance::inner_nodes_in_pool::InPool<lapis_index::families::$index>
                [ordered]
            }
        }
    };
    (@family $family:ty [$($order:ident $($rebuilt:ident)?)?]) => {
        mod numbers {
            suite_of_every_index! { $family, u64 }
            $(conformance! { @scans $order $family, u64 })?
        }
        mod strings {
            suite_of_every_index! { $family, [u8] }
            suite_of_byte_keys! { $crate::conformance::harness::On<$family, [u8]> }
            $(conformance! { @scans $order $family, [u8] })?
        }
    };
    (@scans ordered $family:ty, $key:ty) => {
        suite_of_ordered_indexes! { $crate::conformance::harness::On<$family, $key>, $key }
    };
}

pub(crate) mod byte_keys;
pub(crate) mod concurrency;
pub(crate) mod costs;
pub(crate) mod counting;
pub(crate) mod damage;
pub(crate) mod harness;
pub(crate) mod inner_nodes_in_pool;
pub(crate) mod lifecycle;
pub(crate) mod model;
pub(crate) mod ordered;
pub(crate) mod patterns;
pub(crate) mod semantics;

lapis_index::for_each_index!(conformance);
