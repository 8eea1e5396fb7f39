//! Torn entries of a PopLog, in each of the states of a few words; and damage.

use lapis_blocks::log::{LogError, Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_device::{Config, Modelled};

use super::{create, open};
use crate::torn::Append;
use crate::{Numbers, contents, memory, modelled, restart};

const OPTIONS: PopLogOptions =
    PopLogOptions { segment_bytes: 4096, spare_segments: 1, placement: Placement::Padded };
const POOL_BYTES: usize = 256 << 10;

/// Appends `payload` to a log that holds `earlier`.
fn append(earlier: &[Vec<u8>], payload: &[u8]) -> Append<PopLog<Modelled>> {
    placed(Placement::Padded, earlier, payload)
}

/// The same, in a log whose entries lie like that.
fn placed(placement: Placement, earlier: &[Vec<u8>], payload: &[u8]) -> Append<PopLog<Modelled>> {
    let pool = modelled(POOL_BYTES, Config::default());
    let log = create(&pool, PopLogOptions { placement, ..OPTIONS });
    // So that the append takes this and changes nothing of the allocator's.
    log.prepare_spares().unwrap();
    for payload in earlier {
        log.append(payload).unwrap();
    }
    Append::new(&log, payload)
}

#[test]
fn every_torn_state_of_a_first_entry_is_an_empty_log() {
    append(&[], &Numbers(1).bytes(40)).assert_every_subset(7);
}

#[test]
fn every_torn_state_of_an_entry_over_two_lines_leaves_the_acknowledged_prefix() {
    let earlier = [vec![0xFF; 3], vec![0; 100], Numbers(5).bytes(77)];
    append(&earlier, &Numbers(2).bytes(70)).assert_every_subset(11);
}

#[test]
fn every_torn_state_of_an_entry_that_shares_lines_leaves_the_acknowledged_prefix() {
    // Behind 40 bytes of an earlier entry in the first line, and into the second.
    let earlier = [Numbers(5).bytes(77), Numbers(6).bytes(32)];
    let payload = Numbers(2).bytes(50);
    placed(Placement::Dense, &earlier, &payload).assert_every_subset(9);
    // In one line with two earlier ones, which is written again.
    let earlier = [vec![0xFF; 3], vec![7; 90], vec![9; 3]];
    placed(Placement::Streamed, &earlier, &[5; 8]).assert_every_subset(3);
    placed(Placement::Streamed, &earlier, &payload).assert_every_subset(9);
}

#[test]
fn every_torn_state_of_sparse_entries_is_told_apart() {
    // Words with one bit, the same in each: only their number tells.
    let mut payload = vec![0; 64];
    for word in payload.chunks_mut(8) {
        word[3] = 0x10;
    }
    append(&[vec![1]], &payload).assert_every_subset(10);
}

#[test]
fn a_payload_of_zeroes_is_whole_with_its_header() {
    for length in [1, 8, 48, 49, 1000] {
        append(&[vec![9; 9]], &vec![0; length]).assert_every_subset(2);
    }
}

#[test]
fn every_torn_state_of_the_first_entry_of_a_segment_leaves_the_acknowledged_prefix() {
    let earlier = vec![vec![0xAB; 48]; 63];
    // One of the words is the link to the segment.
    append(&earlier, &Numbers(3).bytes(30)).assert_every_subset(7);
}

#[test]
fn random_torn_states_of_large_entries_leave_the_acknowledged_prefix() {
    let mut numbers = Numbers(4);
    for length in [500, 2000, 4000] {
        let append = append(&[vec![1; 10], vec![2; 20]], &numbers.bytes(length));
        for _ in 0..100 {
            // Few missing, half missing, few there.
            for share in [1, 128, 255] {
                let kept: Vec<bool> =
                    append.words.iter().map(|_| numbers.below(256) >= share).collect();
                if kept.contains(&false) {
                    append.assert_torn(&append.image(|index| kept[index]));
                }
            }
        }
        for missing in 0..append.words.len() {
            append.assert_torn(&append.image(|index| index != missing));
        }
        append.assert_whole();
    }
}

#[test]
fn an_entry_inside_a_torn_payload_does_not_come_to_life() {
    // The line that the entry after the next one would have.
    let twin = append(&[b"a".to_vec(), b"next".to_vec()], b"a ghost");
    let line = twin.words[0] / 64 * 64;
    let mut payload = vec![7; 48];
    payload.extend(&twin.after[line..line + 64]);
    let append = append(&[b"a".to_vec()], &payload);
    assert_eq!(append.words[8], line, "the ghost is where it would be read");
    append.assert_torn(&append.image(|index| index >= 8));
    append.assert_torn(&append.image(|index| index != 0));
}

/// The log in `image` with one bit flipped.
fn flipped(image: &[u8], bits: &[usize]) -> Result<PopLog<Modelled>, LogError> {
    let mut image = image.to_vec();
    for bit in bits {
        image[bit / 8] ^= 1 << (bit % 8);
    }
    open(&restart(&image, Config::default()))
}

#[test]
fn a_flipped_bit_in_an_entry_that_is_not_the_last_is_reported() {
    let append = append(&[], &Numbers(8).bytes(40));
    let pool = restart(&append.after, Config::default());
    open(&pool).unwrap().append(b"behind").unwrap();
    let image = memory(&pool);
    for bit in append.words[0] * 8..(append.words[0] + 64) * 8 {
        let result = flipped(&image, &[bit]);
        assert!(matches!(result, Err(LogError::Damaged(_))), "bit {bit}");
    }
}

#[test]
fn two_flipped_bits_that_keep_the_count_are_reported() {
    let append = append(&[], &Numbers(9).bytes(40));
    let first = append.words[0] * 8 + 96;
    let set = |bit: &usize| append.after[bit / 8] & 1 << (bit % 8) != 0;
    let (ones, zeroes): (Vec<_>, Vec<_>) = (first..first + 352).partition(set);
    for (&one, &zero) in ones.iter().zip(&zeroes) {
        let result = flipped(&append.after, &[one, zero]);
        assert!(matches!(result, Err(LogError::Damaged(_))), "bits {one} and {zero}");
    }
}

#[test]
fn a_set_bit_too_many_in_the_last_entry_is_damage_and_not_the_end() {
    let append = append(&[vec![1]], &Numbers(10).bytes(40));
    let payload = (append.words[0] + 16) * 8;
    let zeroes = (payload..payload + 320).filter(|bit| append.after[bit / 8] & 1 << (bit % 8) == 0);
    for bit in zeroes {
        let result = flipped(&append.after, &[bit]);
        assert!(matches!(result, Err(LogError::Damaged(_))), "bit {bit}");
    }
}

#[test]
fn an_entry_of_the_past_behind_the_end_is_refused() {
    let append = append(&[b"old".to_vec()], b"new");
    let mut image = append.after.clone();
    let (new, behind) = (append.words[0], append.words[0] + 64);
    image.copy_within(new..new + 64, behind);
    let result = open(&restart(&image, Config::default()));
    assert!(matches!(result, Err(LogError::Damaged(_))));
}

#[test]
fn damage_found_while_reading_is_an_error_and_ends_the_iteration() {
    let pool = modelled(POOL_BYTES, Config::default());
    let log = create(&pool, OPTIONS);
    let before = memory(&pool);
    log.append(&[0xFF; 20]).unwrap();
    log.append(&[0xFF; 20]).unwrap();
    let after = memory(&pool);
    let at = (0..POOL_BYTES).rfind(|&at| before[at] != after[at]).unwrap();
    // SAFETY: a byte of the pool that nobody reads meanwhile.
    unsafe { pool.region().base().add(at).write(0) };
    let read: Vec<_> = log.iter().collect();
    assert!(matches!(&read[..], [Ok(_), Err(LogError::Damaged(_))]));
    assert_ne!(log.check(), []);
}

#[test]
fn truncation_over_a_damaged_length_is_refused_and_keeps_the_start() {
    // Too long, or of the entry before the new start, or of the last one; and too short.
    for (byte, changed, up_to) in
        [(1, 0x0F, 3), (1, 0x0F, 2), (1, 0x0F, 4), (0, 100, 2), (0, 100, 4), (0, 200, 4)]
    {
        let pool = modelled(POOL_BYTES, Config::default());
        let log = create(&pool, OPTIONS);
        let before = memory(&pool);
        for _ in 0..3 {
            log.append(&[0xFF; 120]).unwrap();
        }
        let after = memory(&pool);
        let first = (0..POOL_BYTES).find(|&at| before[at] != after[at]).unwrap();
        // SAFETY: a byte of a length in the pool, which nobody reads meanwhile.
        unsafe { pool.region().base().add(first + byte).write(changed) };
        let result = log.truncate(Position::from_number(up_to));
        assert!(
            matches!(result, Err(LogError::Damaged(_))),
            "{byte} {changed} {up_to}: {result:?}"
        );
        assert_eq!(log.start(), Position::FIRST);
    }
}

#[test]
fn damaged_roots_and_links_are_errors_and_never_a_panic() {
    let pool = modelled(POOL_BYTES, Config::default());
    let log = create(&pool, OPTIONS);
    for _ in 0..70 {
        log.append(&[3; 40]).unwrap();
    }
    let root = log.root().offset() as usize;
    let image = memory(&pool);
    let mut refused = 0;
    for bit in root * 8..(root + 128) * 8 {
        refused += u32::from(flipped(&image, &[bit]).is_err());
    }
    // The first five words, and the start that counts.
    assert!(refused >= 5 * 64 + 64, "{refused}");
    let mut numbers = Numbers(11);
    for _ in 0..500 {
        let bits: Vec<_> = (0..4).map(|_| root * 8 + numbers.below(8 * 8192)).collect();
        if let Ok(log) = flipped(&image, &bits) {
            let _ = (log.iter().count(), log.check(), log.statistics());
        }
    }
}

/// A link that is damaged may lead to an unused segment, as one does whose entry has not persisted. It
/// must lead nowhere else: what lies there would be zeroed for the next entry.
#[test]
fn a_link_to_what_is_no_segment_is_an_error_and_what_a_log_shows_outlives_the_next_append() {
    const ENTRIES: usize = 70;
    let pool = modelled(POOL_BYTES, Config::default());
    let log = create(&pool, OPTIONS);
    for _ in 0..ENTRIES {
        log.append(&[3; 40]).unwrap();
    }
    let image = memory(&pool);
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let root = log.root().offset() as usize;
    let start = root + 64 + 24 * (word(root + 112) & 1) as usize;
    let first_segment = word(start) as usize;
    let link = word(first_segment);
    assert_ne!(link, 0, "all entries are in one segment");
    let before_the_blocks = first_segment as u64 / 65536 * 65536 - 1024;
    let flips = (0..64).map(|bit| link ^ 1 << bit);
    let mut refused = 0;
    for damaged in flips.chain([before_the_blocks, first_segment as u64]) {
        let mut image = image.clone();
        image[first_segment..first_segment + 8].copy_from_slice(&damaged.to_le_bytes());
        let Ok(log) = open(&restart(&image, Config::default())) else {
            refused += 1;
            continue;
        };
        let mut entries = contents(&log);
        entries.push((log.append(b"next").unwrap(), b"next".to_vec()));
        assert_eq!(contents(&log), entries, "{damaged:#x}");
    }
    // A slab of segments has at most a handful of others that one bit leads to.
    assert!(refused >= 60, "{refused}");
}
