//! Each call by which a save writes, failing in turn.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use fulmar::train::checkpoint::step_name;
use fulmar::train::checkpoint::verify::verify;
use fulmar::train::storage::Call;
use libtest_mimic::Trial;

use crate::child;
use crate::deadly::Place;
use crate::form::either;
use crate::oracle::{events, newest_whole, same_end, storage_of, whole};
use crate::play::{How, Play, Wrong};
use crate::scenario::{ONE, STEPS, STREAMING, Scenario, folder};
use crate::tally::{Faults, Kind};

const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (ranks, scenario) in [(1, &ONE), (2, &STREAMING)] {
        for background in [false, true] {
            let how = if background { "beside" } else { "between" };
            let name = format!("writes::saves_{how}_steps_of_{ranks}_ranks");
            let each = move |faults: &mut Faults| Saves { scenario, background }.each(faults);
            trials.push(Faults::trial(Kind::Write, name, each));
            let name = format!("writes::last_save_{how}_steps_of_{ranks}_ranks");
            let last = move |faults: &mut Faults| Saves { scenario, background }.last(faults);
            trials.push(Faults::trial(Kind::Write, name, last));
        }
    }
    trials
}

/// The saves of a run.
#[derive(Debug, Clone, Copy)]
struct Saves {
    scenario: &'static Scenario,
    background: bool,
}

/// A call of a save by its file, and how it goes wrong.
#[derive(Debug, Clone)]
struct Fault {
    call: Call,
    file: String,
    nth: u64,
    how: How,
    /// How often its save was left out.
    left_out: u32,
}

/// After so many saves that were left out beside training a fault is skipped.
const MOST_LEFT_OUT: u32 = 50;

impl Fault {
    fn code(&self) -> i32 {
        match self.how {
            How::Fails(code) | How::Lost(code) | How::Torn(code) => code,
            How::Slow(_) => 0,
        }
    }

    /// Whether the checkpoint may be whole all the same: all bytes of its manifest are there, and
    /// what failed was the word that they are, or that they would survive a loss of power.
    fn may_be_whole(&self) -> bool {
        let commits = self.file == "manifest.json";
        let written = self.call == Call::Write && matches!(self.how, How::Lost(_));
        commits && (written || self.call == Call::Finish)
    }

    fn strike(&self, step: u64) -> Wrong {
        Wrong::at(self.call, &self.name(step), self.nth, self.how)
    }

    fn name(&self, step: u64) -> String {
        format!("{}/{}", step_name(step), self.file)
    }
}

impl Saves {
    fn play(self, run: PathBuf) -> Play {
        let mut set =
            vec!["checkpoint.every=1".to_owned(), "checkpoint.retry_after=100".to_owned()];
        set.push(format!("checkpoint.background={}", self.background));
        let recipe = self.scenario.undisturbed().recipe.clone();
        Play { recipe, out: run, set, ..Play::default() }
    }

    fn folder(self, what: &str) -> PathBuf {
        folder(&format!("{what}-{}-{}", self.scenario.name, self.background))
    }

    /// The calls by which a sound run writes one save.
    fn calls(self, folder: &Path) -> Vec<Place> {
        let mut calls = self.play(folder.join("sound")).calls_of();
        // The first is never left out.
        let of_first = step_name(1);
        let writes = [Call::Create, Call::Write, Call::Finish];
        calls.retain(|place| place.name.starts_with(&of_first) && writes.contains(&place.call()));
        assert!(calls.len() > 10, "few calls: {calls:?}");
        calls
    }

    /// Every call with every error in the long form; in the short one every fifth, errors in turn.
    fn faults(self, folder: &Path) -> VecDeque<Fault> {
        let mut faults = VecDeque::new();
        let calls = self.calls(folder);
        for (number, place) in calls.iter().enumerate() {
            let mut hows = vec![EIO, ENOSPC, EACCES, EROFS].into_iter().map(How::Fails).collect();
            match place.call() {
                Call::Write => Vec::extend(&mut hows, [How::Torn(ENOSPC), How::Lost(EIO)]),
                _ => hows.push(How::Lost(EIO)),
            }
            let file = place.name.split_once('/').expect("in a folder").1;
            let fault = |how| {
                let file = file.to_owned();
                Fault { call: place.call(), file, nth: place.nth, how, left_out: 0 }
            };
            let commits = file == "manifest.json";
            if either(false, true) {
                faults.extend(hows.into_iter().map(fault));
            } else if number % 5 == 0 || commits {
                faults.push_back(fault(hows[(number / 5 + number) % hows.len()]));
            }
        }
        faults
    }

