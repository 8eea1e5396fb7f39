//! What workloads run against: anything that maps byte strings to byte strings, a table of a store
//! above all.

use std::sync::Arc;

use lapis::Error;
use lapis_device::Modelled;
use lapis_engine::{Durability, Engine, EngineError};

/// A durable map from keys to values. Every method may be called from many threads, and a change is
/// durable when the call returns.
pub trait KeyValue: Sync {
    /// A value as it is handed out.
    type Value: AsRef<[u8]>;
    /// Why a call failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The value of `key`.
    ///
    /// # Errors
    /// The target's own.
    fn read(&self, key: &[u8]) -> Result<Option<Self::Value>, Self::Error>;

    /// Adds or replaces `key`.
    ///
    /// # Errors
    /// The target's own.
    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;

    /// Changes the value of `key`, keeping its length; false if there is none. Nobody else changes
    /// it between the read and the write: if somebody does, `change` is called again.
    ///
    /// # Errors
    /// The target's own.
    fn modify(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, Self::Error>;

    /// Visits the first `limit` entries from `from` on, in key order.
    ///
    /// # Errors
    /// The target's own.
    fn scan(
        &self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Self::Error>;

    /// Visits every entry once, in any order.
    ///
    /// # Errors
    /// The target's own.
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Self::Error>;
}

impl KeyValue for lapis::Table {
    type Value = Vec<u8>;
    type Error = Error;

    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.get(key)
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, value)
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, Error> {
        let mut found = false;
        self.update(key, |old| {
            found = old.is_some();
            let mut value = old?.to_vec();
            change(&mut value);
            Some(value)
        })?;
        Ok(found)
    }

    fn scan(
        &self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        for entry in self.range(from..)?.take(limit) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        for entry in self.iter()? {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }
}

/// A table of the engine on the modelled machine.
#[derive(Debug)]
pub struct ModelledTable {
    pub(crate) engine: Engine<Modelled>,
    pub(crate) table: Arc<lapis_engine::Table<Modelled>>,
}

impl KeyValue for ModelledTable {
    type Value = Vec<u8>;
    type Error = EngineError;

    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.engine.get(&self.table, key)
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.engine.put(&self.table, key, value, Durability::Immediate).map(|_| ())
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Result<bool, EngineError> {
        let body = |transaction: &mut lapis_engine::Transaction<Modelled>| {
            let Some(mut value) = transaction.get(&self.table, key)? else { return Ok(false) };
            change(&mut value);
            transaction.put(&self.table, key, &value)?;
            Ok(true)
        };
        self.engine.retry(body, Durability::Immediate)
    }

    fn scan(
        &self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        for entry in self.engine.range(&self.table, from..)?.take(limit) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), EngineError> {
        for entry in self.engine.range::<&[u8]>(&self.table, ..)? {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod volatile {
    //! A target that cannot fail, to test workloads with, and that can be made to misbehave.

    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::KeyValue;

    #[derive(Debug, Default)]
    pub(crate) struct Volatile {
        pub(crate) entries: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
        /// Every write whose number (from 1) is a multiple of this is acknowledged and lost.
        pub(crate) loses_every: Option<u64>,
        writes: AtomicU64,
    }

    impl Volatile {
        fn loses_this(&self) -> bool {
            let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
            self.loses_every.is_some_and(|every| number.is_multiple_of(every))
        }
    }

    impl KeyValue for Volatile {
        type Value = Vec<u8>;
        type Error = Infallible;

        fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
            Ok(self.entries.lock().unwrap().get(key).cloned())
        }

        fn write(&self, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
            if !self.loses_this() {
                self.entries.lock().unwrap().insert(key.to_vec(), value.to_vec());
            }
            Ok(())
        }

        fn modify(
            &self,
            key: &[u8],
            change: &mut dyn FnMut(&mut [u8]),
        ) -> Result<bool, Infallible> {
            let loses_this = self.loses_this();
            let mut entries = self.entries.lock().unwrap();
            let Some(value) = entries.get_mut(key) else { return Ok(false) };
            let mut changed = value.clone();
            change(&mut changed);
            if !loses_this {
                *value = changed;
            }
            Ok(true)
        }

        fn scan(
            &self,
            from: &[u8],
            limit: usize,
            visit: &mut dyn FnMut(&[u8], &[u8]),
        ) -> Result<(), Infallible> {
            let entries = self.entries.lock().unwrap();
            for (key, value) in entries.range(from.to_vec()..).take(limit) {
                visit(key, value);
            }
            Ok(())
        }

        fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Infallible> {
            self.entries.lock().unwrap().iter().for_each(|(key, value)| visit(key, value));
            Ok(())
        }
    }
}
