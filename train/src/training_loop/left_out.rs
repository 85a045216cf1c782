//! Batches that must not be tried again: what the history of a run says of them.
//!
//! A step that is not finite is most often a matter of chance in hardware, and a run that is started
//! again is right to try it again. When the same batch ends the run twice it is no chance: the data
//! position and the digest say so, and a third start is refused until somebody has looked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fulmar_ep::World;

use crate::error::TrainError;
use crate::guard::{GuardConfig, batch_of, left_out_of};
use crate::history::{Event, History};
use crate::state::TrainState;

/// A step that was not finite; `ended` if it ended the run.
pub(super) const NOT_FINITE: &str = "not_finite";

/// Ends at one batch that refuse a further start.
const ENDS: u64 = 2;

/// The batches that this start leaves out, the same on every rank: those of the recipe, and those
/// that earlier starts have left out. The first rank reads the history for all.
///
/// # Errors
/// [`TrainError::NotFiniteAgain`] on the first rank if a batch that is not left out has ended the
/// run twice.
pub(super) fn agree(
    guard: &GuardConfig,
    folder: &Path,
    world: &World,
) -> Result<BTreeSet<u64>, TrainError> {
    let mut left_out: BTreeSet<u64> = guard.skip_batches.iter().copied().collect();
    if world.is_first() {
        let events = History::read(folder)?;
        left_out.extend(left_out_of(&events));
        refuse_a_third_time(&events, &left_out)?;
    }
    let own = serde_json::to_vec(&left_out).expect("plain values");
    let first = world.all.bytes_of_first("batches left out", &own)?;
    Ok(serde_json::from_slice(&first).expect("batches of the first rank"))
}

/// How many of the batches that a state has taken were skipped because their step was not finite:
/// neither update nor `left_out`.
pub(super) fn skipped(state: &TrainState, left_out: &BTreeSet<u64>) -> u64 {
    let on_request = left_out.range(..state.batches).count() as u64;
    (state.batches - state.step).saturating_sub(on_request)
}

fn refuse_a_third_time(events: &[Event], left_out: &BTreeSet<u64>) -> Result<(), TrainError> {
    let mut ends: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.what == NOT_FINITE) {
        let [Some(batch), Some(digest)] = [batch_of(event), digest(event)] else { continue };
        if event.detail.get("ended") == Some(&true.into()) && !left_out.contains(&batch) {
            *ends.entry((batch, digest)).or_default() += 1;
        }
    }
    match ends.into_iter().find(|(_, times)| *times >= ENDS) {
        Some(((batch, digest), times)) => Err(TrainError::NotFiniteAgain { batch, digest, times }),
        None => Ok(()),
    }
}

fn digest(event: &Event) -> Option<u64> {
    u64::from_str_radix(event.detail.get("digest")?.as_str()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fulmar_ep::Layout;
    use fulmar_ep::transport::run_world;

    use super::*;
    use crate::guard::LEFT_OUT;

    fn end(batch: u64, digest: &str, ended: bool) -> Event {
        let event = Event::now(batch, 1, NOT_FINITE, "").with("batch", batch);
        event.with("digest", digest).with("ended", ended)
    }

    #[test]
    fn only_two_ends_at_the_same_batch_with_the_same_digest_refuse_a_start() {
        let none = BTreeSet::new();
        let fine =
            [end(7, "aa", true), end(7, "ab", true), end(8, "aa", true), end(7, "aa", false)];
        refuse_a_third_time(&fine, &none).expect("each ended the run once");
        let twice = [&fine[..], &[end(7, "aa", true)]].concat();
        let error = refuse_a_third_time(&twice, &none).expect_err("twice").to_string();
        assert!(error.contains("batch 7 (digest 00000000000000aa) has ended"), "{error}");
        refuse_a_third_time(&twice, &BTreeSet::from([7])).expect("it is left out");
    }

    #[test]
    fn what_the_first_rank_knows_from_the_history_holds_on_every_rank() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut history = History::open(folder.path()).expect("opened");
        for batch in [9, 4] {
            let event = Event::now(batch, 1, LEFT_OUT, "").with("batch", batch);
            history.append(&event).expect("written");
        }
        let guard = GuardConfig { skip_batches: vec![30, 4], ..GuardConfig::default() };
        let layout = Layout { replicas: 1, shards: 3, context: 1 };
        let of_rank = |transport| -> Result<_, TrainError> {
            agree(&guard, folder.path(), &World::new(transport, layout)?)
        };
        let all = run_world(3, Duration::from_secs(60), of_rank).expect("no rank fails");
        assert_eq!(all, vec![BTreeSet::from([4, 9, 30]); 3]);
    }
}
