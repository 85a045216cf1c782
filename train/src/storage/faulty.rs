//! A storage whose calls fail by plan, to test what stands on it.
//!
//! ```
//! use std::io::ErrorKind;
//! use std::sync::Arc;
//! use fulmar_train::storage::{Call, Effect, Fault, FaultyStorage, LocalStorage, Storage};
//!
//! let folder = std::env::temp_dir().join("fulmar-faulty-example");
//! let faulty = FaultyStorage::new(Arc::new(LocalStorage::new(&folder)));
//! let storage: &dyn Storage = &faulty;
//! // The disk fills up at the second write and stays full.
//! faulty.plan(Fault::new(Call::Write, Effect::fails(ErrorKind::StorageFull)).from(2));
//! storage.write_all("first", b"1")?;
//! let error = storage.write_all("second", b"2").unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::StorageFull);
//! assert_eq!((faulty.calls(Call::Write), faulty.struck()), (2, 1));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::calls::Calls;
use super::{Call, Object, Storage, Upload};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// By a kind of error.
    Kind(io::ErrorKind),
    /// By an error number of the operating system, such as `libc::ENOSPC`, `EIO`, `EACCES` or
    /// `EROFS`.
    Os(i32),
}

impl Failure {
    fn error(self) -> io::Error {
        match self {
            Self::Kind(kind) => io::Error::new(kind, "injected fault"),
            Self::Os(code) => io::Error::from_raw_os_error(code),
        }
    }
}

impl From<io::ErrorKind> for Failure {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<i32> for Failure {
    fn from(code: i32) -> Self {
        Self::Os(code)
    }
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is done, and the call fails.
    Fails(Failure),
    /// All is done, and the call fails, as when the answer of a server is lost.
    Lost(Failure),
    /// Of a write: its first bytes are written, as many as said, and the call fails.
    Torn {
        /// How many, at most.
        bytes: usize,
        /// How it fails.
        failure: Failure,
    },
    /// It takes this much longer.
    Slow(Duration),
    /// Of a read: one bit of what is read is flipped.
    Flip {
        /// The byte, counted from the beginning of what is read and around its end.
        byte: usize,
        /// The bit, below 8.
        bit: u8,
    },
    /// Of a read: it returns at most this many bytes and no error, which no storage may do.
    Cut(usize),
}

impl Effect {
    /// [`Effect::Fails`] by a kind or a number.
    pub fn fails(failure: impl Into<Failure>) -> Self {
        Self::Fails(failure.into())
    }
}

/// Which calls are struck, and how.
#[derive(Debug, Clone)]
pub struct Fault {
    call: Call,
    effect: Effect,
    name: String,
    first: u64,
    last: u64,
    seen: u64,
}

impl Fault {
    /// Strikes every call of a kind.
    pub fn new(call: Call, effect: Effect) -> Self {
        Self { call, effect, name: String::new(), first: 1, last: u64::MAX, seen: 0 }
    }

    /// Strikes the nth matching call alone, counted from 1 since the fault was planned.
    #[must_use]
    pub fn at(self, nth: u64) -> Self {
        Self { first: nth, last: nth, ..self }
    }

    /// Strikes the nth matching call and all after it.
    #[must_use]
    pub fn from(self, nth: u64) -> Self {
        Self { first: nth, last: u64::MAX, ..self }
    }

    /// Matches only objects, or prefixes of lists, whose name contains `part`.
    #[must_use]
    pub fn on(self, part: &str) -> Self {
        Self { name: part.to_owned(), ..self }
    }

    fn matches(&self, call: Call, name: &str) -> bool {
        self.call == call && name.contains(&self.name)
    }
}

/// Passes calls to another storage, except where a fault strikes. Clones share plan and counts.
#[derive(Debug, Clone)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    plan: Arc<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    calls: Calls,
    faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    planned: Vec<Fault>,
    struck: u64,
}

impl FaultyStorage {
    /// A storage that does what `inner` does until a fault is planned.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// Adds a fault; of several that strike a call, the first planned has its effect.
    pub fn plan(&self, fault: Fault) {
        self.plan.faults().planned.push(fault);
    }

    /// Forgets all faults and counts from zero again.
    pub fn reset(&self) {
        self.plan.calls.reset();
        *self.plan.faults() = Faults::default();
    }

    /// Calls of one kind, whether or not they were struck: a harness counts a save's writes in a
    /// first run, then strikes each of them in turn.
    pub fn calls(&self, call: Call) -> u64 {
        self.plan.calls.of(call)
    }

    /// Calls that were struck.
    pub fn struck(&self) -> u64 {
        self.plan.faults().struck
    }
}

impl Plan {
    fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and says what is to become of it.
    fn strike(&self, call: Call, name: &str) -> Option<Effect> {
        self.calls.count(call);
        let mut faults = self.faults();
        let mut effect = None;
        for fault in faults.planned.iter_mut().filter(|fault| fault.matches(call, name)) {
            fault.seen += 1;
            if (fault.first..=fault.last).contains(&fault.seen) {
                effect = effect.or(Some(fault.effect));
            }
        }
        faults.struck += u64::from(effect.is_some());
        effect
    }

    /// Makes a call, or what becomes of it.
    fn call<T>(
        &self,
        call: Call,
        name: &str,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let effect = self.strike(call, name);
        around(effect, make)
    }
}

/// The effects that any call may have; those of reads and writes alone leave others as they are.
fn around<T>(effect: Option<Effect>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match effect {
        Some(Effect::Fails(failure)) => Err(failure.error()),
        Some(Effect::Lost(failure)) => make().and(Err(failure.error())),
        Some(Effect::Slow(time)) => {
            std::thread::sleep(time);
            make()
        }
        Some(Effect::Torn { .. } | Effect::Flip { .. } | Effect::Cut(_)) | None => make(),
    }
}

