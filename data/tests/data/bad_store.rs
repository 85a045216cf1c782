use std::{fs, path::Path};

use fulmar_data::Store;

use crate::fixture::{Folder, Test, chain, corpus, line, store_of};

fn error_of(path: &Path) -> String {
    chain(&Store::open(path).expect_err("the store is bad"))
}

#[test]
fn one_flipped_byte_anywhere_is_found_and_the_file_named() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &line("an-id", "a few words", "verse", 1));
    for file in ["store.json", "verse/q1/00000.tokens"] {
        let path = store.path().join(file);
        let whole = fs::read(&path)?;
        for (at, bit) in (0..whole.len()).map(|at| (at, at % 8)) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            // Replaced, not written in place: the open store maps the old file.
            fs::write(folder.path("altered"), &bytes)?;
            fs::rename(folder.path("altered"), &path)?;
            let message = error_of(store.path());
            let named = message.contains(file.rsplit('/').next().unwrap_or(file));
            assert!(named || message.contains("manifest"), "byte {at} of {file}: {message}");
        }
        fs::write(folder.path("altered"), &whole)?;
        fs::rename(folder.path("altered"), &path)?;
    }
    Store::open(store.path())?;
    Ok(())
}

#[test]
fn another_version_is_named_as_such() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let path = store.path().join("store.json");
    let manifest = fs::read_to_string(&path)?;
    // Another version may have other fields, and its own checksum.
    let other = manifest
        .replace("\"format_version\": 2", "\"format_version\": 3")
        .replace("\"build_digest\"", "\"made_of\"");
    fs::write(&path, other)?;
    let message = error_of(store.path());
    assert!(message.contains("store.json` has store format version 3"), "{message}");
    assert!(message.contains("reads version 2"), "{message}");
    Ok(())
}

#[test]
fn a_missing_shard_or_manifest_is_named() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    fs::remove_file(store.path().join("prose/q4/00000.tokens"))?;
    let message = error_of(store.path());
    assert!(message.contains("cannot open") && message.contains("q4/00000.tokens"), "{message}");
    fs::remove_file(store.path().join("store.json"))?;
    let message = error_of(store.path());
    assert!(message.contains("store.json"), "{message}");
    Ok(())
}

#[test]
fn a_shard_that_is_short_by_a_byte_is_named_with_both_sizes() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let path = store.path().join("verse/q1/00000.tokens");
    let bytes = fs::read(&path)?;
    fs::remove_file(&path)?;
    fs::write(&path, &bytes[..bytes.len() - 1])?;
    let message = error_of(store.path());
    let sizes = format!("has {} bytes, the manifest says {}", bytes.len() - 1, bytes.len());
    assert!(message.contains("q1/00000.tokens") && message.contains(&sizes), "{message}");
    Ok(())
}

#[test]
fn a_store_of_another_tokenizer_is_refused() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let found = store.manifest().tokenizer.digest.clone();
    let message = chain(&store.require_tokenizer("abc").expect_err("another tokenizer"));
    assert!(message.contains(&found) && message.contains("not with abc"), "{message}");
}
