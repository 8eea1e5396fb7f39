//! What distinguishes the logs in a ring: how an entry is written and by what it is known to be there.

use std::fmt::Debug;

use lapis_pmem::{Domain, Mutant};

use crate::log::Position;
use crate::spacing::Spacing;

use super::entry::{ENTRY_HEADER_BYTES, Head, Parsed};
use super::ring::{Ring, Sink};

/// Bytes of a footer.
pub(crate) const FOOTER_BYTES: u64 = 8;

/// One entry to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'e> {
    pub(crate) position: Position,
    pub(crate) head: Head,
    pub(crate) parts: &'e [&'e [u8]],
}

impl<'e> Entry<'e> {
    /// Its header.
    pub(crate) fn words(&self) -> [u64; 2] {
        self.head.words(self.position)
    }

    /// Its header, with something else in the place of the position.
    pub(crate) fn words_with(&self, upper: u32) -> [u64; 2] {
        self.head.words_with(self.position, upper)
    }

    /// Its payload.
    pub(crate) fn parts(&self) -> &'e [&'e [u8]] {
        self.parts
    }
}

/// What stands where an entry may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All of it, as far as the entry itself can tell.
    Whole(Head),
    /// Its header is there and something is missing.
    Torn(Head),
    /// No header that could be read.
    Nothing,
    /// What no crash leaves behind.
    Damaged(&'static str),
}

/// A kind of log in a ring. The kinds are [`Classic`](crate::classic_log::Classic),
/// [`Header`](crate::header_log::Header), [`Raw`](crate::rawl::Raw) and [`Pop`](crate::pop_ring::Pop);
/// the items are of use to [`RingLog`](super::RingLog) alone. An entry is a header and a payload, and
/// free space is zero, unless a kind says otherwise.
#[expect(private_interfaces, reason = "the trait is sealed: nobody else calls or implements it")]
pub trait RingKind: Debug + Send + Sync + Sized + 'static + sealed::Sealed {
    /// The name on the command line.
    const NAME: &'static str;
    /// The first word of the root.
    #[doc(hidden)]
    const MAGIC: u64;
    /// Whether a footer, written behind a second barrier, says that an entry is there.
    #[doc(hidden)]
    const FOOTER: bool = false;
    /// Whether a size in the log's header, written behind a second barrier, says so.
    #[doc(hidden)]
    const SIZED: bool = false;
    /// What is left free behind a streamed entry.
    #[doc(hidden)]
    const STREAMED: Spacing = Spacing::None;
    /// Whether free space has to be zero.
    #[doc(hidden)]
    const ZEROED: bool = false;
    /// The error of using space again that was not zeroed, where it has to be.
    #[doc(hidden)]
    const REUSE_MUTANT: Mutant = Mutant("");
    /// Whether the ring has to be zero when the log is created.
    #[doc(hidden)]
    const BLANK: bool = false;

    /// Bytes of an entry without footer and padding, a multiple of eight.
    #[doc(hidden)]
    fn body_bytes(length: usize) -> u64 {
        (ENTRY_HEADER_BYTES + length).next_multiple_of(8) as u64
    }

    /// A word of free space that will be written in this pass.
    #[doc(hidden)]
    fn free_word(_pass: u64) -> u64 {
        0
    }

    /// Stores the body of an entry.
    #[doc(hidden)]
    fn write<D: Domain>(sink: &mut Sink<'_, D, Self>, entry: &Entry<'_>) {
        write_words(sink, entry, entry.words());
    }

    /// Passes over `bytes` bytes of padding.
    #[doc(hidden)]
    fn pad<D: Domain>(sink: &mut Sink<'_, D, Self>, bytes: usize) {
        sink.skip(bytes);
    }

    /// Examines the body at `at`, which nobody writes meanwhile; beyond `end` it cannot go.
    #[doc(hidden)]
    fn look<D: Domain>(ring: &Ring<'_, D>, at: u64, end: u64, position: Position) -> Seen {
        if end.saturating_sub(at) < ENTRY_HEADER_BYTES as u64 {
            return Seen::Nothing;
        }
        match Head::parse([ring.load(at), ring.load(at + 8)], position) {
            Parsed::Whole(head) if at + Self::body_bytes(head.length) > end => {
                Seen::Damaged("an entry that goes on behind the end")
            }
            Parsed::Whole(head) => Seen::Whole(head),
            Parsed::Nothing | Parsed::Torn => Seen::Nothing,
            Parsed::Damaged(what) => Seen::Damaged(what),
        }
    }

    /// Whether the payload of an entry that is there matches its checksum.
    #[doc(hidden)]
    fn is_intact<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head) -> bool {
        ring.crc(at + ENTRY_HEADER_BYTES as u64, head.length) == head.payload_crc
    }

    /// Appends the payload of an entry that is there to `into`.
    #[doc(hidden)]
    fn read<D: Domain>(ring: &Ring<'_, D>, at: u64, head: Head, into: &mut Vec<u8>) {
        let payload = at + ENTRY_HEADER_BYTES as u64;
        ring.pieces(payload, head.length, |piece| into.extend_from_slice(piece));
    }

    /// Makes `[from, to)`, the free space behind the last entry, as it would be if nothing had been
    /// begun there, and flushes. Returns whether there was anything to do; then the caller fences.
    ///
    /// # Safety
    /// Nobody else has the log open.
    #[doc(hidden)]
    unsafe fn clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        // SAFETY: nobody else has the log open.
        unsafe { zero_dirty(ring, from, to) }
    }

    /// Whether `[from, to)` is clean.
    #[doc(hidden)]
    fn is_clean<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
        is_zero(ring, from, to)
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The offset behind a body that begins at `at`.
pub(crate) fn after_body<K: RingKind>(spacing: Spacing, at: u64, length: usize) -> u64 {
    spacing.after(at, K::body_bytes(length))
}

