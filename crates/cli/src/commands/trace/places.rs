//! From a module and an offset in its file to a line of the source.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use lapis_device::trace_file::SourceLocation;

use super::said;

/// What the recorder puts before the path of a module, whose offset is then the line.
const MODULE: char = '*';
/// Where compilers have their intrinsics.
const INTRINSICS: [&str; 2] = ["/lib/gcc/", "/lib/clang/"];
/// Places that addr2line is asked for at once.
const AT_ONCE: usize = 500;

/// Names places by line as far as the modules say, and the others `MODULE+OFFSET`.
pub(super) fn name(locations: &mut [SourceLocation]) {
    let mut by_module: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, location) in locations.iter().enumerate() {
        if let Some(module) = location.file.strip_prefix(MODULE) {
            by_module.entry(module.to_owned()).or_default().push(index);
        }
    }
    for (module, places) in by_module {
        let segments = std::fs::read(&module).map(|file| segments(&file)).unwrap_or_default();
        for places in places.chunks(AT_ONCE) {
            let offsets: Vec<u64> =
                places.iter().map(|&place| u64::from(locations[place].line)).collect();
            let found = lines(&module, &segments, &offsets);
            for (number, (&place, &offset)) in places.iter().zip(&offsets).enumerate() {
                let short = module.rsplit('/').next().unwrap_or(&module);
                let (file, line) = match found.get(number).cloned().flatten() {
                    Some(known) => known,
                    // A system call has a number, and no address.
                    None if !module.starts_with('/') => (module.clone(), offset as u32),
                    None => (format!("{short}+{offset:#x}"), 0),
                };
                locations[place] = SourceLocation { file: Arc::from(file), line, column: 0 };
            }
        }
    }
}

/// A part of a module that is loaded.
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// The loaded parts of a 64-bit ELF file; none of another file.
fn segments(file: &[u8]) -> Vec<Segment> {
    const LOADED: u64 = 1;
    let number = |at: usize, bytes: usize| {
        let found = file.get(at..at.checked_add(bytes)?)?;
        Some(found.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let read = || {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let headers = (0..count).map(|index| table.saturating_add(index * size) as usize);
        let loaded = headers.filter(|&at| number(at, 4) == Some(LOADED));
        loaded
            .map(|at| {
                let (offset, address) = (number(at + 8, 8)?, number(at + 16, 8)?);
                Some(Segment { offset, address, bytes: number(at + 32, 8)? })
            })
            .collect::<Option<Vec<_>>>()
    };
    if file.starts_with(b"\x7fELF\x02") { read().unwrap_or_default() } else { Vec::new() }
}

/// File and line of offsets in a module, where they are known.
fn lines(module: &str, segments: &[Segment], offsets: &[u64]) -> Vec<Option<(String, u32)>> {
    let address = |offset: u64| {
        let holds =
            |it: &&Segment| (it.offset..it.offset.saturating_add(it.bytes)).contains(&offset);
        segments.iter().find(holds).map(|it| (offset - it.offset).wrapping_add(it.address))
    };
    let addresses: Vec<OsString> =
        offsets.iter().map(|&it| format!("{:#x}", address(it).unwrap_or(0)).into()).collect();
    let options = ["-a", "-i", "-e", module].map(OsStr::new);
    let arguments: Vec<&OsStr> =
        options.into_iter().chain(addresses.iter().map(OsString::as_os_str)).collect();
    said("addr2line", &arguments).map(|text| read(&text)).unwrap_or_default()
}

/// What addr2line says of each address: of what is inlined there, the innermost that is not the compiler's own (an
/// intrinsic, which every flush would be).
fn read(text: &str) -> Vec<Option<(String, u32)>> {
    let mut found: Vec<Option<(String, u32)>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("0x") {
            found.push(None);
            continue;
        }
        let known = || {
            let (file, rest) = line.rsplit_once(':')?;
            let number = rest.split(' ').next()?.parse().ok()?;
            (!file.starts_with('?') && number > 0).then(|| (file.to_owned(), number))
        };
        let is_own = |file: &str| !INTRINSICS.iter().any(|part| file.contains(part));
        match found.last_mut() {
            Some(Some((file, _))) if is_own(file) => {}
            Some(last) => *last = known().or_else(|| last.take()),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_a_line_is_module_and_offset() {
        let file = Arc::from("*/nonexistent/lib/module.so");
        let mut locations = [SourceLocation { file, line: 0x129d, column: 0 }];
        name(&mut locations);
        assert_eq!(&*locations[0].file, "module.so+0x129d");
    }

    #[test]
    fn an_intrinsic_is_the_line_that_uses_it() {
        let text = "0x1\n/usr/lib/gcc/x86_64/12/include/clwbintrin.h:38\n/a/ring.c:35\n/a/ring.c:48\n\
                    0x2\n??:0\n0x3\n/a/ring.c:7 (discriminator 2)\n/a/ring.c:9\n";
        let ring = |line| Some(("/a/ring.c".to_owned(), line));
        assert_eq!(read(text), [ring(35), None, ring(7)]);
    }

    #[test]
    fn what_is_no_elf_file_has_no_segments() {
        assert!(segments(b"").is_empty() && segments(b"\x7fELF\x02").is_empty());
        assert!(segments(&[b"\x7fELF\x02".as_slice(), &[0xff; 60]].concat()).is_empty());
    }

    #[test]
    fn this_program_has_segments_that_hold_its_code() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(segments(&file).iter().any(|segment| segment.bytes > 100_000));
    }
}
