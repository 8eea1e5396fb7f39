//! RocksDB, of the system's package, by its C interface (`rocksdb/c.h` of 7.8; it has had these functions for long).

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null_mut, slice_from_raw_parts};

use super::peer::{OnEntry, OpenOptions, Peer, PeerError, Reads, Record};

/// What its other objects are to us.
type Handle = *mut c_void;
/// Where a function says what went wrong: a string of `malloc`, or null as before.
type Failure = *mut *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_destroy(options: Handle);
    fn rocksdb_options_set_create_if_missing(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, tables: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(tables: Handle);
    fn rocksdb_block_based_options_set_block_cache(tables: Handle, cache: Handle);
    fn rocksdb_block_based_options_set_filter_policy(tables: Handle, policy: Handle);
    fn rocksdb_filterpolicy_create_bloom(bits_per_key: f64) -> Handle;
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_cache_destroy(cache: Handle);
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_destroy(options: Handle);
    fn rocksdb_writeoptions_set_sync(options: Handle, yes: c_uchar);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_open(options: Handle, path: *const c_char, failure: Failure) -> Handle;
    fn rocksdb_close(database: Handle);
    fn rocksdb_flush_wal(database: Handle, sync: c_uchar, failure: Failure);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    );
    fn rocksdb_write(database: Handle, options: Handle, batch: Handle, failure: Failure);
    fn rocksdb_get_pinned(
        database: Handle,
        options: Handle,
        key: *const u8,
        key_bytes: usize,
        failure: Failure,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, bytes: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_create_iterator(database: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_iter_seek(iterator: Handle, key: *const u8, key_bytes: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, bytes: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Handle, bytes: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: Handle, failure: Failure);
    fn rocksdb_free(memory: *mut c_void);
}

/// Blocks are stored as they are, as those of the others are.
const NO_COMPRESSION: c_int = 0;
/// Of a filter, as its manual advises and as fjall has by default.
const FILTER_BITS_PER_KEY: f64 = 10.0;

/// An object of the library, until it is dropped.
struct Owned {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle),
}

// SAFETY: databases and options may be used by several threads at a time, as its manual says; nothing else that
// is owned is shared or sent.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn new(handle: Handle, destroy: unsafe extern "C" fn(Handle)) -> Self {
        Self { handle, destroy }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that belongs to `destroy`, and is destroyed once.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// Calls what may fail.
fn checked<T>(call: impl FnOnce(Failure) -> T) -> Result<T, PeerError> {
    let mut failure = null_mut();
    let done = call(&raw mut failure);
    if failure.is_null() {
        return Ok(done);
    }
    // SAFETY: it is a string that ends with a zero, and ours to free.
    let what = unsafe { CStr::from_ptr(failure) }.to_string_lossy().into_owned();
    // SAFETY: as above; nobody uses it any more.
    unsafe { rocksdb_free(failure.cast()) };
    Err(what.into())
}

/// The bytes that a function of the library tells of an object.
///
/// # Safety
/// The object is one of that function's, and does not change as long as the bytes are used.
unsafe fn bytes_of<'b>(
    of: unsafe extern "C" fn(Handle, *mut usize) -> *const u8,
    handle: Handle,
) -> &'b [u8] {
    let mut bytes = 0;
    // SAFETY: the caller says so; there are as many bytes as it says.
    unsafe {
        let first = of(handle, &raw mut bytes);
        if bytes == 0 { &[] } else { &*slice_from_raw_parts(first, bytes) }
    }
}

struct Rocksdb {
    // Closed before what it uses is destroyed.
    database: Owned,
    writing: Owned,
    reading: Owned,
}

