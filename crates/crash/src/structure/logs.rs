//! The subjects of the logs, of each placement.

use lapis_blocks::classic_log::ClassicLog;
use lapis_blocks::header_log::HeaderLog;
use lapis_blocks::log::{Log, Placement};
use lapis_blocks::pop_ring::PopRing;
use lapis_blocks::rawl::Rawl;
use lapis_blocks::ring_log::RingOptions;
use lapis_device::Modelled;

use super::Structure;
use super::each_subject::Subjects;
use crate::erased::AnySubject;
use crate::subjects::{LogSubject, PopLogSubject};

/// Bytes of the rings that are explored: few, so that they are filled often.
const RING_BYTES: usize = 4096;
const RING: &str = "blocks/src/ring_log";

pub(super) fn ring(placement: Placement, size_fields: usize) -> RingOptions {
    RingOptions { capacity_bytes: RING_BYTES, placement, size_fields }
}

/// A ring log: its name, placement, fields for the size, and the entry that fills it when empty.
type Ring = (&'static str, Placement, usize, Option<usize>);

fn rings<L: Log<Modelled, Options = RingOptions> + 'static>(
    sources: &'static [&'static str],
    rings: &[Ring],
) -> Subjects {
    let subject = |&(name, placement, size_fields, filling_bytes): &Ring| -> Box<dyn AnySubject> {
        let options = ring(placement, size_fields);
        Box::new(LogSubject::<L>::new(name, sources, options, RING_BYTES, filling_bytes))
    };
    rings.iter().map(subject).collect()
}

pub(super) fn subjects(structure: Structure) -> Subjects {
    use Placement::{Dense, Padded, Streamed};
    match structure {
        Structure::ClassicLog => rings::<ClassicLog<Modelled>>(
            &[RING, "blocks/src/classic_log"],
            &[
                ("classic-log:padded", Padded, 0, Some(4016)),
                ("classic-log:dense", Dense, 0, None),
                ("classic-log:streamed", Streamed, 0, None),
            ],
        ),
        Structure::HeaderLog => rings::<HeaderLog<Modelled>>(
            &[RING, "blocks/src/header_log"],
            &[
                ("header-log:naive", Dense, 1, None),
                ("header-log:aligned", Padded, 1, Some(4080)),
                ("header-log:dancing", Padded, 8, Some(4080)),
                ("header-log:streamed", Streamed, 8, None),
            ],
        ),
        Structure::Rawl => rings::<Rawl<Modelled>>(
            &[RING, "blocks/src/rawl"],
            &[
                ("rawl:padded", Padded, 0, Some(4016)),
                ("rawl:dense", Dense, 0, None),
                ("rawl:streamed", Streamed, 0, None),
            ],
        ),
        Structure::PopRing => rings::<PopRing<Modelled>>(
            &[RING, "blocks/src/pop_ring"],
            &[
                ("pop-ring:padded", Padded, 0, Some(4080)),
                ("pop-ring:dense", Dense, 0, None),
                ("pop-ring:streamed", Streamed, 0, None),
            ],
        ),
        Structure::PopLog => vec![
            Box::new(PopLogSubject::new("pop-log:padded", Padded)),
            Box::new(PopLogSubject::new("pop-log:dense", Dense)),
            Box::new(PopLogSubject::new("pop-log:streamed", Streamed)),
        ],
        _ => Vec::new(),
    }
}
