//! Bytes laid over what an engine has written, under checksums that are right: so what stands behind the checksums gets to
//! see them. Opening, checking, reading and writing end in an answer or an error.
//!
//! The fuzz targets `page`, `superblock`, `engine_log` and `backup` are these functions, and so is a test of the engine
//! (`crates/engine/tests/engine/formats.rs`), which tries some changes of valid bytes.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use lapis_blocks::block_log::{BlockLogOptions, Recovery};
use lapis_buffer::{BufferOptions, SpaceOptions};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_engine::{
    BackupError, Durability, Engine, EngineError, EngineOptions, KeyRange, LeafLayout, Storage,
    TableStructure, salvage, verify_backup,
};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, FlushMethod, Hardware};

/// Of a page of 4 KiB, and so of a block.
const CHECKSUM_AT: usize = 24;
/// A page number may be anything: this is as far as the disk goes.
const MOST_BLOCKS: u64 = 1 << 12;
/// More entries than there are bytes of them never come.
const MOST_ENTRIES: usize = 1 << 14;

/// What an engine has left.
struct Left {
    pages: ModelledSsd,
    log: ModelledSsd,
    /// Blocks of the pages that are not zero.
    used: Vec<u64>,
    /// Kinds and payloads of records of its log.
    records: Vec<(u8, Vec<u8>)>,
    /// All that it holds, as a backup of one block.
    backup: Vec<u8>,
}

fn hardware() -> Hardware {
    Hardware::with_method(FlushMethod::PageCacheNone).expect("it takes no instruction")
}

fn options() -> EngineOptions {
    let mut options = EngineOptions::new(7);
    options.buffer = BufferOptions {
        frames: 64,
        mini_frames: 32,
        most_changed_frames: 32,
        swizzling: true,
        space: SpaceOptions { page_bytes: BLOCK_BYTES, batch_pages: 8 },
    };
    let (segment_bytes, batch_bytes) = (64 << 10, 64 << 10);
    options.log = BlockLogOptions { segment_bytes, batch_bytes, ..BlockLogOptions::new(7) };
    options
}

fn ssd(blocks: u64) -> ModelledSsd {
    ModelledSsd::new(blocks, SsdConfig::default()).expect("the default is a device")
}

fn storage(pages: &ModelledSsd, log: &ModelledSsd) -> Storage<Hardware> {
    Storage::ssd(Arc::new(pages.clone()), Arc::new(log.clone()))
}

/// Two tables of some leaves, those of one hashed, with long values; and one that was dropped.
static LEFT: LazyLock<Left> = LazyLock::new(|| {
    let (pages, log) = (ssd(1), ssd(2 + 256));
    let engine = Engine::create(hardware(), storage(&pages, &log), &options()).expect("room");
    let later = Durability::Eventual;
    for name in ["one", "two", "gone"] {
        let leaves = if name == "two" { LeafLayout::Hashed } else { LeafLayout::Sorted };
        let structure = TableStructure::Tree(leaves);
        let table = engine.create_table_with(name, structure, None).expect("room");
        for number in 0..60_u8 {
            let bytes = if number % 20 == 3 { 3000 } else { usize::from(number) * 9 };
            engine.put(&table, &[number, 1], &vec![number; bytes], later).expect("room");
        }
        for number in (0..60_u8).step_by(4) {
            engine.remove(&table, &[number, 1], later).expect("room");
        }
    }
    engine.drop_table("gone").expect("it is there");
    engine.sync().expect("no request fails");
    let copy = log.after_power_cut();
    let mut recovery = Recovery::begin(hardware(), Arc::new(copy)).expect("a log");
    let mut records = Vec::new();
    while let Some(record) = recovery.next_record().expect("a whole log") {
        records.push((record.kind, record.payload.to_vec()));
    }
    let mut backup = Vec::new();
    engine.backup(&mut backup).expect("no request fails");
    engine.close().expect("no request fails");
    drop(engine);
    let mut block = vec![0; BLOCK_BYTES];
    let used = (0..pages.capacity_blocks()).filter(|&at| {
        pages.read_blocks(at, &mut block).expect("no request fails");
        block.iter().any(|&byte| byte != 0)
    });
    let used = used.collect();
    Left { pages, log, used, records, backup }
});

