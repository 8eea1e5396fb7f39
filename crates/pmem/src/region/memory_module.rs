//! What the kernel says, in sysfs, of the memory module that a region lies on.
//!
//! ```text
//!  SYSFS/dev/block/259:0  ->  …/ndbus0/region0/namespace0.0/block/pmem0          a file system's block device
//!  SYSFS/dev/char/252:5   ->  …/ndbus0/region0/dax0.1/dax0.0                      device-DAX
//!                             …/ndbus0/provider                      ACPI.NFIT, or e820 for DRAM (memmap=)
//!                             …/ndbus0/region0/persistence_domain    cpu_cache, memory_controller; not always there
//!                             …/ndbus0/region0/mapping0              nmem0,…
//!                             …/ndbus0/nmem0/nfit/dirty_shutdown     how often the module lost power unsafely
//!                             …/block/pmem0/badblocks                sectors of 512 bytes: first, count
//!                             …/ndbus0/region0/badblocks             the same of the region
//! ```

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::extents;

/// Sectors in which the kernel counts bad blocks.
const SECTOR_BYTES: u64 = 512;
/// Of a module that the kernel was told to see in DRAM.
const PROVIDER_OF_MEMMAP: &str = "e820";

/// What the caches are worth when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PersistenceDomain {
    /// The platform does not say. Caches count as lost.
    #[default]
    Unknown,
    /// What the memory controller has is kept (ADR): lines have to be written back.
    MemoryController,
    /// The caches are kept, too (eADR).
    Caches,
}

impl PersistenceDomain {
    /// The name users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "not stated",
            Self::MemoryController => "memory controller (ADR)",
            Self::Caches => "caches (eADR)",
        }
    }
}

/// What the kernel says of a memory module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryModule {
    /// Who tells the kernel of it.
    pub provider: String,
    /// What survives a power cut.
    pub persistence_domain: PersistenceDomain,
    /// How often it lost power without keeping what it should have, as far as it counts that.
    pub unsafe_shutdowns: Option<u64>,
    /// Its directory.
    region: PathBuf,
}

/// Files and devices, as sysfs names them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceKind {
    Block,
    Character,
}

