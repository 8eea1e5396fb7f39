//! NV-Tree and FPTree with their inner nodes in the pool, where a crash leaves what was written of
//! them: nobody reads it again, and its space is found again.

use lapis_crash::concurrent::subjects::ConcurrentIndex;
use lapis_crash::concurrent::{ConcurrentOptions, explore_concurrent};
use lapis_crash::subjects::{IndexSubject, KeySpace};
use lapis_crash::{ExploreOptions, Modelled, explore};
use lapis_index::{FpTree, Index, IndexOptions, InnerNodes, NvTree};

const NV_TREE: &[&str] = &["index/src/nv_tree"];
const FPTREE: &[&str] = &["index/src/fptree"];

fn in_pool(node_bytes: usize) -> IndexOptions {
    IndexOptions { node_bytes, inner_nodes: InnerNodes::Pm, ..Default::default() }
}

fn survives<I: Index<Modelled, K> + 'static, K: KeySpace + ?Sized>(subject: IndexSubject<I, K>)
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
fn nv_tree_survives_power_cuts() {
    let name = "nv-tree:in-pool";
    survives(IndexSubject::<NvTree<_, u64>, u64>::new(name, NV_TREE, in_pool(128), 160));
    survives(IndexSubject::<NvTree<_, [u8]>, [u8]>::new(name, NV_TREE, in_pool(128), 160));
}

#[test]
fn fptree_survives_power_cuts() {
    let name = "fptree:in-pool";
    survives(IndexSubject::<FpTree<_, u64>, u64>::new(name, FPTREE, in_pool(256), 160));
    survives(IndexSubject::<FpTree<_, [u8]>, [u8]>::new(name, FPTREE, in_pool(256), 160));
}

fn is_durably_linearizable<I: Index<Modelled, u64> + 'static>(subject: ConcurrentIndex<I, u64>) {
    let options = ConcurrentOptions { schedules: 40, threads: 1, ..ConcurrentOptions::default() };
    let report = explore_concurrent(&subject, &options, &|_| {}).unwrap();
    let told: Vec<_> = report.violations.iter().map(|it| (&it.what, &it.replay)).collect();
    assert!(told.is_empty(), "{told:#?}");
    assert!(report.images > report.crash_points && report.crash_points > 10 * report.schedules);
}

#[test]
fn nv_tree_is_durably_linearizable() {
    let options = in_pool(128);
    is_durably_linearizable(ConcurrentIndex::<NvTree<_, u64>, u64>::new(
        "nv-tree:in-pool",
        NV_TREE,
        options,
        64,
    ));
}

#[test]
fn fptree_is_durably_linearizable() {
    let options = in_pool(256);
    is_durably_linearizable(ConcurrentIndex::<FpTree<_, u64>, u64>::new(
        "fptree:in-pool",
        FPTREE,
        options,
        64,
    ));
}
