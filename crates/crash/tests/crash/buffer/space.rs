//! The space of pages, with what refers to it in a pool.
//!
//! A word in the pool for each slot names its page; changing it durably is the commit of a change that
//! writes a new page and frees the old one. Changes in place are batches of several pages.

use std::sync::Arc;

use lapis_buffer::Space;
use lapis_buffer::mutants::{FREED_PAGE_REUSED_EARLY, TORN_BATCH_REDONE, UNFLUSHED_JOURNAL};
use lapis_buffer::space::Added;
use lapis_crash::{
    ExploreOptions, ExploreReport, Live, Modelled, Storage, Strategy, Subject, explore,
};
use lapis_pmem::{AuditReport, BlockDevice, Link, Mutant, PCell, Pool};

use super::{SPACE, number, text};

const SLOTS: usize = 4;
const ROOT: &str = "slots";
type Slots = [PCell<u64>; SLOTS];

#[derive(Clone, Debug)]
enum Operation {
    /// A new page with this value takes the place of the slot's.
    Replace(usize, u64),
    /// The pages of two slots get this value, both or none.
    UpdateBoth([usize; 2], u64),
    /// The slot has no page any more.
    Remove(usize),
    /// The end of the space is given back.
    Trim,
    Settle,
}

struct Pages;

struct LivePages {
    pool: Pool<Modelled>,
    slots: Link<Slots>,
    space: Space<Modelled>,
    /// Changes so far: the log, so to speak, is the words of the pool.
    commits: u64,
}

impl LivePages {
    fn slot(&self, slot: usize) -> &PCell<u64> {
        &self.pool.at(self.slots)[slot]
    }

    fn commit(&mut self, slot: usize, page: u64) {
        let _committed = self.slot(slot).publish(self.pool.domain(), page).persist();
        self.commits += 1;
    }

    /// Frees a slot's page by the change that is about to be committed.
    fn free(&self, slot: usize) -> Result<(), String> {
        match self.slot(slot).load(self.pool.domain()) {
            0 => Ok(()),
            page => self.space.free(number(page)?, self.commits + 1).map_err(text),
        }
    }

    fn write(&self, pages: &[(usize, u64, u64)]) -> Result<(), String> {
        let mut batch = self.space.begin_batch();
        for &(slot, page, value) in pages {
            let page = number(page)?;
            let fill = |bytes: &mut [u8]| {
                bytes.fill(0);
                bytes[..4].copy_from_slice(b"LPAG");
                (bytes[4], bytes[5]) = (1, 16);
                bytes[8..16].copy_from_slice(&page.get().to_le_bytes());
                for at in (32..4096).step_by(512) {
                    bytes[at..at + 8].copy_from_slice(&(slot as u64).to_le_bytes());
                    bytes[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
                }
            };
            match batch.add(page, fill) {
                Added::InBatch => {}
                other => return Err(format!("page {page}: {other:?}")),
            }
        }
        batch.write(self.commits).map_err(text)
    }

    fn read(&self, slot: usize) -> Result<u64, String> {
        let page = match self.slot(slot).load(self.pool.domain()) {
            0 => return Ok(0),
            page => number(page)?,
        };
        let words = |bytes: &[u8]| {
            let word =
                |at: usize| bytes[at..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
            (32..4096).step_by(512).map(|at| (word(at), word(at + 8))).collect::<Vec<_>>()
        };
        let words = self.space.read(page, words).map_err(text)?;
        match words.iter().all(|pair| *pair == (slot as u64, words[0].1)) {
            true => Ok(words[0].1),
            false => Err(format!("page {page} of slot {slot} holds {words:?}")),
        }
    }

    /// Pages that a change had written which was not committed.
    fn orphans(&self) -> Vec<u64> {
        let slots = (0..SLOTS).map(|slot| self.slot(slot).load(self.pool.domain()));
        let used: Vec<_> = slots.collect();
        let pages = self.space.numbers().into_iter().map(|page| page.get());
        pages.filter(|page| !used.contains(page)).collect()
    }
}

impl Subject for Pages {
    type Operation = Operation;
    type State = [u64; SLOTS];
    type Live = LivePages;

    fn name(&self) -> &'static str {
        "space"
    }
    fn pool_bytes(&self) -> usize {
        1 << 20
    }
    fn device_blocks(&self) -> Vec<u64> {
        vec![1]
    }
    fn operations(&self, count: usize, seed: u64) -> Vec<Operation> {
        let mut random = seed;
        let operation = |at: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at as u64 | 1);
            let (slot, other) = ((random >> 33) as usize % SLOTS, (random >> 40) as usize % SLOTS);
            match (random >> 50) % 10 {
                _ if at < SLOTS => Operation::Replace(at, at as u64 + 100),
                0..4 => Operation::Replace(slot, at as u64 + 100),
                4..7 if slot != other => Operation::UpdateBoth([slot, other], at as u64 + 100),
                7 => Operation::Remove(slot),
                8 => Operation::Settle,
                _ => Operation::Trim,
            }
        };
        (0..count).map(operation).collect()
    }
    fn probes(&self, _: &[u64; SLOTS], _: Option<&Operation>, seed: u64) -> Vec<Operation> {
        vec![
            Operation::Replace(0, seed | 1),
            Operation::UpdateBoth([0, 1], seed | 2),
            Operation::Remove(0),
        ]
    }
    fn create(&self, storage: Storage) -> Result<LivePages, String> {
        let Storage { pool: Some(pool), mut devices, machine } = storage else {
            return Err("there is no pool".to_owned());
        };
        let device = Arc::new(devices.pop().ok_or("there is no SSD")?) as Arc<dyn BlockDevice>;
        let space = Space::create(machine, device, &SPACE).map_err(text)?;
        let node = pool.allocate::<Slots>().map_err(text)?;
        node.iter().for_each(|slot| slot.store(pool.domain(), 0));
        let node = pool.fence(node.flush());
        let slots = node.link();
        let _committed = pool.publish_root(ROOT, 0, node).map_err(text)?.persist();
        Ok(LivePages { pool, slots, space, commits: 0 })
    }
    fn open(&self, storage: Storage) -> Result<Option<LivePages>, String> {
        let Storage { pool: Some(pool), mut devices, machine } = storage else {
            return Err("there is no pool".to_owned());
        };
        let Some(slots) = pool.root::<Slots>(ROOT) else { return Ok(None) };
        let device = Arc::new(devices.pop().ok_or("there is no SSD")?) as Arc<dyn BlockDevice>;
        let space = Space::open(machine, device).map_err(text)?;
        let live = LivePages { pool, slots, space, commits: 0 };
        for orphan in live.orphans() {
            live.space.free(number(orphan)?, 0).map_err(text)?;
        }
        Ok(Some(live))
    }
    fn initial(&self) -> [u64; SLOTS] {
        [0; SLOTS]
    }
    fn apply(&self, state: &mut [u64; SLOTS], operation: &Operation) {
        match *operation {
            Operation::Replace(slot, value) => state[slot] = value,
            Operation::Remove(slot) => state[slot] = 0,
            Operation::UpdateBoth(slots, value) => {
                for slot in slots {
                    if state[slot] != 0 {
                        state[slot] = value;
                    }
                }
            }
            Operation::Trim | Operation::Settle => {}
        }
    }
    fn owns_source(&self, file: &str) -> bool {
        file.ends_with("buffer/space.rs")
    }
}

