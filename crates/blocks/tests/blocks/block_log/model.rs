//! Against a list.

use lapis_blocks::block_log::{BlockLogError, Durability, Lsn};
use lapis_device::ImageBudget;
use proptest::prelude::*;

use super::{Owned, contents, create, open, payload, recovered, ssd};

#[derive(Clone, Debug)]
enum Step {
    Append(usize, u8),
    Commit(Durability),
    Sync,
    Keep(usize),
    Close,
    /// The process dies; what it wrote stays visible.
    Kill,
    /// The power goes, and leaves one of the images that it may.
    PowerCut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..100, any::<u8>()).prop_map(|(bytes, kind)| Step::Append(bytes, kind)),
        2 => (0usize..3000, any::<u8>()).prop_map(|(bytes, kind)| Step::Append(bytes, kind)),
        3 => Just(Step::Commit(Durability::Immediate)),
        1 => Just(Step::Commit(Durability::Group)),
        1 => Just(Step::Commit(Durability::Eventual)),
        1 => Just(Step::Sync),
        1 => (0usize..4).prop_map(Step::Keep),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerCut),
    ]
}

/// What was found is what was appended, up to somewhere behind what was durable.
fn is_prefix(found: &[Owned], all: &[Owned], durable: Lsn) -> bool {
    let must = all.iter().filter(|record| record.0 < durable).count();
    found.len() >= must && all.get(..found.len()) == Some(found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_list_of_which_crashes_take_the_end(
        steps in prop::collection::vec(step(), 1..150)
    ) {
        let mut device = ssd();
        let mut log = create(device.clone());
        let mut model: Vec<Owned> = Vec::new();
        for step in steps {
            match step {
                Step::Append(bytes, kind) => match log.append(kind, &[&payload(bytes, 1)]) {
                    Ok(lsn) => {
                        prop_assert!(model.last().is_none_or(|last| last.0 < lsn));
                        model.push((lsn, kind, payload(bytes, 1)));
                    }
                    Err(BlockLogError::Full { .. }) => {
                        log.sync().unwrap();
                        log.truncate_before(log.durable()).unwrap();
                        model.clear();
                    }
                    Err(error) => panic!("{error}"),
                },
                Step::Commit(durability) => {
                    if let Some((lsn, ..)) = model.last() {
                        let ticket = log.commit(*lsn, durability).unwrap();
                        if durability == Durability::Group {
                            ticket.wait().unwrap();
                        }
                        if durability != Durability::Eventual {
                            prop_assert!(log.durable() > *lsn);
                        }
                    }
                }
                Step::Sync => {
                    log.sync().unwrap();
                    prop_assert_eq!(log.durable(), log.end());
                }
                Step::Keep(count) => {
                    log.sync().unwrap();
                    model.drain(..model.len().saturating_sub(count));
                    let start = model.first().map_or(log.durable(), |record| record.0);
                    log.truncate_before(start).unwrap();
                    prop_assert_eq!(log.start(), start);
                }
                Step::Close => {
                    log.close().unwrap();
                    log = open(device.clone()).unwrap();
                    prop_assert_eq!(contents(&log), &model[..]);
                }
                Step::Kill => {
                    let durable = log.durable();
                    drop(log);
                    let (found, opened) = recovered(device.clone()).unwrap();
                    prop_assert!(is_prefix(&found, &model, durable));
                    (model, log) = (found, opened);
                }
                Step::PowerCut(seed) => {
                    let durable = log.durable();
                    let states = device.crash_states();
                    let after = device.after_power_cut();
                    let budget = ImageBudget { exhaustive_limit: 1, samples: 8, seed };
                    let images: Vec<_> = states.images(budget).collect();
                    let image = &images[seed as usize % images.len()];
                    states.apply_to_devices(image, std::slice::from_ref(&after));
                    device = after;
                    let (found, opened) = recovered(device.clone()).unwrap();
                    prop_assert!(is_prefix(&found, &model, durable));
                    (model, log) = (found, opened);
                }
            }
            prop_assert!(log.start() <= log.durable() && log.durable() <= log.end());
        }
        log.sync().unwrap();
        prop_assert_eq!(contents(&log), model);
    }
}

#[test]
fn every_length_is_read_as_it_was_written() {
    let log = create(ssd());
    let mut model = Vec::new();
    for bytes in (0..200).chain([511, 512, 1000, 4072, 4073, log.largest_payload_bytes()]) {
        let (cut, payload) = (bytes / 3, payload(bytes, bytes));
        let parts = [&payload[..cut], &[][..], &payload[cut..]];
        let lsn = log.append(9, &parts).unwrap_or_else(|_| {
            log.sync().unwrap();
            log.truncate_before(log.durable()).unwrap();
            model.clear();
            log.append(9, &parts).unwrap()
        });
        model.push((lsn, 9, payload));
        log.sync().unwrap();
        assert_eq!(contents(&log), model, "{bytes} bytes");
    }
}

#[test]
fn a_reader_begins_at_any_record_and_ends_at_what_was_durable_when_it_was_made() {
    let log = create(ssd());
    let records: Vec<_> = (0..40).map(|number| super::append(&log, number * 13, number)).collect();
    let mut nothing = log.read_from(log.start()).unwrap();
    assert_eq!(nothing.next_record().unwrap(), None, "nothing is durable yet");
    log.sync().unwrap();
    assert_eq!(nothing.next_record().unwrap(), None);
    for from in 0..records.len() {
        let mut reader = log.read_from(records[from].0).unwrap();
        for (lsn, kind, payload) in &records[from..] {
            assert!(reader.position() <= *lsn && *lsn < reader.end());
            let record = reader.next_record().unwrap().unwrap();
            assert_eq!((record.lsn, record.kind, record.payload), (*lsn, *kind, &payload[..]));
        }
        assert_eq!(reader.next_record().unwrap(), None);
        assert_eq!(reader.position(), reader.end());
    }
}

#[test]
fn what_is_not_there_to_be_read_or_dropped_is_refused() {
    let log = create(ssd());
    let records: Vec<_> = (0..4).map(|number| super::commit(&log, 100, number)).collect();
    let (lsn, ..) = super::append(&log, 10, 5);
    assert!(matches!(log.truncate_before(log.end()), Err(BlockLogError::NotDurable { .. })));
    assert!(matches!(log.read_from(log.end()), Err(BlockLogError::NotDurable { .. })));
    let inside = Lsn::from_number(records[1].0.number() + 24);
    for asked in [inside, Lsn::from_number(inside.number() + 1)] {
        assert!(matches!(log.truncate_before(asked), Err(BlockLogError::NotARecord { .. })));
    }
    let mut reader = log.read_from(records[0].0).unwrap();
    log.truncate_before(records[2].0).unwrap();
    log.truncate_before(records[1].0).unwrap();
    assert_eq!(log.start(), records[2].0, "what is gone stays gone");
    assert!(matches!(reader.next_record(), Err(BlockLogError::Truncated { .. })));
    assert!(matches!(log.read_from(records[1].0), Err(BlockLogError::Truncated { .. })));
    let end = log.end();
    for durability in [Durability::Immediate, Durability::Group, Durability::Eventual] {
        let refused = log.commit(end, durability).unwrap_err();
        assert!(matches!(refused, BlockLogError::BeyondEnd { .. }), "{refused}");
    }
    assert!(log.durable() <= lsn, "nobody has asked for it to be durable");
}
