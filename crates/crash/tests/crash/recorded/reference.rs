//! Claims on traces drawn at random, against all images of all crash points.

use lapis_crash::{RecordedOptions, check_recorded};
use lapis_device::trace_file::{Assertion, Claim, RecordedTrace};
use lapis_device::{
    CrashPoints, Event, ImageBudget, Marker, PersistKind, PersistPoint, PowerFailDomain, Stored,
    Trace,
};
use proptest::prelude::*;

use crate::recorded::program::REGION_BYTES;

/// The words of two lines.
const WORDS: [u64; 4] = [0, 8, 64, 72];

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0u8..2, 0usize..4, 0u8..10).prop_map(|(worker, word, kind)| {
        let (line, start) = ((WORDS[word] / 64) as u32, (WORDS[word] % 64) as u8);
        let (bytes, value) = (8, 0);
        match kind {
            0 | 1 => Event::Store { worker, start, bytes, line, value },
            2 => Event::OrderedStore { worker, start, bytes, line, value },
            3 => Event::Locked { worker, start, bytes, line, value },
            4 => Event::NonTemporal { worker, start, bytes, line, value },
            5..=7 => Event::Flush { worker, point: 0, line },
            _ => Event::Fence { worker, point: 1 },
        }
    });
    proptest::collection::vec(event, 1..14).prop_map(|mut events| {
        // Each store a value of its own, so that a lost one shows.
        for (index, event) in events.iter_mut().enumerate() {
            if let Event::Store { value, .. }
            | Event::OrderedStore { value, .. }
            | Event::Locked { value, .. }
            | Event::NonTemporal { value, .. } = event
            {
                *value = index as u64 + 1;
            }
        }
        events
    })
}

fn recorded(events: Vec<Event>, claim: Claim) -> RecordedTrace {
    let point = |kind| PersistPoint { file: "p.c", line: 1, column: 1, kind };
    let points = vec![point(PersistKind::Flush), point(PersistKind::Fence)];
    let mut recorded =
        RecordedTrace::of_run(Trace::of(events, points), &[0; REGION_BYTES as usize]);
    let position = recorded.trace.events.len();
    recorded.assertions = vec![Assertion { position, worker: 0, place: 0, claim }];
    recorded
}

fn holds(events: &[Event], claim: Claim, locked_completes: bool) -> bool {
    let options = RecordedOptions { locked_completes, ..RecordedOptions::default() };
    let recorded = recorded(events.to_vec(), claim);
    check_recorded(&recorded, &options, &|_| {}).unwrap().violations.is_empty()
}

/// The words of every image of every crash point, those of the end last.
fn images(events: &[Event], locked_completes: bool) -> Vec<Vec<[u64; 4]>> {
    let trace = recorded(events.to_vec(), Claim::Durable { offset: 0, bytes: 8 }).trace;
    let domain = if locked_completes { PowerFailDomain::Adr } else { PowerFailDomain::AdrPortable };
    let mut points = CrashPoints::new(&trace, &[0; REGION_BYTES as usize], domain);
    let mut durable = [[0u8; 64]; 2];
    let mut all = Vec::new();
    let budget = ImageBudget { exhaustive_limit: 1 << 20, ..ImageBudget::default() };
    while points.advance().is_some() {
        for (line, bytes) in points.newly_durable() {
            durable[line as usize] = *bytes;
        }
        let states = points.states();
        let found = states.images(budget).map(|image| {
            let mut lines = durable;
            for (line, bytes) in states.overrides(&image) {
                lines[line as usize] = bytes;
            }
            WORDS.map(|offset| {
                let (line, start) = ((offset / 64) as usize, (offset % 64) as usize);
                u64::from_le_bytes(lines[line][start..start + 8].try_into().unwrap())
            })
        });
        all.push(found.collect());
    }
    all
}

/// What each word holds when nothing is lost.
fn last_values(events: &[Event]) -> [u64; 4] {
    let mut last = [0; 4];
    for Stored { line, start, value, .. } in events.iter().filter_map(Event::stored) {
        let offset = u64::from(line) * 64 + u64::from(start);
        last[WORDS.iter().position(|&word| word == offset).unwrap()] = value;
    }
    last
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_word_is_durable_if_and_only_if_no_image_of_the_model_lacks_it(
        events in events(), locked in any::<bool>(),
    ) {
        // A marker, so that the end is a crash point.
        let ended: Vec<Event> =
            [&events[..], &[Event::Marker { worker: 0, marker: Marker::End(1) }]].concat();
        let all = images(&ended, locked);
        let last = last_values(&events);
        for (word, &offset) in WORDS.iter().enumerate() {
            let kept = all.last().unwrap().iter().all(|image| image[word] == last[word]);
            prop_assert_eq!(holds(&events, Claim::Durable { offset, bytes: 8 }, locked), kept);
        }
    }

    #[test]
    fn an_order_holds_if_and_only_if_no_image_of_the_model_breaks_it(
        events in events(), locked in any::<bool>(),
    ) {
        let all = images(&events, locked);
        let last = last_values(&events);
        for (first, &a) in WORDS.iter().enumerate() {
            for (second, &b) in WORDS.iter().enumerate() {
                if last[first] == 0 || last[second] == 0 {
                    continue;
                }
                let broken = all.iter().flatten().any(|image| {
                    image[second] == last[second] && image[first] != last[first]
                });
                let claim = Claim::InOrder { first: (a, 8), second: (b, 8) };
                prop_assert_eq!(holds(&events, claim, locked), !broken, "{} {}", a, b);
            }
        }
    }
}
