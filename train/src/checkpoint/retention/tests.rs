use std::io::ErrorKind;
use std::sync::Arc;

use super::*;
use crate::storage::{Call, Effect, Fault, FaultyStorage, LocalStorage};

const NONE: [u64; 0] = [];

fn config(permanent_every: u64, keep_last: u64) -> CheckpointConfig {
    CheckpointConfig { permanent_every, keep_last, ..CheckpointConfig::default() }
}

#[test]
fn the_newest_stay_beside_permanent_and_pinned_ones() {
    let whole = [10, 20, 30, 40, 50, 60, 70, 80];
    let go = |permanent_every, keep_last, pinned: &[u64]| {
        let pinned = pinned.iter().copied().collect();
        to_prune(&whole, &[], &config(permanent_every, keep_last), &pinned, 80)
    };
    assert_eq!(go(0, 3, &[]), [10, 20, 30, 40, 50]);
    assert_eq!(go(0, 3, &[20, 70]), [10, 30, 40], "70 does not count among the three: 50, 60, 80");
    assert_eq!(go(40, 2, &[]), [10, 20, 30, 50], "40 and 80 are permanent: 60, 70 beside them");
    assert_eq!(go(0, 0, &[]), NONE, "0 keeps all");
    assert_eq!(go(0, 100, &[]), NONE);
    assert_eq!(go(0, u64::MAX, &[]), NONE);
    assert_eq!(go(1, 1, &[]), NONE, "all are permanent");
}

#[test]
fn nothing_newer_than_the_verified_one_goes_or_counts() {
    let none = BTreeSet::new();
    let go = |verified| to_prune(&[10, 20, 30, 40, 50], &[], &config(0, 2), &none, verified);
    assert_eq!(go(50), [10, 20, 30]);
    assert_eq!(go(30), [10], "40 and 50 may be broken: 20 and 30 are the newest two");
    assert_eq!(go(20), NONE);
    assert_eq!(go(45), NONE, "45 is not there");
}

#[test]
fn what_never_became_a_checkpoint_goes_with_those_that_are_older() {
    let pinned = BTreeSet::from([15]);
    let go =
        |keep_last| to_prune(&[10, 20, 30], &[5, 15, 25, 35], &config(5, keep_last), &pinned, 30);
    assert_eq!(go(1), [5, 25], "debris is never permanent; 35 may be on its way");
    assert_eq!(go(0), NONE);
}

