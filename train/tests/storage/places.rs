//! Places that every build has.

use std::io::Write as _;
use std::sync::Arc;

use fulmar_train::storage::object_store::local::LocalFileSystem;
use fulmar_train::storage::object_store::memory::InMemory;
use fulmar_train::storage::object_store::path::Path;
use fulmar_train::storage::{CountingStorage, FaultyStorage, LocalStorage, ObjectStorage, Storage};

use super::contract::keeps_its_promises;

const PART_BYTES: usize = 1_000;

fn in_memory() -> ObjectStorage {
    let store = Arc::new(InMemory::new());
    ObjectStorage::new(store, Path::from("of/run"), "memory://of/run").with_part_bytes(PART_BYTES)
}

#[test]
fn files_keep_the_promises() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    keeps_its_promises(&LocalStorage::new(folder.path().join("root")), PART_BYTES);
}

#[test]
fn an_object_store_keeps_the_promises() {
    keeps_its_promises(&in_memory(), PART_BYTES);
    let store = Arc::new(InMemory::new());
    let at_the_root = ObjectStorage::new(store, Path::from(""), "memory://");
    keeps_its_promises(&at_the_root.with_part_bytes(PART_BYTES), PART_BYTES);
}

#[test]
fn an_object_store_of_files_keeps_the_promises_and_its_folder_clean() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = LocalFileSystem::new_with_prefix(folder.path()).expect("a folder");
    let storage = ObjectStorage::new(Arc::new(store), Path::from("of/run"), "local");
    let storage = storage.with_part_bytes(PART_BYTES);
    keeps_its_promises(&storage, PART_BYTES);

    let mut upload = storage.create("given-up").expect("created");
    upload.write_all(&[1; 5 * PART_BYTES]).expect("written");
    drop(upload);
    assert_eq!(storage.list("").expect("listed"), []);
    let left: Vec<_> = files_below(folder.path());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn storages_that_watch_or_wait_for_faults_keep_the_promises() {
    keeps_its_promises(&CountingStorage::new(Arc::new(in_memory())), PART_BYTES);
    keeps_its_promises(&FaultyStorage::new(Arc::new(in_memory())), PART_BYTES);
}

fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry"));
    let (folders, files): (Vec<_>, Vec<_>) =
        entries.map(|entry| entry.path()).partition(|path| path.is_dir());
    folders.iter().flat_map(|folder| files_below(folder)).chain(files).collect()
}