/// The offset behind the footer of the body that ends at `at`, if there is one.
pub(crate) fn after_footer<K: RingKind>(spacing: Spacing, at: u64) -> u64 {
    if K::FOOTER { spacing.after(at, FOOTER_BYTES) } else { at }
}

/// The offset behind an entry that begins at `at`, footer included if it has one of its own.
pub(crate) fn after_entry<K: RingKind>(spacing: Spacing, at: u64, head: Head) -> u64 {
    let end = after_body::<K>(spacing, at, head.length);
    if head.more { end } else { after_footer::<K>(spacing, end) }
}

/// Passes over what stays free behind the `bytes` bytes that have just been written.
pub(crate) fn pad_behind<D: Domain, K: RingKind>(
    sink: &mut Sink<'_, D, K>,
    spacing: Spacing,
    bytes: u64,
) {
    let free = spacing.free_behind(sink.index() as u64, bytes);
    if free > 0 {
        K::pad(sink, free as usize);
    }
}

/// Whether all words of `[from, to)` are zero.
pub(crate) fn is_zero<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
    let mut zero = true;
    ring.pieces(from, (to - from) as usize, |piece| {
        zero &= piece.iter().fold(0, |bits, byte| bits | byte) == 0;
    });
    zero
}

/// Zeroes what is not zero in `[from, to)`. Returns whether there was anything; then the caller fences.
///
/// # Safety
/// Nobody else reads or writes there.
pub(crate) unsafe fn zero_dirty<D: Domain>(ring: &Ring<'_, D>, from: u64, to: u64) -> bool {
    /// Looked at together, so that the search is fast.
    const PIECE_BYTES: u64 = 4096;
    let (mut first, mut last) = (to, from);
    let mut at = from;
    while at < to {
        let next = (at + 1).next_multiple_of(PIECE_BYTES).min(to);
        if !is_zero(ring, at, next) {
            first = first.min(at);
            last = next;
        }
        at = next;
    }
    if first < last {
        // SAFETY: as the caller vouches. A crash in here leaves some of the bits of what had been
        // begun there.
        unsafe { ring.zero(first, last) };
    }
    first < last
}

/// Stores a body of this header, the payload and nothing else.
pub(crate) fn write_words<D: Domain, K: RingKind>(
    sink: &mut Sink<'_, D, K>,
    entry: &Entry<'_>,
    header: [u64; 2],
) {
    for word in header {
        sink.word(word);
    }
    for part in entry.parts {
        sink.bytes(part);
    }
    sink.skip(entry.head.length.next_multiple_of(8) - entry.head.length);
}
