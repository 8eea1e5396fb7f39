//! Page stores: counts, behaviour against a model, bad input, damage, threads.

mod bad_input;
mod counts;
mod damage;
mod model;
mod threads;

use std::sync::Arc;

use lapis_blocks::page::{PageScheme, PageStore, PageStoreOptions, PageStoreRoot};
use lapis_pmem::{Committed, Domain, Link, Pool};

/// Sixteen pages of 16 KiB, four lanes.
fn options(scheme: PageScheme) -> PageStoreOptions {
    PageStoreOptions { scheme, page_bytes: 16384, page_ids: 32, capacity_pages: 16, lanes: 4 }
}

fn create_in<D: Domain>(pool: &Arc<Pool<D>>, options: &PageStoreOptions) -> Link<PageStoreRoot> {
    let root = pool.fence(PageStore::create(pool, options).unwrap());
    let link = root.link();
    let _: Committed = pool.publish_root("pages", 0, root).unwrap().persist();
    link
}

fn store_in<D: Domain>(pool: &Arc<Pool<D>>, options: &PageStoreOptions) -> PageStore<D> {
    let root = create_in(pool, options);
    PageStore::open(Arc::clone(pool), root).unwrap()
}

/// A page all of whose bytes are `byte`.
fn page_of(byte: u8, options: &PageStoreOptions) -> Vec<u8> {
    vec![byte; options.page_bytes]
}
