//! The subjects of the cells that are updated in place.

use lapis_blocks::classic_log::ClassicLog;
use lapis_blocks::header_log::HeaderLog;
use lapis_blocks::in_place::{CowCell, FamCell, LogCell};
use lapis_blocks::log::Placement::{Dense, Padded};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_blocks::pop_ring::PopRing;
use lapis_blocks::rawl::Rawl;
use lapis_device::Modelled;

use super::Structure;
use super::each_subject::Subjects;
use super::logs::ring;
use crate::subjects::InPlaceSubject;

/// Cells whose entries fill a ring several times.
const LOGGED_BYTES: usize = 200;
/// How a PopLog is cut into small segments.
const SEGMENTS: PopLogOptions =
    PopLogOptions { segment_bytes: 4096, spare_segments: 2, placement: Padded };

type LogCellSubject<L> = InPlaceSubject<LogCell<Modelled, L>>;

pub(super) fn subjects(structure: Structure) -> Subjects {
    match structure {
        Structure::CowCell => vec![
            Box::new(InPlaceSubject::<CowCell>::new("cow-cell:16", 16, ())),
            Box::new(InPlaceSubject::<CowCell>::new("cow-cell:100", 100, ())),
        ],
        Structure::LogCell => {
            type Pop = LogCellSubject<PopLog<Modelled>>;
            type Classic = LogCellSubject<ClassicLog<Modelled>>;
            type Header = LogCellSubject<HeaderLog<Modelled>>;
            type RawlCell = LogCellSubject<Rawl<Modelled>>;
            type Ring = LogCellSubject<PopRing<Modelled>>;
            vec![
                Box::new(Pop::new("log-cell:16", 16, SEGMENTS)),
                Box::new(Pop::new("log-cell:100", 100, SEGMENTS)),
                Box::new(Classic::new("log-cell:classic", LOGGED_BYTES, ring(Padded, 0))),
                Box::new(Header::new("log-cell:naive", LOGGED_BYTES, ring(Dense, 1))),
                Box::new(Header::new("log-cell:aligned", LOGGED_BYTES, ring(Padded, 1))),
                Box::new(Header::new("log-cell:dancing", LOGGED_BYTES, ring(Padded, 8))),
                Box::new(RawlCell::new("log-cell:rawl", LOGGED_BYTES, ring(Padded, 0))),
                Box::new(Ring::new("log-cell:pop-ring", LOGGED_BYTES, ring(Padded, 0))),
            ]
        }
        Structure::FamCell => vec![
            Box::new(InPlaceSubject::<FamCell>::new("fam-cell:16", 16, ())),
            Box::new(InPlaceSubject::<FamCell>::new("fam-cell:100", 100, ())),
        ],
        _ => Vec::new(),
    }
}
