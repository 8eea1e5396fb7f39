//! The root block of an index: what it is and where its top node hangs.
//!
//! ```text
//!  offset  bytes  field
//!       0      4  kind            which structure (IndexKind)
//!       4      4  form            bits  0 to  7: how keys are stored (KeyKind)
//!                                 bits  8 to 15: padding in bytes, zero but on modelled machines whose
//!                                                layouts are padded
//!                                 bits 16 to 31: version of that structure's format
//!       8      8  seed            of the hashes of byte strings in a hash table, else zero
//!      16      8  top             the structure's top block, or null
//!      24     40  words           the structure's own
//! ```
//!
//! One line, written before the root is published; afterwards only `top` and `words` change, each
//! by the structure's own rules.

use std::sync::Arc;

use lapis_pmem::{
    Committed, Domain, InFlight, Link, Owned, PCell, Pool, Slot, SoleUse, persistent,
};

use crate::IndexKind;
use crate::error::IndexError;
use crate::index::IndexOptions;
use crate::key::KeyKind;

persistent! {
    /// The root block of an index. Its owner publishes it: under a name
    /// ([`Pool::publish_root`]), or from a catalogue.
    pub struct IndexRoot: 64 {
        pub(crate) kind: PCell<u32>,
        form: PCell<u32>,
        /// See [`IndexOptions::hash_seed`](crate::IndexOptions::hash_seed).
        pub(crate) seed: PCell<u64>,
        pub(crate) top: Slot<PCell<u64>>,
        pub(crate) words: [PCell<u64>; 5],
    }
}

/// Where in `form` the padding begins.
const PADDING_SHIFT: u32 = 8;
/// Where in `form` the version begins.
const FORMAT_SHIFT: u32 = 16;

impl IndexRoot {
    /// Writes the identity of a new root; `top` null, the seed and `words` zero.
    pub(crate) fn init<D: Domain>(
        &self,
        domain: &D,
        kind: IndexKind,
        key_kind: KeyKind,
        format_version: u32,
    ) {
        let padding_bytes = domain.padding_bytes() as u32;
        self.kind.store(domain, kind as u32);
        let form = key_kind as u32 | padding_bytes << PADDING_SHIFT;
        self.form.store(domain, form | format_version << FORMAT_SHIFT);
        self.seed.store(domain, 0);
        self.top.word().store(domain, 0);
        for word in &self.words {
            word.store(domain, 0);
        }
    }

    /// Gives a new root of a hash table the seed that was chosen.
    pub(crate) fn choose_seed<D: Domain>(&self, domain: &D, options: &IndexOptions) {
        if options.hash_seed != 0 {
            self.seed.store(domain, options.hash_seed);
        }
    }

    /// Makes a new root durable, and then known under a name.
    pub(crate) fn publish<D: Domain>(
        pool: &Pool<D>,
        name: &str,
        kind: IndexKind,
        root: Owned<'_, D, Self, InFlight>,
    ) -> Result<Link<Self>, IndexError> {
        let root = pool.fence(root);
        let link = root.link();
        let _: Committed = pool.publish_root(name, kind as u64, root)?.persist();
        Ok(link)
    }

    /// The root at `link`, if it is of this kind, key kind and a format that the caller reads.
    pub(crate) fn open<D: Domain>(
        pool: &Pool<D>,
        link: Link<Self>,
        kind: IndexKind,
        key_kind: KeyKind,
        newest_format: u32,
    ) -> Result<&Self, IndexError> {
        let domain = pool.domain();
        let root = pool
            .try_at(link)
            .ok_or_else(|| IndexError::Damaged { what: "its root is outside the pool".into() })?;
        let (found, form) = (root.kind.load(domain), root.form.load(domain));
        let [found_keys, padding_bytes, ..] = form.to_le_bytes();
        if found != kind as u32 || u32::from(found_keys) != key_kind as u32 {
            return Err(IndexError::WrongKind { expected: kind, found });
        }
        let format = form >> FORMAT_SHIFT;
        if format == 0 || format > newest_format {
            return Err(IndexError::NewerFormat { found: format, supported: newest_format });
        }
        if usize::from(padding_bytes) != domain.padding_bytes() {
            return Err(IndexError::Damaged { what: "its layout has another padding".into() });
        }
        Ok(root)
    }

    /// As [`IndexRoot::open`], of a structure whose locks are in its handle: while what is returned lives, no other
    /// handle is opened.
    pub(crate) fn open_alone<D: Domain>(
        pool: &Arc<Pool<D>>,
        link: Link<Self>,
        kind: IndexKind,
        key_kind: KeyKind,
        newest_format: u32,
    ) -> Result<(&Self, SoleUse<D>), IndexError> {
        let root = Self::open(pool, link, kind, key_kind, newest_format)?;
        Ok((root, pool.sole_use(link).ok_or(IndexError::InUse)?))
    }

    /// Which structure the root at `link` is, for callers that choose by it.
    pub fn kind_of<D: Domain>(pool: &Pool<D>, link: Link<Self>) -> Option<IndexKind> {
        IndexKind::from_number(pool.try_at(link)?.kind.load(pool.domain()))
    }
}
