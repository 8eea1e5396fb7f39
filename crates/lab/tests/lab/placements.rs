//! What the placements with persistent memory cost on the modelled machine, at equal bytes of DRAM: a table that lies in
//! persistent memory, gets and durable puts by Zipf's distribution; and what the chances of migration make of that.

use lapis_engine::{EngineOptions, Placement};
use lapis_lab::experiment::OPTANE_100;
use lapis_lab::key_value::KeyValue;
use lapis_lab::modelled_store::{CountError, ModelledStore};

const PAGE_BYTES: usize = 16 << 10;
const MINI_FRAME_BYTES: usize = lapis_buffer::MINI_FRAME_BYTES;
const VALUE: [u8; 100] = [7; 100];

/// How large a run is.
struct Size {
    records: u64,
    operations: u64,
    /// DRAM for pages, a quarter of it for mini pages.
    dram_pages: usize,
}

/// Of each get, and of each put.
#[derive(Debug)]
#[expect(dead_code, reason = "some are printed and no more")]
struct Counts {
    lines_loaded: f64,
    reads_in_place: f64,
    put_wpq_inserts: f64,
    put_media_writes: f64,
    put_fences: f64,
    put_writes_in_place: f64,
    /// Bytes of DRAM that hold pages in the end.
    dram_bytes: u64,
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Zipf's distribution with exponent 1: the popular records lie anywhere.
fn zipf(records: u64) -> impl FnMut() -> u64 {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=records)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut random = 1u64;
    move || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let rank = sums.partition_point(|&below| below < at) as u64;
        rank.wrapping_mul(2_654_435_761) % records
    }
}

/// Of a store with so many pages in DRAM, a quarter of it for mini pages, and so many in persistent memory.
fn options(placement: &str, dram_pages: usize, memory_pages: usize) -> EngineOptions {
    let placement: Placement = placement.parse().unwrap();
    let mut options = EngineOptions { placement, ..EngineOptions::new(1) };
    options.buffer.frames = dram_pages * 3 / 4;
    options.buffer.mini_frames = dram_pages * PAGE_BYTES / 4 / MINI_FRAME_BYTES;
    options.buffer.most_changed_frames = options.buffer.frames / 2;
    options.memory.frames = memory_pages;
    options
}

fn run(placement: &str, size: &Size) -> Counts {
    let options = options(placement, size.dram_pages, 1024);
    let store = ModelledStore::create_with(OPTANE_100, options).unwrap();
    let mut next = zipf(size.records);
    let table = |numbers: &mut dyn Iterator<Item = u64>, puts: bool| {
        let counted = store.count(size.records, |table| {
            for number in numbers {
                if puts {
                    table.write(&key(number), &VALUE).unwrap();
                } else {
                    assert!(table.read(&key(number)).unwrap().is_some());
                }
            }
            Ok::<_, CountError>(size.operations)
        });
        counted.unwrap().counts.unwrap()
    };
    table(&mut (0..size.records), true);
    // Pages enter that leave DRAM twice.
    table(&mut (0..4).flat_map(|_| (0..size.records).step_by(4)), false);
    table(&mut (0..size.operations).map(|_| next()), false);
    let before = store.statistics().buffer.tier;
    table(&mut (0..size.operations).map(|_| next()), false);
    let between = store.statistics().buffer.tier;
    let puts = table(&mut (0..size.operations).map(|_| next()), true);
    let after = store.statistics().buffer.tier;
    let of_each = |count: u64| count as f64 / size.operations as f64;
    let in_place =
        |tier: lapis_buffer::TierStatistics| tier.migration.map_or(0, |it| it.dram_reads.otherwise);
    Counts {
        lines_loaded: of_each(between.lines_loaded - before.lines_loaded),
        reads_in_place: of_each(in_place(between) - in_place(before)),
        put_wpq_inserts: puts.wpq_inserts,
        put_media_writes: puts.media_writes,
        put_fences: puts.fences,
        put_writes_in_place: of_each(after.writes_in_place - between.writes_in_place),
        dram_bytes: store.resident_bytes(),
    }
}

#[test]
fn in_place_nothing_is_loaded_and_each_put_is_written_at_once() {
    let size = Size { records: 3000, operations: 1000, dram_pages: 16 };
    let [lines, in_place] = ["three-tier", "spitfire:0,0,1,1"].map(|it| run(it, &size));
    println!("{lines:?}, {in_place:?}");
    assert!(lines.lines_loaded > 0.5 && lines.put_writes_in_place == 0.0);
    assert!(in_place.lines_loaded == 0.0 && in_place.reads_in_place > 0.5);
    assert!(in_place.put_writes_in_place > 0.3);
}

