//! Walking the whole table: problems, sizes, reachable blocks.

use lapis_pmem::{BlockVisitor, Domain, Link};

use super::levels::Levels;
use super::{FORMAT_VERSION, LevelHash};
use crate::IndexKind;
use crate::hash_table::bucket::{Bucket, FROZEN, FULL};
use crate::index::{Measuring, OnValue, Statistics};
use crate::key::IndexKey;
use crate::problems::Problems;
use crate::root::IndexRoot;

/// The links of all buckets, and whether the bucket has the lock of a group.
fn all(levels: Levels) -> impl Iterator<Item = (Link<Bucket>, bool)> {
    levels.both().into_iter().flat_map(move |level| {
        (0..level.len())
            .map(move |number| (level.at(number), level == levels.top && number.is_multiple_of(2)))
    })
}

pub(super) fn problems<D: Domain, K: IndexKey + ?Sized>(index: &LevelHash<D, K>) -> Vec<String> {
    let mut problems = Problems::default();
    if let Err(error) =
        IndexRoot::open(&index.pool, index.root, IndexKind::LevelHash, K::KIND, FORMAT_VERSION)
    {
        return vec![error.to_string()];
    }
    let levels = index.levels();
    if !levels.are_inside(&index.pool) {
        return vec![format!("I1: no levels inside the pool: {levels:?}")];
    }
    if index.structure().read(index.domain()).is_locked(index.generation) {
        problems.push("I4: the lock for growing is held and nobody is at work".to_owned());
    }
    for (link, has_lock) in all(levels) {
        let lock = index.bucket(link).lock.read(index.domain());
        if lock.payload() & !(FULL | FROZEN) != 0 {
            problems.push(format!("I2: the bucket at {link:?} has the word {:#x}", lock.bits()));
        }
        if has_lock && lock.is_locked(index.generation) {
            problems.push(format!("I4: the group of {link:?} is locked and nobody is at work"));
        }
        check_entries(index, levels, link, &mut problems);
    }
    problems.finish()
}

fn check_entries<D: Domain, K: IndexKey + ?Sized>(
    index: &LevelHash<D, K>,
    levels: Levels,
    link: Link<Bucket>,
    problems: &mut Problems,
) {
    let (pool, domain) = (&index.pool, index.domain());
    for (word, _) in index.bucket(link).occupied(domain) {
        let place = || format!("the bucket at {link:?}");
        let Some(key) = problems.key_of::<D, K>(pool, word, "I2", place) else { continue };
        let key = K::borrow(&key);
        let hashes = index.hashes_of(key);
        if !levels.candidates(hashes).contains(&link) {
            problems.push(format!("I3: {key:?} is in the bucket at {link:?}, not in its own"));
        }
        let words = levels.places(hashes).flat_map(|of| index.bucket(of).occupied(domain));
        let times = words.filter(|(word, _)| key.eq_word(pool, key.tag(), *word)).count();
        if times > 1 {
            problems.push(format!("I3: {key:?} is there {times} times"));
        }
    }
}

pub(super) fn statistics<D: Domain, K: IndexKey + ?Sized>(index: &LevelHash<D, K>) -> Statistics {
    let levels = index.levels();
    let mut measuring = Measuring::default();
    measuring.blocks(3, size_of::<IndexRoot>() + levels.top.bytes() + levels.bottom.bytes());
    measuring.sizes.nodes = levels.top.len() + levels.bottom.len();
    for (link, _) in all(levels) {
        for (word, _) in index.bucket(link).occupied(index.domain()) {
            let place = K::with_word(&index.pool, word, |key| {
                levels.candidates(index.hashes_of(key)).into_iter().position(|of| of == link)
            });
            measuring.entry::<D, K>(&index.pool, word, 1 + place.flatten().unwrap_or(0) as u64);
        }
    }
    measuring.finish()
}

pub(super) fn visit_blocks<D: Domain, K: IndexKey + ?Sized>(
    index: &LevelHash<D, K>,
    visitor: &mut BlockVisitor<'_, D>,
    value: OnValue<'_, D>,
) {
    if !visitor.visit(index.root, size_of::<IndexRoot>()) {
        return;
    }
    let levels = index.levels();
    if !levels.are_inside(&index.pool) {
        return visitor.problem(format!("I1: no levels inside the pool: {levels:?}"));
    }
    for level in levels.both() {
        if !visitor.visit(level.link(), level.bytes()) {
            continue;
        }
        for number in 0..level.len() {
            for (word, held) in index.bucket(level.at(number)).occupied(index.domain()) {
                K::visit_blocks(visitor, word);
                value(visitor, held);
            }
        }
    }
}
