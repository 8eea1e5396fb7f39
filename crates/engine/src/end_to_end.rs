//! Keys and their new values, end to end in one piece of memory: a transaction's, and those of the log that recovery
//! collects. There are too many of them to ask for memory for each.

/// The new value of a key, in two parts, or none for a removal.
pub(crate) type NewValue<'v> = Option<[&'v [u8]; 2]>;

/// A value of one part.
pub(crate) fn whole(value: &[u8]) -> [&[u8]; 2] {
    [value, &[]]
}

/// Bytes of a value.
pub(crate) fn bytes_of([first, second]: [&[u8]; 2]) -> usize {
    first.len() + second.len()
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct EndToEnd(Vec<u8>);

/// Where a key is, and behind it its new value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    at: usize,
    key_bytes: usize,
    /// None for a removal.
    value_bytes: Option<usize>,
}

impl Span {
    pub(crate) fn is_removal(&self) -> bool {
        self.value_bytes.is_none()
    }
}

impl EndToEnd {
    pub(crate) fn push(&mut self, key: &[u8], value: NewValue<'_>) -> Span {
        let at = self.0.len();
        let [first, second] = value.unwrap_or_default();
        for part in [key, first, second] {
            self.0.extend_from_slice(part);
        }
        Span { at, key_bytes: key.len(), value_bytes: value.map(bytes_of) }
    }

    /// A key and its new value.
    pub(crate) fn get(&self, span: Span) -> (&[u8], Option<&[u8]>) {
        let (key, behind) = self.0[span.at..].split_at(span.key_bytes);
        (key, span.value_bytes.map(|bytes| &behind[..bytes]))
    }

    /// Replaces a value by one of its length, and returns it; none if the new one has another.
    pub(crate) fn replace(&mut self, span: Span, value: NewValue<'_>) -> Option<Box<[u8]>> {
        let [first, second] = value.filter(|value| span.value_bytes == Some(bytes_of(*value)))?;
        let into = &mut self.0[span.at + span.key_bytes..][..first.len() + second.len()];
        let before = Box::from(&*into);
        into[..first.len()].copy_from_slice(first);
        into[first.len()..].copy_from_slice(second);
        Some(before)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Bytes of memory that it has.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.0.capacity()
    }
}
