//! The promises of [`Storage`], as one function for all.

use std::io::{ErrorKind, Write as _};

use fulmar_train::storage::{Object, Storage};

/// Sizes below, at and above those of parts, and above several.
pub(crate) fn keeps_its_promises(storage: &dyn Storage, part_bytes: usize) {
    names_and_sizes(storage);
    ranges(storage);
    for size in [0, 1, part_bytes - 1, part_bytes, part_bytes + 1, 3 * part_bytes + 17] {
        round_trip(storage, size);
    }
    replaced(storage);
    from_many_threads(storage);
}

fn listed(storage: &dyn Storage, prefix: &str) -> Vec<(String, u64)> {
    let objects = storage.list(prefix).expect("listed");
    objects.into_iter().map(|Object { name, bytes }| (name, bytes)).collect()
}

fn names_and_sizes(storage: &dyn Storage) {
    assert_eq!(listed(storage, ""), [], "nothing yet");
    storage.write_all("a/one", b"12345").expect("written");
    storage.write_all("a/b/two", b"1").expect("written");
    storage.write_all("ab/three", b"12").expect("written");
    let all = [("a/b/two".into(), 1), ("a/one".into(), 5), ("ab/three".into(), 2)];
    assert_eq!(listed(storage, ""), all);
    assert_eq!(listed(storage, "a"), all[..2], "a folder, not whatever begins alike");
    assert_eq!(listed(storage, "a/b"), all[..1]);
    assert_eq!(listed(storage, "none"), []);
    assert_eq!(storage.size("a/one").expect("its size"), 5);
    assert_eq!(storage.size("a/none").expect_err("none").kind(), ErrorKind::NotFound);
    for name in ["a/one", "a/b/two", "ab/three"] {
        assert!(storage.locate(name).ends_with(name), "{}", storage.locate(name));
        storage.remove(name).expect("removed");
    }
    assert_eq!(listed(storage, ""), []);
}

fn ranges(storage: &dyn Storage) {
    storage.write_all("range", b"0123456789").expect("written");
    assert_eq!(storage.read("range", 3..7).expect("read"), b"3456");
    assert_eq!(storage.read("range", 0..10).expect("read"), b"0123456789");
    assert_eq!(storage.read("range", 9..10).expect("read"), b"9");
    assert_eq!(storage.read("range", 4..4).expect("read"), b"");
    let error = storage.read("range", 8..11).expect_err("it ends before");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    storage.read("range", 10..11).expect_err("it ends there");
    for range in [0..0, 0..1] {
        let error = storage.read("no range", range).expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    storage.remove("range").expect("removed");
}

fn bytes_of(size: usize, seed: usize) -> Vec<u8> {
    (0..size).map(|index| ((index * 31 + seed) >> 3) as u8).collect()
}

fn round_trip(storage: &dyn Storage, size: usize) {
    let bytes = bytes_of(size, size);
    let mut upload = storage.create("size").expect("created");
    // Pieces that divide nothing.
    for piece in bytes.chunks(size / 7 + 1) {
        upload.write_all(piece).expect("written");
    }
    upload.finish().expect("finished");
    assert_eq!(storage.size("size").expect("its size"), size as u64);
    let read = storage.read_all("size").expect("read");
    assert!(read == bytes, "{size} bytes come back as they were");
    storage.remove("size").expect("removed");
}

/// Nothing writes an object twice, but one of a save that failed is written again.
fn replaced(storage: &dyn Storage) {
    storage.write_all("again", b"the first time, longer").expect("written");
    storage.write_all("again", b"the second").expect("written");
    assert_eq!(storage.read_all("again").expect("read"), b"the second");
    storage.remove("again").expect("removed");
}

fn from_many_threads(storage: &dyn Storage) {
    std::thread::scope(|scope| {
        for index in 0..8 {
            scope.spawn(move || {
                let (name, bytes) = (format!("threads/{index}"), bytes_of(10_000, index));
                storage.write_all(&name, &bytes).expect("written");
                assert_eq!(storage.read(&name, 5_000..9_000).expect("read"), bytes[5_000..9_000]);
            });
        }
    });
    assert_eq!(storage.list("threads").expect("listed").len(), 8);
    for index in 0..8 {
        storage.remove(&format!("threads/{index}")).expect("removed");
    }
}
