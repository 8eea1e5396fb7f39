//! Tables of typed keys and values, and encodings that keep the order of keys.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use lapis_engine::TimeToLive;

use crate::entries::Entries;
use crate::error::Error;
use crate::snapshot::Snapshot;
use crate::table::{Change, Table};
use crate::transaction::Transaction;

/// A type of which tables can have values.
pub trait Encoding: Sized {
    /// Appends the value's bytes.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// The value whose bytes these are, or none.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// The bytes by themselves.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

/// A type of which tables can have keys: its encodings compare, byte by byte, as its values do, and none is
/// the beginning of another one as a part of a tuple.
///
/// | type | encoding |
/// |---|---|
/// | unsigned integers | big-endian |
/// | signed integers | big-endian, the sign inverted |
/// | `bool`, `char` | as `u8`, `u32` |
/// | `String`, `Vec<u8>` | as they are; within a tuple, but for its last part, 0 becomes 0 255, and 0 0 is the end |
/// | `[u8; N]` | as it is |
/// | tuples of two to four | part after part |
///
/// An empty string is no key by itself ([`Error::EmptyKey`]).
pub trait Key: Encoding {
    /// Appends the bytes as those of a part that others follow.
    fn encode_part(&self, bytes: &mut Vec<u8>) {
        self.encode(bytes);
    }

    /// The value whose part stands first in `bytes`, and what follows it.
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

macro_rules! integers {
    ($($type:ty: $($sign:expr)?),* $(,)?) => {$(
        impl Encoding for $type {
            fn encode(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&(*self $(^ $sign)?).to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_be_bytes(bytes.try_into().ok()?) $(^ $sign)?)
            }
        }

        impl Key for $type {
            fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let (part, rest) = bytes.split_at_checked(size_of::<Self>())?;
                Some((Self::decode(part)?, rest))
            }
        }
    )*};
}

integers! {
    u8:, u16:, u32:, u64:, u128:,
    i8: i8::MIN, i16: i16::MIN, i32: i32::MIN, i64: i64::MIN, i128: i128::MIN,
}

macro_rules! as_another {
    ($($type:ty as $other:ty, $to:expr, $from:expr);* $(;)?) => {$(
        impl Encoding for $type {
            fn encode(&self, bytes: &mut Vec<u8>) {
                let to: fn(&$type) -> $other = $to;
                to(self).encode(bytes);
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                let from: fn($other) -> Option<$type> = $from;
                from(<$other>::decode(bytes)?)
            }
        }

        impl Key for $type {
            fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let from: fn($other) -> Option<$type> = $from;
                let (other, rest) = <$other>::decode_part(bytes)?;
                Some((from(other)?, rest))
            }
        }
    )*};
}

as_another! {
    bool as u8, |it| u8::from(*it), |it| (it < 2).then_some(it == 1);
    char as u32, |it| u32::from(*it), char::from_u32;
}

impl Encoding for Vec<u8> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl Key for Vec<u8> {
    fn encode_part(&self, bytes: &mut Vec<u8>) {
        for &byte in self {
            bytes.push(byte);
            if byte == 0 {
                bytes.push(0xFF);
            }
        }
        bytes.extend_from_slice(&[0, 0]);
    }

    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (mut part, mut rest) = (Vec::new(), bytes);
        loop {
            let end = rest.iter().position(|&byte| byte == 0)?;
            part.extend_from_slice(&rest[..end]);
            match *rest.get(end + 1)? {
                0 => return Some((part, &rest[end + 2..])),
                0xFF => part.push(0),
                _ => return None,
            }
            rest = &rest[end + 2..];
        }
    }
}

impl Encoding for String {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.to_vec()).ok()
    }
}

impl Key for String {
    fn encode_part(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().to_vec().encode_part(bytes);
    }

    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (part, rest) = Vec::decode_part(bytes)?;
        Some((Self::from_utf8(part).ok()?, rest))
    }
}

impl<const N: usize> Encoding for [u8; N] {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

impl<const N: usize> Key for [u8; N] {
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        bytes.split_first_chunk().map(|(part, rest)| (*part, rest))
    }
}

macro_rules! tuples {
    ($(($($part:ident)*) $last:ident);* $(;)?) => {$(
        #[expect(non_snake_case, reason = "a part is called as its type")]
        impl<$($part: Key,)* $last: Key> Encoding for ($($part,)* $last) {
            fn encode(&self, bytes: &mut Vec<u8>) {
                let ($($part,)* $last) = self;
                $($part.encode_part(bytes);)*
                $last.encode(bytes);
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                $(let ($part, bytes) = $part::decode_part(bytes)?;)*
                Some(($($part,)* $last::decode(bytes)?))
            }
        }

        #[expect(non_snake_case, reason = "a part is called as its type")]
        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last) {
            fn encode_part(&self, bytes: &mut Vec<u8>) {
                let ($($part,)* $last) = self;
                $($part.encode_part(bytes);)*
                $last.encode_part(bytes);
            }

            fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
                $(let ($part, bytes) = $part::decode_part(bytes)?;)*
                let ($last, bytes) = $last::decode_part(bytes)?;
                Some((($($part,)* $last), bytes))
            }
        }
    )*};
}

