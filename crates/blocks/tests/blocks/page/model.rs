//! Every scheme does what a map does, reopened now and then.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::page::{DirtyLines, PageError, PageScheme, PageStore, PageStoreOptions};
use lapis_pmem::{LINE_BYTES, Pool};
use proptest::prelude::*;

use super::create_in;

#[derive(Clone, Debug)]
enum Step {
    Write { id: u64, byte: u8, lines: Vec<usize> },
    Delete { id: u64 },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lines = prop_oneof![
        4 => proptest::collection::vec(0usize..64, 1..12),
        1 => Just((0..64).collect::<Vec<_>>()),
        1 => Just(Vec::new()),
    ];
    let step = prop_oneof![
        8 => (0u64..10, any::<u8>(), lines)
            .prop_map(|(id, byte, lines)| Step::Write { id, byte, lines }),
        2 => (0u64..10).prop_map(|id| Step::Delete { id }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..120)
}

fn behaves_like_a_map(scheme: PageScheme, steps: &[Step]) -> Result<(), TestCaseError> {
    let options =
        PageStoreOptions { scheme, page_bytes: 4096, page_ids: 10, capacity_pages: 6, lanes: 3 };
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    let root = create_in(&pool, &options);
    let mut store = PageStore::open(Arc::clone(&pool), root).unwrap();
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Write { id, byte, lines } => {
                let is_new = !model.contains_key(id);
                let mut page = model.get(id).cloned().unwrap_or_else(|| vec![0; 4096]);
                let mut dirty = DirtyLines::none();
                for line in lines {
                    page[line * LINE_BYTES..(line + 1) * LINE_BYTES].fill(*byte);
                    dirty.mark(line * LINE_BYTES + 7, 3);
                }
                let written = store.write_page(*id, &page, &dirty);
                if is_new && model.len() == 6 {
                    let is_full = matches!(written, Err(PageError::Full { capacity_pages: 6 }));
                    prop_assert!(is_full);
                } else {
                    prop_assert!(written.is_ok());
                    model.insert(*id, page);
                }
            }
            Step::Delete { id } => {
                let deleted = store.delete_page(*id);
                match model.remove(id) {
                    Some(_) => prop_assert!(deleted.is_ok()),
                    None => {
                        let is_missing = matches!(deleted, Err(PageError::NoSuchPage { .. }));
                        prop_assert!(is_missing);
                    }
                }
            }
            Step::Reopen => {
                drop(store);
                store = PageStore::open(Arc::clone(&pool), root).unwrap();
            }
        }
        prop_assert_eq!(store.check(), Vec::new());
        prop_assert_eq!(store.statistics().pages, model.len());
    }
    for id in 0..10 {
        let mut page = vec![0; 4096];
        match model.get(&id) {
            Some(expected) => {
                store.read_page(id, &mut page).unwrap();
                prop_assert!(&page == expected, "page {} differs", id);
            }
            None => prop_assert!(!store.contains(id).unwrap()),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_scheme_behaves_like_a_map(steps in steps()) {
        for scheme in PageScheme::all() {
            behaves_like_a_map(scheme, &steps)?;
        }
    }
}
