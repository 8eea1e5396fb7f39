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

/// Moves an image towards each of the ends, all at once or a line at a time, as long as `show` finds the
/// violation on it; and keeps what was found on the one that is nearest to its end.
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
        let mut at = found.clone();
        if let Some(there) = show(end.clone())? {
            at = there;
        } else {
            for line in 0..end.len() {
                let mut image = image_of(&at);
                if std::mem::replace(&mut image[line], end[line]) != end[line] {
                    at = show(image)?.unwrap_or(at);
                }
            }
        }
        let distance = image_of(&at).iter().zip(&end).filter(|(a, b)| a != b).count();
        if distance < best.0 {
            best = (distance, at);
        }
    }
    Ok(best.1)
}
