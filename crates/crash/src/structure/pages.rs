//! The subjects of the page schemes.

use lapis_blocks::page::PageScheme;

use super::Structure;
use super::each_subject::Subjects;
use crate::erased::AnySubject;
use crate::subjects::PageSubject;

pub(super) fn subjects(structure: Structure) -> Subjects {
    let subjects: &[(&str, PageScheme, usize)] = match structure {
        Structure::PageCow => &[
            ("page-cow:whole", PageScheme::CopyOnWrite, 4096),
            ("page-cow:load", PageScheme::CopyOnWriteLoading, 4096),
            ("page-cow:checksum", PageScheme::Checksum, 4096),
        ],
        Structure::PageMulog => &[
            ("page-mulog:4k", PageScheme::MicroLog, 4096),
            // Which lines are logged takes more than one line to say.
            ("page-mulog:32k", PageScheme::MicroLog, 32768),
        ],
        Structure::PageHybrid => &[("page-hybrid:4k", PageScheme::Hybrid, 4096)],
        _ => &[],
    };
    let subject = |&(name, scheme, page_bytes): &_| -> Box<dyn AnySubject> {
        Box::new(PageSubject::new(name, scheme, page_bytes))
    };
    subjects.iter().map(subject).collect()
}
