//! SIGKILL: at instants by chance over the whole life of a run, and within calls of its storage.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use fulmar::train::checkpoint::step_name;
use fulmar::train::storage::Call;
use libtest_mimic::Trial;

use crate::child::{self, End};
use crate::deadly::{Death, Moment, Place};
use crate::form::{Draw, either, spread};
use crate::oracle::{loss_of_death, newest_whole, same_end, starts};
use crate::play::Play;
use crate::scenario::{ALL, BESIDE, CHANGING, EVERY, REPLICAS, STREAMING, Scenario, folder};
use crate::tally::{Faults, Kind};

pub(crate) fn trials() -> Vec<Trial> {
    let at_instants = (0..either(6, 50)).map(|number| {
        let scenario = ALL[number % ALL.len()];
        let name = format!("kills::at_instant_{number:02}_{}", scenario.name);
        Faults::trial(Kind::KillAtAnInstant, name, move |faults| {
            at_instants(faults, scenario, number)
        })
    });
    let within = Within::ALL.iter().flat_map(|within| {
        within.scenarios().into_iter().map(move |scenario| {
            let name = format!("kills::{}_{}", within.name(), scenario.name);
            Faults::trial(Kind::KillInACall, name, move |faults| within.all(faults, scenario))
        })
    });
    at_instants.chain(within).collect()
}

/// A run that is killed and resumed, and what is known of it.
struct Killed<'a> {
    scenario: &'a Scenario,
    recipe: PathBuf,
    run: PathBuf,
    /// Where the next start that is recorded has to go on from.
    from: u64,
    starts: usize,
}

impl Killed<'_> {
    /// After a death: what it cost, and whether the attempt that died had begun where it had to.
    fn judge(&mut self) -> Result<(), String> {
        self.judge_start()?;
        self.from = loss_of_death(self.scenario, &self.run)?;
        Ok(())
    }

    fn judge_start(&mut self) -> Result<(), String> {
        let starts = starts(&self.run)?;
        match starts.len() - self.starts {
            // It died before.
            0 => Ok(()),
            1 if starts[self.starts] == self.from => {
                self.starts += 1;
                Ok(())
            }
            _ => Err(format!("started from {starts:?}, the last had to from {}", self.from)),
        }
    }

    /// The last life, to the end.
    fn end(&mut self) -> Result<(), String> {
        child::run(&self.recipe, &self.run, &[]).end().needs(0)?;
        self.judge_start()?;
        same_end(self.scenario, &self.run)
    }
}

/// Every third run is killed once more while it resumes, and every fifth makes its store of tokens
/// anew, so that it can be killed meanwhile.
fn at_instants(faults: &mut Faults, scenario: &Scenario, number: usize) {
    let undisturbed = scenario.undisturbed();
    let mut draw = Draw::of(&format!("instant {number}"));
    let kills = if number % 3 == 2 { 2 } else { 1 };
    let parts: Vec<f64> = (0..kills).map(|_| draw.part()).collect();
    let place = format!("{} at parts {parts:.3?} of {:?}", scenario.name, undisturbed.took);
    faults.try_several(kills, &place, || {
        // A life that ends before its death is lived again, and dies earlier.
        for shorter in [1.0, 0.8, 0.6, 0.4, 0.2] {
            let folder = folder(&format!("instant-{number}-{shorter}"));
            let recipe = match number % 5 {
                4 => scenario.write_recipe(&folder),
                _ => undisturbed.recipe.clone(),
            };
            let run = folder.join("run");
            let mut killed = Killed { scenario, recipe, run, from: 0, starts: 0 };
            if lives(&mut killed, &parts, shorter)? {
                return killed.end();
            }
        }
        Err("it always ended before it could be killed".to_owned())
    });
}

/// Kills a life at each part of the whole; false if one had ended before.
fn lives(killed: &mut Killed<'_>, parts: &[f64], shorter: f64) -> Result<bool, String> {
    let took = killed.scenario.undisturbed().took;
    for part in parts {
        let mut life = child::run(&killed.recipe, &killed.run, &[]);
        if !life.lives(took.mul_f64(part * shorter)) {
            return Ok(false);
        }
        if died(&life.kill()).is_err() {
            return Ok(false);
        }
        killed.judge()?;
    }
    Ok(true)
}

fn died(end: &End) -> Result<(), String> {
    match end.status.signal() {
        Some(9) => Ok(()),
        _ => Err(format!("was to be killed; {end}")),
    }
}

/// What a run does when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Saves,
    Restores,
    Prunes,
    Rehearses,
}

/// Where a run stands that is resumed.
const STOPPED: u64 = 8;

impl Within {
    const ALL: &[Self] = &[Self::Saves, Self::Restores, Self::Prunes, Self::Rehearses];