impl Live<Operation, [u64; SLOTS]> for LivePages {
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        match *operation {
            Operation::Replace(slot, value) => {
                self.free(slot)?;
                let page = self.space.allocate().map_err(text)?.get();
                self.write(&[(slot, page, value)])?;
                self.commit(slot, page);
            }
            Operation::Remove(slot) => {
                self.free(slot)?;
                self.commit(slot, 0);
            }
            Operation::UpdateBoth(slots, value) => {
                let domain = self.pool.domain();
                let pages = slots.map(|slot| (slot, self.slot(slot).load(domain), value));
                let pages: Vec<_> = pages.into_iter().filter(|(_, page, _)| *page != 0).collect();
                self.write(&pages)?;
            }
            Operation::Trim => {
                self.space.write_freed(self.commits).map_err(text)?;
                self.space.trim().map_err(text)?;
            }
            Operation::Settle => self.space.settle(self.commits).map_err(text)?,
        }
        Ok(())
    }
    fn observe(&self) -> Result<[u64; SLOTS], String> {
        let mut state = [0; SLOTS];
        for (slot, value) in state.iter_mut().enumerate() {
            *value = self.read(slot)?;
        }
        Ok(state)
    }
    fn check(&self) -> Vec<String> {
        let damaged = self.space.check().into_iter().map(|problem| format!("{problem:?}"));
        let orphans = self.orphans().into_iter().map(|page| format!("page {page} is nobody's"));
        damaged.chain(orphans).collect()
    }
    fn reclaim_and_audit(&self) -> AuditReport {
        let reachable = self.pool.reachable(|visitor| {
            visitor.visit(self.slots, size_of::<Slots>());
        });
        if self.pool.needs_reclaim() {
            self.pool.reclaim(&reachable);
        }
        self.pool.audit(&reachable)
    }
    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(&self.pool)
    }
}

fn explored(seed: u64, mutant: Option<Mutant>) -> ExploreReport {
    let options = ExploreOptions {
        ops: 30,
        seed,
        mutant,
        strategy: Strategy::Sampled,
        samples: 24,
        crash_in_recovery_every: 64,
        whole_check_every: 4,
        violation_limit: if mutant.is_some() { 1 } else { 3 },
        ..ExploreOptions::default()
    };
    explore(&Pages, &options, &|_| {}).unwrap()
}

#[test]
fn the_space_survives_every_power_cut() {
    let report = explored(2, None);
    println!("{} images, {} in recovery", report.images, report.images_in_recovery);
    assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
    assert!(report.images > 5000 && report.images_in_recovery > 2000, "{report:?}");
}

#[test]
fn every_mutant_of_the_space_is_killed() {
    for mutant in [UNFLUSHED_JOURNAL, TORN_BATCH_REDONE, FREED_PAGE_REUSED_EARLY] {
        let found = (1..=4).map(|seed| explored(seed, Some(mutant)));
        let killed = found.into_iter().find(|report| !report.violations.is_empty());
        let killed = killed.unwrap_or_else(|| panic!("{} survived", mutant.0));
        println!("{}: after {} images: {}", mutant.0, killed.images, killed.violations[0].what);
    }
}
