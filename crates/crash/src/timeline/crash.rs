//! Telling the crash: why the power is cut, what made it, and what the recovery read of it.

use lapis_device::{CrashCause, CrashStates, Image};
use lapis_pmem::{BLOCK_BYTES, SECTOR_BYTES};

use super::entries::Telling;
use super::entry::{EntryKind, LineChange, LineFate, LineState};

/// Lines that are told of one by one.
const MOST_LINES: usize = 48;

const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

impl Telling<'_> {
    pub(super) fn crash(
        &mut self,
        cause: CrashCause,
        states: &CrashStates<'_>,
        image: &Image,
    ) -> Vec<LineFate> {
        let position = self.events.len();
        let what = if self.told.killed {
            "the process is killed here; the power is cut during its recovery"
        } else if let Some(cut) = self.told.cut {
            cut
        } else {
            match cause {
                CrashCause::BeforeFence(_) => "the power is cut before the next fence",
                CrashCause::BeforeLocked => "the power is cut before the next locked operation",
                CrashCause::BeforeStrongFlush => "the power is cut before the next clflush",
                CrashCause::BeforeStore => "the power is cut before the next store",
                CrashCause::OperationEnd(_) => "the power is cut just after the acknowledgement",
                CrashCause::BeforeOperation(_) => {
                    "the power is cut before the next operation begins"
                }
                CrashCause::StorageGrowth => "the power is cut where the storage grows",
                CrashCause::AfterStore => "the power is cut after this store",
                CrashCause::AfterFlush(_) => "the power is cut after this flush",
                CrashCause::BeforeBlockAnswer(_) => {
                    "the power is cut before the next answer of a block device"
                }
                CrashCause::TraceEnd => "the power is cut at the end",
            }
        };
        let source = match cause {
            CrashCause::BeforeFence(point) => {
                (self.told.source_of)(position).or_else(|| Some(point.to_string()))
            }
            _ => None,
        };
        self.push(position, EntryKind::Crash, what.to_owned(), source, Vec::new());
        let fates = self.line_fates(states, image);
        for fate in fates.iter().take(MOST_LINES) {
            let stored = self.histories.pending_of(fate.line).len();
            let what = match fate.state {
                LineState::Lost => format!("none of its {stored} pending stores made it"),
                LineState::Persisted => format!("all of its {stored} pending stores made it"),
                _ => format!("some of its {stored} pending stores made it"),
            };
            let text = format!("line {} ({}): {what}", fate.line, fate.place);
            let change = LineChange { line: fate.line, state: fate.state };
            self.push(position, EntryKind::Line, text, None, vec![change]);
        }
        if fates.len() > MOST_LINES {
            let text = format!("… and {} lines more", fates.len() - MOST_LINES);
            self.push(position, EntryKind::Omitted, text, None, Vec::new());
        }
        self.sectors(states, image);
        self.reads(states, image);
        fates
    }

    fn line_fates(&self, states: &CrashStates<'_>, image: &Image) -> Vec<LineFate> {
        let everything = states.everything();
        let chosen = image.choices().iter().zip(everything.choices());
        let lines = self.uncertain.iter().zip(chosen);
        lines
            .map(|(&line, (&choice, &newest))| {
                let offset = u64::from(line) * 64;
                let state = match choice {
                    0 => LineState::Lost,
                    _ if choice == newest => LineState::Persisted,
                    _ => LineState::Partly,
                };
                LineFate { line, offset, place: (self.told.place)(offset), state }
            })
            .collect()
    }

    fn sectors(&mut self, states: &CrashStates<'_>, image: &Image) {
        let position = self.events.len();
        let of_sectors = &image.choices()[self.uncertain.len()..];
        for ((device, sector, states), &choice) in states.uncertain_sectors().zip(of_sectors) {
            let what = match choice {
                0 => "what was flushed last is there".to_owned(),
                _ => format!("write {choice} of {} to it since made it", states.len() - 1),
            };
            let text = format!("{}: {what}", sector_name(device, sector));
            self.push(position, EntryKind::Line, text, None, Vec::new());
        }
    }

    fn reads(&mut self, states: &CrashStates<'_>, image: &Image) {
        let sectors: Vec<_> = states.uncertain_sectors().collect();
        let (Some(states), reads) = (states.line_states(), self.told.reads) else { return };
        let position = self.events.len();
        let mut seen: Vec<u32> = Vec::new();
        for read in reads {
            if seen.contains(&read.place) {
                continue;
            }
            seen.push(read.place);
            if seen.len() > MOST_LINES {
                break;
            }
            let of_line = reads.iter().filter(|other| other.place == read.place);
            let mask = of_line.fold(0, |mask, other| mask | other.bytes);
            let at = read.place as usize;
            if let Some(&(device, sector, _)) = at.checked_sub(states.len()).map(|at| &sectors[at])
            {
                let text = format!("recovery and check read {}", sector_name(device, sector));
                self.push(position, EntryKind::Read, text, None, Vec::new());
                continue;
            }
            let bytes = &states[at][image.choices()[at] as usize];
            let text = format!(
                "recovery and check read of line {}: {}",
                self.uncertain[at],
                words(bytes, mask)
            );
            self.push(position, EntryKind::Read, text, None, Vec::new());
        }
    }
}

/// Where on a block device a sector is.
fn sector_name(device: u8, sector: u64) -> String {
    let (block, part) = (sector / BLOCK_SECTORS, sector % BLOCK_SECTORS);
    format!("sector {part} of block {block} of device {device}")
}

/// The words of a line that a mask touches, with their offsets.
fn words(bytes: &[u8; 64], mask: u64) -> String {
    let words = bytes.chunks_exact(8).enumerate();
    let read = words.filter(|(word, _)| mask >> (8 * word) & 0xFF != 0);
    let texts = read.map(|(word, bytes)| {
        let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        format!("+{:#x} = {value:#x}", 8 * word)
    });
    texts.collect::<Vec<_>>().join(", ")
}
