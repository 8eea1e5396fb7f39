//! Flipped bits, anywhere: what was acknowledged is there, or the log says that it is damaged; and no
//! image makes it panic.

use lapis_blocks::log::{LogError, Placement};
use lapis_blocks::ring_log::{ENTRY_HEADER_BYTES, RingKind};
use lapis_device::Config;

use super::{
    Entries, Numbers, contents, create, for_each_kind, memory, modelled, open, options, restart,
};

/// A log of a few entries: its memory, where its root is, and the entries.
fn filled<K: RingKind>(placement: Placement) -> (Vec<u8>, usize, Entries) {
    let pool = modelled(Config::default());
    let log = create::<K, _>(&pool, options(placement));
    let mut numbers = Numbers(3);
    for length in [30, 100, 7, 64, 200] {
        log.append(&numbers.bytes(length)).unwrap();
    }
    let payloads = [numbers.bytes(20), numbers.bytes(90)];
    log.append_batch(&[&payloads[0], &payloads[1]]).unwrap();
    log.append(&numbers.bytes(50)).unwrap();
    (memory(&pool), log.root().offset() as usize, contents(&log))
}

fn every_flipped_bit_is_found_or_harmless<K: RingKind>() {
    for placement in Placement::ALL {
        let (image, root, acknowledged) = filled::<K>(placement);
        let sizes = if K::NAME == "header-log" { 8 * 64 } else { 0 };
        let data = root + 128 + sizes;
        // The entries, about 900 bytes, and something behind them.
        let (mut damaged, mut harmless, mut torn) = (0, 0, 0);
        for bit in (root * 8..(data + 1400) * 8).step_by(37) {
            let mut flipped = image.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match open::<K, _>(&restart(&flipped, Config::default())) {
                Err(LogError::Damaged(_)) => damaged += 1,
                Err(LogError::NotALog { .. } | LogError::NewerVersion { .. }) => damaged += 1,
                Err(error) => panic!("bit {bit}: {error}"),
                Ok(log) => {
                    let found = contents(&log);
                    if found == acknowledged {
                        harmless += 1;
                    } else {
                        // The last entry may look torn, but none before it.
                        let least = acknowledged.len() - 1;
                        assert!(found.len() >= least, "bit {bit} loses {found:?}");
                        assert_eq!(found[..], acknowledged[..found.len()], "bit {bit}");
                        torn += 1;
                    }
                }
            }
        }
        assert!(damaged > 80 && harmless > 20, "{damaged} {harmless} {torn}");
        if K::NAME == "header-log" {
            assert_eq!(torn, 0, "it knows its end");
        }
    }
}

fn damage_in_the_middle_changes_nothing_and_names_the_entry<K: RingKind>() {
    let (mut image, root, acknowledged) = filled::<K>(Placement::Padded);
    let sizes = if K::NAME == "header-log" { 8 * 64 } else { 0 };
    // A bit of the payload of the first entry.
    image[root + 128 + sizes + ENTRY_HEADER_BYTES + 10] ^= 0x10;
    let pool = restart(&image, Config::default());
    let before = memory(&pool);
    match open::<K, _>(&pool) {
        Err(LogError::Damaged(damage)) => assert_eq!(damage.position, acknowledged[0].0),
        other => panic!("{other:?}"),
    }
    assert!(memory(&pool) == before, "something was written");
}

fn damage_found_while_reading_ends_the_iteration<K: RingKind>() {
    let pool = modelled(Config::default());
    let log = create::<K, _>(&pool, options(Placement::Padded));
    for _ in 0..3 {
        log.append(&[0x5A; 40]).unwrap();
    }
    let sizes = if K::NAME == "header-log" { 8 * 64 } else { 0 };
    let line = if K::NAME == "classic-log" { 128 } else { 64 };
    let second = log.root().offset() as usize + 128 + sizes + line;
    // SAFETY: a byte of the pool that nobody uses meanwhile.
    unsafe { *pool.region().base().add(second + 30) ^= 1 };
    let read: Vec<_> = log.iter().collect();
    assert!(matches!(&read[..], [Ok(_), Err(LogError::Damaged(_))]), "{read:?}");
    assert_ne!(log.check(), []);
}

fn no_image_makes_it_panic<K: RingKind>() {
    for placement in Placement::ALL {
        let (image, root, _) = filled::<K>(placement);
        let mut numbers = Numbers(9);
        let mut opened = 0;
        for _ in 0..100 {
            let mut broken = image.clone();
            for _ in 0..1 + numbers.below(6) {
                let at = root + 48 + numbers.below(1500);
                let count = 1 + numbers.below(12);
                let bytes = numbers.bytes(count);
                broken[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            if let Ok(log) = open::<K, _>(&restart(&broken, Config::default())) {
                opened += 1;
                let _ = (log.iter().count(), log.check(), log.statistics());
                let _ = (log.append(&[1; 100]), log.truncate(log.end()), log.append(&[2; 100]));
            }
        }
        assert!(opened < 100);
    }
}

for_each_kind! {
    every_flipped_bit_is_found_or_harmless
    damage_in_the_middle_changes_nothing_and_names_the_entry
    damage_found_while_reading_ends_the_iteration
    no_image_makes_it_panic
}
