use std::io::ErrorKind;
use std::sync::{Arc, Barrier};

use super::*;
use crate::storage::{Call, Effect, Fault, FaultyStorage, LocalStorage};

fn saved(steps: &[u64]) -> (tempfile::TempDir, FaultyStorage) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let faulty = FaultyStorage::new(Arc::new(LocalStorage::new(folder.path())));
    for step in steps {
        let storage: &dyn Storage = &faulty;
        storage.write_all(&manifest_of(*step), b"{}").expect("written");
    }
    (folder, faulty)
}

fn pinned(storage: &dyn Storage) -> Vec<u64> {
    pinned_steps(storage).expect("read").into_iter().collect()
}

#[test]
fn a_pin_stands_until_it_is_taken_back_and_may_be_set_again() {
    let (_folder, storage) = saved(&[20, 40]);
    pin(&storage, 40, "the loss was best").expect("pinned");
    let kept = standing(&storage).expect("read");
    assert_eq!(kept.keys().copied().collect::<Vec<_>>(), [40]);
    assert_eq!(kept[&40][0].to_string(), "pinned (the loss was best)");
    unpin(&storage, 40, "no longer").expect("unpinned");
    assert!(pinned(&storage).is_empty());
    let error = unpin(&storage, 40, "twice").expect_err("not pinned").to_string();
    assert!(error.contains("step-00000040: is not pinned"), "{error}");
    pin(&storage, 40, "after all").expect("pinned");
    assert_eq!(pinned(&storage), [40]);
    assert_eq!(storage.list(FOLDER).expect("listed").len(), 3, "nothing was removed or replaced");
    assert_eq!(storage.calls(Call::Remove), 0);
}

#[test]
fn a_parent_is_never_unpinned() {
    let (_folder, storage) = saved(&[40]);
    pin(&storage, 40, "kept").expect("pinned");
    pin_parent(&storage, 40, "runs/cooldown", "cooldown from step 40").expect("pinned");
    pin_parent(&storage, 40, "runs/other", "another").expect("pinned");
    pin(&storage, 40, "kept again").expect("pinned");
    let error = unpin(&storage, 40, "no longer").expect_err("a parent").to_string();
    let needed =
        "cannot be unpinned: it is the parent of run runs/cooldown (cooldown from step 40)";
    assert!(error.contains(needed), "{error}");
    assert_eq!(standing(&storage).expect("read")[&40].len(), 3, "two runs and a person");
}

#[test]
fn a_step_without_a_whole_checkpoint_cannot_be_pinned() {
    let (_folder, storage) = saved(&[20, 40]);
    let (inner, step): (&dyn Storage, _) = (&storage, 50);
    inner.write_all("step-00000050/shard", b"no manifest").expect("written");
    let error = pin(&storage, step, "why").expect_err("not whole").to_string();
    assert!(error.contains("step-00000050: no whole checkpoint"), "{error}");
    assert!(error.ends_with("needed one of the steps: 20, 40"), "{error}");
    assert_eq!(storage.list(FOLDER).expect("listed"), []);
}

#[test]
fn writers_at_the_same_time_lose_no_pin() {
    let (_folder, storage) = saved(&[40]);
    let writers = 16;
    let start = Barrier::new(writers);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (storage, start) = (&storage, &start);
            scope.spawn(move || {
                start.wait();
                pin_parent(storage, 40, &format!("run-{writer}"), "branch").expect("pinned");
            });
        }
    });
    let kept = standing(&storage).expect("read");
    let runs: BTreeSet<_> = kept[&40].iter().filter_map(|pin| pin.run.clone()).collect();
    assert_eq!(runs.len(), writers);
}

/// Two writers that looked at the same time take the same number.
#[test]
fn of_two_words_with_the_same_number_the_pin_prevails() {
    let (_folder, storage) = saved(&[40]);
    let word = |pinned| Pin { pinned, kind: PinKind::Pin, reason: "why".into(), run: None };
    for words in [[true, false], [false, true]] {
        let next = Said::read(&storage).expect("read").next(40);
        for pinned in words {
            write(&storage, 40, next, &word(pinned)).expect("written");
        }
        assert_eq!(pinned(&storage), [40], "{words:?}");
    }
    unpin(&storage, 40, "a later word").expect("unpinned");
    assert!(pinned(&storage).is_empty());
}

#[test]
fn a_checkpoint_that_goes_while_it_is_pinned_is_an_error() {
    let (_folder, storage) = saved(&[40]);
    // Of the two questions for the manifest, the second finds it gone.
    let gone = Effect::fails(ErrorKind::NotFound);
    storage.plan(Fault::new(Call::Size, gone).on("manifest.json").at(2));
    let error = pin(&storage, 40, "why").expect_err("pruned meanwhile").to_string();
    assert!(error.contains("pruned while it was pinned"), "{error}");
}

#[test]
fn a_pin_that_was_cut_short_keeps_the_checkpoint_until_it_is_taken_back() {
    let (_folder, storage) = saved(&[40]);
    let inner: &dyn Storage = &storage;
    inner.write_all("pins/step-00000040-1.json", b"{\"pinn").expect("written");
    inner.write_all("pins/notes.txt", b"not ours").expect("written");
    let kept = standing(&storage).expect("read");
    assert!(kept[&40][0].reason.contains("pins/step-00000040-1.json cannot be read"));
    unpin(&storage, 40, "it was cut short").expect("unpinned");
    assert!(pinned(&storage).is_empty());
}
