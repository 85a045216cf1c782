//! Digests of what a state is, however it is spread over files.

use std::collections::BTreeMap;

use super::manifest::{FileEntry, Kind};
use super::slices;

/// A digest of all weights and one of the whole state, which depend on neither layout nor files.
///
/// Over the checksums of units in the order of names and, within a stack, of global experts.
pub fn of_files(files: &BTreeMap<String, FileEntry>) -> Digests {
    let mut units = BTreeMap::new();
    for (name, tensor) in files.values().flat_map(|file| &file.tensors) {
        let (of, first) =
            slices::parse(name).map_or((&name[..], 0), |(of, range)| (of, range.start));
        for (unit, checksum) in tensor.units.iter().enumerate() {
            units.insert((of, first + unit), (tensor.kind, &checksum[..]));
        }
    }
    let (mut weights, mut state) = (blake3::Hasher::new(), blake3::Hasher::new());
    for ((name, unit), (kind, checksum)) in units {
        let line = format!("{name} {unit} {checksum}\n");
        state.update(line.as_bytes());
        if kind == Kind::Weight {
            weights.update(line.as_bytes());
        }
    }
    let [weights, state] = [weights, state].map(|hasher| hasher.finalize().to_hex().to_string());
    Digests { weights, state }
}

/// See [`of_files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// Of all weights.
    pub weights: String,
    /// Of weights, moments and pending balance.
    pub state: String,
}
