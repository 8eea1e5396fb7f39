//! How much of a page walk is left in a group: lookups in leaves on more pages than the processor has
//! translations of, with pages of 4 KiB and of 2 MiB.
//!
//! A task prefetches its leaf and gives way, and the line comes meanwhile; but the processor first has
//! to find out where the page is, and it does not walk through the tables for as many at a time as it
//! fetches lines. What large pages save alone is the walk; what they save in a group is what is left of
//! it. Only their ratio is of use: the walks of a virtual machine go through two sets of tables, so how
//! long they take says nothing of others.

use std::time::Instant;

use lapis_blocks::fp_leaves::{FpLeaves, Overlap};
use lapis_pmem::{FlushMethod, Hardware, Pool, Region};
use serde::Serialize;

use super::ExperimentError;
use super::operations::{Nobody, filled_leaves, key, look_up_all, pool_bytes, wrong_answers};
use crate::keys::scatter;

/// Alone, and in a group as large as pays.
pub(super) const GROUPS: [(usize, Overlap); 2] = [(1, Overlap::NONE), (20, Overlap::BOTH)];
/// Leaves on 55,000 small pages, or a hundred large ones.
const LEAVES: usize = 400_000;
const LOOKUPS: usize = 20_000;
const ROUNDS: usize = 40;
/// Less than this is no walk: there were no large pages to be had, or there is no telling.
const LEAST_WALK_NS: f64 = 5.0;

/// What a lookup takes in leaves on many pages: on small pages, and on large ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PageWalks {
    /// By itself.
    pub alone_ns: [f64; 2],
    /// Among twenty.
    pub in_group_ns: [f64; 2],
}

impl PageWalks {
    /// The share of a page walk that is left in a group; none if large pages save nothing.
    pub fn shown(&self) -> Option<f64> {
        let [alone, in_group] =
            [self.alone_ns, self.in_group_ns].map(|[small, large]| small - large);
        (alone >= LEAST_WALK_NS).then(|| (in_group / alone).clamp(0.0, 1.0))
    }

    /// Measures it here.
    pub(super) fn measure() -> Result<Self, ExperimentError> {
        let (small, large) = (leaves_on(false)?, leaves_on(true)?);
        let mut least = [[f64::INFINITY; 2]; 2];
        for round in 0..ROUNDS {
            for (at, (group, overlap)) in GROUPS.into_iter().enumerate() {
                for (pages, (leaves, loaded)) in [&small, &large].into_iter().enumerate() {
                    let number = |of: usize| {
                        let all = ((round * 2 + at) * 2 + pages) * LOOKUPS + of;
                        scatter(all as u64 ^ 11 << 40) as usize % loaded
                    };
                    let chosen: Vec<u64> = (0..LOOKUPS).map(|of| key(number(of))).collect();
                    let began = Instant::now();
                    let wrong = look_up_all(leaves, &chosen, group, overlap, &Nobody);
                    let ns = began.elapsed().as_nanos() as f64 / LOOKUPS as f64;
                    if wrong > 0 {
                        return Err(wrong_answers(wrong, group));
                    }
                    least[at][pages] = ns.min(least[at][pages]);
                }
            }
        }
        let [alone_ns, in_group_ns] = least;
        Ok(Self { alone_ns, in_group_ns })
    }
}

/// Filled leaves on large pages, if the system has them to give, or on small ones.
fn leaves_on(large_pages: bool) -> Result<(FpLeaves<Hardware>, usize), ExperimentError> {
    let bytes = pool_bytes(LEAVES);
    // Which asks for large pages.
    let region = Region::anonymous(bytes, bytes)?;
    if !large_pages {
        let advice = rustix::mm::Advice::LinuxNoHugepage;
        // SAFETY: the whole of a mapping, of which this changes nothing that a program sees. Where it
        // is refused, nothing is saved by large pages.
        let _ = unsafe { rustix::mm::madvise(region.base().cast(), region.mapped_bytes(), advice) };
    }
    let hardware =
        Hardware::with_method(FlushMethod::EadrNone).unwrap_or_else(|_| Hardware::detect());
    let (leaves, _, loaded) = filled_leaves(Pool::create(region, hardware)?, LEAVES)?;
    Ok((leaves, loaded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_large_pages_save_in_a_group_is_set_against_what_they_save_alone() {
        let walks = PageWalks { alone_ns: [300.0, 200.0], in_group_ns: [150.0, 90.0] };
        assert_eq!(walks.shown(), Some(0.6));
        let hidden = PageWalks { in_group_ns: [90.0, 95.0], ..walks };
        assert_eq!(hidden.shown(), Some(0.0));
        let no_large_pages = PageWalks { alone_ns: [300.0, 297.0], ..walks };
        assert_eq!(no_large_pages.shown(), None);
    }
}
