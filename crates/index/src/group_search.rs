//! Searching sorted entries that lie together.
//!
//! Integers are compared three at a time, none of which depends on another, nor on a guess of the processor's. Strings
//! may take long to compare, and are as few as can be.

/// Entries of a group: of words, two lines.
pub(crate) const GROUP: usize = 16;

/// How many of a group's first 15 entries come before the first that `is_before` says no to.
#[inline(always)]
pub(crate) fn partition_point(are_integers: bool, is_before: impl Fn(usize) -> bool) -> usize {
    if are_integers {
        let passed = 4 * of_three(0, 4, &is_before);
        return passed + of_three(passed, 1, &is_before);
    }
    [8, 4, 2, 1]
        .into_iter()
        .fold(0, |passed, half| passed + half * usize::from(is_before(passed + half - 1)))
}

/// The last of `count` entries that is admitted, as all before it are; entry 0 if none is.
#[inline(always)]
pub(crate) fn last_admitted(
    count: usize,
    are_integers: bool,
    admits: impl Fn(usize) -> bool,
) -> usize {
    let (mut base, mut left) = (0, count);
    while are_integers && left >= 4 {
        let quarter = left / 4;
        base += quarter * of_three(base + 1, quarter, &admits);
        left -= 3 * quarter;
    }
    while left > 1 {
        let half = left / 2;
        if admits(base + half) {
            base += half;
        }
        left -= half;
    }
    base
}

/// How many of three are before: the last ones of three times `step` from `first` on.
#[inline(always)]
fn of_three(first: usize, step: usize, is_before: impl Fn(usize) -> bool) -> usize {
    (1..=3).map(|number| usize::from(is_before(first + number * step - 1))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_parted_at_every_place() {
        for place in 0..GROUP {
            for are_integers in [false, true] {
                assert_eq!(partition_point(are_integers, |entry| entry < place), place);
            }
        }
    }

    #[test]
    fn the_last_admitted_of_any_number_is_found() {
        for count in 1..70 {
            for last in 0..count {
                for are_integers in [false, true] {
                    let admits = |entry| {
                        assert!(entry < count, "{entry} of {count}");
                        entry <= last
                    };
                    assert_eq!(last_admitted(count, are_integers, admits), last);
                }
            }
            assert_eq!(last_admitted(count, true, |_| false), 0);
        }
    }
}
