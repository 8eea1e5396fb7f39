//! The power is cut, or the process killed, at every store, flush and fence of a run; then the log
//! must hold what was acknowledged. Each flush and fence of the log in turn is taken away, and the
//! same run must then go wrong.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lapis_blocks::log::{Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_pmem::{Committed, PCell, Pool};

use super::machine::{Machine, Moment, Site};
use super::{Numbers, ROOT, contents, open};

const OPTIONS: PopLogOptions =
    PopLogOptions { segment_bytes: 4096, spare_segments: 1, placement: Placement::Padded };
const POOL_BYTES: usize = 512 << 10;

/// What a log may be expected to hold.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    entries: Vec<(Position, Vec<u8>)>,
    end: Position,
}

impl Model {
    fn empty() -> Self {
        Self { entries: Vec::new(), end: Position::FIRST }
    }

    fn of(log: &PopLog<Machine>) -> Self {
        Self { entries: contents(log), end: log.end() }
    }

    fn append(&mut self, payload: Vec<u8>) {
        self.entries.push((self.end, payload));
        self.end = self.end.next();
    }
}

/// How thoroughly to look.
#[derive(Clone, Copy)]
struct Effort {
    every: u64,
    images: u64,
    steps: usize,
    seed: u64,
    placement: Placement,
}

#[derive(Default)]
struct Seen {
    images: u64,
    sites: BTreeSet<Site>,
}

impl Seen {
    fn note(&mut self, pool: &Pool<Machine>) {
        self.sites.extend(pool.domain().sites("src/pop_log/"));
    }
}

/// Fills the pool with bits and gives it back, so that nothing is zero by chance.
fn soil(pool: &Pool<Machine>) {
    for tail_bytes in [120, 4088, 65_000] {
        let mut blocks = Vec::new();
        while blocks.len() < 16
            && let Ok(mut block) = pool.allocate_with_tail::<PCell<u64>>(tail_bytes)
        {
            block.store(pool.domain(), u64::MAX);
            block.write_tail(0, &Numbers(tail_bytes as u64).bytes(tail_bytes));
            blocks.push(block.flush());
        }
        drop(pool.fence(blocks));
    }
}

/// Opens what a crash left; it must be one of `possible`, and usable, and nothing may be lost.
fn verify(pool: &Arc<Pool<Machine>>, possible: &[&Model], seen: &mut Seen) {
    seen.images += 1;
    let log = open(pool).unwrap();
    let mut model = Model::of(&log);
    assert!(possible.contains(&&model), "found {model:?}, possible were {possible:?}");
    assert_eq!(log.check(), []);
    let traced = pool.trace(|tracer| log.trace(tracer));
    pool.reclaim(&traced);
    let report = pool.audit(&traced);
    assert!(report.is_clean(), "{report:?}");
    if seen.images.is_multiple_of(4) {
        // The power is cut again during the next append, which follows recovery at once, or when
        // what recovery has freed is in use for something else.
        if seen.images.is_multiple_of(8) {
            soil(pool);
        }
        let before = model.clone();
        pool.domain().record_every(1);
        log.append(&[0x55; 130]).unwrap();
        model.append(vec![0x55; 130]);
        pool.domain().record_every(0);
        for (index, moment) in pool.domain().take_moments().iter().enumerate() {
            let image = moment.power_cut(seen.images / 4 + index as u64);
            let found = Model::of(&open(&Machine::restart(&image, None)).unwrap());
            assert!(found == before || found == model, "found {found:?}, not {before:?} or more");
        }
    }
    // It goes on, over the end of the segment, and opens again.
    for payload in [vec![0x11; 10], vec![0x22; 3900], vec![0x33; 100]] {
        log.append(&payload).unwrap();
        model.append(payload);
    }
    seen.note(pool);
    let image = pool.domain().moment().power_cut(0);
    let log = open(&Machine::restart(&image, None)).unwrap();
    assert_eq!(Model::of(&log), model);
}

/// Verifies what power cuts leave, at `moments` and inside the recovery from them.
fn cut(
    moments: &[Moment],
    possible: &[&Model],
    effort: Effort,
    disabled: Option<Site>,
    seen: &mut Seen,
) {
    for (index, moment) in moments.iter().enumerate() {
        for seed in 0..effort.images {
            let seed = seed + 4 * index as u64;
            let image = moment.power_cut(seed);
            verify(&Machine::restart(&image, disabled), possible, seen);
            if index % 8 == 3 {
                let pool = Machine::restart(&image, disabled);
                pool.domain().record_every(1);
                drop(open(&pool));
                for inside in pool.domain().take_moments() {
                    verify(&Machine::restart(&inside.power_cut(seed), None), possible, seen);
                }
            }
        }
    }
}

