//! Durable commits per second of the log on a file, by 1 and 8 threads, beside a write and an
//! `fdatasync` for each commit. `cargo bench -p lapis-blocks --bench durable_commits -- [DIRECTORY]`.

use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Durability};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, DirectTransfers, FileDevice, Hardware};

/// What `cargo bench` adds to the arguments.
const CARGOS: &str = "--bench";
const PAYLOAD_BYTES: usize = 100;
const LOG_BLOCKS: u64 = 2 + (64 << 20) / BLOCK_BYTES as u64;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
const THREADS: [usize; 2] = [1, 8];

/// How often all threads together could do it in a second.
fn rate(threads: usize, once: impl Fn(usize) + Sync) -> f64 {
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for number in 0..threads {
            let (done, once) = (&done, &once);
            scope.spawn(move || {
                while begun.elapsed() < TIME {
                    once(number);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

fn by_log(
    directory: &Path,
    threads: usize,
    direct: DirectTransfers,
) -> Result<(f64, f64), Box<dyn Error>> {
    let path = directory.join("durable_commits.log");
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(&path, LOG_BLOCKS, direct)?);
    // As a ring that has come round once: the file system has nothing to note when it is written.
    let zeroes = vec![0; 1 << 20];
    for first_block in (0..LOG_BLOCKS - 2).step_by(zeroes.len() / BLOCK_BYTES) {
        device.write_blocks(2 + first_block, &zeroes)?;
    }
    let log = BlockLog::create(Hardware::detect(), device, BlockLogOptions::new(1))?;
    let commit = || -> Result<(), BlockLogError> {
        let lsn = match log.append(1, &[&[7; PAYLOAD_BYTES]]) {
            Err(BlockLogError::Full { .. }) => {
                log.truncate_before(log.durable())?;
                log.append(1, &[&[7; PAYLOAD_BYTES]])?
            }
            appended => appended?,
        };
        log.commit(lsn, Durability::Immediate).map(|_| ())
    };
    let rate = rate(threads, |_| commit().expect("the log takes commits"));
    let statistics = log.statistics();
    std::fs::remove_file(&path)?;
    Ok((rate, statistics.syncs as f64 / statistics.commits as f64))
}

fn by_write_and_sync(directory: &Path, threads: usize) -> Result<f64, Box<dyn Error>> {
    let path = directory.join("durable_commits.file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.write_all_at(&vec![0; 16 << 20], 0)?;
    file.sync_all()?;
    let next = AtomicU64::new(0);
    let rate = rate(threads, |_| {
        let at = next.fetch_add(PAYLOAD_BYTES as u64, Ordering::Relaxed) % (16 << 20);
        let written = file.write_all_at(&[7; PAYLOAD_BYTES], at).and_then(|()| file.sync_data());
        written.expect("the file takes writes");
    });
    std::fs::remove_file(&path)?;
    Ok(rate)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != CARGOS);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "durable commits of {PAYLOAD_BYTES} bytes in {}, best of {ROUNDS}",
        directory.display()
    );
    for threads in THREADS {
        let (mut log, mut direct, mut file) = ((0.0, 0.0), (0.0, 0.0), 0.0f64);
        // In turn, since what a disk does for others changes.
        for _ in 0..ROUNDS {
            let better =
                |one: (f64, f64), other: (f64, f64)| if one.0 > other.0 { one } else { other };
            log = better(log, by_log(&directory, threads, DirectTransfers::Never)?);
            direct = better(direct, by_log(&directory, threads, DirectTransfers::IfPossible)?);
            file = file.max(by_write_and_sync(&directory, threads)?);
        }
        println!(
            "{threads} threads: log {:.0}/s, {:.3} syncs per commit; direct {:.0}/s, {:.3}; write and \
             fdatasync each {file:.0}/s; {:.2} times as many",
            log.0,
            log.1,
            direct.0,
            direct.1,
            log.0 / file
        );
    }
    Ok(())
}
