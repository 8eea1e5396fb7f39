//! Bytes laid over a file of a store: opening, checking and reading it end in an answer or an error.
//!
//! The input is which file (1 byte) and a list of spots: which word that is not zero in the file (2 bytes), a way to
//! change it (1 byte), what to change it to (8 bytes).

#![cfg_attr(fuzzing, no_main)]

use std::sync::{Arc, LazyLock};

use lapis_engine::{Engine, EngineOptions, KeyRange, Storage};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, FileDevice, Hardware};

/// The pages and the log of the store's fixture, whose blocks of zeroes are left out.
static FILES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    ["pages.lapis", "log.lapis"].map(|name| {
        let directory =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/lapis/tests/fixtures/store-1");
        let packed = std::fs::read(std::path::Path::new(directory).join(name)).unwrap();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut file = vec![0; number(&packed)];
        for block in packed[8..].chunks(8 + BLOCK_BYTES) {
            file[number(block) * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block[8..]);
        }
        file
    })
});

fn overlaid(number: u8, spots: &[u8]) -> Vec<u8> {
    let mut image = FILES[usize::from(number) % FILES.len()].clone();
    let words = (0..image.len()).step_by(8);
    let used: Vec<usize> = words.filter(|&at| image[at..at + 8] != [0; 8]).collect();
    for spot in spots.chunks_exact(11) {
        let at = used[usize::from(u16::from_le_bytes([spot[0], spot[1]])) % used.len()];
        let change: [u8; 8] = spot[3..].try_into().unwrap();
        match spot[2] % 4 {
            0 => image[at..at + 8].copy_from_slice(&change),
            1 => image[at + usize::from(change[0] % 8)] = change[1],
            2 => {
                // A word of the image itself: a plausible link.
                let from =
                    used[usize::from(u16::from_le_bytes([change[0], change[1]])) % used.len()];
                image.copy_within(from..from + 8, at);
            }
            _ => {
                let old = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
                let moved = old.wrapping_add_signed(i64::from(change[0] as i8) * 8);
                image[at..at + 8].copy_from_slice(&moved.to_le_bytes());
            }
        }
    }
    image
}

fn device(file: &[u8]) -> Arc<dyn BlockDevice> {
    let device = FileDevice::in_memory((file.len() / BLOCK_BYTES) as u64).unwrap();
    device.write_blocks(0, file).unwrap();
    Arc::new(device)
}

fn read_everything([pages, log]: [&[u8]; 2]) {
    let mut options = EngineOptions::new(0);
    options.buffer.frames = 64;
    options.buffer.most_changed_frames = 32;
    let storage = Storage::ssd(device(pages), device(log));
    let opened = Engine::open(Hardware::detect(), storage, &options);
    let Ok(engine) = opened else { return };
    let _ = engine.check();
    let Ok(snapshot) = engine.snapshot() else { return };
    for table in engine.tables() {
        for backward in [false, true] {
            let mut entries = snapshot.scan(&table, KeyRange::all()).unwrap();
            let most = pages.len();
            let next = || if backward { entries.next_back() } else { entries.next() };
            assert!(std::iter::from_fn(next).take(most).count() < most, "iteration never ends");
        }
        for key in [b"k\x01".as_slice(), b"long", b"ab\0"] {
            let _ = engine.get(&table, key);
        }
    }
}

lapis_fuzz::fuzz_target!(|input: &[u8]| {
    let Some((&number, spots)) = input.split_first() else { return };
    let changed = overlaid(number, spots);
    let [pages, log] = &*FILES;
    read_everything(if number % 2 == 0 { [&changed, log] } else { [pages, &changed] });
});
