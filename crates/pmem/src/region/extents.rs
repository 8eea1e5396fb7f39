//! Where the bytes of a file are on its device.

use std::fs::File;

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

/// Bytes of a file that lie one after the other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where they begin in the file.
    pub(super) logical: u64,
    /// Where they begin on the device.
    pub(super) physical: u64,
    pub(super) bytes: u64,
}

/// `struct fiemap_extent` of `linux/fiemap.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

/// `struct fiemap`, with room for some extents.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [RawExtent; ROOM],
}

const ROOM: usize = 32;
const HEAD_BYTES: u32 = 32;
/// `FIEMAP_EXTENT_LAST`
const LAST: u32 = 1;
/// `FIEMAP_EXTENT_UNKNOWN`: it has no place yet.
const UNKNOWN: u32 = 2;

const _: () = {
    assert!(size_of::<RawExtent>() == 56);
    assert!(core::mem::offset_of!(Request, extents) == HEAD_BYTES as usize);
};

// SAFETY: the opcode is that of FS_IOC_FIEMAP, `_IOWR('f', 11, struct fiemap)`; the kernel writes at most `room` extents
// behind the head, for which there is room.
unsafe impl Ioctl for Request {
    type Output = Self;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        ioctl::opcode::read_write::<[u64; HEAD_BYTES as usize / 8]>(b'f', 11)
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        (&raw mut *self).cast()
    }

    unsafe fn output_from_ptr(
        _: IoctlOutput,
        request: *mut core::ffi::c_void,
    ) -> rustix::io::Result<Self> {
        // SAFETY: it is the request that `as_ptr` gave.
        Ok(unsafe { *request.cast::<Self>() })
    }
}

/// The extents of a file; none if its file system does not tell.
pub(super) fn of(file: &File) -> Vec<Extent> {
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let request = Request {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            room: ROOM as u32,
            reserved: 0,
            extents: [RawExtent::default(); ROOM],
        };
        // SAFETY: as the implementation of `Ioctl` says.
        let Ok(answer) = (unsafe { ioctl::ioctl(file, request) }) else { return found };
        let extents = &answer.extents[..(answer.mapped as usize).min(ROOM)];
        let placed = extents.iter().filter(|extent| extent.flags & UNKNOWN == 0);
        found.extend(placed.map(|extent| Extent {
            logical: extent.logical,
            physical: extent.physical,
            bytes: extent.length,
        }));
        let Some(last) = extents.last() else { return found };
        start = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || last.length == 0 {
            return found;
        }
    }
}

// Miri has no such files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_extents_of_a_file_cover_it_in_order() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 300_000]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let extents = of(&file);
        // Not every file system tells.
        let Some(last) = extents.last() else { return };
        assert_eq!(extents[0].logical, 0);
        assert!(last.logical + last.bytes >= 300_000);
        for pair in extents.windows(2) {
            assert_eq!(pair[0].logical + pair[0].bytes, pair[1].logical);
        }
    }
}