/// Every answer over small cases: what must stay does, however the rest is chosen.
#[test]
fn what_must_stay_stays_in_every_small_case() {
    let mut cases = 0;
    for there in 0_u32..64 {
        let whole: Vec<u64> = (0..6).filter(|bit| there >> bit & 1 == 1).collect();
        for (keep_last, permanent_every) in [(1, 0), (2, 0), (1, 3), (2, 2), (3, 4)] {
            for pins in 0_u32..64 {
                let pinned: BTreeSet<u64> = (0..6).filter(|bit| pins >> bit & 1 == 1).collect();
                for verified in 0..6 {
                    let config = config(permanent_every, keep_last);
                    let gone = to_prune(&whole, &[], &config, &pinned, verified);
                    let left: Vec<u64> =
                        whole.iter().copied().filter(|step| !gone.contains(step)).collect();
                    let said = format!("{whole:?} {config:?} {pinned:?} {verified}: {gone:?}");
                    assert!(!gone.contains(&verified), "{said}");
                    assert!(gone.iter().all(|step| *step < verified), "{said}");
                    assert!(gone.iter().all(|step| !pinned.contains(step)), "{said}");
                    let older = whole.iter().filter(|step| **step <= verified).count();
                    let left_older = left.iter().filter(|step| **step <= verified).count();
                    assert!(left_older >= older.min(keep_last as usize), "{said}");
                    // Again, with what is left, nothing more goes.
                    assert_eq!(to_prune(&left, &[], &config, &pinned, verified), NONE, "{said}");
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 64 * 5 * 64 * 6);
}

/// Checkpoints of some steps, each a shard and a manifest, and a folder of step 15 without one.
fn saved(steps: &[u64]) -> (tempfile::TempDir, FaultyStorage) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let faulty = FaultyStorage::new(Arc::new(LocalStorage::new(folder.path())));
    let storage: &dyn Storage = &faulty;
    for step in steps {
        // Sorts before and after the manifest.
        for file in ["a-shard", "shard", "manifest.json"] {
            storage.write_all(&format!("step-{step:08}/{file}"), b"12345").expect("written");
        }
    }
    storage.write_all("step-00000015/shard", b"123").expect("written");
    (folder, faulty)
}

fn lying(storage: &dyn Storage) -> Vec<(u64, bool)> {
    let folders = step_folders(storage).expect("listed");
    folders.iter().map(|folder| (folder.step, folder.has_manifest())).collect()
}

#[test]
fn pruning_removes_what_may_go_and_says_so() {
    let (folder, storage) = saved(&[10, 20, 30, 40]);
    pins::pin(&storage, 10, "the loss was best").expect("pinned");
    let pruned = prune(&storage, &config(0, 2), 40);
    assert_eq!(pruned, Pruned { steps: vec![15, 20], bytes: 18, problems: Vec::new() });
    assert_eq!(lying(&storage), [(10, true), (30, true), (40, true)]);
    assert!(!folder.path().join("step-00000020").exists(), "folders go with their files");
    let event = pruned.event(40, 2).expect("something happened");
    assert_eq!((&*event.what, &*event.text), ("pruned", "pruned the checkpoints of steps 15, 20"));
    assert_eq!(prune(&storage, &config(0, 2), 40).event(40, 2), None);
}

#[test]
fn pruning_that_ends_anywhere_leaves_no_half_checkpoint() {
    for nth in 1..=7 {
        let (_folder, storage) = saved(&[10, 20, 30]);
        // From some removal on, nothing can be removed any more, as after a kill.
        storage.plan(Fault::new(Call::Remove, Effect::fails(ErrorKind::Other)).from(nth));
        let pruned = prune(&storage, &config(0, 1), 30);
        assert!(!pruned.problems.is_empty());
        for folder in step_folders(&storage).expect("listed") {
            let whole = folder.objects.len() == 3;
            assert!(whole || !folder.has_manifest(), "removal {nth} leaves {folder:?}");
        }
        // The next one takes the rest away.
        storage.reset();
        prune(&storage, &config(0, 1), 30);
        assert_eq!(lying(&storage), [(30, true)], "after removal {nth}");
    }
}

#[test]
fn a_place_that_denies_removing_keeps_everything_and_is_asked_a_few_times() {
    let (_folder, storage) = saved(&[10, 20, 30, 40, 50, 60]);
    let before = storage.list("").expect("listed");
    storage.plan(Fault::new(Call::Remove, Effect::fails(ErrorKind::PermissionDenied)));
    let pruned = prune(&storage, &config(0, 1), 60);
    assert_eq!((pruned.steps.len(), pruned.problems.len()), (0, MAX_PROBLEMS));
    assert_eq!(storage.calls(Call::Remove), MAX_PROBLEMS as u64, "one question a folder");
    assert_eq!(storage.list("").expect("listed"), before);
    let event = pruned.event(60, 1).expect("it is told");
    assert_eq!(event.what, "prune_failed");
    let place = storage.locate("step-00000010/manifest.json");
    assert!(event.text.contains(&format!("could not remove {place}")), "{}", event.text);
}

#[test]
fn nothing_is_pruned_where_pins_cannot_be_read() {
    for call in [Call::List, Call::Read] {
        let (_folder, storage) = saved(&[10, 20, 30]);
        pins::pin(&storage, 10, "kept").expect("pinned");
        storage.plan(Fault::new(call, Effect::fails(ErrorKind::TimedOut)).on("pins"));
        let pruned = prune(&storage, &config(0, 1), 30);
        assert_eq!((pruned.steps.len(), pruned.problems.len()), (0, 1), "{pruned:?}");
        assert_eq!(lying(&storage).len(), 4);
    }
}
