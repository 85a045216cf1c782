//! The checkpoints of a storage as they lie there, whole or not.

use std::collections::BTreeMap;
use std::io;

use super::{MANIFEST, file_name};
use crate::storage::{Object, Storage};

/// A folder of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFolder {
    /// Its step.
    pub step: u64,
    /// What lies in it.
    pub objects: Vec<Object>,
}

impl StepFolder {
    /// Whether it has a manifest, without which it is no checkpoint.
    pub fn has_manifest(&self) -> bool {
        let manifest = manifest_of(self.step);
        self.objects.iter().any(|object| object.name == manifest)
    }

    /// Bytes of all its objects.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }
}

/// Every folder of a step in `storage`, in their order.
///
/// # Errors
/// If the storage cannot be listed.
pub fn step_folders(storage: &dyn Storage) -> io::Result<Vec<StepFolder>> {
    let mut folders: BTreeMap<u64, Vec<Object>> = BTreeMap::new();
    for object in storage.list("")? {
        if let Some(step) = step_of(&object.name) {
            folders.entry(step).or_default().push(object);
        }
    }
    Ok(folders.into_iter().map(|(step, objects)| StepFolder { step, objects }).collect())
}

/// The name of the manifest of a step.
pub(super) fn manifest_of(step: u64) -> String {
    file_name(step, MANIFEST)
}

/// The step in whose folder an object lies.
fn step_of(name: &str) -> Option<u64> {
    let (folder, _) = name.split_once('/')?;
    folder.strip_prefix("step-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;

    #[test]
    fn folders_are_told_apart_by_step_and_manifest() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage: &dyn Storage = &LocalStorage::new(folder.path());
        let names = [
            "step-00000020/shard",
            "step-00000020/manifest.json",
            "step-123456789/manifest.json",
            "step-00000007/shard",
            "step-00000007/part/manifest.json",
            "pins/step-00000007-1.json",
            "rehearsal/attempt-1/manifest.json",
            "step-new/manifest.json",
            "step-00000008",
        ];
        for name in names {
            storage.write_all(name, b"1234").expect("written");
        }
        let folders = step_folders(storage).expect("listed");
        let found: Vec<_> = folders.iter().map(|f| (f.step, f.has_manifest(), f.bytes())).collect();
        assert_eq!(found, [(7, false, 8), (20, true, 8), (123_456_789, true, 4)]);
    }
}
