//! Bytes laid over an image of a store, one for each kind of index: opening, checking and reading it end in an answer or an
//! error.
//!
//! The input is the number of an image (1 byte) and a list of spots: which word that is not zero in the image (2 bytes), a way to
//! change it (1 byte), what to change it to (8 bytes).

#![no_main]

use std::sync::LazyLock;

use lapis::{Hardware, Store};
use lapis_pmem::{Pool, Region};
use libfuzzer_sys::fuzz_target;

/// The fixtures of the store.
static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/lapis/tests/fixtures");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
});

fn overlaid(number: u8, spots: &[u8]) -> Vec<u8> {
    let mut image = IMAGES[usize::from(number) % IMAGES.len()].clone();
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

fn read_everything(image: &[u8]) {
    let region = Region::anonymous(image.len(), 1 << 26).unwrap();
    // SAFETY: that many bytes are mapped and nobody else knows the region.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), region.base(), image.len()) };
    let Ok(pool) = Pool::open(region, Hardware::detect()) else { return };
    let Ok(store) = Store::open_on(pool) else { return };
    let _ = store.check();
    for table in store.tables() {
        let Ok(table) = store.table(&table.name) else { continue };
        for backward in [false, true] {
            let mut entries = table.iter().unwrap();
            if backward {
                entries = entries.backward();
            }
            assert!(entries.take(image.len()).count() < image.len(), "iteration never ends");
        }
        for key in [b"a".as_slice(), b"long", b"ab\0", &[0, 0, 0, 7]] {
            let _ = table.get(key);
        }
    }
    let _ = store.info(true);
}

fuzz_target!(init: {
    // libfuzzer-sys aborts at every panic, also at those that are caught; the documented one is an
    // answer.
    std::panic::set_hook(Box::new(|_| {}));
}, |input: &[u8]| {
    let Some((&number, spots)) = input.split_first() else { return };
    let image = overlaid(number, spots);
    let result = std::panic::catch_unwind(|| read_everything(&image));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        if !text.starts_with("the pool is damaged") && !text.starts_with("the index is damaged") {
            eprintln!("{text}");
            std::process::abort();
        }
    }
});
