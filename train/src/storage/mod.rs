//! Where checkpoints lie: one small trait for files, object stores and tests that inject faults.
//!
//! Objects are named by paths with `/` below the storage's root. They are written from beginning to
//! end and never changed; nothing is renamed, and only pruning removes anything, so a target that
//! denies both still takes checkpoints.

mod local;
mod object;
mod open;
mod past_cache;

#[cfg(feature = "cloud")]
mod cloud;

mod calls;
mod counting;
mod faulty;

pub use calls::Call;
pub use counting::CountingStorage;
pub use faulty::{Effect, Failure, Fault, FaultyStorage};
pub use local::LocalStorage;
pub use object::{ObjectStorage, PART_BYTES};
pub use open::open_storage;
pub(crate) use open::storage_of_run;
pub(crate) use past_cache::BUFFER_BYTES as FILE_BUFFER_BYTES;

/// The client of object stores, for those who bring one of their own to [`ObjectStorage`]. One that
/// speaks TLS needs a provider of ciphers for the process first, such as
/// `rustls::crypto::ring::default_provider().install_default()`; [`open_storage`] does that itself.
pub use object_store;

use std::fmt::Debug;
use std::io::{self, Write};
use std::ops::Range;

/// A place for checkpoints. Shared by the ranks of a process and by threads that save.
pub trait Storage: Debug + Send + Sync {
    /// Path or address of an object, for people; of the root where `name` is empty.
    fn locate(&self, name: &str) -> String;

    /// Every object below `prefix`, a folder without its last `/` or empty for all, in the order of
    /// names. A prefix without objects is an empty list.
    ///
    /// # Errors
    /// If the place cannot be listed.
    fn list(&self, prefix: &str) -> io::Result<Vec<Object>>;

    /// Size of an object in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none, or whatever keeps it from being asked for.
    fn size(&self, name: &str) -> io::Result<u64>;

    /// The bytes of an object in `range`, all of them or an error.
    ///
    /// # Errors
    /// If the object is missing, ends before the range does
    /// ([`io::ErrorKind::UnexpectedEof`]), or cannot be read.
    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// As [`read`](Self::read) of as many bytes from `start` on as `into` has room for, to where they
    /// are wanted.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_into(&self, name: &str, start: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.read(name, start..start + into.len() as u64)?);
        Ok(())
    }

    /// Begins to write an object. It is there when [`Upload::finish`] has returned, and a writer
    /// that is dropped before leaves nothing that a reader would take for whole.
    ///
    /// # Errors
    /// If nothing can be written there.
    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>>;

    /// Removes an object.
    ///
    /// # Errors
    /// If removing is denied, or the object is missing and the place can tell: S3 cannot.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// An object that is being written.
pub trait Upload: Write + Send {
    /// Makes the object durable: it survives a loss of power when this has returned.
    ///
    /// # Errors
    /// If any of it could not be written.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// An object as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its name below the storage's root.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl dyn Storage + '_ {
    /// All bytes of an object.
    ///
    /// # Errors
    /// As [`Storage::read`].
    pub fn read_all(&self, name: &str) -> io::Result<Vec<u8>> {
        let size = self.size(name)?;
        self.read(name, 0..size)
    }

    /// Writes an object in one go.
    ///
    /// # Errors
    /// As [`Storage::create`] and [`Upload::finish`].
    pub fn write_all(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut upload = self.create(name)?;
        upload.write_all(bytes)?;
        upload.finish()
    }
}
