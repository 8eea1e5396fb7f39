//! Walking the whole table: problems, sizes, reachable blocks.

use std::collections::HashSet;

use lapis_pmem::{BlockVisitor, Domain};

use super::{FORMAT_VERSION, PClht};
use crate::IndexKind;
use crate::hash_table::bucket::{BUCKET_BYTES, Bucket, FROZEN, FULL};
use crate::hash_table::table::Table;
use crate::index::{Measuring, OnValue, Statistics};
use crate::key::IndexKey;
use crate::problems::Problems;
use crate::root::IndexRoot;

pub(super) fn problems<D: Domain, K: IndexKey + ?Sized>(index: &PClht<D, K>) -> Vec<String> {
    let mut problems = Problems::default();
    if let Err(error) =
        IndexRoot::open(&index.pool, index.root, IndexKind::PClht, K::KIND, FORMAT_VERSION)
    {
        return vec![error.to_string()];
    }
    let table = index.table();
    if !table.is_inside(&index.pool) {
        return vec![format!("I1: the table of {table:?} is not inside the pool")];
    }
    if index.growing().read(index.domain()).is_locked(index.generation) {
        problems.push("I6: the lock for growing is held and nobody is at work".to_owned());
    }
    let mut linked = HashSet::new();
    for chain in index.chains(table) {
        check_chain(index, table, chain, &mut linked, &mut problems);
    }
    problems.finish()
}

fn check_chain<D: Domain, K: IndexKey + ?Sized>(
    index: &PClht<D, K>,
    table: Table<Bucket>,
    chain: u64,
    linked: &mut HashSet<u64>,
    problems: &mut Problems,
) {
    let (pool, domain) = (&index.pool, index.domain());
    let mut keys: Vec<K::Buf> = Vec::new();
    let mut link = table.at(chain);
    for number in 0.. {
        let (is_head, is_in_unit) = (number == 0, number < index.unit_buckets());
        let Some(bucket) = pool.try_at(link) else {
            return problems.push(format!("I4: chain {chain} leads to {link:?}, not in the pool"));
        };
        let word = bucket.lock.read(domain);
        if word.payload() & !(if is_head { FULL | FROZEN } else { FULL }) != 0 {
            problems.push(format!("I2: the bucket at {link:?} has the word {:#x}", word.bits()));
        }
        if word.is_locked(index.generation) {
            problems.push(format!("I6: the bucket at {link:?} is locked and nobody is at work"));
        }
        if !is_in_unit && word.payload() & FULL == 0 {
            problems.push(format!("I5: the overflow bucket at {link:?} is empty"));
        }
        for (word, _) in bucket.occupied(domain) {
            let place = || format!("chain {chain}");
            let Some(key) = problems.key_of::<D, K>(pool, word, "I2", place) else { continue };
            let hash = index.hash_of(K::borrow(&key));
            if index.chain_of(table, hash) != chain {
                problems.push(format!("I3: {key:?} is in chain {chain}, not in its own"));
            }
            if keys.contains(&key) {
                problems.push(format!("I3: {key:?} is twice in chain {chain}"));
            }
            keys.push(key);
        }
        let next = bucket.next.load(domain);
        if bucket.next.word().load(domain) != next.bits() {
            problems.push(format!("I4: the bucket at {link:?} has a link with a tag"));
        }
        if number + 1 < index.unit_buckets() {
            if next != table.at(chain + number + 1) {
                return problems.push(format!("I4: the unit of chain {chain} leads to {next:?}"));
            }
        } else if next.is_null() {
            return;
        } else if table.contains(next) || !linked.insert(next.offset()) {
            return problems.push(format!("I4: the bucket at {next:?} has two predecessors"));
        }
        link = next;
    }
}

pub(super) fn statistics<D: Domain, K: IndexKey + ?Sized>(index: &PClht<D, K>) -> Statistics {
    let table = index.table();
    let mut measuring = Measuring::default();
    measuring.blocks(2, size_of::<IndexRoot>() + table.bytes());
    measuring.sizes.nodes = table.len();
    for chain in index.chains(table) {
        let mut bucket = index.pool.at(table.at(chain));
        for depth in 1..=index.hop_limit() as u64 {
            for (word, _) in bucket.occupied(index.domain()) {
                measuring.entry::<D, K>(&index.pool, word, depth);
            }
            let Ok(Some(next)) = index.after(bucket) else { break };
            bucket = next;
            if depth >= index.unit_buckets() {
                measuring.sizes.nodes += 1;
                measuring.blocks(1, BUCKET_BYTES);
            }
        }
    }
    measuring.finish()
}

pub(super) fn visit_blocks<D: Domain, K: IndexKey + ?Sized>(
    index: &PClht<D, K>,
    visitor: &mut BlockVisitor<'_, D>,
    value: OnValue<'_, D>,
) {
    let domain = index.domain();
    if !visitor.visit(index.root, size_of::<IndexRoot>()) {
        return;
    }
    let table = index.table();
    if !table.is_inside(&index.pool) {
        return visitor.problem(format!("I1: the table of {table:?} is not inside the pool"));
    }
    if !visitor.visit(table.link(), table.bytes()) {
        return;
    }
    for chain in index.chains(table) {
        let mut link = table.at(chain);
        for hops in 1.. {
            let Some(bucket) = index.pool.try_at(link) else { break };
            for (word, held) in bucket.occupied(domain) {
                K::visit_blocks(visitor, word);
                value(visitor, held);
            }
            link = bucket.next.load(domain);
            if hops >= index.unit_buckets()
                && (link.is_null() || !visitor.visit(link, BUCKET_BYTES))
            {
                break;
            }
        }
    }
}