/// The directory of a device; none if sysfs does not know it.
pub(super) fn directory_of(sysfs: &Path, kind: DeviceKind, device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let kind = match kind {
        DeviceKind::Block => "block",
        DeviceKind::Character => "char",
    };
    sysfs.join(format!("dev/{kind}/{major}:{minor}")).canonicalize().ok()
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// A number, which sysfs writes with 0x where it is an address.
pub(super) fn number(path: &Path) -> Option<u64> {
    let text = read(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl MemoryModule {
    /// The module that a device of this directory lies on.
    pub(super) fn beneath(device: &Path) -> Option<Self> {
        let is_region = |path: &&Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| name.strip_prefix("region"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let region = device.ancestors().find(is_region)?;
        let bus = region.parent()?;
        let persistence_domain = match read(&region.join("persistence_domain")).as_deref() {
            Some("cpu_cache") => PersistenceDomain::Caches,
            Some("memory_controller") => PersistenceDomain::MemoryController,
            _ => PersistenceDomain::Unknown,
        };
        let mappings = (0..).map_while(|at| read(&region.join(format!("mapping{at}"))));
        let counts = mappings.filter_map(|mapping| {
            let name = mapping.split(',').next()?.to_owned();
            number(&bus.join(name).join("nfit/dirty_shutdown"))
        });
        Some(Self {
            provider: read(&bus.join("provider"))?,
            persistence_domain,
            unsafe_shutdowns: counts.reduce(|sum, count| sum.saturating_add(count)),
            region: region.to_owned(),
        })
    }

    /// Whether it is DRAM that poses as persistent memory.
    pub fn is_emulated(&self) -> bool {
        self.provider == PROVIDER_OF_MEMMAP
    }

    /// The bad bytes of a device-DAX device of this directory.
    pub(super) fn bad_bytes_of_device(&self, device: &Path) -> Vec<Range<u64>> {
        let begins = |path: &Path| number(&path.join("resource"));
        let (Some(start), Some(region)) = (begins(device), begins(&self.region)) else {
            // It is not for us to know where the device begins: only root may read that.
            return Vec::new();
        };
        let offset = start.saturating_sub(region);
        let bad = bad_bytes(&self.region.join("badblocks"));
        let behind = bad.into_iter().filter(|bad| bad.end > offset);
        behind.map(|bad| bad.start.saturating_sub(offset)..bad.end - offset).collect()
    }
}

/// The bad bytes that a list of sectors names.
fn bad_bytes(path: &Path) -> Vec<Range<u64>> {
    let Some(text) = read(path) else { return Vec::new() };
    let lines = text.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (first, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let start = first.checked_mul(SECTOR_BYTES)?;
        Some(start..start.checked_add(count.checked_mul(SECTOR_BYTES)?)?)
    });
    lines.collect()
}

/// The bad bytes of a file on a block device of this directory, by offset in the file.
pub(super) fn bad_bytes_of_file(device: &Path, file: &File) -> Vec<Range<u64>> {
    // Of a partition the disk has the list.
    let disk = match device.join("partition").exists() {
        true => device.parent().unwrap_or(device),
        false => device,
    };
    let start = match device.join("partition").exists() {
        true => number(&device.join("start")).unwrap_or(0) * SECTOR_BYTES,
        false => 0,
    };
    let bad = bad_bytes(&disk.join("badblocks"));
    if bad.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for extent in extents::of(file) {
        let begins = start + extent.physical;
        for bad in &bad {
            let (from, to) = (bad.start.max(begins), bad.end.min(begins + extent.bytes));
            if from < to {
                found.push(extent.logical + (from - begins)..extent.logical + (to - begins));
            }
        }
    }
    found.sort_by_key(|bad| bad.start);
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// A tree of files in the place of sysfs, with one device.
    struct Sysfs {
        directory: tempfile::TempDir,
        device: PathBuf,
    }

    impl Sysfs {
        fn with(kind: &str, number: u64, device: &str, files: &[(&str, &str)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path();
            let device = root.join("devices/ndbus0/region0").join(device);
            fs::create_dir_all(&device).unwrap();
            for (path, contents) in files {
                let path = root.join("devices/ndbus0").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, contents).unwrap();
            }
            fs::create_dir_all(root.join("dev").join(kind)).unwrap();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            let link = root.join(format!("dev/{kind}/{major}:{minor}"));
            symlink(&device, link).unwrap();
            Self { directory, device }
        }

        fn module(&self, kind: DeviceKind, number: u64) -> Option<MemoryModule> {
            MemoryModule::beneath(&directory_of(self.directory.path(), kind, number)?)
        }
    }

    const DEVICE: fn() -> u64 = || rustix::fs::makedev(259, 3);

    #[test]
    fn a_module_says_who_it_is_what_it_keeps_and_how_often_it_did_not() {
        let files = [
            ("provider", "ACPI.NFIT\n"),
            ("region0/persistence_domain", "memory_controller\n"),
            ("region0/mapping0", "nmem0,0,65536,0\n"),
            ("region0/mapping1", "nmem1,0,65536,1\n"),
            ("nmem0/nfit/dirty_shutdown", "3\n"),
            ("nmem1/nfit/dirty_shutdown", "4\n"),
        ];
        let sysfs = Sysfs::with("block", DEVICE(), "namespace0.0/block/pmem0", &files);
        let module = sysfs.module(DeviceKind::Block, DEVICE()).unwrap();
        assert_eq!(module.provider, "ACPI.NFIT");
        assert!(!module.is_emulated());
        assert_eq!(module.persistence_domain, PersistenceDomain::MemoryController);
        assert_eq!(module.unsafe_shutdowns, Some(7));
        assert_eq!(sysfs.module(DeviceKind::Character, DEVICE()), None);
    }

    #[test]
    fn dram_that_poses_as_persistent_memory_is_told_by_its_provider() {
        let files = [("provider", "e820\n")];
        let sysfs = Sysfs::with("block", DEVICE(), "pfn0.1/block/pmem0", &files);
        let module = sysfs.module(DeviceKind::Block, DEVICE()).unwrap();
        assert!(module.is_emulated());
        assert_eq!(module.persistence_domain, PersistenceDomain::Unknown);
        assert_eq!(module.unsafe_shutdowns, None);
    }

    #[test]
    fn caches_that_survive_are_recognised() {
        let files = [("provider", "ACPI.NFIT\n"), ("region0/persistence_domain", "cpu_cache\n")];
        let sysfs = Sysfs::with("char", DEVICE(), "dax0.1/dax0.0", &files);
        let module = sysfs.module(DeviceKind::Character, DEVICE()).unwrap();
        assert_eq!(module.persistence_domain, PersistenceDomain::Caches);
    }

    #[test]
    fn bad_blocks_of_a_device_are_told_by_their_offset_in_it() {
        let files = [
            ("provider", "ACPI.NFIT\n"),
            ("region0/resource", "0x100000000\n"),
            ("region0/dax0.1/dax0.0/resource", "0x100200000\n"),
            ("region0/badblocks", "1 1\n4096 8\n8192 16\n"),
        ];
        let sysfs = Sysfs::with("char", DEVICE(), "dax0.1/dax0.0", &files);
        let module = sysfs.module(DeviceKind::Character, DEVICE()).unwrap();
        // The first lies before the device, the second where it begins.
        let bad = module.bad_bytes_of_device(&sysfs.device);
        assert_eq!(bad, [0..4096, 2_097_152..2_105_344]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn bad_blocks_of_a_partition_are_told_by_their_offset_in_the_file() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![7; 200_000]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        // Not every file system tells where a file is.
        let Some(extent) = extents::of(&file).into_iter().next() else { return };
        let sector = (extent.physical + 8192) / 512 + 2048;
        let number = file.metadata().unwrap().dev();
        let list = format!("0 1\n{sector} 8\n");
        let files = [
            ("provider", "ACPI.NFIT\n"),
            ("region0/namespace0.0/block/pmem0/badblocks", list.as_str()),
            ("region0/namespace0.0/block/pmem0/pmem0p1/partition", "1\n"),
            ("region0/namespace0.0/block/pmem0/pmem0p1/start", "2048\n"),
        ];
        let sysfs = Sysfs::with("block", number, "namespace0.0/block/pmem0/pmem0p1", &files);
        let device = directory_of(sysfs.directory.path(), DeviceKind::Block, number).unwrap();
        let at = extent.logical + 8192;
        let bad = bad_bytes_of_file(&device, &file);
        assert_eq!((bad.len(), &bad[0]), (1, &(at..at + 4096)));
    }
}
