//! Memory that cannot be read, by a file that is made shorter under its mapping.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lapis_pmem::{
    BlockDevice, BlockError, Domain, DomainFault, Pool, PoolDevice, PoolError, Region,
    RegionOptions,
};

const CONTAINED: fn() -> RegionOptions =
    || RegionOptions { reserve_bytes: 1 << 30, contain_faults: true, ..RegionOptions::default() };

fn shorten(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn byte_at(region: &Region, offset: usize) -> u8 {
    assert!(offset < region.mapped_bytes());
    // SAFETY: mapped, and only read.
    unsafe { region.base().add(offset).read_volatile() }
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_fault_names_the_file_and_the_first_offset_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let region = Region::create_file(&path, 1 << 20, &CONTAINED()).unwrap();
    let domain = region.domain();
    assert_eq!((byte_at(&region, 300_000), domain.health()), (0, Ok(())));
    shorten(&path, 65_536);
    assert_eq!(byte_at(&region, 300_000), 0);
    let fault = DomainFault::BadMemory { path: path.clone(), offset: 300_000 };
    assert_eq!(domain.health(), Err(fault.clone()));
    // The page can be read and written again; another one is another fault, and the first one is told of.
    assert_eq!((byte_at(&region, 300_001), byte_at(&region, 500_000)), (0, 0));
    assert_eq!(domain.health(), Err(fault));
    let text = domain.health().unwrap_err().to_string();
    assert!(text.contains("0x493e0") && text.contains("pool"), "{text}");
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_pool_whose_header_cannot_be_read_is_not_taken_for_a_blank_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    drop(Pool::create_file(&path, 1 << 20, &CONTAINED()).unwrap());
    let region = Region::open_file(&path, &CONTAINED()).unwrap();
    shorten(&path, 0);
    let domain = region.domain();
    let fault = DomainFault::BadMemory { path, offset: 0 };
    match Pool::open(region, domain).map(drop) {
        Err(PoolError::Fault(found)) => assert_eq!(found, fault),
        opened => panic!("{opened:?}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn regions_have_faults_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let path = directory.path().join(name);
        (Region::create_file(&path, 1 << 20, &CONTAINED()).unwrap(), path)
    });
    shorten(&first.1, 65_536);
    byte_at(&first.0, 100_000);
    assert!(first.0.domain().health().is_err());
    assert_eq!(second.0.domain().health(), Ok(()));
    drop(first);
    shorten(&second.1, 65_536);
    byte_at(&second.0, 100_000);
    assert!(second.0.domain().health().is_err());
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn nothing_that_is_stored_after_a_fault_reaches_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let region = Region::create_file(&path, 1 << 20, &CONTAINED()).unwrap();
    let store = |value: u8| {
        for offset in [5, 100_000] {
            // SAFETY: mapped, and nobody else's.
            unsafe { region.base().add(offset).write_volatile(value) };
        }
    };
    store(1);
    shorten(&path, 65_536);
    // By a load or a store.
    store(2);
    assert!(region.domain().health().is_err());
    assert_eq!((byte_at(&region, 5), byte_at(&region, 100_000)), (2, 2));
    store(3);
    region.grow_to(2 << 20).unwrap();
    // SAFETY: as above.
    unsafe { region.base().add(1 << 20).write_volatile(3) };
    assert_eq!((byte_at(&region, 5), byte_at(&region, 1 << 20)), (3, 3));
    drop(region);
    let file = std::fs::read(&path).unwrap();
    assert_eq!((file[5], file[100_000], file[1 << 20]), (2, 0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_device_in_a_pool_answers_no_block_that_it_could_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = std::sync::Arc::new(Pool::create_file(&path, 4 << 20, &CONTAINED()).unwrap());
    let device = PoolDevice::create_named(&pool, "device", 400).unwrap();
    device.write_blocks(399, &[7; 4096]).unwrap();
    shorten(&path, 1 << 20);
    let mut block = [0; 4096];
    device.read_blocks(1, &mut block).unwrap();
    let error = device.read_blocks(399, &mut block).unwrap_err();
    assert!(matches!(error, BlockError::Memory(DomainFault::BadMemory { .. })), "{error}");
    assert!(device.write_blocks(0, &block).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_pool_that_has_failed_is_not_shut_down_cleanly() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let pool = Pool::create_file(&path, 1 << 20, &CONTAINED()).unwrap();
    shorten(&path, 1 << 19);
    byte_at(pool.region(), 1 << 19);
    drop(pool);
    let pool = Pool::open_file(&path, &CONTAINED()).unwrap();
    assert!(!pool.opened_clean());
}

const ROLE: &str = "LAPIS_TEST_FAULT_ELSEWHERE";
const EXIT_OF_HANDLER: i32 = 42;

/// Runs [`child`] of this program, by itself.
fn run_child(role: &str) -> std::process::ExitStatus {
    let program = std::env::current_exe().unwrap();
    let name = "memory_faults::child";
    let mut command = Command::new(program);
    command.args([name, "--exact", "--ignored", "--quiet"]).env(ROLE, role);
    command.output().unwrap().status
}

#[test]
fn a_fault_elsewhere_is_handled_by_whoever_handled_it_before() {
    assert_eq!(run_child("handled").code(), Some(EXIT_OF_HANDLER));
}

#[test]
fn a_fault_elsewhere_that_nobody_handles_ends_the_process_as_it_did() {
    assert_eq!(run_child("not handled").signal(), Some(7), "SIGBUS");
}

#[test]
#[cfg_attr(miri, ignore = "files")]
#[ignore = "a part of the tests above, which ends its process"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    if role == "handled" {
        install_own_handler();
    }
    let region = Region::create_file(&path("pool"), 1 << 20, &CONTAINED()).unwrap();
    let plain = RegionOptions { contain_faults: false, ..CONTAINED() };
    let other = Region::create_file(&path("plain"), 1 << 20, &plain).unwrap();
    shorten(&path("pool"), 0);
    shorten(&path("plain"), 0);
    byte_at(&region, 5);
    assert!(region.domain().health().is_err());
    byte_at(&other, 5);
    unreachable!("it can be read");
}

fn install_own_handler() {
    extern "C" fn handler(_: libc::c_int) {
        // SAFETY: allowed in a handler.
        unsafe { libc::_exit(EXIT_OF_HANDLER) }
    }
    // SAFETY: a handler of the signature that `signal` takes.
    unsafe { libc::signal(libc::SIGBUS, handler as *const () as libc::sighandler_t) };
}
