use super::*;

/// One set each: two lines of L1, four of L2, eight of L3.
fn small() -> Hierarchy {
    let level = |lines| CacheShape { capacity_bytes: lines * LINE_BYTES, ways: lines };
    Hierarchy::new(HierarchyShape {
        l1: level(2),
        l2: level(4),
        l3: level(8),
        flush_keeps_line: true,
    })
}

fn access(caches: &mut Hierarchy, worker: u8, line: u32, write: bool) -> (Level, Vec<u32>) {
    let mut evicted = Evicted::default();
    let level = caches.access(worker, line, write, &mut evicted);
    (level, evicted.lines().to_vec())
}

fn read(caches: &mut Hierarchy, worker: u8, line: u32) -> Level {
    access(caches, worker, line, false).0
}

fn write(caches: &mut Hierarchy, worker: u8, line: u32) -> Level {
    access(caches, worker, line, true).0
}

#[test]
fn lines_sink_from_level_to_level_as_others_come() {
    let mut caches = small();
    assert_eq!(read(&mut caches, 0, 0), Level::Memory);
    assert_eq!(read(&mut caches, 0, 0), Level::L1);
    (1..3).for_each(|line| {
        read(&mut caches, 0, line);
    });
    assert_eq!(read(&mut caches, 0, 0), Level::L2);
    (3..7).for_each(|line| {
        read(&mut caches, 0, line);
    });
    assert_eq!(read(&mut caches, 0, 0), Level::L3);
    (7..20).for_each(|line| {
        read(&mut caches, 0, line);
    });
    assert_eq!(read(&mut caches, 0, 0), Level::Memory);
}

#[test]
fn a_dirty_line_is_evicted_once_the_caches_together_are_full() {
    let mut caches = small();
    access(&mut caches, 0, 0, true);
    let mut evictions = Vec::new();
    for line in 1..=12 {
        evictions.push(access(&mut caches, 0, line, false).1);
    }
    // Four lines are in L2 and eight in L3: the twelfth other line pushes it out.
    assert_eq!(evictions.concat(), [0]);
    assert_eq!(evictions[11], [0]);
}

#[test]
fn dirty_lines_leave_in_the_order_in_which_they_fell_out_of_use() {
    let mut caches = small();
    (0..4).for_each(|line| {
        access(&mut caches, 0, line, true);
    });
    access(&mut caches, 0, 0, false);
    let evicted: Vec<u32> =
        (4..20).flat_map(|line| access(&mut caches, 0, line, false).1).collect();
    assert_eq!(evicted, [1, 2, 3, 0]);
}

#[test]
fn flushing_cleans_the_line_at_every_level_and_only_once() {
    for others in [0, 2, 6] {
        let mut caches = small();
        write(&mut caches, 0, 100);
        (0..others).for_each(|line| {
            read(&mut caches, 0, line);
        });
        assert!(caches.flush(100), "{others}");
        assert!(!caches.flush(100), "{others}");
        assert_ne!(read(&mut caches, 0, 100), Level::Memory, "{others}");
    }
}

#[test]
fn a_flush_that_drops_the_line_makes_the_next_read_go_to_memory() {
    let mut caches = small();
    caches.shape.flush_keeps_line = false;
    write(&mut caches, 0, 5);
    assert!(caches.flush(5));
    assert_eq!(read(&mut caches, 0, 5), Level::Memory);
}

#[test]
fn another_workers_read_shares_a_dirty_line_and_evicts_nothing() {
    let mut caches = small();
    write(&mut caches, 0, 5);
    assert_eq!(access(&mut caches, 1, 5, false), (Level::OtherCore, vec![]));
    assert_eq!((read(&mut caches, 0, 5), read(&mut caches, 1, 5)), (Level::L1, Level::L1));
    // What was written is not lost: L3 has it.
    assert!(caches.flush(5));
}

#[test]
fn another_workers_write_takes_the_line_with_what_was_written() {
    let mut caches = small();
    write(&mut caches, 0, 5);
    assert_eq!(access(&mut caches, 1, 5, true), (Level::OtherCore, vec![]));
    assert_eq!(read(&mut caches, 0, 5), Level::OtherCore);
    assert!(caches.flush(5));
    assert!(!caches.flush(5));
}

#[test]
fn a_write_to_a_shared_line_takes_it_from_everybody_else() {
    let mut caches = small();
    (0..3).for_each(|worker| {
        read(&mut caches, worker, 5);
    });
    assert_eq!(write(&mut caches, 1, 5), Level::OtherCore);
    assert_eq!(write(&mut caches, 1, 5), Level::L1);
    assert_eq!(read(&mut caches, 2, 5), Level::OtherCore);
    assert!(caches.flush(5));
}

#[test]
fn no_dirty_line_is_lost_or_written_twice_whatever_workers_do() {
    // Each line's dirtiness by a plain model: written and not yet flushed or evicted.
    let (mut caches, mut dirty) = (small(), std::collections::BTreeSet::new());
    let mut random = crate::random::Random::new(3);
    for _ in 0..200_000 {
        let (worker, line) = (random.below(3) as u8, random.below(40) as u32);
        match random.below(8) {
            0 => assert_eq!(caches.flush(line), dirty.remove(&line)),
            1 => assert_eq!(caches.remove(line), dirty.remove(&line)),
            kind => {
                let write = kind < 5;
                for gone in access(&mut caches, worker, line, write).1 {
                    assert!(gone != line && dirty.remove(&gone), "{gone}");
                }
                if write {
                    dirty.insert(line);
                }
            }
        }
    }
    assert!(!dirty.is_empty());
}

#[test]
fn one_worker_alone_sees_what_it_would_see_if_another_had_been_there_before() {
    let (mut alone, mut noted) = (small(), small());
    // Holders are noted from the start.
    noted.appeared = Appeared::Several;
    let mut random = crate::random::Random::new(7);
    for step in 0..100_000 {
        // In the end a second worker appears.
        let worker = if step < 80_000 { 2 } else { 1 + random.below(2) as u8 };
        let line = random.below(24) as u32;
        match random.below(8) {
            0 => assert_eq!(alone.flush(line), noted.flush(line)),
            1 => assert_eq!(alone.remove(line), noted.remove(line)),
            kind => {
                let write = kind < 5;
                let seen = access(&mut alone, worker, line, write);
                assert_eq!(seen, access(&mut noted, worker, line, write), "{step}");
            }
        }
    }
}
