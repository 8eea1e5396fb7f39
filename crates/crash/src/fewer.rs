//! Taking away from a violation what it does not need: operations, and lines of its image.

/// Takes numbers away, in chunks and then one by one, as long as `holds` says of the rest that the
/// violation stays; at least `least` are left, and nothing more is tried once that is spent.
///
/// # Errors
/// Those of `holds`.
pub(crate) fn fewer<T: Clone, E>(
    mut numbers: Vec<T>,
    least: usize,
    mut holds: impl FnMut(&[T]) -> Result<bool, E>,
    mut is_spent: impl FnMut() -> bool,
) -> Result<Vec<T>, E> {
    let mut chunk = numbers.len().div_ceil(2).max(1);
    loop {
        let (mut start, mut removed) = (0, false);
        while start < numbers.len() && numbers.len() > least {
            let end = (start + chunk).min(numbers.len());
            let rest = [&numbers[..start], &numbers[end..]].concat();
            if holds(&rest)? {
                (numbers, removed) = (rest, true);
            } else {
                start = end;
            }
        }
        if chunk == 1 && !removed || is_spent() {
            return Ok(numbers);
        }
        chunk = (chunk / 2).max(1);
    }
}

/// Moves an image towards each of the ends, as many lines at once as can be, as long as `show` finds the violation on
/// it; and keeps what was found on the one that is nearest to its end. None of the lines in which it then differs
/// from that end could be as it is there, unless `show` has given up.
///
/// # Errors
/// Those of `show`.
pub(crate) fn nearest<F: Clone, E>(
    found: &F,
    image_of: impl Fn(&F) -> Vec<u32>,
    ends: [Vec<u32>; 2],
    mut show: impl FnMut(Vec<u32>) -> Result<Option<F>, E>,
) -> Result<F, E> {
    let mut best = (usize::MAX, found.clone());
    for end in ends {
        let (mut at, choices) = (found.clone(), image_of(found));
        let mut show_with = |lines: &[usize]| {
            let mut image = end.clone();
            lines.iter().for_each(|&line| image[line] = choices[line]);
            Ok(show(image)?.map(|there| at = there).is_some())
        };
        if !show_with(&[])? {
            let differing = (0..end.len()).filter(|&line| choices[line] != end[line]).collect();
            fewer(differing, 1, show_with, || false)?;
        }
        let distance = image_of(&at).iter().zip(&end).filter(|(a, b)| a != b).count();
        if distance < best.0 {
            best = (distance, at);
        }
    }
    Ok(best.1)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Shrinks an image of `lines` lines, all of them late, that shows a violation where `shows` says so.
    fn shrunk(lines: usize, shows: impl Fn(&[u32]) -> bool) -> Vec<u32> {
        let found = vec![1; lines];
        let ends = [vec![0; lines], vec![2; lines]];
        let show = |image: Vec<u32>| Ok::<_, Infallible>(shows(&image).then_some(image));
        let Ok(image) = nearest(&found, |image| image.clone(), ends, show);
        image
    }

    #[test]
    fn a_line_that_can_be_left_out_only_when_a_later_one_is_is_left_out() {
        // The first line alone does, or the first three together; never the first two.
        let image =
            shrunk(3, |image| matches!(image, [1, 0, 0] | [1, 1, 0] | [1, 1, 1] | [0, 1, 1]));
        assert_eq!(image, [1, 0, 0]);
    }

    #[test]
    fn what_it_takes_of_many_lines_is_all_that_is_left() {
        let image = shrunk(300, |image| image[17] == 1 && image[170] == 1);
        let left: Vec<_> = (0..300).filter(|&line| image[line] == 1).collect();
        assert_eq!(left, [17, 170]);
    }
}