/// The devices, to be changed.
fn devices() -> [ModelledSsd; 2] {
    let pages = LEFT.pages.after_power_cut();
    pages.limit_to(MOST_BLOCKS);
    [pages, LEFT.log.after_power_cut()]
}

fn change(bytes: &mut [u8], spots: &[u8]) {
    let length = bytes.len();
    for spot in spots.chunks_exact(4).filter(|_| length >= 8) {
        let at = usize::from(u16::from_le_bytes([spot[0], spot[1]])) % length;
        match spot[2] % 4 {
            0 => bytes[at] = spot[3],
            1 => bytes[at] ^= 1 << (spot[3] % 8),
            2 => bytes[at] = bytes[at].wrapping_add_signed(spot[3] as i8),
            // What stands somewhere else: a plausible length, or page.
            _ => {
                let (from, to) = (usize::from(spot[3]) * 16 % (length - 7), at.min(length - 8));
                bytes.copy_within(from..from + 8, to);
            }
        }
    }
}

/// Changes a block, and makes its checksum right.
fn change_block(device: &ModelledSsd, at: u64, spots: &[u8]) {
    let mut block = vec![0; BLOCK_BYTES];
    device.read_blocks(at, &mut block).expect("no request fails");
    change(&mut block, spots);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let checksum = crc32c::crc32c(&block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    device.write_blocks(at, &block).expect("no request fails");
}

/// A page of a store that was closed: of a tree, of the map, of the journal. The input is which (1 byte), and spots.
pub fn page(input: &[u8]) {
    let Some((&which, spots)) = input.split_first() else { return };
    let [pages, log] = devices();
    change_block(&pages, LEFT.used[usize::from(which) % LEFT.used.len()], spots);
    use_it(&pages, &log);
}

/// The superblock. The input is spots in what it says.
pub fn superblock(input: &[u8]) {
    let [pages, log] = devices();
    let near: Vec<u8> =
        input.chunks_exact(4).flat_map(|it| [it[0] % 64, 0, it[2], it[3]]).collect();
    change_block(&pages, 0, &near);
    use_it(&pages, &log);
}

/// Records behind the end of the log. The input is for each which one it was (1 byte), its kind if that is another (1
/// byte), how many spots (1 byte), and spots.
pub fn engine_log(mut input: &[u8]) {
    let [pages, log] = devices();
    let mut recovery = Recovery::begin(hardware(), Arc::new(log.clone())).expect("a log");
    while recovery.next_record().expect("a whole log").is_some() {}
    let appended = recovery.finish().expect("a log that was read to its end can be opened");
    while let [which, kind, spots, rest @ ..] = input {
        let (spots, rest) = rest.split_at((usize::from(*spots % 16) * 4).min(rest.len()));
        let (of, payload) = &LEFT.records[usize::from(*which) % LEFT.records.len()];
        let mut payload = payload.clone();
        change(&mut payload, spots);
        let kind = if *kind < 128 { *of } else { kind % 8 };
        if appended.append(kind, &[&payload]).is_err() {
            break;
        }
        input = rest;
    }
    appended.sync().expect("no request fails");
    drop(appended);
    use_it(&pages, &log);
}

/// The header of a backup, and what its blocks begin with. Layout: `crates/engine/src/backup/mod.rs`.
const BACKUP_HEADER_BYTES: usize = 40;
const BACKUP_BLOCK_HEADER_BYTES: usize = 8;
const LAST_BLOCK: u32 = 1 << 31;

/// A backup. The input is where to cut its payload in two blocks (2 bytes), how many bytes of it are repeated (1 byte; none, if
/// not a multiple of 4), and spots in it.
pub fn backup(input: &[u8]) {
    let [low, high, again, spots @ ..] = input else { return };
    let (header, block) = LEFT.backup.split_at(BACKUP_HEADER_BYTES);
    let mut payload = block[BACKUP_BLOCK_HEADER_BYTES..].to_vec();
    let cut = usize::from(u16::from_le_bytes([*low, *high])) % payload.len();
    let again = if again.is_multiple_of(4) { usize::from(*again) } else { 0 };
    let repeated = (cut + again).min(payload.len());
    payload.splice(cut..cut, payload[cut..repeated].to_vec());
    change(&mut payload, spots);
    let mut stream = header.to_vec();
    let (first, second) = payload.split_at(cut);
    for (number, payload, last) in [(0_u64, first, 0), (1, second, LAST_BLOCK)] {
        let length = (payload.len() as u32 | last).to_le_bytes();
        let place = [&header[16..32], &number.to_le_bytes()[..]].concat();
        let sum = [&place[..], &length, payload].into_iter().fold(0, crc32c::crc32c_append);
        stream.extend([&sum.to_le_bytes(), &length, payload].concat());
    }
    restore(&stream);
}

/// What a restore takes, and what it makes of it, is what was read of the backup before.
fn restore(stream: &[u8]) {
    let (pages, log) = (ssd(1), ssd(2 + 64));
    for device in [&pages, &log] {
        device.limit_to(MOST_BLOCKS);
    }
    let engine = Engine::create(hardware(), storage(&pages, &log), &options()).expect("room");
    let restored = engine.restore(stream);
    match (verify_backup(stream), &restored) {
        (Ok(verified), Ok(restored)) => assert_eq!(verified, *restored),
        // Pages have room for shorter keys than persistent memory.
        (Ok(_), Err(BackupError::Engine(EngineError::KeyTooLong { .. }))) | (Err(_), Err(_)) => {}
        (verified, _) => panic!("verified: {verified:?}, restored: {restored:?}"),
    }
    if let Ok(restored) = restored {
        assert_eq!(engine.check(), [""; 0]);
        let mut again = Vec::new();
        let report = engine.backup(&mut again).expect("no request fails");
        let counts =
            |report: lapis_engine::BackupReport| (report.tables, report.entries, report.bytes);
        assert_eq!(counts(report), counts(restored));
    }
}

/// Does what one does with a store.
fn use_it(pages: &ModelledSsd, log: &ModelledSsd) {
    let opened = Engine::open(hardware(), storage(pages, log), &options());
    if let Ok(engine) = opened {
        let _ = engine.check();
        read_and_write(&engine);
        let _ = engine.close();
    }
    salvage(hardware(), &storage(pages, log), &mut |_, _, _| ControlFlow::Continue(()));
}

fn read_and_write(engine: &Engine<Hardware>) {
    let now = Durability::Immediate;
    for table in engine.tables() {
        let Ok(snapshot) = engine.snapshot() else { return };
        for backward in [false, true] {
            let Ok(mut entries) = snapshot.scan(&table, KeyRange::all()) else { break };
            let next = || if backward { entries.next_back() } else { entries.next() };
            let count = std::iter::from_fn(next).take(MOST_ENTRIES).count();
            assert!(count < MOST_ENTRIES, "iteration never ends");
        }
        drop(snapshot);
        for number in [0_u8, 3, 30, 59, 200] {
            let _ = engine.get(&table, &[number, 1]);
            let _ = engine.put(&table, &[number, 1], &[number; 700], now);
            let _ = engine.remove(&table, &[number, 1], now);
        }
        let _ = engine.put(&table, b"long", &[1; 5000], now);
    }
    let _ = engine.drop_table("two");
    for _ in 0..8 {
        if !engine.maintain().is_ok_and(|busy| busy) {
            break;
        }
    }
    let _ = engine.checkpoint();
    let _ = engine.compact();
}
