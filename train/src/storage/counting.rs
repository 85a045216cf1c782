//! A storage that counts: how much was read for what was needed.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::calls::Calls;
use super::{Call, Object, Storage, Upload};

/// Counts the bytes and calls that pass to another storage. Clones share their counts.
#[derive(Debug, Clone)]
pub struct CountingStorage {
    inner: Arc<dyn Storage>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: Calls,
    read: AtomicU64,
    written: AtomicU64,
}

impl CountingStorage {
    /// Counts what is asked of `inner`.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, counts: Arc::default() }
    }

    /// Calls of one kind, failed ones included.
    pub fn calls(&self, call: Call) -> u64 {
        self.counts.calls.of(call)
    }

    /// Bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        self.counts.read.load(Ordering::Relaxed)
    }

    /// Bytes that were written, whether or not their objects were finished.
    pub fn bytes_written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Counts from zero again.
    pub fn reset(&self) {
        self.counts.calls.reset();
        self.counts.read.store(0, Ordering::Relaxed);
        self.counts.written.store(0, Ordering::Relaxed);
    }
}

impl Storage for CountingStorage {
    fn locate(&self, name: &str) -> String {
        self.inner.locate(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Object>> {
        self.counts.calls.count(Call::List);
        self.inner.list(prefix)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        self.counts.calls.count(Call::Size);
        self.inner.size(name)
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.counts.calls.count(Call::Read);
        let bytes = self.inner.read(name, range)?;
        self.counts.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        self.counts.calls.count(Call::Create);
        let inner = self.inner.create(name)?;
        Ok(Box::new(CountingUpload { inner, counts: self.counts.clone() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.counts.calls.count(Call::Remove);
        self.inner.remove(name)
    }
}

struct CountingUpload {
    inner: Box<dyn Upload>,
    counts: Arc<Counts>,
}

impl Write for CountingUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.counts.calls.count(Call::Write);
        let written = self.inner.write(bytes)?;
        self.counts.written.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Upload for CountingUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.counts.calls.count(Call::Finish);
        self.inner.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;

    #[test]
    fn bytes_and_calls_are_counted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let counting = CountingStorage::new(Arc::new(LocalStorage::new(folder.path())));
        let storage: &dyn Storage = &counting;
        storage.write_all("a", b"12345").expect("written");
        assert_eq!(storage.read_all("a").expect("read"), b"12345");
        storage.read("a", 1..3).expect("read");
        storage.read("none", 0..9).expect_err("there is none");
        assert_eq!((counting.bytes_written(), counting.bytes_read()), (5, 7));
        assert_eq!(counting.calls(Call::Read), 3);
        assert_eq!(
            [Call::Create, Call::Write, Call::Finish].map(|call| counting.calls(call)),
            [1; 3]
        );
        counting.reset();
        assert!(Call::ALL.iter().all(|call| counting.calls(*call) == 0));
        assert_eq!((counting.bytes_written(), counting.bytes_read()), (0, 0));
    }
}