#[test]
#[ignore = "prints the table of docs/engine.md"]
fn table() {
    let size = Size { records: 60_000, operations: 20_000, dram_pages: 96 };
    for placement in
        ["three-tier", "spitfire:0.1,1,1,1", "spitfire:0.1,0.1,1,1", "spitfire:0,0,1,1"]
    {
        println!("{placement}: {:.2?}", run(placement, &size));
    }
}

/// How a table of some 560 pages is used, with 96 pages in DRAM.
#[derive(Clone, Copy)]
struct Use {
    memory_pages: usize,
    puts_of_100: u64,
}

/// The profile with caches as much smaller as the table is: of a table of gigabytes they hold little.
fn small_caches() -> tempfile::NamedTempFile {
    let (mut text, file) = (
        include_str!("../../../device/profiles/optane-100.toml").to_owned(),
        tempfile::Builder::new().suffix(".toml").tempfile().unwrap(),
    );
    for (large, small) in [("1048576", "65536"), ("34603008", "360448")] {
        let large = format!("capacity_bytes = {{ value = {large}");
        assert!(text.contains(&large));
        text = text.replace(&large, &format!("capacity_bytes = {{ value = {small}"));
    }
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Prints what each of some operations costs, after many others; puts are durable, and the work in the background is done now
/// and then.
fn mixed(profile: &str, placement: &str, how: Use) {
    const RECORDS: u64 = 60_000;
    const BEFORE: u64 = 200_000;
    const COUNTED: u64 = 20_000;
    let options = options(placement, 96, how.memory_pages);
    let store = ModelledStore::create_with(profile, options).unwrap();
    let (mut next, mut random) = (zipf(RECORDS), 7u64);
    let mut operations = |count: u64| {
        let counted = store.count(RECORDS, |table| {
            for at in 0..count {
                let key = key(next());
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if (random >> 33) % 100 < how.puts_of_100 {
                    table.write(&key, &VALUE).unwrap();
                } else {
                    assert!(table.read(&key).unwrap().is_some());
                }
                if at % 500 == 499 {
                    store.maintain().unwrap();
                }
            }
            Ok::<_, CountError>(count)
        });
        counted.unwrap()
    };
    let loaded = store.count(RECORDS, |table| {
        (0..RECORDS).for_each(|number| table.write(&key(number), &VALUE).unwrap());
        Ok::<_, CountError>(RECORDS)
    });
    loaded.unwrap();
    _ = operations(BEFORE);
    let statistics = || store.statistics().buffer;
    let (was, began) = (statistics(), store.machine().now_ns(0));
    let done = operations(COUNTED);
    let (is, ended) = (statistics(), store.machine().now_ns(0));
    let of_each = |count: u64| count as f64 / COUNTED as f64;
    let (counts, ssd) = (done.counts.unwrap(), done.ssd.unwrap());
    let chances =
        is.tier.migration.map_or(String::new(), |it| format!("{} ({})", it.chances, it.rounds));
    let in_place =
        |it: lapis_buffer::Statistics| it.tier.migration.map_or(0, |it| it.dram_reads.otherwise);
    println!(
        "| {placement} | {:.2} | {:.2} | {:.2} | {:.1} | {:.3} | {:.3} | {:.2} | {:.2} | {chances} |",
        of_each(in_place(is) - in_place(was)),
        of_each(is.tier.lines_loaded - was.tier.lines_loaded),
        counts.media_reads,
        counts.media_writes,
        ssd.ssd_read_bytes / PAGE_BYTES as f64,
        ssd.ssd_written_bytes / PAGE_BYTES as f64,
        of_each(ended - began) / 1000.0,
        of_each(is.cost_ns(PAGE_BYTES) - was.cost_ns(PAGE_BYTES)) / 1000.0,
    );
}

#[test]
#[ignore = "prints the table of chances in docs/engine.md"]
fn chances() {
    let profile = small_caches();
    let profile = profile.path().to_str().unwrap();
    for (memory_pages, puts_of_100) in [(1024, 5), (1024, 50), (280, 5), (280, 50)] {
        println!("{puts_of_100} of 100 are puts, {memory_pages} pages in persistent memory");
        for placement in [
            "three-tier",
            "spitfire",
            "spitfire:tuned=2000",
            "spitfire:0.05,0.05,0.05,0.5",
            "spitfire:0.2,0.9,0.2,0.5",
            "spitfire:0.2,0.9,0.2,0.5,tuned=2000",
            "spitfire:1,1,1,1",
            "spitfire:0.01,0.01,0.2,1",
            "spitfire:0,0,1,1",
        ] {
            mixed(profile, placement, Use { memory_pages, puts_of_100 });
        }
    }
}