tuples! { (A) B; (A B) C; (A B C) D }

/// A table seen as one of typed keys and values. Cheap to clone.
///
/// ```
/// # fn main() -> Result<(), lapis::Error> {
/// let store = lapis::Store::in_memory()?;
/// let scores = store.create_table("scores")?.typed::<(String, u32), i64>();
/// scores.put(&("ada".to_owned(), 2), &-7)?;
/// scores.put(&("ada".to_owned(), 10), &99)?;
/// assert_eq!(scores.get(&("ada".to_owned(), 2))?, Some(-7));
/// let last = scores.iter()?.next_back().unwrap()?;
/// assert_eq!(last, (("ada".to_owned(), 10), 99));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TypedTable<K, V> {
    table: Table,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> Clone for TypedTable<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K: Key, V: Encoding> TypedTable<K, V> {
    pub(crate) fn new(table: Table) -> Self {
        Self { table, types: PhantomData }
    }

    /// The table, in bytes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn value(&self, key: &[u8], value: &[u8]) -> Result<V, Error> {
        V::decode(value).ok_or_else(|| self.wrong("value of", key))
    }

    fn wrong(&self, what: &str, key: &[u8]) -> Error {
        let (name, key) = (self.table.name(), key.escape_ascii());
        Error::WrongType { what: format!("the {what} key {key} in the table {name:?}") }
    }

    /// [`Table::get`].
    ///
    /// # Errors
    /// [`Error::WrongType`] if the value is none of the type; else as there.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        let key = key.to_bytes();
        self.table.get(&key)?.map(|value| self.value(&key, &value)).transpose()
    }

    /// [`Table::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, key: &K, value: &V) -> Result<(), Error> {
        self.table.put(&key.to_bytes(), &value.to_bytes())
    }

    /// [`Table::put_with`].
    ///
    /// # Errors
    /// As there.
    pub fn put_with(&self, key: &K, value: &V, time_to_live: TimeToLive) -> Result<(), Error> {
        self.table.put_with(&key.to_bytes(), &value.to_bytes(), time_to_live)
    }

    /// [`Table::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: &K) -> Result<bool, Error> {
        self.table.delete(&key.to_bytes())
    }

    /// [`Table::update`].
    ///
    /// # Errors
    /// [`Error::WrongType`] if the value is none of the type: nothing is written, and the entry keeps its time to live.
    /// Else as there.
    pub fn update(
        &self,
        key: &K,
        mut change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<(), Error> {
        let key = key.to_bytes();
        self.table.change(&key, |old| match old.map(|old| self.value(&key, old)).transpose() {
            Ok(old) => (change(old).map(|new| new.to_bytes()).into(), Ok(())),
            Err(error) => (Change::Keep, Err(error)),
        })?
    }

    /// [`Transaction::get`].
    ///
    /// # Errors
    /// [`Error::WrongType`] if the value is none of the type; else as there.
    pub fn get_in(&self, transaction: &Transaction, key: &K) -> Result<Option<V>, Error> {
        let key = key.to_bytes();
        transaction.get(&self.table, &key)?.map(|value| self.value(&key, &value)).transpose()
    }

    /// [`Transaction::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put_in(&self, transaction: &mut Transaction, key: &K, value: &V) -> Result<(), Error> {
        transaction.put(&self.table, &key.to_bytes(), &value.to_bytes())
    }

    /// [`Transaction::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_in(&self, transaction: &mut Transaction, key: &K) -> Result<bool, Error> {
        transaction.delete(&self.table, &key.to_bytes())
    }

    /// [`Snapshot::get`].
    ///
    /// # Errors
    /// [`Error::WrongType`] if the value is none of the type; else as there.
    pub fn get_at(&self, snapshot: &Snapshot, key: &K) -> Result<Option<V>, Error> {
        let key = key.to_bytes();
        snapshot.get(&self.table, &key)?.map(|value| self.value(&key, &value)).transpose()
    }

    /// [`Table::iter`]. An entry that is none of the types is an error in its place.
    ///
    /// # Errors
    /// As there.
    pub fn iter(&self) -> Result<impl DoubleEndedIterator<Item = Result<(K, V), Error>>, Error> {
        Ok(self.typed(self.table.iter()?))
    }

    /// [`Table::range`]. An entry that is none of the types is an error in its place.
    ///
    /// # Errors
    /// As there.
    pub fn range(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<(K, V), Error>>, Error> {
        let bytes = |bound: Bound<&K>| bound.map(Encoding::to_bytes);
        let entries = self.table.range((bytes(range.start_bound()), bytes(range.end_bound())))?;
        Ok(self.typed(entries))
    }

    fn typed<'t>(
        &self,
        entries: Entries<'t>,
    ) -> impl DoubleEndedIterator<Item = Result<(K, V), Error>> + use<'t, K, V> {
        let this = self.clone();
        entries.map(move |entry| {
            let (key, value) = entry?;
            let typed = K::decode(&key).ok_or_else(|| this.wrong("", &key))?;
            Ok((typed, this.value(&key, &value)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keeps_order<K: Key + Ord + std::fmt::Debug>(a: &K, b: &K) {
        let (of_a, of_b) = (a.to_bytes(), b.to_bytes());
        assert_eq!(a.cmp(b), of_a.cmp(&of_b), "{a:?} {b:?}");
        assert_eq!(K::decode(&of_a).as_ref(), Some(a));
        let mut part = Vec::new();
        b.encode_part(&mut part);
        part.push(7);
        assert_eq!(K::decode_part(&part), Some((K::decode(&of_b).unwrap(), &[7][..])));
    }

    proptest! {
        #[test]
        fn encodings_keep_the_order_and_come_back(
            a in any::<(i64, u16, i8, bool, char)>(), b in any::<(i64, u16, i8, bool, char)>(),
        ) {
            keeps_order(&a.0, &b.0);
            keeps_order(&a.1, &b.1);
            keeps_order(&a.2, &b.2);
            keeps_order(&a.3, &b.3);
            keeps_order(&a.4, &b.4);
            keeps_order(&(a.2, a.1, a.4), &(b.2, b.1, b.4));
        }

        #[test]
        fn so_do_those_of_bytes_in_tuples(
            a in ("[\u{0}\u{1}a]{0,3}", "[\u{0}\u{1}a]{0,3}", 0_u8..3), b in ("[\u{0}\u{1}a]{0,3}", "[\u{0}\u{1}a]{0,3}", 0_u8..3),
        ) {
            keeps_order(&a, &b);
            keeps_order(&(a.0.clone(), a.1.clone()), &(b.0.clone(), b.1.clone()));
            keeps_order(&a.0.into_bytes(), &b.0.into_bytes());
            keeps_order(&(a.2, [a.2; 2], a.1.clone(), a.1), &(b.2, [b.2; 2], b.1.clone(), b.1));
        }

        #[test]
        fn any_bytes_are_a_value_or_none(bytes: Vec<u8>) {
            let _ = <(String, i32, Vec<u8>, bool)>::decode(&bytes);
            let _ = <((char, String), [u8; 3])>::decode(&bytes);
        }
    }

    #[test]
    fn an_entry_of_another_type_is_named_and_stays() {
        let table = crate::Store::in_memory().unwrap().create_table("t").unwrap();
        table.put(&[1, 2], b"abc").unwrap();
        let typed = table.typed::<u16, u32>();
        let error = typed.get(&258).unwrap_err();
        assert!(error.to_string().contains("table \"t\""), "{error}");
        assert!(typed.update(&258, |_| Some(1)).is_err());
        assert_eq!(table.get(&[1, 2]).unwrap().unwrap(), b"abc");
        typed.put(&3, &4).unwrap();
        assert_eq!(typed.iter().unwrap().filter(Result::is_ok).count(), 1);
        typed.update(&3, |old| old.map(|old| old + 1)).unwrap();
        let all: Vec<_> = typed.range(..4).unwrap().map(Result::unwrap).collect();
        assert_eq!(all, [(3, 5)]);
    }

    #[test]
    fn transactions_and_snapshots_take_typed_tables() {
        let store = crate::Store::in_memory().unwrap();
        let typed = store.create_table("t").unwrap().typed::<i32, String>();
        let mut transaction = store.transaction().unwrap();
        typed.put_in(&mut transaction, &-5, &"five".to_owned()).unwrap();
        assert_eq!(typed.get_in(&transaction, &-5).unwrap().as_deref(), Some("five"));
        transaction.commit().unwrap();
        let snapshot = store.snapshot().unwrap();
        assert!(store.retry(|transaction| typed.delete_in(transaction, &-5)).unwrap());
        assert_eq!(typed.get_at(&snapshot, &-5).unwrap().as_deref(), Some("five"));
        assert_eq!(typed.get(&-5).unwrap(), None);
        assert!(!typed.delete(&-5).unwrap());
    }
}
