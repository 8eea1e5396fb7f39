//! The subjects of the cells that are updated in place.

use lapis_blocks::classic_log::ClassicLog;
use lapis_blocks::header_log::HeaderLog;
use lapis_blocks::in_place::{CowCell, FamCell, LogCell};
use lapis_blocks::log::Log;
use lapis_blocks::log::Placement::{self, Dense, Padded};
use lapis_blocks::pop_log::PopLog;
use lapis_blocks::pop_ring::PopRing;
use lapis_blocks::rawl::Rawl;
use lapis_blocks::{CellKind, CellRun};
use lapis_device::Modelled;

use super::each_subject::Subjects;
use super::logs::RING_BYTES;
use crate::erased::AnySubject;
use crate::subjects::{InPlaceSubject, Scheme};

/// Cells whose entries fill a ring several times.
const LOGGED_BYTES: usize = 200;
pub(super) fn subjects(kind: CellKind) -> Subjects {
    let plain = kind.declaration().runs.iter();
    match kind {
        CellKind::Cow => plain.map(boxed::<CowCell>).collect(),
        CellKind::Fam => plain.map(boxed::<FamCell>).collect(),
        CellKind::Log => {
            let pop = |run: &CellRun| of::<PopLog<Modelled>>(run.name, run.value_bytes, Padded, 0);
            let mut subjects: Subjects = plain.map(pop).collect();
            subjects.extend([
                of::<ClassicLog<_>>("log-cell:classic", LOGGED_BYTES, Padded, 0),
                of::<HeaderLog<_>>("log-cell:naive", LOGGED_BYTES, Dense, 1),
                of::<HeaderLog<_>>("log-cell:aligned", LOGGED_BYTES, Padded, 1),
                of::<HeaderLog<_>>("log-cell:dancing", LOGGED_BYTES, Padded, 8),
                of::<Rawl<_>>("log-cell:rawl", LOGGED_BYTES, Padded, 0),
                of::<PopRing<_>>("log-cell:pop-ring", LOGGED_BYTES, Padded, 0),
            ]);
            subjects
        }
    }
}

fn boxed<S: Scheme<Options = ()>>(run: &CellRun) -> Box<dyn AnySubject> {
    Box::new(InPlaceSubject::<S>::new(run.name, run.value_bytes, ()))
}

/// Cells with a log of some kind.
fn of<L: Log<Modelled, Options: Sync + std::fmt::Debug> + 'static>(
    name: &'static str,
    value_bytes: usize,
    placement: Placement,
    size_fields: usize,
) -> Box<dyn AnySubject> {
    let options = L::options(RING_BYTES, placement, size_fields);
    Box::new(InPlaceSubject::<LogCell<Modelled, L>>::new(name, value_bytes, options))
}
