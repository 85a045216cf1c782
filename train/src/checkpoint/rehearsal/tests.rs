use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use fulmar_ep::Layout;
use fulmar_ep::transport::{RankFailure, run_world};

use super::*;
use crate::exit;
use crate::storage::{Call, Effect, Fault, FaultyStorage, LocalStorage};

fn target() -> (tempfile::TempDir, FaultyStorage) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage = FaultyStorage::new(Arc::new(LocalStorage::new(folder.path().join("root"))));
    (folder, storage)
}

/// What each of `ranks` ranks, with a storage of its own, is told.
fn on_ranks<S: Storage>(storages: &[S]) -> Vec<Result<Rehearsal, TrainError>> {
    let ranks = storages.len();
    let body = |transport: Arc<dyn fulmar_ep::transport::Transport>| {
        let world = World::new(transport, Layout::new(1, ranks)).expect("a layout");
        Ok::<_, TrainError>(rehearse(&storages[world.rank()], 3, &world))
    };
    let told = run_world(ranks, Duration::from_secs(20), body);
    told.unwrap_or_else(|error| match error.failure {
        RankFailure::Error(error) => panic!("{}", error.chain()),
        RankFailure::Transport(error) => panic!("{error}"),
        RankFailure::Panic(message) => panic!("{message}"),
    })
}

#[test]
fn a_sound_target_is_rehearsed_and_left_as_it_was() {
    let (_folder, storage) = target();
    let found = rehearse(&storage, 1, &World::solo()).expect("sound");
    assert_eq!((found.ranks, found.removal_denied.clone()), (1, None));
    assert!(found.to_string().starts_with(&format!("checkpoints: {}; a save", found.place)));
    assert_eq!(storage.list("").expect("listed"), []);
    let found = on_ranks(&vec![storage.clone(); 4]);
    assert!(found.iter().all(|found| found.as_ref().is_ok_and(|found| found.ranks == 4)));
    assert_eq!(storage.list("").expect("listed"), []);
    // Two parts; four parts, then one manifest each time.
    assert_eq!(storage.calls(Call::Finish), 2 + 5);
}

#[test]
fn every_call_that_fails_ends_every_rank_with_the_rank_the_operation_and_the_place() {
    let (_folder, clean) = target();
    on_ranks(&vec![clean.clone(); 2]);
    let mut tried = 0;
    for (call, doing) in [
        (Call::List, "list"),
        (Call::Create, "write"),
        (Call::Write, "write"),
        (Call::Finish, "write"),
        (Call::Size, "read back"),
        (Call::Read, "read back"),
    ] {
        for nth in 1..=clean.calls(call) {
            let (_folder, storage) = target();
            storage.plan(Fault::new(call, Effect::fails(ErrorKind::StorageFull)).at(nth));
            let told: Vec<String> = on_ranks(&vec![storage.clone(); 2])
                .into_iter()
                .map(|told| {
                    let error = told.expect_err("a call failed");
                    assert_eq!(exit::status_of(&error), exit::CHECKPOINT, "{error}");
                    assert!(matches!(error, TrainError::Rank { .. }), "{error}");
                    error.chain()
                })
                .collect();
            assert_eq!(told[0], told[1], "{call:?} {nth}");
            let place = storage.locate(FOLDER);
            let said = format!("could not {doing} {place}");
            assert!(told[0].contains(&said), "{call:?} {nth}: {} has no {said}", told[0]);
            assert_eq!(storage.struck(), 1, "{call:?} {nth}");
            tried += 1;
        }
    }
    // Lists: 1 + 2. Writes in three calls each: 3 objects. Reads: 3 objects, twice, on 2 ranks.
    assert_eq!(tried, 3 + 3 * 3 + 6 + 12);
}

#[test]
fn the_rank_that_failed_is_named() {
    let (_folder, storage) = target();
    let full = Effect::fails(ErrorKind::StorageFull);
    storage.plan(Fault::new(Call::Finish, full).on("part-1-of-2"));
    for told in on_ranks(&vec![storage.clone(); 2]) {
        let said = told.expect_err("rank 1 cannot write").to_string();
        let part = storage.locate("rehearsal/attempt-3/part-1-of-2");
        assert!(said.starts_with(&format!("rank 1: could not write {part}: ")), "{said}");
    }
    assert_eq!(storage.list("").expect("listed").len(), 2, "no manifest without all parts");
}

#[test]
fn targets_that_alter_or_lose_what_they_take_are_found() {
    for (ranks, fault, problem) in [
        (2, Fault::new(Call::Read, Effect::Flip { byte: 77, bit: 0 }).on("part-1"), "at byte 77"),
        (2, Fault::new(Call::Read, Effect::Cut(5)).on("part-0"), "5 bytes, needed 4096"),
        // Two ranks would race for the second read.
        (
            1,
            Fault::new(Call::Read, Effect::Cut(5)).on("manifest").at(2),
            "others than in the whole",
        ),
        (
            2,
            Fault::new(Call::Finish, Effect::Fails(crate::storage::Failure::Os(5))).on("part-0"),
            "could not write",
        ),
    ] {
        let (_folder, storage) = target();
        storage.plan(fault);
        for told in on_ranks(&vec![storage.clone(); ranks]) {
            let said = told.expect_err("not sound").to_string();
            assert!(said.contains(problem), "{said} has no {problem}");
        }
    }
}

#[test]
fn ranks_with_targets_of_their_own_are_found() {
    let (_one, first) = target();
    let (_two, second) = target();
    for told in on_ranks(&[first, second]) {
        let said = told.expect_err("two targets").to_string();
        assert!(said.contains("all ranks must see one and the same target"), "{said}");
    }
}

#[test]
fn a_target_that_denies_removing_takes_saves_all_the_same() {
    let (_folder, storage) = target();
    storage.plan(Fault::new(Call::Remove, Effect::fails(ErrorKind::PermissionDenied)));
    let found = rehearse(&storage, 1, &World::solo()).expect("saves work");
    let said = found.to_string();
    assert!(
        said.contains("removing is denied") && said.contains("pruning will not work"),
        "{said}"
    );
    // What stays there is in nobody's way.
    rehearse(&storage, 1, &World::solo()).expect("the next attempt");
    let names: Vec<_> =
        storage.list(FOLDER).expect("listed").into_iter().map(|object| object.name).collect();
    assert!(names.iter().any(|name| name.starts_with("rehearsal/attempt-2/")), "{names:?}");
}
