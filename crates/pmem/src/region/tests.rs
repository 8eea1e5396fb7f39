//! Regions in memory and in files.

use super::*;

#[test]
fn an_anonymous_region_grows_without_moving_and_new_bytes_are_zero() {
    let region = Region::anonymous(1, 1 << 24).unwrap();
    assert_eq!(region.mapped_bytes(), EXTENT_BYTES);
    let base = region.base();
    assert!(base.addr().is_multiple_of(HUGE_PAGE_BYTES));
    // SAFETY: the first byte is mapped and nobody else uses it.
    unsafe { base.write(9) };
    region.grow_to(3 * EXTENT_BYTES + 1).unwrap();
    assert_eq!(region.mapped_bytes(), 4 * EXTENT_BYTES);
    assert_eq!(region.base(), base);
    // SAFETY: both bytes are mapped.
    assert_eq!(unsafe { (base.read(), base.add(4 * EXTENT_BYTES - 1).read()) }, (9, 0));
}

#[test]
fn dropping_an_alias_leaves_the_region_mapped() {
    let region = Region::anonymous(EXTENT_BYTES, 1 << 24).unwrap();
    // SAFETY: the alias is dropped at once, before the region and before anything else is used.
    let alias = unsafe { region.alias() };
    assert_eq!((alias.base(), alias.mapped_bytes()), (region.base(), EXTENT_BYTES));
    drop(alias);
    // SAFETY: the byte is mapped and nobody else uses it.
    unsafe { region.base().write(1) };
}

#[test]
fn growing_past_the_reservation_is_an_error_that_changes_nothing() {
    let region = Region::anonymous(EXTENT_BYTES, 4 * EXTENT_BYTES).unwrap();
    assert!(matches!(region.grow_to(1 << 30), Err(RegionError::Full { .. })));
    assert_eq!(region.mapped_bytes(), EXTENT_BYTES);
}

#[test]
fn a_region_never_has_less_address_space_than_it_has_bytes() {
    const TOO_MUCH: usize = 1 << 60;
    let error = Region::anonymous(TOO_MUCH, EXTENT_BYTES).unwrap_err();
    let is_refused = match error {
        RegionError::Os { doing, .. } => doing == "reserve address space",
        RegionError::Full { .. } => cfg!(miri),
        _ => false,
    };
    assert!(is_refused, "{error}");
    // As much as there is, of which there is enough.
    let region = Region::anonymous(3 * EXTENT_BYTES, usize::MAX).unwrap();
    assert!(region.reserved_bytes() >= 3 * EXTENT_BYTES && region.mapped_bytes() > 0);
}

#[test]
#[should_panic = "a region is mapped within its reservation"]
fn nothing_is_mapped_beyond_the_reservation() {
    let region = Region::anonymous(EXTENT_BYTES, 4 * EXTENT_BYTES).unwrap();
    let _ = region.map_extent(EXTENT_BYTES, region.reserved_bytes() + EXTENT_BYTES);
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_write_that_is_found_lost_when_the_file_grows_is_a_fault_for_good() {
    use crate::{Domain, DomainFault};
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("r");
    let options = RegionOptions { durability: Durability::PowerFail, ..Default::default() };
    let Ok(mut region) = Region::create_file(&path, 1, &options) else { return };
    // It cannot be written out.
    let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let null = LockedFile::new(null, Access::Write).unwrap();
    region.sync = region.sync.take().map(|_| Arc::new(SyncFile::new(Arc::new(null))));
    let Some(_) = region.sync else { return };
    let domain = region.domain();
    assert_eq!(domain.health(), Ok(()));
    assert!(matches!(region.grow_to(2 * EXTENT_BYTES), Err(RegionError::Os { .. })));
    assert!(matches!(domain.health(), Err(DomainFault::WritesLost { .. })));
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_file_keeps_its_bytes_and_a_second_opener_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let options = RegionOptions::default();
    let region = Region::create_file(&path, 1, &options).unwrap();
    // SAFETY: mapped, and this test alone uses it.
    unsafe { region.base().add(100).write(42) };
    assert!(matches!(Region::open_file(&path, &options), Err(RegionError::AlreadyOpen(_))));
    drop(region);
    let region = Region::open_file(&path, &options).unwrap();
    // SAFETY: mapped.
    assert_eq!(unsafe { region.base().add(100).read() }, 42);
    assert!(matches!(region.medium(), Medium::File | Medium::MemoryFile | Medium::Dax));
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn what_is_stored_in_a_region_to_read_stays_in_memory_and_so_does_its_growth() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let options = RegionOptions::default();
    drop(Region::create_file(&path, EXTENT_BYTES, &options).unwrap());
    let to_read = RegionOptions { access: Access::Read, ..options.clone() };
    let [region, other] = [(); 2].map(|()| Region::open_file(&path, &to_read).unwrap());
    region.grow_to(2 * EXTENT_BYTES).unwrap();
    // SAFETY: mapped, and this test alone uses it.
    unsafe {
        region.base().add(100).write(42);
        region.base().add(EXTENT_BYTES).write(43);
        assert_eq!((region.base().add(100).read(), other.base().add(100).read()), (42, 0));
    }
    assert!(matches!(Region::open_file(&path, &options), Err(RegionError::AlreadyOpen(_))));
    drop((region, other));
    let file = std::fs::read(&path).unwrap();
    assert!(file.len() == EXTENT_BYTES && file.iter().all(|byte| *byte == 0));
    Region::open_file(&path, &options).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn power_fail_durability_on_a_file_writes_through_a_sync_domain() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("r");
    let options = RegionOptions { durability: Durability::PowerFail, ..Default::default() };
    match Region::create_file(&path, 1, &options) {
        Ok(region) => {
            use crate::Domain;
            assert_eq!(region.guarantee(), Guarantee::PowerFail);
            let domain = region.domain();
            // SAFETY: the first extent is mapped and this test alone uses it.
            let bytes = unsafe { std::slice::from_raw_parts(region.base(), 10_000) };
            domain.persist(bytes);
            domain.flush(&bytes[..1]);
            domain.flush(&bytes[9000..9001]);
            domain.fence();
            assert_eq!(domain.health(), Ok(()));
        }
        Err(RegionError::DurabilityUnavailable { medium: Medium::MemoryFile }) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_directory_and_a_missing_file_are_clear_errors() {
    let directory = tempfile::tempdir().unwrap();
    let options = RegionOptions::default();
    assert!(matches!(Region::open_file(directory.path(), &options), Err(RegionError::NotAFile)));
    let missing = directory.path().join("missing");
    assert!(matches!(Region::open_file(&missing, &options), Err(RegionError::NotFound)));
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn a_full_file_system_is_an_error_that_leaves_the_region_usable() {
    // /dev/full-like behaviour without a small file system: ask for more than any disk has.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r");
    let options = RegionOptions { reserve_bytes: 1 << 46, ..Default::default() };
    let region = Region::create_file(&path, 1, &options).unwrap();
    let error = region.grow_to(1 << 45).unwrap_err();
    assert!(matches!(error, RegionError::NoSpace { .. } | RegionError::Full { .. }), "{error}");
    assert_eq!(region.mapped_bytes(), EXTENT_BYTES);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), EXTENT_BYTES as u64);
}
