//! Objects in an object store.

use std::fmt::{self, Debug};
use std::future::Future;
use std::io::{self, Write};
use std::mem;
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, WriteMultipart};
use tokio::runtime::{Builder, Runtime};

use super::{Object, Storage, Upload};

/// Bytes of a part of an object. Stores take up to 10,000 parts, so an object may have 156 GiB; a
/// write beyond fails. An object of less than a part goes in one request.
pub const PART_BYTES: usize = 16 << 20;

/// Parts of an object on their way at once. With the one that is being filled, a writer holds at
/// most 80 MiB.
const PARTS_IN_FLIGHT: usize = 4;

/// How long a writer that is given up waits for the store to forget its parts.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

/// Objects below a prefix of an object store: any [`ObjectStore`], such as S3 and its like.
///
/// Calls block; a small runtime of this process does the waiting, so they may come from any thread,
/// also from one of a pool or of another runtime. Requests that fail for reasons that pass are tried
/// again by the store's client. What is uploaded is visible once it is finished; an upload that is
/// dropped before is aborted.
#[derive(Debug, Clone)]
pub struct ObjectStorage {
    store: Arc<dyn ObjectStore>,
    root: Path,
    address: String,
    part_bytes: usize,
}

impl ObjectStorage {
    /// Objects of `store` below `root`; people see names below `address`.
    pub fn new(store: Arc<dyn ObjectStore>, root: Path, address: &str) -> Self {
        let address = address.trim_end_matches('/').to_owned();
        Self { store, root, address, part_bytes: PART_BYTES }
    }

    /// Uploads in parts of `bytes`; S3 takes none below 5 MiB but the last.
    #[must_use]
    pub fn with_part_bytes(self, bytes: usize) -> Self {
        assert!(bytes > 0, "with_part_bytes: `bytes` is 0, needed at least 1");
        Self { part_bytes: bytes, ..self }
    }

