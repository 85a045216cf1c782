//! Storages that count, fail or wait.

use std::fmt::{self, Debug};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use fulmar::train::storage::{Object, Storage, Upload};

/// A storage whose reads are counted and whose writes ask first.
pub(crate) struct Watched {
    inner: Arc<dyn Storage>,
    /// Bytes read so far.
    pub(crate) read: AtomicU64,
    /// Asked with an object's name before it is created; an error is the answer of the storage.
    before_write: BeforeWrite,
}

type BeforeWrite = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

impl Watched {
    pub(crate) fn counting(inner: Arc<dyn Storage>) -> Arc<Self> {
        Self::asking(inner, |_| Ok(()))
    }

    pub(crate) fn asking(
        inner: Arc<dyn Storage>,
        before_write: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let before_write = Box::new(before_write);
        Arc::new(Self { inner, read: AtomicU64::new(0), before_write })
    }
}

impl Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.inner)
    }
}

impl Storage for Watched {
    fn locate(&self, name: &str) -> String {
        self.inner.locate(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Object>> {
        self.inner.list(prefix)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        self.inner.size(name)
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let bytes = self.inner.read(name, range)?;
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        (self.before_write)(name)?;
        self.inner.create(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
}

/// A door that is closed at first; whoever waits goes on when it is open.
#[derive(Debug, Default, Clone)]
pub(crate) struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    pub(crate) fn wait(&self) {
        let (open, opened) = &*self.0;
        let open = open.lock().expect("no panic");
        drop(opened.wait_while(open, |open| !*open).expect("no panic"));
    }

    pub(crate) fn open(&self) {
        let (open, opened) = &*self.0;
        *open.lock().expect("no panic") = true;
        opened.notify_all();
    }
}

/// The answer of a disk that is full.
pub(crate) fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}
