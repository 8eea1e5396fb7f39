//! Indexes that rebuild their inner nodes, with these in the pool, where a crash leaves what was written of
//! them: nobody reads it again, and its space is found again.

use lapis_crash::concurrent::subjects::ConcurrentIndex;
use lapis_crash::concurrent::{ConcurrentOptions, explore_concurrent};
use lapis_crash::subjects::{IndexSubject, KeySpace};
use lapis_crash::{ExploreOptions, explore};
use lapis_index::{Exploration, IndexKind, IndexOptions, InnerNodes};

fn in_pool(exploration: &Exploration) -> IndexOptions {
    IndexOptions { inner_nodes: InnerNodes::Pm, ..exploration.options.clone() }
}

fn survives<K: KeySpace + ?Sized>(subject: IndexSubject<K>)
where
    K::Buf: std::hash::Hash,
{
    let options = ExploreOptions {
        ops: 40,
        seed: 31,
        exhaustive_limit: 16,
        samples: 8,
        crash_in_recovery_every: 256,
        ..ExploreOptions::default()
    };
    let report = explore(&subject, &options, &|_| {}).unwrap();
    println!("{} images in {:.2} s", report.images, report.seconds);
    let found: Vec<_> = report.violations.iter().map(|it| (&it.what, &it.replay)).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(report.images > 50, "only {} images were tried", report.images);
}

#[test]
fn indexes_survive_power_cuts_and_are_durably_linearizable() {
    for kind in IndexKind::ALL.into_iter().filter(|kind| kind.rebuilds()) {
        let exploration = &kind.declaration().exploration;
        let (name, sources, options) = (kind.name(), exploration.sources, in_pool(exploration));
        // Each opening after a crash takes new slabs, and those of inner nodes have eight chunks: two sizes of them, three times,
        // leave little of 4 MiB.
        let integers = IndexSubject::<u64>::new(kind, name, sources, options.clone(), 160);
        survives(integers.in_pool_of(8 << 20));
        let strings = IndexSubject::<[u8]>::new(kind, name, sources, options.clone(), 160);
        survives(strings.in_pool_of(8 << 20));
        is_durably_linearizable(ConcurrentIndex::new(kind, name, sources, options, 64));
    }
}

fn is_durably_linearizable(subject: ConcurrentIndex<u64>) {
    let options = ConcurrentOptions { schedules: 40, threads: 1, ..ConcurrentOptions::default() };
    let report = explore_concurrent(&subject, &options, &|_| {}).unwrap();
    let told: Vec<_> = report.violations.iter().map(|it| (&it.what, &it.replay)).collect();
    assert!(told.is_empty(), "{told:#?}");
    assert!(report.images > report.crash_points && report.crash_points > 10 * report.schedules);
}
