use super::blocks::{BlockWriter, Header, PAYLOAD_BYTES};
use super::*;

const HEADER: Header = Header { identity: 5, state: 900 };

fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    let lengths = ((key.len() as u32).to_le_bytes(), (value.len() as u64).to_le_bytes());
    [&[ENTRY][..], &lengths.0, &lengths.1, key, value].concat()
}

/// A table of two entries, one of which is longer than a block.
fn stream(header: Header) -> Vec<u8> {
    let mut into = Vec::new();
    let mut blocks = BlockWriter::begin(&mut into, header).unwrap();
    blocks.write_all(&[TABLE, 0, 0, 0, 0, 1, 0, 0, 0, b't']).unwrap();
    blocks.write_all(&entry(b"a", b"short")).unwrap();
    blocks.write_all(&entry(b"b", &vec![7; PAYLOAD_BYTES])).unwrap();
    blocks.write_all(&[END]).unwrap();
    blocks.write_all(&1_u64.to_le_bytes()).unwrap();
    blocks.write_all(&2_u64.to_le_bytes()).unwrap();
    blocks.finish().unwrap();
    into
}

fn verified(stream: &[u8]) -> Result<BackupReport, BackupError> {
    verify_backup(stream)
}

#[test]
fn records_are_read_as_they_were_written_across_blocks() {
    let stream = stream(HEADER);
    let mut records = Records::begin(&stream[..]).unwrap();
    let mut next = || records.next_record().unwrap();
    let held_by = HeldBy::Tree(LeafLayout::Sorted);
    let table = Record::Table { name: "t".to_owned(), held_by, time_to_live_ms: None };
    assert_eq!(next(), Some(table));
    assert_eq!(next(), Some(Record::Entry(b"a".to_vec(), b"short".to_vec(), None)));
    assert_eq!(next(), Some(Record::Entry(b"b".to_vec(), vec![7; PAYLOAD_BYTES], None)));
    assert_eq!(next(), None);
    let bytes = (1 + 5 + 1 + PAYLOAD_BYTES) as u64;
    assert_eq!(records.report, BackupReport { tables: 1, entries: 2, bytes, state: 900 });
}

#[test]
fn a_stream_that_is_cut_off_anywhere_is_refused() {
    let stream = stream(HEADER);
    let ends =
        (0..100).chain((0..stream.len()).step_by(4999)).chain(stream.len() - 40..stream.len());
    for end in ends {
        let cut = verified(&stream[..end]);
        assert!(
            matches!(cut, Err(BackupError::CutOff { .. } | BackupError::NotABackup)),
            "{end}: {cut:?}"
        );
    }
}

#[test]
fn any_flipped_bit_is_found() {
    let mut stream = stream(HEADER);
    let bytes =
        (0..200).chain((0..stream.len()).step_by(997)).chain(stream.len() - 40..stream.len());
    for at in bytes {
        stream[at] ^= 1 << (at % 8);
        assert!(verified(&stream).is_err(), "byte {at}");
        stream[at] ^= 1 << (at % 8);
    }
    assert!(verified(&stream).is_ok());
}

#[test]
fn blocks_of_another_backup_or_in_another_order_are_refused() {
    let (one, other) = (stream(HEADER), stream(Header { state: 901, ..HEADER }));
    let first = 40 + 8 + PAYLOAD_BYTES;
    let mixed = [&one[..first], &other[first..]].concat();
    assert!(matches!(verified(&mixed), Err(BackupError::Damaged { block: 1, .. })));
    let swapped = [&one[..40], &one[first..], &one[40..first]].concat();
    assert!(matches!(verified(&swapped), Err(BackupError::Damaged { block: 0, .. })));
}

#[test]
fn what_comes_behind_the_end_is_refused() {
    let longer = [stream(HEADER), vec![0]].concat();
    assert!(matches!(verified(&longer), Err(BackupError::Damaged { .. })));
}

#[test]
fn a_newer_format_is_refused_by_its_version() {
    let mut newer = stream(HEADER);
    newer[8] = 2;
    let refused = verified(&newer);
    assert!(matches!(refused, Err(BackupError::NewerVersion { found: 2, supported: 1 })));
}

#[test]
fn a_header_that_says_more_than_this_version_knows_is_refused() {
    for byte in 12..16 {
        let mut more = stream(HEADER);
        more[byte] = 1;
        let sum = crc32c::crc32c(&more[..32]);
        more[32..36].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(verified(&more), Err(BackupError::NotABackup)), "{byte}");
    }
}

fn blocks_of(payload: &[u8]) -> Vec<u8> {
    let mut into = Vec::new();
    let mut blocks = BlockWriter::begin(&mut into, HEADER).unwrap();
    blocks.write_all(payload).unwrap();
    blocks.finish().unwrap();
    into
}

#[test]
fn records_that_make_no_sense_are_refused_whatever_their_checksum_says() {
    let refused = |payload: &[u8]| {
        let found = verified(&blocks_of(payload));
        assert!(matches!(found, Err(BackupError::Damaged { .. })), "{found:?}: {payload:?}");
    };
    refused(&[]);
    refused(&[9]);
    refused(&[TABLE, 0, 0, 0, 0, 1, 0, 0, 0, 0xFF]);
    refused(&[TABLE, 0xEE, 0xEE, 0xEE, 0xEE, 1, 0, 0, 0, b't']);
    refused(&[TABLE, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    let table = |kind: u32, name: &str| {
        let lengths = (kind.to_le_bytes(), (name.len() as u32).to_le_bytes());
        [&[TABLE][..], &lengths.0, &lengths.1, name.as_bytes()].concat()
    };
    let ends = |tables: u64, entries: u64| {
        [&[END][..], &tables.to_le_bytes(), &entries.to_le_bytes()].concat()
    };
    refused(&[table(0, ""), ends(1, 0)].concat());
    refused(&[table(0, "a\0"), ends(1, 0)].concat());
    refused(&[table(0, &"n".repeat(MAX_TABLE_NAME_BYTES + 1)), ends(1, 0)].concat());
    refused(&[table(0, "t"), table(0, "u"), table(0, "t"), ends(3, 0)].concat());
    let (a, b) = (entry(b"a", b"1"), entry(b"b", b"2"));
    refused(&[a.clone(), ends(0, 1)].concat());
    refused(&[table(0, "t"), b.clone(), a.clone(), ends(1, 2)].concat());
    refused(&[table(0, "t"), a.clone(), a.clone(), ends(1, 2)].concat());
    let (none, kind) = (entry(b"", b"0"), IndexKind::Wort as u32);
    refused(&[table(kind, "t"), none.clone(), ends(1, 1)].concat());
    refused(&[table(0, "t"), entry(&vec![1; MAX_KEY_BYTES + 1], b""), ends(1, 1)].concat());
    // What is left of them is a backup, and the empty key is one of a tree's.
    let good = [table(kind, "t"), a.clone(), b.clone(), table(0, "u"), none, a, b, ends(2, 5)];
    assert_eq!(verified(&blocks_of(&good.concat())).unwrap().entries, 5);
    let long = [&[ENTRY][..], &1_u32.to_le_bytes(), &u64::MAX.to_le_bytes(), b"k"].concat();
    refused(&long);
    let counts = [&[END][..], &1_u64.to_le_bytes(), &0_u64.to_le_bytes()].concat();
    refused(&counts);
}
