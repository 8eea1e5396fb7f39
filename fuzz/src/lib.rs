//! What the fuzz target of the indexes does: an input is either a program of operations, compared
//! with a `BTreeMap` and reopened in between, or bytes laid over an index, which must be told from a
//! sound one or be read without a panic. And, in [`engine_bytes`], those of an engine's formats.

pub mod engine_bytes;

/// Makes a program of what is to be done with an input: a fuzz target for cargo-fuzz, and otherwise one that does it with
/// each file that it is given, so that a finding can be looked at without a fuzzer.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:expr) => {
        fn with_input($input: &[u8]) {
            $body
        }

        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|input: &[u8]| with_input(input));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            std::env::args_os().skip(1).try_for_each(|file| Ok(with_input(&std::fs::read(file)?)))
        }
    };
}

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_index::{
    Direction, Index, IndexFamily, IndexKey, IndexKind, IndexOf, IndexOptions, IndexRoot,
    with_index,
};
use lapis_pmem::{EXTENT_BYTES, Hardware, Pool, Region};

const POOL_BYTES: usize = 1 << 20;
const RESERVED_BYTES: usize = 1 << 26;

/// Kinds of keys that bytes of an input choose from.
pub trait FuzzKey: IndexKey {
    /// A key of few, near to each other and far apart. Uses up what it needs of `input`.
    fn choose(input: &mut &[u8]) -> Self::Buf;
}

fn byte(input: &mut &[u8]) -> u8 {
    let Some((first, rest)) = input.split_first() else { return 0 };
    *input = rest;
    *first
}

impl FuzzKey for u64 {
    fn choose(input: &mut &[u8]) -> u64 {
        let (shape, number) = (byte(input), u64::from(byte(input)));
        match shape % 4 {
            0 => number,
            1 => u64::MAX - number,
            2 => number << (shape / 4 % 8 * 8),
            _ => number.wrapping_mul(0x0101_0101_0101_0101) ^ u64::from(shape),
        }
    }
}

impl FuzzKey for [u8] {
    fn choose(input: &mut &[u8]) -> Vec<u8> {
        let shape = byte(input);
        // Prefixes of each other, zero bytes and long common beginnings among them.
        let mut key = vec![b'k'; usize::from(shape % 5) * 7];
        let bytes = usize::from(shape / 5 % 6).min(input.len());
        key.extend(input[..bytes].iter().map(|byte| byte % 5));
        *input = &input[bytes..];
        if key.is_empty() { vec![shape] } else { key }
    }
}

fn region() -> Region {
    Region::anonymous(POOL_BYTES, RESERVED_BYTES).expect("memory for a small pool")
}

fn create<K: IndexKey + ?Sized, I: Index<Hardware, K>>(pool: &Arc<Pool>) -> I {
    I::create_named(pool, "index", &IndexOptions::default()).expect("room for a root")
}

/// Runs the program that `input` is.
fn operate<K: FuzzKey + ?Sized, F: IndexFamily>(mut input: &[u8]) {
    let region = region();
    // SAFETY: aliases are dropped with their pools, one after the other, before the region.
    let pool =
        Pool::create(unsafe { region.alias() }, Hardware::detect()).expect("an empty region");
    let mut pool = Arc::new(pool);
    let mut index: IndexOf<F, Hardware, K> = create(&pool);
    let mut model: BTreeMap<K::Buf, u64> = BTreeMap::new();
    while !input.is_empty() {
        let operation = byte(&mut input);
        let key = K::choose(&mut input);
        let key_ref = K::borrow(&key);
        let value = u64::from(byte(&mut input));
        let held = model.get(&key).copied();
        match operation % 16 {
            0..=4 => {
                assert_eq!(index.insert(key_ref, value).expect("room").previous, held);
                model.entry(key).or_insert(value);
            }
            5 | 6 => {
                assert_eq!(index.put(key_ref, value).expect("room").previous, held);
                model.insert(key, value);
            }
            7 => {
                assert_eq!(index.update(key_ref, value).expect("room").previous, held);
                model.entry(key).and_modify(|held| *held = value);
            }
            8..=11 => {
                assert_eq!(index.remove(key_ref).expect("no room is needed").previous, held);
                model.remove(&key);
            }
            12 | 13 => assert_eq!(index.get(key_ref), held),
            14 => scans_are_right::<K, F>(&index, &model, key_ref),
            _ => {
                // As a crash of the process, or in good order.
                drop(index);
                let pool_was = Arc::try_unwrap(pool).expect("the index is gone");
                let mapped_bytes = pool_was.region().mapped_bytes();
                if value.is_multiple_of(2) {
                    pool_was.abandon();
                } else {
                    drop(pool_was);
                }
                // SAFETY: the alias before grew to that and is gone.
                let alias = unsafe { region.alias_of(mapped_bytes) };
                pool = Arc::new(Pool::open(alias, Hardware::detect()).expect("a sound pool"));
                let root = pool.root::<IndexRoot>("index").expect("it was published");
                index = Index::open(Arc::clone(&pool), root).expect("a sound index");
            }
        }
    }
    let problems = index.check();
    assert!(problems.is_empty(), "{problems:?}");
    let mut found = Vec::new();
    index.for_each(&mut |key, value| {
        found.push((key.to_buf(), value));
        ControlFlow::Continue(())
    });
    if IndexOf::<F, Hardware, K>::CAPABILITIES.ordered {
        assert!(found.is_sorted_by(|one, other| one.0 < other.0));
    } else {
        found.sort();
    }
    assert_eq!(found, Vec::from_iter(model));
    let reachable = pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {}));
    assert!(pool.audit(&reachable).is_clean());
}

