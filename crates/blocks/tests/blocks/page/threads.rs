//! Several writers and readers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_blocks::page::{DirtyLines, PageScheme, PageStore};
use lapis_pmem::Pool;

use super::{create_in, options, page_of};

#[test]
fn writers_of_different_pages_do_not_disturb_one_another_and_readers_see_whole_pages() {
    for scheme in PageScheme::all() {
        let options = options(scheme);
        let pool = Arc::new(Pool::create_anonymous(2 << 20).unwrap());
        let root = create_in(&pool, &options);
        let store = PageStore::open(Arc::clone(&pool), root).unwrap();
        let all = DirtyLines::all(options.page_bytes);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let (store, all, options) = (&store, &all, &options);
                    // Pages of writers share lanes: there are four lanes.
                    scope.spawn(move || {
                        for round in 0..200u64 {
                            let id = writer * 3 + round % 3;
                            let page = page_of((round % 251) as u8, options);
                            store.write_page(id, &page, all).unwrap();
                            if round % 17 == 16 {
                                store.delete_page(id).unwrap();
                            }
                        }
                    })
                })
                .collect();
            let (store, done, options) = (&store, &done, &options);
            let reader = scope.spawn(move || {
                let mut page = page_of(0, options);
                let mut read = 0u64;
                while !done.load(Ordering::Relaxed) || read == 0 {
                    for id in 0..12 {
                        if store.read_page(id as u64, &mut page).is_ok() {
                            assert!(page.iter().all(|&byte| byte == page[0]), "page {id} is torn");
                            read += 1;
                        }
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(store.check(), [], "{scheme}");
        let pages = store.statistics().pages;
        let contents_of = |store: &PageStore<_>| -> [_; 12] {
            std::array::from_fn(|id| {
                let mut page = page_of(0, &options);
                store.read_page(id as u64, &mut page).ok().map(|()| page)
            })
        };
        let contents = contents_of(&store);
        drop(store);
        let reopened = PageStore::open(Arc::clone(&pool), root).unwrap();
        assert_eq!(reopened.statistics().pages, pages, "{scheme}");
        assert_eq!(reopened.check(), [], "{scheme}");
        assert!(contents_of(&reopened) == contents, "{scheme}: pages differ");
    }
}
