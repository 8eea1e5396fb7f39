//! Walking the whole table: problems, sizes, reachable blocks.

use std::collections::{BTreeSet, HashSet};

use lapis_pmem::{BlockVisitor, Domain};

use super::directory::{Reference, range};
use super::segment::{Prefix, Segment, hash_of_word};
use super::{Cceh, FORMAT_VERSION};
use crate::IndexKind;
use crate::index::{Measuring, OnValue, Statistics};
use crate::key::IndexKey;
use crate::problems::Problems;
use crate::root::IndexRoot;

/// Calls `visit` with each reference of the directory once, and the hashes that it is for.
fn for_each_reference<D: Domain, K: IndexKey + ?Sized>(
    index: &Cceh<D, K>,
    mut visit: impl FnMut(Prefix, Reference),
) {
    let directory = index.directory();
    let Some(entries) = directory.elements(&index.pool) else { return };
    let mut at = 0;
    while let Some(entry) = entries.get(at) {
        let reference = Reference(entry.load(index.domain()));
        let depth = reference.depth().clamp(1, directory.log2());
        visit(Prefix::of((at as u64) << (64 - directory.log2()), depth), reference);
        // To the end of what the reference is for, wherever in it this entry is.
        at = (at | ((1 << (directory.log2() - depth)) - 1)) + 1;
    }
}

pub(super) fn problems<D: Domain, K: IndexKey + ?Sized>(index: &Cceh<D, K>) -> Vec<String> {
    let mut problems = Problems::default();
    if let Err(error) =
        IndexRoot::open(&index.pool, index.root, IndexKind::Cceh, K::KIND, FORMAT_VERSION)
    {
        return vec![error.to_string()];
    }
    let directory = index.directory();
    if !directory.is_inside(&index.pool) {
        return vec![format!("I1: the directory of {directory:?} is not inside the pool")];
    }
    if index.structure_lock().read(index.domain()).is_locked(index.generation) {
        problems.push("I6: the lock for the directory is held and nobody is at work".to_owned());
    }
    match index.recorded().and_then(|change| change.map_or(Ok(true), |it| index.agrees(&it))) {
        Ok(true) => {}
        Ok(false) => problems.push("I5: the change that is recorded is not complete".to_owned()),
        Err(error) => problems.push(error.to_string()),
    }
    let mut seen = HashSet::new();
    for_each_reference(index, |prefix, reference| {
        let (domain, at) = (index.domain(), prefix.start());
        let alike = range(directory, &index.pool, prefix)
            .is_some_and(|range| range.iter().all(|entry| entry.load(domain) == reference.0));
        if !alike || reference.depth() != prefix.depth() {
            problems.push(format!("I2: not all entries from {at:#x} on are {:#x}", reference.0));
        }
        let Some(segment) = index.segment(reference.link()) else {
            let link = reference.link();
            return problems.push(format!("I2: the segment at {link:?} is not inside the pool"));
        };
        if !seen.insert(reference.link().offset()) {
            problems.push(format!("I2: the segment at {:?} is in two places", segment.link));
        }
        check_segment(index, prefix, segment, &mut problems);
    });
    problems.finish()
}

fn check_segment<D: Domain, K: IndexKey + ?Sized>(
    index: &Cceh<D, K>,
    prefix: Prefix,
    segment: Segment<'_>,
    problems: &mut Problems,
) {
    let (pool, domain, link) = (&index.pool, index.domain(), segment.link);
    let start = segment.header.start.load(domain);
    if start != prefix.start() {
        let expected = prefix.start();
        problems.push(format!("I2: the segment at {link:?} is for {start:#x}, not {expected:#x}"));
    }
    if segment.header.lock.read(domain).is_locked(index.generation) {
        problems.push(format!("I6: the segment at {link:?} is locked and nobody is at work"));
    }
    let mut keys = BTreeSet::new();
    for (number, line) in segment.lines.iter().enumerate() {
        for entry in &line.entries {
            let word = entry.key.load(domain);
            match hash_of_word::<D, K>(pool, prefix, word, index.seed) {
                Ok(None) => continue,
                Ok(Some(hash)) if !prefix.covers(hash) => {
                    problems.push(format!("I3: {word:#x} in {link:?} belongs elsewhere"));
                }
                Ok(Some(hash)) if !segment.window(hash).any(|of| std::ptr::eq(of, line)) => {
                    problems.push(format!("I3: {word:#x} is in line {number}, out of its window"));
                }
                Ok(Some(_)) | Err(_) => {}
            }
            let place = || format!("{link:?}");
            let Some(key) = problems.key_of::<D, K>(pool, word, "I3", place) else { continue };
            if let Some(twice) = keys.replace(key) {
                problems.push(format!("I4: {twice:?} is twice in the segment at {link:?}"));
            }
        }
    }
}

pub(super) fn statistics<D: Domain, K: IndexKey + ?Sized>(index: &Cceh<D, K>) -> Statistics {
    let mut measuring = Measuring::default();
    measuring.blocks(2, size_of::<IndexRoot>() + index.directory().bytes());
    for_each_reference(index, |prefix, reference| {
        let Some(segment) = index.segment(reference.link()) else { return };
        measuring.blocks(1, index.segment_bytes());
        measuring.sizes.nodes += segment.lines.len() as u64;
        for line in segment.lines {
            for entry in &line.entries {
                let word = entry.key.load(index.domain());
                let Ok(Some(_)) = hash_of_word::<D, K>(&index.pool, prefix, word, index.seed)
                else {
                    continue;
                };
                let Some(hash) = K::with_word(&index.pool, word, |key| index.hash_of(key)) else {
                    continue;
                };
                let lines = segment.window(hash).take_while(|of| !std::ptr::eq(*of, line)).count();
                measuring.entry::<D, K>(&index.pool, word, 1 + lines as u64);
            }
        }
    });
    measuring.finish()
}

pub(super) fn visit_blocks<D: Domain, K: IndexKey + ?Sized>(
    index: &Cceh<D, K>,
    visitor: &mut BlockVisitor<'_, D>,
    value: OnValue<'_, D>,
) {
    if !visitor.visit(index.root, size_of::<IndexRoot>()) {
        return;
    }
    let directory = index.directory();
    if !directory.is_inside(&index.pool) {
        return visitor
            .problem(format!("I1: the directory of {directory:?} is not inside the pool"));
    }
    if !visitor.visit(directory.link(), directory.bytes()) {
        return;
    }
    for_each_reference(index, |prefix, reference| {
        if !visitor.visit(reference.link(), index.segment_bytes()) {
            return;
        }
        let Some(segment) = index.segment(reference.link()) else { return };
        for entry in segment.lines.iter().flat_map(|line| &line.entries) {
            let word = entry.key.load(index.domain());
            if matches!(hash_of_word::<D, K>(&index.pool, prefix, word, index.seed), Ok(None)) {
                continue;
            }
            K::visit_blocks(visitor, word);
            value(visitor, entry.value.load(index.domain()));
        }
    });
}