/// Verifies what the death of the process leaves: the log goes on, and then the power is cut.
fn kill(moments: &[Moment], possible: &[&Model], disabled: Option<Site>, seen: &mut Seen) {
    for (index, moment) in moments.iter().enumerate() {
        let pool = Machine::resume(moment, disabled);
        let log = open(&pool).unwrap();
        let mut model = Model::of(&log);
        assert!(possible.contains(&&model), "found {model:?}, possible were {possible:?}");
        let told = pool.domain().moment();
        verify(&Machine::restart(&told.power_cut(2 * index as u64), None), &[&model], seen);
        // What recovery found free is used for something else.
        let traced = pool.trace(|tracer| log.trace(tracer));
        pool.reclaim(&traced);
        soil(&pool);
        log.append(&[0x77; 70]).unwrap();
        model.append(vec![0x77; 70]);
        seen.note(&pool);
        let end = pool.domain().moment();
        for seed in 0..4 {
            let image = end.power_cut(seed + index as u64);
            verify(&Machine::restart(&image, None), &[&model], seen);
        }
    }
}

/// A run of appends and truncations, cut off everywhere.
fn run(effort: Effort, disabled: Option<Site>, seen: &mut Seen) {
    let pool = Machine::create(POOL_BYTES, disabled);
    soil(&pool);
    let options = PopLogOptions { placement: effort.placement, ..OPTIONS };
    let root = pool.fence(PopLog::create(&pool, options).unwrap());
    let visible = pool.publish_root(ROOT, 0, root).unwrap();
    let published = pool.domain().moment();
    let _: Committed = visible.persist();
    let mut model = Model::empty();
    // The reference to the root may have persisted, or not yet.
    let images = (0..8).map(|seed| Machine::restart(&published.power_cut(seed), disabled));
    for pool in images.filter(|pool| pool.root::<PopLogRoot>(ROOT).is_some()) {
        verify(&pool, &[&model], seen);
    }
    cut(&[pool.domain().moment()], &[&model], effort, disabled, seen);

    let log = open(&pool).unwrap();
    let mut numbers = Numbers(effort.seed);
    let domain = pool.domain();
    for step in 0..effort.steps {
        let before = model.clone();
        domain.record_every(if step % 7 == 5 { 1 } else { effort.every });
        match numbers.below(16) {
            0..=2 => {
                let dropped = numbers.below(model.entries.len() + 1);
                let to = model.entries.get(dropped).map_or(model.end, |entry| entry.0);
                log.truncate(to).unwrap();
                model.entries.drain(..dropped);
            }
            3 if numbers.below(4) == 0 => log.prepare_spares().unwrap(),
            kind => {
                let length = match kind {
                    4..=7 => 1 + numbers.below(120),
                    8 => 4500 + numbers.below(2000),
                    _ => 200 + numbers.below(2500),
                };
                let payload = match numbers.below(4) {
                    0 => vec![0; length],
                    _ => numbers.bytes(length),
                };
                log.append(&payload).unwrap();
                model.append(payload);
            }
        }
        domain.record_every(0);
        assert_eq!(Model::of(&log), model);
        let moments = domain.take_moments();
        cut(&moments, &[&before, &model], effort, disabled, seen);
        kill(&moments, &[&before, &model], disabled, seen);
        // Acknowledged: from here on it must be there.
        let acknowledged = domain.moment();
        cut(&[acknowledged], &[&model], effort, disabled, seen);
        if model.entries.len() > 12 {
            log.truncate(model.end).unwrap();
            model.entries.clear();
        }
    }
    seen.note(&pool);
}

const EFFORT: Effort =
    Effort { every: 3, images: 3, steps: 32, seed: 1, placement: Placement::Padded };

#[test]
fn after_every_crash_the_acknowledged_entries_are_there_and_nothing_leaks() {
    let mut seen = Seen::default();
    for (seed, placement) in
        [(1, Placement::Padded), (2, Placement::Dense), (2, Placement::Streamed)]
    {
        run(Effort { seed, placement, ..EFFORT }, None, &mut seen);
    }
    assert!(seen.images > 1000, "{}", seen.images);
}

#[test]
fn every_flush_and_every_fence_is_necessary() {
    let mut seen = Seen::default();
    run(EFFORT, None, &mut seen);
    let survivors: Vec<_> = seen
        .sites
        .iter()
        .filter(|&&site| {
            // The harness finds a violation by panicking.
            let attempt = |seed| {
                let effort = Effort { seed, ..EFFORT };
                catch_unwind(AssertUnwindSafe(|| run(effort, Some(site), &mut Seen::default())))
            };
            (1..=8).all(|seed| attempt(seed).is_ok())
        })
        .collect();
    assert!(seen.sites.len() >= 12, "{:?}", seen.sites);
    assert!(survivors.is_empty(), "not necessary: {survivors:?}");
}