    /// In a run every other save is struck, each by another fault.
    fn each(self, faults: &mut Faults) {
        let folder = self.folder("each");
        let mut waiting = self.faults(&folder);
        let mut rounds = 0;
        while !waiting.is_empty() {
            rounds += 1;
            let struck: Vec<u64> = (1..STEPS).step_by(2).collect();
            let number = waiting.len().min(struck.len());
            let struck: Vec<(u64, Fault)> =
                struck.into_iter().zip(waiting.drain(..number)).collect();
            let run = folder.join(format!("run-{rounds}"));
            let mut play = self.play(run.clone());
            play.calls = struck.iter().map(|(step, fault)| fault.strike(*step)).collect();
            let end = child::play(&play);
            let round = end.needs(0).and_then(|()| self.sound(&run, &struck));
            let left_out: Vec<u64> =
                events(&run, "save_skipped").unwrap_or_default().iter().map(|e| e.step).collect();
            for (step, mut fault) in struck {
                // Saves beside training that were not begun are struck another time.
                if left_out.contains(&step) {
                    fault.left_out += 1;
                    if fault.left_out < MOST_LEFT_OUT {
                        waiting.push_back(fault);
                    } else {
                        faults.skip(&format!("{fault:?}"), "its save was always left out");
                    }
                    continue;
                }
                let place =
                    format!("{} {} at step {step}: {fault:?}", self.said(), folder.display());
                faults.try_one(&place, || {
                    round.clone()?;
                    self.judge(&run, step, &fault)
                });
            }
            if round.is_ok() {
                std::fs::remove_dir_all(&run).expect("removed");
            }
        }
    }

    fn said(self) -> String {
        let how = if self.background { "beside" } else { "between" };
        format!("{}, saves {how} steps,", self.scenario.name)
    }

    /// The run has the end of the undisturbed one, and saves that were not struck are whole.
    fn sound(self, run: &Path, struck: &[(u64, Fault)]) -> Result<(), String> {
        same_end(self.scenario, run)?;
        let left_out: Vec<u64> = events(run, "save_skipped")?.iter().map(|e| e.step).collect();
        let struck: Vec<u64> = struck.iter().map(|(step, _)| *step).collect();
        let mut sound =
            (1..=STEPS).filter(|step| !struck.contains(step) && !left_out.contains(step));
        sound.try_for_each(|step| whole(run, step))
    }

    /// The failure was told with file and cause, and nobody takes what it left for whole.
    fn judge(self, run: &Path, step: u64, fault: &Fault) -> Result<(), String> {
        let failed = events(run, "save_failed")?;
        let of_step = format!("the state of step {step} was not saved");
        let told: Vec<&str> =
            failed.iter().map(|e| &*e.text).filter(|text| text.contains(&of_step)).collect();
        let [told] = told[..] else {
            return Err(format!("needed one event `save_failed` of step {step}, found {failed:?}"));
        };
        let cause = std::io::Error::from_raw_os_error(fault.code()).to_string();
        for part in [fault.name(step), cause] {
            if !told.contains(&part) {
                return Err(format!("`save_failed` does not name {part}: {told}"));
            }
        }
        let saved = events(run, "saved")?;
        if saved.iter().any(|event| event.detail["of"] == step) {
            return Err(format!("step {step} counts as saved"));
        }
        match verify(&storage_of(run), step) {
            Ok((_, problems)) if problems.is_empty() && !fault.may_be_whole() => {
                Err(format!("step {step} is whole, though its save failed"))
            }
            _ => Ok(()),
        }
    }

    /// The last save fails as often as it is tried.
    fn last(self, faults: &mut Faults) {
        let folder = self.folder("last");
        let calls = self.calls(&folder);
        let number = either(3, 30).min(calls.len());
        let step = (calls.len() / number).max(1);
        for (number, place) in calls.iter().rev().step_by(step).enumerate() {
            let code = [ENOSPC, EIO, EROFS, EACCES][number % 4];
            let file = place.name.split_once('/').expect("in a folder").1.to_owned();
            let fault = Fault {
                call: place.call(),
                file,
                nth: place.nth,
                how: How::Fails(code),
                left_out: 0,
            };
            let name = fault.name(STEPS);
            let wrong = Wrong::from(fault.call, &name, fault.nth, fault.how);
            let run = folder.join(format!("run-{number}"));
            let mut play = self.play(run.clone());
            play.calls = vec![wrong];
            faults.try_one(&format!("{} the last save: {:?}", self.said(), play.calls), || {
                let end = child::play(&play);
                end.needs(6)?;
                end.needs_said(&name)?;
                end.needs_said(&std::io::Error::from_raw_os_error(code).to_string())?;
                let tries = events(&run, "save_failed")?.len();
                if tries != 3 {
                    return Err(format!("tried {tries} times, needed 3"));
                }
                let saved = events(&run, "saved")?;
                let last = saved.iter().filter_map(|event| event.detail["of"].as_u64()).max();
                let newest = newest_whole(&run);
                let whole = newest == STEPS && fault.may_be_whole();
                if last == Some(STEPS) || (last != Some(newest) && !whole) {
                    return Err(format!("last saved {last:?}, newest whole {newest}"));
                }
                let recipe = &play.recipe;
                child::run(recipe, &run, &[]).end().needs(0)?;
                same_end(self.scenario, &run)
            });
        }
    }
}
