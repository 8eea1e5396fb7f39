//! What is allocated and what is reachable: made equal after a crash, and compared.

use std::borrow::Cow;

use crate::domain::Domain;
use crate::host_lock::lock;
use crate::pool::Pool;
use crate::reachable::{AuditReport, ReachabilityProblem, ReachableBlocks, ReclaimReport};
use crate::region::EXTENT_BYTES;

use super::chunks::{FREE, LARGE, SLAB, UNKNOWN};
use super::{Allocator, bits, mutants};

impl Allocator {
    /// What is reachable, and what readers may still see: none of it may be handed out.
    fn in_use<'r, D: Domain>(
        pool: &Pool<D>,
        reachable: &'r ReachableBlocks,
    ) -> Cow<'r, ReachableBlocks> {
        match &pool.limbo().blocks::<D>()[..] {
            [] => Cow::Borrowed(reachable),
            limbo => Cow::Owned(reachable.with(pool, limbo)),
        }
    }

    pub(crate) fn reclaim<D: Domain>(
        &self,
        pool: &Pool<D>,
        reachable: &ReachableBlocks,
    ) -> ReclaimReport {
        if let [problem, ..] = reachable.problems() {
            // What hangs below a broken reference was not visited, and is somebody's all the same.
            tracing::warn!(%problem, "references are broken: no block is taken for lost");
            return ReclaimReport::default();
        }
        let in_use = if pool.domain().commits(mutants::LIMBO_RECLAIMED) {
            Cow::Borrowed(reachable)
        } else {
            Self::in_use(pool, reachable)
        };
        let _ = self.caches.drain(pool.domain());
        let mut chunks = lock(pool.domain(), &self.chunks);
        let mut report = ReclaimReport::default();
        for class in self.used_classes() {
            self.slabs_of(pool, class).forget(pool.domain());
        }
        let runs = chunks.survey(pool);
        chunks.forget();
        // Free chunks that follow each other are one run.
        let (mut free_first, mut free_count) = (0, 0);
        for (first, descriptor) in runs {
            let count = descriptor.chunks().max(1);
            match descriptor.kind() {
                SLAB => {
                    let Some(class) = descriptor.class() else { continue };
                    let mut slabs = self.slabs_of(pool, class);
                    let marks = in_use.slab_marks(first, class);
                    report.reachable_blocks += reachable.slab_count(first);
                    if marks.iter().all(|&word| word == 0) {
                        pool.domain().happens("an unreachable slab is reclaimed");
                        report.freed_chunks += u64::from(count);
                        chunks.free_run(pool, first, count);
                    } else {
                        slabs.adopt(class, first, marks, true);
                    }
                }
                LARGE => {
                    let leaks = pool.domain().commits(mutants::LEAK_ON_CRASH);
                    if in_use.has_large(first) || leaks {
                        report.reachable_blocks += u64::from(reachable.has_large(first));
                    } else {
                        pool.domain().happens("an unreachable large block is reclaimed");
                        report.freed_chunks += u64::from(count);
                        chunks.free_run(pool, first, count);
                    }
                }
                FREE if first == free_first + free_count => free_count += count,
                FREE => {
                    if free_count > 0 {
                        chunks.add_free(free_first, free_count);
                    }
                    (free_first, free_count) = (first, count);
                }
                // Damaged: nobody knows whose they are.
                _ => {}
            }
        }
        if free_count > 0 {
            chunks.add_free(free_first, free_count);
        }
        report
    }

    pub(crate) fn audit<D: Domain>(
        &self,
        pool: &Pool<D>,
        reachable: &ReachableBlocks,
    ) -> AuditReport {
        let mut report =
            AuditReport { problems: reachable.problems().to_vec(), ..Default::default() };
        if self.needs_reclaim(pool) {
            return report;
        }
        // Settling gives back what it finds, and so lists a slab again, or drops what is free already.
        for class in self.used_classes() {
            report.problems.extend(self.slabs_of(pool, class).miscounted(class));
        }
        self.settle(pool);
        let in_use = Self::in_use(pool, reachable);
        // By words of the bitmaps: they differ in few blocks, if in any.
        for class in self.used_classes() {
            let slabs = self.slabs_of(pool, class);
            for (first, bitmap) in slabs.bitmaps() {
                let marks = in_use.marks_of(first);
                for (at, &allocated) in bitmap.iter().enumerate() {
                    report.allocated_blocks += u64::from(allocated.count_ones());
                    let leaked = allocated & !marks.get(at).copied().unwrap_or(0);
                    let offsets = bits(leaked).map(|bit| class.offset_of(first, at * 64 + bit));
                    report.leaked.extend(offsets);
                }
            }
            report.problems.extend(slabs.miscounted(class));
        }
        let chunks = lock(pool.domain(), &self.chunks);
        let runs = chunks.survey(pool);
        report.problems.extend(chunks.miscounted(&runs));
        drop(chunks);
        for (first, descriptor) in runs {
            if descriptor.kind() == UNKNOWN {
                let what = format!("the descriptor of chunk {first} is damaged");
                report.problems.push(ReachabilityProblem::Structure { what });
            }
            if descriptor.kind() == LARGE {
                report.allocated_blocks += 1;
                if !in_use.has_large(first) {
                    report.leaked.push(u64::from(first) * EXTENT_BYTES as u64);
                }
            }
        }
        // The other direction: a block in use that the allocator thinks is free would be handed out twice.
        for (first, class, marks) in in_use.slabs_with_marks() {
            let slabs = self.slabs_of(pool, class);
            let allocated = slabs.bitmap_of(first);
            for (at, &in_use) in marks.iter().enumerate() {
                let lacking = in_use & !allocated.get(at).copied().unwrap_or(0);
                let offsets = bits(lacking).map(|bit| class.offset_of(first, at * 64 + bit));
                report.unallocated.extend(offsets);
            }
        }
        report
    }
}