    fn name(self) -> &'static str {
        match self {
            Self::Saves => "while_it_saves",
            Self::Restores => "while_it_restores",
            Self::Prunes => "while_it_prunes",
            Self::Rehearses => "while_it_rehearses_a_save",
        }
    }

    fn scenarios(self) -> Vec<&'static Scenario> {
        match self {
            Self::Saves => vec![&STREAMING, &BESIDE],
            Self::Restores => vec![&CHANGING],
            Self::Prunes => vec![&CHANGING, &REPLICAS],
            Self::Rehearses => vec![&STREAMING],
        }
    }

    fn takes(self, place: &Place) -> bool {
        let of_step = place.name.starts_with("step-");
        let writes = [Call::Create, Call::Write, Call::Finish].contains(&place.call());
        match self {
            Self::Saves => of_step && writes,
            Self::Restores => place.name.contains(&format!("step-{STOPPED:08}")) && !writes,
            Self::Prunes => of_step && place.is(Call::Remove),
            Self::Rehearses => place.name.starts_with("rehearsal"),
        }
    }

    /// Faults of one scenario.
    fn count(self) -> u64 {
        match self {
            Self::Saves => either(2, 15),
            Self::Restores => either(2, 15),
            Self::Prunes => either(1, 8),
            Self::Rehearses => either(1, 8),
        }
    }

    /// Calls spread over all that a sound run makes, each with a moment.
    fn all(self, faults: &mut Faults, scenario: &Scenario) {
        let folder = folder(&format!("{}-{}", self.name(), scenario.name));
        let recipe = &scenario.undisturbed().recipe;
        let stopped = folder.join("stopped");
        if self == Self::Restores {
            child::run(recipe, &stopped, &[&format!("--steps={STOPPED}")]).done();
        }
        let play = |run: &str| {
            let out = folder.join(run);
            if self == Self::Restores {
                copy(&stopped, &out);
            }
            Play { recipe: recipe.clone(), out, ..Play::default() }
        };
        let sound = |run: &str| {
            let mut calls = play(run).calls_of();
            calls.retain(|place| self.takes(place));
            calls
        };
        // Saves beside steps of a few milliseconds may be too few for one of them to be pruned.
        let tries = ["sound", "sound-again", "sound-once-more"].map(String::from);
        let calls = tries.iter().map(|run| sound(run)).find(|calls| !calls.is_empty());
        let Some(calls) = calls else {
            assert!(self == Self::Prunes, "a sound run never {self:?}");
            faults.skip(scenario.name, "none of three sound runs saved often enough to prune");
            return;
        };
        if self == Self::Saves {
            self.around_the_manifest(faults, scenario, &calls, &play);
        }
        let places = spread(self.count() + 2, calls.len() as u64);
        // Ends are the same in every run; what lies between is drawn.
        let mut draw = Draw::of(&format!("{self:?} {}", scenario.name));
        for (number, place) in places.into_iter().skip(1).take(self.count() as usize).enumerate() {
            let place = place + draw.below(3);
            // Saves beside training may go another way: then a call nearer to the beginning.
            let earlier = [place, place * 2 / 3, place / 3, place / 6];
            let tried = earlier.into_iter().any(|place| {
                let place = place.min(calls.len() as u64 - 1) as usize;
                let run = format!("run-{number}-{place}");
                self.one(faults, scenario, &calls[place], &mut draw, &play(&run))
            });
            if !tried {
                faults.skip(scenario.name, "no call came in which it was to die");
            }
        }
    }

    /// Before the manifest of the first save there is no checkpoint, and after it there is one.
    fn around_the_manifest(
        self,
        faults: &mut Faults,
        scenario: &Scenario,
        calls: &[Place],
        play: &dyn Fn(&str) -> Play,
    ) {
        let manifest = format!("{}/manifest.json", step_name(EVERY));
        for (call, moment, needed) in
            [(Call::Create, Moment::Before, 0), (Call::Finish, Moment::After, EVERY)]
        {
            let place = calls.iter().find(|place| place.is(call) && place.name == manifest);
            let death = Death { place: place.expect("the first save").clone(), moment };
            let play = Play { death: Some(death.clone()), ..play(&format!("manifest-{needed}")) };
            faults.try_one(&format!("{} {death:?}", scenario.name), || {
                died(&child::play(&play))?;
                match newest_whole(&play.out) {
                    found if found == needed => goes_on(scenario, &play, 0),
                    found => Err(format!("the newest whole is {found}, needed {needed}")),
                }
            });
        }
    }

    /// Dies within a call; false if that never came.
    fn one(
        self,
        faults: &mut Faults,
        scenario: &Scenario,
        place: &Place,
        draw: &mut Draw,
        play: &Play,
    ) -> bool {
        let moment = Moment::ALL[draw.below(3) as usize];
        let halves = place.is(Call::Write) || moment != Moment::Middle;
        let moment = if halves { moment } else { Moment::After };
        let death = Death { place: place.clone(), moment };
        let said = format!("{} {death:?}", scenario.name);
        let play = Play { death: Some(death), ..play.clone() };
        let end = child::play(&play);
        if end.status.success() {
            return false;
        }
        let from = if self == Self::Restores { STOPPED } else { 0 };
        faults.try_one(&said, || {
            died(&end)?;
            goes_on(scenario, &play, from)
        });
        true
    }
}

/// After a death of a run that had begun at step `from`.
fn goes_on(scenario: &Scenario, play: &Play, from: u64) -> Result<(), String> {
    let (recipe, run) = (play.recipe.clone(), play.out.clone());
    let starts = usize::from(from > 0);
    let mut killed = Killed { scenario, recipe, run, from, starts };
    killed.judge()?;
    killed.end()
}

/// Copies a folder with all that it holds.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("listed");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copied");
        }
    }
}