/// Lays `input` over an index of a few hundred keys.
fn damage<K: FuzzKey + ?Sized, I: Index<Hardware, K>>(input: &[u8]) {
    let region = region();
    // SAFETY: the alias is dropped with the pool.
    let pool =
        Pool::create(unsafe { region.alias() }, Hardware::detect()).expect("an empty region");
    let pool = Arc::new(pool);
    let index: I = create(&pool);
    let mut seed: &[u8] = &std::array::from_fn::<u8, 1200, _>(|at| (at * 151 % 256) as u8);
    while !seed.is_empty() {
        let _ = index.put(K::borrow(&K::choose(&mut seed)), 7).expect("room");
    }
    drop(index);
    let pool = Arc::try_unwrap(pool).expect("the index is gone");
    let mapped_bytes = pool.region().mapped_bytes();
    pool.abandon();
    // SAFETY: that many bytes are mapped, and nobody else uses the region now.
    let bytes = unsafe { std::slice::from_raw_parts_mut(region.base(), mapped_bytes) };
    let used: Vec<usize> =
        (EXTENT_BYTES.min(bytes.len() / 4)..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    if used.is_empty() {
        return;
    }
    for spot in input.chunks_exact(4) {
        let near = used[usize::from(u16::from_le_bytes([spot[0], spot[1]])) % used.len()];
        let at = (near + usize::from(spot[2] / 8)).min(bytes.len() - 1);
        bytes[at] = spot[3];
    }
    // SAFETY: as above; the alias before grew to that and is gone.
    let alias = unsafe { region.alias_of(mapped_bytes) };
    let Ok(pool) = Pool::open(alias, Hardware::detect()) else { return };
    let pool = Arc::new(pool);
    let Some(root) = pool.root::<IndexRoot>("index") else { return };
    if let Ok(index) = I::open(Arc::clone(&pool), root) {
        let _ = index.check();
        let _ = pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {}));
    }
    if let Some(pool) = Arc::into_inner(pool) {
        pool.abandon();
    }
}

/// Takes an input for the index, the keys and the use that its first byte chooses.
pub fn index(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else { return };
    let kind = IndexKind::ALL[usize::from(choice / 4) % IndexKind::ALL.len()];
    with_index!(kind, |F| match choice % 4 {
        0 => operate::<u64, F>(input),
        1 => operate::<[u8], F>(input),
        2 => damage::<u64, IndexOf<F, Hardware, u64>>(input),
        _ => damage::<[u8], IndexOf<F, Hardware, [u8]>>(input),
    });
}

/// If the index has an order.
fn scans_are_right<K: FuzzKey + ?Sized, F: IndexFamily>(
    index: &IndexOf<F, Hardware, K>,
    model: &BTreeMap<K::Buf, u64>,
    from: &K,
) {
    let scanned = |from, direction| {
        let mut found = Vec::new();
        let ordered = F::scan(index, from, direction, &mut |key, value| {
            found.push((key.to_buf(), value));
            ControlFlow::Continue(())
        });
        ordered.then_some(found)
    };
    let owned = |(key, value): (&K::Buf, &u64)| (key.clone(), *value);
    if let Some(up) = scanned(Bound::Included(from), Direction::Forward) {
        let expected = model.range((Bound::Included(from.to_buf()), Bound::Unbounded));
        assert_eq!(up, expected.map(owned).collect::<Vec<_>>());
    }
    if let Some(down) = scanned(Bound::Excluded(from), Direction::Backward) {
        let expected = model.range((Bound::Unbounded, Bound::Excluded(from.to_buf()))).rev();
        assert_eq!(down, expected.map(owned).collect::<Vec<_>>());
    }
}