pub(super) fn open(options: &OpenOptions<'_>) -> Result<Box<dyn Peer>, PeerError> {
    let path = CString::new(options.directory.as_os_str().as_bytes())?;
    // SAFETY: each object is given to functions of its kind, and outlives them; the tables' options and the
    // database keep what they need of others. A filter belongs to who it is given to.
    unsafe {
        let with = Owned::new(rocksdb_options_create(), rocksdb_options_destroy);
        let tables =
            Owned::new(rocksdb_block_based_options_create(), rocksdb_block_based_options_destroy);
        let cache = rocksdb_cache_create_lru(options.cache_bytes as usize);
        let cache = Owned::new(cache, rocksdb_cache_destroy);
        rocksdb_block_based_options_set_block_cache(tables.handle, cache.handle);
        let filter = rocksdb_filterpolicy_create_bloom(FILTER_BITS_PER_KEY);
        rocksdb_block_based_options_set_filter_policy(tables.handle, filter);
        rocksdb_options_set_block_based_table_factory(with.handle, tables.handle);
        rocksdb_options_set_create_if_missing(with.handle, 1);
        rocksdb_options_set_compression(with.handle, NO_COMPRESSION);
        let writing = Owned::new(rocksdb_writeoptions_create(), rocksdb_writeoptions_destroy);
        rocksdb_writeoptions_set_sync(writing.handle, options.durable.into());
        let reading = Owned::new(rocksdb_readoptions_create(), rocksdb_readoptions_destroy);
        let database = checked(|failure| rocksdb_open(with.handle, path.as_ptr(), failure))?;
        Ok(Box::new(Rocksdb { database: Owned::new(database, rocksdb_close), writing, reading }))
    }
}

impl Peer for Rocksdb {
    fn read(
        &self,
        with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        with(&mut &*self)
    }

    fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError> {
        // SAFETY: the batch is ours, and copies what it is given.
        unsafe {
            let batch = Owned::new(rocksdb_writebatch_create(), rocksdb_writebatch_destroy);
            for (key, value) in records {
                let [(key, key_bytes), (value, value_bytes)] =
                    [key, value].map(|bytes| (bytes.as_ptr(), bytes.len()));
                rocksdb_writebatch_put(batch.handle, key, key_bytes, value, value_bytes);
            }
            let (database, writing) = (self.database.handle, self.writing.handle);
            checked(|failure| rocksdb_write(database, writing, batch.handle, failure))
        }
    }

    fn sync(&self) -> Result<(), PeerError> {
        // SAFETY: the database is open.
        checked(|failure| unsafe { rocksdb_flush_wal(self.database.handle, 1, failure) })
    }

    fn close(self: Box<Self>) -> Result<(), PeerError> {
        self.sync()
    }
}

impl Reads for &Rocksdb {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError> {
        let (database, reading) = (self.database.handle, self.reading.handle);
        value.clear();
        // SAFETY: the database is open. What is found stays as it is until it is destroyed.
        unsafe {
            let found = checked(|failure| {
                rocksdb_get_pinned(database, reading, key.as_ptr(), key.len(), failure)
            })?;
            if found.is_null() {
                return Ok(false);
            }
            let found = Owned::new(found, rocksdb_pinnableslice_destroy);
            value.extend_from_slice(bytes_of(rocksdb_pinnableslice_value, found.handle));
        }
        Ok(true)
    }

    fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError> {
        // SAFETY: the database is open as long as the iterator is there, which nobody else has. Key and value stay as
        // they are until it moves on, and are asked for where it is at an entry.
        unsafe {
            let iterator = rocksdb_create_iterator(self.database.handle, self.reading.handle);
            let iterator = Owned::new(iterator, rocksdb_iter_destroy);
            rocksdb_iter_seek(iterator.handle, from.as_ptr(), from.len());
            for _ in 0..count {
                if rocksdb_iter_valid(iterator.handle) == 0 {
                    break;
                }
                let key = bytes_of(rocksdb_iter_key, iterator.handle);
                show(key, bytes_of(rocksdb_iter_value, iterator.handle));
                rocksdb_iter_next(iterator.handle);
            }
            checked(|failure| rocksdb_iter_get_error(iterator.handle, failure))
        }
    }
}
