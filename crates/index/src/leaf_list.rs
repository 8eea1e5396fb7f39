//! Leaves that are linked to a list, under inner nodes that are volatile: following them, and finding the
//! least key of each when the inner nodes are built.

use lapis_pmem::{Domain, Link, Pool};

use crate::error::IndexError;

/// Leaves below which another thread is not worth starting.
const LEAVES_PER_THREAD: usize = 1024;
/// Threads if nobody has said how many, and the machine has so many.
const MOST_THREADS: usize = 16;

/// What is wrong with a leaf that is not there.
pub(crate) const OUTSIDE: &str = "is outside the pool";

/// Visits the leaves from `first` on until `visit` says no. A circle comes by the link that is
/// remembered, since that is replaced ever more seldom (Brent).
pub(crate) fn walk<H, L: Copy>(
    first: Link<H>,
    at: impl Fn(Link<H>) -> Result<L, &'static str>,
    next: impl Fn(L) -> Link<H>,
    problem: &mut dyn FnMut(String),
    visit: &mut dyn FnMut(L) -> bool,
) {
    let (mut link, mut remembered, mut steps) = (first, Link::NULL, 0usize);
    while !link.is_null() {
        let leaf = match at(link) {
            Ok(leaf) => leaf,
            Err(what) => return problem(format!("the leaf {link:?} {what}")),
        };
        if link == remembered {
            return problem("the leaves are linked in a circle".into());
        }
        if !visit(leaf) {
            return;
        }
        steps += 1;
        if steps.is_power_of_two() {
            remembered = link;
        }
        link = next(leaf);
    }
}

/// All leaves from `first` on.
pub(crate) fn follow<H, L: Copy>(
    first: Link<H>,
    at: impl Fn(Link<H>) -> Result<L, &'static str>,
    next: impl Fn(L) -> Link<H>,
) -> Result<Vec<L>, IndexError> {
    let (mut leaves, mut problem) = (Vec::new(), None);
    walk(first, at, next, &mut |what| problem = Some(what), &mut |leaf| {
        leaves.push(leaf);
        true
    });
    problem.map_or(Ok(leaves), |what| Err(IndexError::Damaged { what }))
}

/// What `least` finds in each leaf, given a part of the list and a place in it. On up to `threads`
/// threads, but on one alone on a machine that must do the same things in the same order every time.
pub(crate) fn least_of_each<D: Domain, L: Sync, R: Send>(
    pool: &Pool<D>,
    leaves: &[L],
    threads: Option<usize>,
    least: impl Fn(&[L], usize) -> R + Sync,
) -> Vec<R> {
    let alone = D::DETERMINISTIC || pool.domain().worker().is_some();
    let threads = match if alone { 1 } else { leaves.len() / LEAVES_PER_THREAD + 1 } {
        1 => 1,
        most => threads.unwrap_or_else(default_threads).clamp(1, most),
    };
    let of_part = &|part: &[L]| (0..part.len()).map(|at| least(part, at)).collect::<Vec<R>>();
    if threads == 1 {
        return of_part(leaves);
    }
    std::thread::scope(|scope| {
        let parts = leaves.chunks(leaves.len().div_ceil(threads));
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || of_part(part))).collect();
        let found = parts.into_iter().map(|part| part.join());
        found
            .flat_map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS)
}
