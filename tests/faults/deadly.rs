//! A storage that remembers what it was asked, and one day kills its own process.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use fulmar::train::storage::{Call, Object, Storage, Upload};
use serde::{Deserialize, Serialize};

/// A call of a run, and which of its like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Its kind, by its place in [`Call::ALL`].
    call: usize,
    /// The object.
    pub(crate) name: String,
    /// From 1, among calls of this kind for this object.
    pub(crate) nth: u64,
}

impl Place {
    pub(crate) fn call(&self) -> Call {
        Call::ALL[self.call]
    }

    pub(crate) fn is(&self, call: Call) -> bool {
        self.call() == call
    }
}

/// When within a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Moment {
    Before,
    /// Of a write: when half of it is written.
    Middle,
    After,
}

impl Moment {
    pub(crate) const ALL: [Self; 3] = [Self::Before, Self::Middle, Self::After];
}

/// Where the process dies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Death {
    pub(crate) place: Place,
    pub(crate) moment: Moment,
}

/// Passes calls on until the one that kills.
#[derive(Debug, Clone)]
pub(crate) struct Deadly {
    inner: Arc<dyn Storage>,
    death: Option<Arc<Death>>,
    calls: Arc<Mutex<Vec<Place>>>,
}

impl Deadly {
    pub(crate) fn new(inner: Arc<dyn Storage>, death: Option<Death>) -> Self {
        Self { inner, death: death.map(Arc::new), calls: Arc::default() }
    }

    /// All calls so far, in their order.
    pub(crate) fn calls(&self) -> Vec<Place> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn enter(&self, call: Call, name: &str) -> Place {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let like = calls.iter().filter(|place| place.is(call) && place.name == name).count();
        let (call, name) = (call as usize, name.to_owned());
        let place = Place { call, name, nth: like as u64 + 1 };
        calls.push(place.clone());
        drop(calls);
        self.pass(&place, Moment::Before);
        place
    }

    fn pass(&self, place: &Place, moment: Moment) {
        if self.death.as_ref().is_some_and(|death| death.moment == moment && death.place == *place)
        {
            signal_hook::low_level::raise(signal_hook::consts::SIGKILL).expect("a signal");
            // Until it comes.
            loop {
                std::thread::park();
            }
        }
    }

    fn around<T>(&self, call: Call, name: &str, make: impl FnOnce() -> T) -> T {
        let place = self.enter(call, name);
        let made = make();
        self.pass(&place, Moment::After);
        made
    }
}

impl Storage for Deadly {
    fn locate(&self, name: &str) -> String {
        self.inner.locate(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Object>> {
        self.around(Call::List, prefix, || self.inner.list(prefix))
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        self.around(Call::Size, name, || self.inner.size(name))
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.around(Call::Read, name, || self.inner.read(name, range))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let inner = self.around(Call::Create, name, || self.inner.create(name))?;
        Ok(Box::new(DeadlyUpload { inner, name: name.to_owned(), storage: self.clone() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.around(Call::Remove, name, || self.inner.remove(name))
    }
}

struct DeadlyUpload {
    inner: Box<dyn Upload>,
    name: String,
    storage: Deadly,
}

impl Write for DeadlyUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let place = self.storage.enter(Call::Write, &self.name);
        // In one piece where nobody dies: other faults count its calls.
        if self.storage.death.is_none() {
            return self.inner.write(bytes);
        }
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.inner.write_all(first)?;
        self.storage.pass(&place, Moment::Middle);
        self.inner.write_all(second)?;
        self.storage.pass(&place, Moment::After);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Upload for DeadlyUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let Self { inner, name, storage } = *self;
        storage.around(Call::Finish, &name, || inner.finish())
    }
}
