//! A sample of bounded size that depends on the documents alone, not on their order.

use std::collections::BTreeMap;

use crate::ngrams;
use crate::{Document, shuffle::derive_seed};

/// Keeps the items of the least keys.
///
/// A key is a hash of seed, file and record, so that every sample of `capacity` documents is as
/// likely as every other.
pub(super) struct Sample<T> {
    seed: u64,
    capacity: usize,
    items: BTreeMap<(u64, String, u64), T>,
    seen: u64,
}

impl<T> Sample<T> {
    pub(super) fn new(seed: u64, capacity: usize) -> Self {
        Self { seed, capacity, items: BTreeMap::new(), seen: 0 }
    }

    /// Takes a document in or passes it over; `make` is asked only if it is taken in.
    pub(super) fn offer(&mut self, document: &Document, make: impl FnOnce() -> T) {
        self.seen += 1;
        let key = key(self.seed, document);
        let is_full = self.items.len() == self.capacity;
        if is_full && self.items.last_key_value().is_none_or(|(last, _)| *last <= key) {
            return;
        }
        self.items.insert(key, make());
        if is_full {
            self.items.pop_last();
        }
    }

    /// Documents that were offered.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// The sample in the order of its keys, which is as good as shuffled.
    pub(super) fn into_items(self) -> Vec<T> {
        self.items.into_values().collect()
    }
}

/// A hash of seed, file and record, and these to tell equal hashes apart.
pub(super) fn key(seed: u64, document: &Document) -> (u64, String, u64) {
    let hash = derive_seed(seed, &[ngrams::whole(&document.file), document.record]);
    (hash, document.file.to_string(), document.record)
}
