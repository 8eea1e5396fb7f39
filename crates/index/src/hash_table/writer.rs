//! Writing a new table of buckets, past the caches.

use lapis_pmem::{AllocError, Dirty, Domain, InFlight, Link, Mutant, Owned, Pool};

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
    padding_bytes: usize,
    unflushed: Mutant,
}

/// A table of two to the power of `log2` buckets, with so much padding behind each.
#[track_caller]
fn allocate<D: Domain>(
    pool: &Pool<D>,
    log2: u32,
    padding_bytes: usize,
) -> Result<Owned<'_, D, Bucket, Dirty>, AllocError> {
    let bytes = (BUCKET_BYTES + padding_bytes) << log2;
    pool.allocate_with_tail::<Bucket>(bytes - BUCKET_BYTES)
}

/// A table of empty buckets.
#[track_caller]
pub(crate) fn empty<D: Domain>(
    pool: &Pool<D>,
    log2: u32,
    padding_bytes: usize,
) -> Result<Owned<'_, D, Bucket, InFlight>, AllocError> {
    Ok(allocate(pool, log2, padding_bytes)?.zero_nontemporal())
}

impl<'p, D: Domain> TableWriter<'p, D> {
    /// `unflushed` is the mutant that does not flush what is written.
    pub(crate) fn new(
        pool: &'p Pool<D>,
        log2: u32,
        padding_bytes: usize,
        unflushed: Mutant,
    ) -> Result<Self, AllocError> {
        let table = allocate(pool, log2, padding_bytes)?;
        let composed = Vec::with_capacity(COMPOSED_BYTES + BUCKET_BYTES + padding_bytes);
        Ok(Self { table, head_written: false, written: 0, composed, padding_bytes, unflushed })
    }

    pub(crate) fn pool(&self) -> &'p Pool<D> {
        self.table.pool()
    }

    /// Where the bucket after that which is appended next will be.
    pub(crate) fn after_next(&self) -> Link<Bucket> {
        let next =
            self.written + self.composed.len() + usize::from(self.head_written) * BUCKET_BYTES;
        Link::from_bits(self.table.link().bits() + (next + BUCKET_BYTES) as u64)
    }

    /// Appends a bucket.
    pub(crate) fn push(&mut self, image: &BucketImage) {
        if self.head_written {
            image.append_to(&mut self.composed);
        } else {
            self.table.write(self.table.domain(), image);
            self.head_written = true;
        }
        self.composed.resize(self.composed.len() + self.padding_bytes, 0);
        if self.composed.len() >= COMPOSED_BYTES {
            self.write_out(COMPOSED_BYTES);
        }
    }

    fn write_out(&mut self, bytes: usize) {
        let _mutant = self.table.domain().omitting(self.unflushed);
        self.table.write_tail_nontemporal(self.written, &self.composed[..bytes]);
        self.written += bytes;
        self.composed.drain(..bytes);
    }

    /// The table, once all its buckets have been given: for the caller's fence.
    #[track_caller]
    pub(crate) fn into_written(mut self) -> Owned<'p, D, Bucket, InFlight> {
        self.write_out(self.composed.len());
        self.table.flush_head()
    }
}