impl Storage for FaultyStorage {
    fn locate(&self, name: &str) -> String {
        self.inner.locate(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Object>> {
        self.plan.call(Call::List, prefix, || self.inner.list(prefix))
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        self.plan.call(Call::Size, name, || self.inner.size(name))
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let effect = self.plan.strike(Call::Read, name);
        let mut bytes = around(effect, || self.inner.read(name, range))?;
        match effect {
            Some(Effect::Flip { byte, bit }) if !bytes.is_empty() => {
                let byte = byte % bytes.len();
                bytes[byte] ^= 1 << (bit % 8);
            }
            Some(Effect::Cut(len)) => bytes.truncate(len),
            _ => {}
        }
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let inner = self.plan.call(Call::Create, name, || self.inner.create(name))?;
        Ok(Box::new(FaultyUpload { inner, name: name.to_owned(), plan: self.plan.clone() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.plan.call(Call::Remove, name, || self.inner.remove(name))
    }
}

struct FaultyUpload {
    inner: Box<dyn Upload>,
    name: String,
    plan: Arc<Plan>,
}

impl Write for FaultyUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.plan.strike(Call::Write, &self.name) {
            Some(Effect::Torn { bytes: written, failure }) => {
                self.inner.write_all(&bytes[..written.min(bytes.len())])?;
                Err(failure.error())
            }
            effect => around(effect, || self.inner.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Upload for FaultyUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let Self { inner, name, plan } = *self;
        plan.call(Call::Finish, &name, || inner.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::storage::LocalStorage;

    fn faulty() -> (tempfile::TempDir, FaultyStorage) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage = FaultyStorage::new(Arc::new(LocalStorage::new(folder.path())));
        (folder, storage)
    }

    #[test]
    fn the_call_that_was_planned_fails_and_no_other() {
        let (_folder, faulty) = faulty();
        let storage: &dyn Storage = &faulty;
        storage.write_all("kept", b"kept").expect("no fault yet");
        let attempts: [(Call, &dyn Fn() -> io::Result<()>); 7] = [
            (Call::List, &|| storage.list("").map(drop)),
            (Call::Size, &|| storage.size("kept").map(drop)),
            (Call::Read, &|| storage.read("kept", 0..4).map(drop)),
            (Call::Create, &|| storage.write_all("new", b"new")),
            (Call::Write, &|| storage.write_all("new", b"new")),
            (Call::Finish, &|| storage.write_all("new", b"new")),
            (Call::Remove, &|| {
                storage.write_all("new", b"new")?;
                storage.remove("new")
            }),
        ];
        for (call, attempt) in attempts {
            faulty.reset();
            faulty.plan(Fault::new(call, Effect::fails(28)).at(2));
            attempt().unwrap_or_else(|error| panic!("{call:?}, the first: {error}"));
            let error = attempt().expect_err("the second");
            assert_eq!(error.raw_os_error(), Some(28), "{call:?}");
            attempt().unwrap_or_else(|error| panic!("{call:?}, the third: {error}"));
            assert_eq!((faulty.calls(call), faulty.struck()), (3, 1), "{call:?}");
        }
    }

    #[test]
    fn a_fault_counts_the_objects_it_is_planned_on() {
        let (_folder, faulty) = faulty();
        let storage: &dyn Storage = &faulty;
        let full = Effect::fails(io::ErrorKind::StorageFull);
        faulty.plan(Fault::new(Call::Write, full).on("shard").from(2));
        for (name, fails) in
            [("a", false), ("shard-0", false), ("a", false), ("shard-1", true), ("shard-2", true)]
        {
            let written = storage.write_all(name, b"bytes");
            assert_eq!(written.is_err(), fails, "{name}");
        }
        assert_eq!((faulty.calls(Call::Write), faulty.struck()), (5, 2));
    }

    #[test]
    fn a_torn_write_leaves_a_part_and_a_lost_answer_the_whole() {
        let (_folder, faulty) = faulty();
        let storage: &dyn Storage = &faulty;
        let failure = Failure::Os(5);
        faulty.plan(Fault::new(Call::Write, Effect::Torn { bytes: 3, failure }).on("torn"));
        assert_eq!(storage.write_all("torn", b"12345").expect_err("torn").raw_os_error(), Some(5));
        assert_eq!(storage.read_all("torn").expect("the part"), b"123");
        faulty.plan(Fault::new(Call::Finish, Effect::Lost(failure)).on("lost"));
        storage.write_all("lost", b"12345").expect_err("no answer");
        assert_eq!(storage.read_all("lost").expect("all of it"), b"12345");
    }

    #[test]
    fn reads_may_be_altered_cut_short_or_slow() {
        let (_folder, faulty) = faulty();
        let storage: &dyn Storage = &faulty;
        storage.write_all("a", b"\0\0\0").expect("written");
        faulty.plan(Fault::new(Call::Read, Effect::Flip { byte: 4, bit: 3 }).at(1));
        faulty.plan(Fault::new(Call::Read, Effect::Cut(2)).at(2));
        faulty.plan(Fault::new(Call::Read, Effect::Slow(Duration::from_millis(30))).at(3));
        let read = || storage.read("a", 0..3).expect("read");
        assert_eq!(read(), [0, 8, 0]);
        assert_eq!(read(), [0, 0]);
        let started = Instant::now();
        assert_eq!(read(), [0, 0, 0]);
        assert!(started.elapsed() >= Duration::from_millis(30));
        assert_eq!(read(), [0, 0, 0]);
    }
}
