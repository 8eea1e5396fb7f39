//! Writing a new table of buckets, past the caches.

use lapis_pmem::{AllocError, Dirty, Domain, InFlight, Mutant, Owned, Pool};

use super::bucket::{BUCKET_BYTES, Bucket, BucketImage};

/// Bytes that are composed at a time.
const COMPOSED_BYTES: usize = 4096;

/// A table on its way: its buckets are given one after the other.
pub(crate) struct TableWriter<'p, D: Domain> {
    table: Owned<'p, D, Bucket, Dirty>,
    /// Bucket 0 is the block's head, the others are its tail.
    head_written: bool,
    /// Bytes of the tail that have been written.
    written: usize,
    /// Bytes of the tail that come next.
    composed: Vec<u8>,
    unflushed: Mutant,
}

/// A table of two to the power of `log2` buckets.
#[track_caller]
fn allocate<D: Domain>(
    pool: &Pool<D>,
    log2: u32,
) -> Result<Owned<'_, D, Bucket, Dirty>, AllocError> {
    pool.allocate_with_tail::<Bucket>(((1usize << log2) - 1) * BUCKET_BYTES)
}

/// A table of empty buckets.
#[track_caller]
pub(crate) fn empty<D: Domain>(
    pool: &Pool<D>,
    log2: u32,
) -> Result<Owned<'_, D, Bucket, InFlight>, AllocError> {
    Ok(allocate(pool, log2)?.zero_nontemporal())
}

impl<'p, D: Domain> TableWriter<'p, D> {
    /// `unflushed` is the mutant that does not flush what is written.
    pub(crate) fn new(pool: &'p Pool<D>, log2: u32, unflushed: Mutant) -> Result<Self, AllocError> {
        let table = allocate(pool, log2)?;
        let composed = Vec::with_capacity(COMPOSED_BYTES);
        Ok(Self { table, head_written: false, written: 0, composed, unflushed })
    }

    pub(crate) fn pool(&self) -> &'p Pool<D> {
        self.table.pool()
    }

    /// Appends a bucket.
    pub(crate) fn push(&mut self, image: &BucketImage) {
        if !self.head_written {
            self.table.write(self.table.domain(), image);
            self.head_written = true;
            return;
        }
        image.append_to(&mut self.composed);
        if self.composed.len() == COMPOSED_BYTES {
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        let _mutant = self.table.domain().omitting(self.unflushed);
        self.table.write_tail_nontemporal(self.written, &self.composed);
        self.written += self.composed.len();
        self.composed.clear();
    }

    /// The table, once all its buckets have been given: for the caller's fence.
    #[track_caller]
    pub(crate) fn into_written(mut self) -> Owned<'p, D, Bucket, InFlight> {
        self.write_out();
        self.table.flush_head()
    }
}