    fn path(&self, name: &str) -> io::Result<Path> {
        let path =
            if name.is_empty() { self.root.to_string() } else { format!("{}/{name}", self.root) };
        Path::parse(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

impl Storage for ObjectStorage {
    fn locate(&self, name: &str) -> String {
        if name.is_empty() { self.address.clone() } else { format!("{}/{name}", self.address) }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Object>> {
        let (store, below, root) = (self.store.clone(), self.path(prefix)?, self.root.clone());
        let mut objects: Vec<Object> = wait(async move {
            let found: Vec<_> = store.list(Some(&below)).try_collect().await?;
            let objects = found.into_iter().filter_map(|meta| {
                let parts = meta.location.prefix_match(&root)?;
                let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
                Some(Object { name, bytes: meta.size })
            });
            Ok(objects.collect())
        })?;
        objects.sort();
        Ok(objects)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        let (store, path) = (self.store.clone(), self.path(name)?);
        wait(async move { Ok(store.head(&path).await?.size) })
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        if range.is_empty() {
            // No request can ask for nothing; whether the object is there can be asked.
            return self.size(name).map(|_| Vec::new());
        }
        let needed = range.end - range.start;
        let (store, path) = (self.store.clone(), self.path(name)?);
        let bytes = wait(async move { store.get_range(&path, range).await })?;
        if bytes.len() as u64 == needed {
            return Ok(bytes.into());
        }
        let problem = format!("{} ends after {} of {needed} bytes", self.locate(name), bytes.len());
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(ObjectUpload {
            store: self.store.clone(),
            path: self.path(name)?,
            part_bytes: self.part_bytes,
            filling: Vec::new(),
            parts: Parts::None,
        }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (store, path) = (self.store.clone(), self.path(name)?);
        wait(async move { store.delete(&path).await })
    }
}

/// An object that is being uploaded.
struct ObjectUpload {
    store: Arc<dyn ObjectStore>,
    path: Path,
    part_bytes: usize,
    filling: Vec<u8>,
    parts: Parts,
}

/// What has been sent of an object.
enum Parts {
    /// Nothing; perhaps it fits in one request.
    None,
    /// Some parts.
    Sent(WriteMultipart),
    /// One could not be sent, and all were given up.
    Failed,
}

impl ObjectUpload {
    /// Sends the part that is full, once there are few enough on their way.
    fn send_part(&mut self) -> io::Result<()> {
        let part = mem::replace(&mut self.filling, Vec::with_capacity(self.part_bytes));
        let parts = mem::replace(&mut self.parts, Parts::Failed);
        let (store, path, part_bytes) = (self.store.clone(), self.path.clone(), self.part_bytes);
        let sent = wait(async move {
            let sent = match parts {
                Parts::Sent(sent) => sent,
                Parts::None | Parts::Failed => {
                    let upload = store.put_multipart(&path).await?;
                    WriteMultipart::new_with_chunk_size(upload, part_bytes)
                }
            };
            send(sent, part).await
        })?;
        self.parts = Parts::Sent(sent);
        Ok(())
    }

    fn failed_before(&self) -> io::Error {
        io::Error::other(format!("an earlier part of {} could not be written", self.path))
    }
}

/// Sends one more part once few enough are on their way. If one could not be sent, all are given up.
async fn send(mut sent: WriteMultipart, part: Vec<u8>) -> object_store::Result<WriteMultipart> {
    if let Err(error) = sent.wait_for_capacity(PARTS_IN_FLIGHT).await {
        // The cause is what matters; parts that stay are the store's to clean up.
        sent.abort().await.ok();
        return Err(error);
    }
    sent.put(part.into());
    Ok(sent)
}

impl Write for ObjectUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.parts, Parts::Failed) {
            return Err(self.failed_before());
        }
        let taken = bytes.len().min(self.part_bytes - self.filling.len());
        self.filling.extend_from_slice(&bytes[..taken]);
        if self.filling.len() == self.part_bytes {
            self.send_part()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for ObjectUpload {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        let rest = mem::take(&mut self.filling);
        let (store, path) = (self.store.clone(), self.path.clone());
        match mem::replace(&mut self.parts, Parts::Failed) {
            Parts::Failed => Err(self.failed_before()),
            Parts::None => wait(async move { store.put(&path, rest.into()).await.map(drop) }),
            Parts::Sent(sent) => {
                wait(async move { send(sent, rest).await?.finish().await.map(drop) })
            }
        }
    }
}

impl Drop for ObjectUpload {
    fn drop(&mut self) {
        if let Parts::Sent(sent) = mem::replace(&mut self.parts, Parts::Failed) {
            // A process that ends right after would leave the parts behind, unseen but paid for.
            wait_at_most(ABORT_LIMIT, async move { sent.abort().await }).ok();
        }
    }
}

impl Debug for ObjectUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectUpload").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The threads that wait for object stores, for the whole process.
///
/// # Panics
/// If the system has no two threads to spare.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(2).thread_name("object-store").enable_all();
        threads.build().expect("two threads for object stores")
    })
}

/// Runs `work` on those threads and waits for it. The caller's thread only sleeps, so that it may
/// belong to another runtime.
fn wait<T: Send + 'static>(
    work: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> io::Result<T> {
    wait_at_most(Duration::MAX, work)
}

fn wait_at_most<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let (done, answer) = sync_channel(1);
    runtime().spawn(async move {
        // Nobody listens where the limit has passed.
        done.send(work.await).ok();
    });
    match answer.recv_timeout(limit) {
        Ok(result) => result.map_err(io_error),
        Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("the client of the object store panicked"))
        }
    }
}

/// The error as one of input and output, of the kind that fits.
fn io_error(error: Error) -> io::Error {
    let kind = match &error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => io::ErrorKind::Unsupported,
        Error::InvalidPath { .. } => io::ErrorKind::InvalidInput,
        other => kind_of_cause(other),
    };
    io::Error::new(kind, error)
}

/// The kind of the first cause that is an error of input and output.
fn kind_of_cause(error: &Error) -> io::ErrorKind {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind();
        }
        cause = error.source();
    }
    io::ErrorKind::Other
}

#[cfg(test)]
mod tests;
