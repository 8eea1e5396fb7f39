//! Logs, pages, cells and leaves as the present versions of the formats are written: once released
//! they can be read for ever. What is of a newer version, or of another kind, is refused by name.
//!
//! A fixture is the memory of one pool that holds one of everything, as the lines that are not
//! zero: number of the line (4 bytes), and its 64 bytes.

mod contents;
mod reading;
mod refusing;

use std::sync::Arc;

use lapis_device::{Config, Modelled};
use lapis_pmem::{LINE_BYTES, Link, PCell, Pool, Region};

const POOL_BYTES: usize = 4 << 20;
const VERSION_1: &[u8] = include_bytes!("../../fixtures/blocks-v1.lines");

fn modelled(contents: &[u8]) -> Arc<Pool<Modelled>> {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    // SAFETY: freshly mapped, that long, and nobody else uses it.
    unsafe { region.base().copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
    let domain = Modelled::over(&region, Config::default());
    Arc::new(Pool::open(region, domain).unwrap())
}

/// The memory of a fixture.
fn image(lines: &[u8]) -> Vec<u8> {
    let mut image = vec![0; POOL_BYTES];
    for record in lines.chunks(4 + LINE_BYTES) {
        let (line, bytes) = record.split_first_chunk::<4>().unwrap();
        let at = u32::from_le_bytes(*line) as usize * LINE_BYTES;
        image[at..at + LINE_BYTES].copy_from_slice(bytes);
    }
    image
}

fn fixture() -> Arc<Pool<Modelled>> {
    modelled(&image(VERSION_1))
}

fn root<T: lapis_pmem::Persistent>(pool: &Pool<Modelled>, name: &str) -> Link<T> {
    pool.root(name).unwrap_or_else(|| {
        panic!(
            "the fixture has no {name}; put it there with `cargo test -p lapis-blocks --test blocks \
             write_the_fixture -- --ignored`"
        )
    })
}

/// A fixture with `value` in the word at byte `at` of the block that is published as `name`.
fn with_word(pool: Arc<Pool<Modelled>>, name: &str, at: u64, value: u64) -> Arc<Pool<Modelled>> {
    let word: Link<PCell<u64>> = Link::from_bits(root::<PCell<u64>>(&pool, name).offset() + at);
    pool.at(word).store(pool.domain(), value);
    pool
}

#[test]
#[ignore = "writes the fixture; from the first release on versions are what they are"]
fn write_the_fixture() {
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    let domain = Modelled::over(&region, Config::default());
    // SAFETY: `region` outlives the pool, and only the pool uses the memory meanwhile.
    let alias = unsafe { region.alias_of(region.mapped_bytes()) };
    let pool = Arc::new(Pool::create(alias, domain).unwrap());
    contents::write(&pool);
    drop(pool);
    // SAFETY: mapped, and nobody writes any more.
    let image = unsafe { std::slice::from_raw_parts(region.base(), POOL_BYTES) };
    let mut records = Vec::new();
    for (number, line) in (0u32..).zip(image.chunks(LINE_BYTES)) {
        if line.iter().any(|&byte| byte != 0) {
            records.extend(number.to_le_bytes());
            records.extend(line);
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/blocks-v1.lines");
    std::fs::write(path, records).unwrap();
}
