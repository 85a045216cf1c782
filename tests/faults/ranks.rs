//! A rank that fails, skips a collective, is silent or slow, at collectives spread over a run: from
//! the first that ranks do together to the last evaluation.

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::child::{self, End};
use crate::form::{Draw, either, spread};
use crate::oracle::{events, loss_of_death, same_end, starts};
use crate::play::{How, Play, Wrong as WrongCall};
use crate::scenario::{CHANGING, REPLICAS, STREAMING, Scenario, folder};
use crate::tally::{Faults, Kind};
use crate::unsound::{BROKEN, Fault, Wrong};

use fulmar::train::exit;
use fulmar::train::storage::Call;

pub(crate) fn trials() -> Vec<Trial> {
    let lost = Lost::ALL.iter().map(|lost| {
        let name = format!("ranks::{}", lost.name());
        Faults::trial(Kind::LostRank, name, move |faults| lost.all(faults))
    });
    let slow = [
        Faults::trial(Kind::SlowRank, "ranks::is_slow_in_a_step", slow_step),
        Faults::trial(Kind::SlowRank, "ranks::is_slow_in_a_save", slow_save),
    ];
    lost.chain(slow).collect()
}

/// The rank that goes wrong, of two.
const FAULTY: usize = 1;

/// Of collectives: long enough for a sound wait on a busy machine.
const DEADLINE: Duration = Duration::from_secs(6);

/// How a rank is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Panics,
    Fails,
    Skips,
    IsSilent,
    Hangs,
}

impl Lost {
    const ALL: &[Self] = &[Self::Panics, Self::Fails, Self::Skips, Self::IsSilent, Self::Hangs];

    fn name(self) -> &'static str {
        match self {
            Self::Panics => "panics",
            Self::Fails => "fails",
            Self::Skips => "skips_a_collective",
            Self::IsSilent => "is_silent_beyond_the_deadline",
            Self::Hangs => "hangs_for_good",
        }
    }

    fn wrong(self) -> Wrong {
        match self {
            Self::Panics => Wrong::Panics,
            Self::Fails => Wrong::Fails,
            Self::Skips => Wrong::Skips,
            Self::IsSilent => Wrong::SilentBefore(DEADLINE.as_secs_f64() + 3.0),
            Self::Hangs => Wrong::Hangs,
        }
    }

    fn count(self) -> u64 {
        match self {
            Self::Panics | Self::Fails => either(2, 16),
            Self::Skips => either(3, 24),
            Self::IsSilent => either(1, 10),
            Self::Hangs => either(1, 4),
        }
    }

    fn all(self, faults: &mut Faults) {
        let scenarios: Vec<&Scenario> =
            either(vec![&STREAMING], vec![&STREAMING, &CHANGING, &REPLICAS]);
        let each = self.count().div_ceil(scenarios.len() as u64) as usize;
        for scenario in scenarios {
            let folder = folder(&format!("{}-{}", self.name(), scenario.name));
            let labels = play(scenario, &folder.join("sound"), None).labels_of();
            let mut draw = Draw::of(&format!("{self:?} {}", scenario.name));
            let places = spread(each as u64 + 2, labels.len() as u64);
            for place in places.into_iter().skip(1).take(each) {
                let place = place.saturating_sub(draw.below(20));
                let label = &labels[place as usize];
                let said = format!("{} `{label}`, collective {}", scenario.name, place + 1);
                faults.try_one(&said, || {
                    let run = folder.join(format!("run-{place}"));
                    let fault = Fault { rank: FAULTY, at: place + 1, wrong: self.wrong() };
                    self.one(scenario, &run, fault, label)
                });
            }
        }
    }

    fn one(self, scenario: &Scenario, run: &Path, fault: Fault, label: &str) -> Result<(), String> {
        let play = play(scenario, run, Some(fault));
        let end = child::play(&play);
        self.judge(&end, label)?;
        let before =
            if run.join("history.jsonl").exists() { loss_of_death(scenario, run)? } else { 0 };
        let starts_before = starts(run)?.len();
        child::run(&play.recipe, run, &[]).end().needs(0)?;
        if starts(run)?[starts_before..] != [before] {
            return Err(format!("started from {:?}, needed {before} last", starts(run)?));
        }
        same_end(scenario, run)
    }

    /// How all ranks have to end.
    fn judge(self, end: &End, label: &str) -> Result<(), String> {
        // What silence and its end take, and as much again as a run.
        let most = Duration::from_secs(match self {
            Self::Panics | Self::Fails => 60,
            Self::Skips => 60 + DEADLINE.as_secs(),
            Self::IsSilent => 60 + 2 * DEADLINE.as_secs(),
            Self::Hangs => 60 + 4 * DEADLINE.as_secs(),
        });
        if end.took > most {
            return Err(format!("took {:?}, at most {most:?}: {end}", end.took));
        }
        let status = if self == Self::Panics { exit::OTHER } else { exit::PEER_LOST };
        end.needs(status.into())?;
        match self {
            Self::Panics | Self::Fails => {
                end.needs_said("rank 1")?;
                end.needs_said(BROKEN)
            }
            Self::Skips => {
                if !["got ", "which did not come"].iter().any(|said| end.said.contains(said)) {
                    return Err(format!("no rank misses another: {end}"));
                }
                end.needs_said("(number ")?;
                end.needs_said(&format!("rank {FAULTY}"))
            }
            Self::IsSilent => {
                end.needs_said(&format!("`{label}` (number "))?;
                end.needs_said(&format!("for rank [{FAULTY}], which did not come"))
            }
            Self::Hangs => {
                end.needs_said("no rank of this process has made progress")?;
                end.needs_said("rank 0: ")?;
                end.needs_said("rank 1: ")?;
                // The rank that waited has told it before.
                end.needs_said(&format!("`{label}` (number "))?;
                end.needs_said(&format!("for rank [{FAULTY}], which did not come"))
            }
        }
    }
}

fn play(scenario: &Scenario, run: &Path, rank: Option<Fault>) -> Play {
    let set = [
        format!("parallel.deadline_secs={}", DEADLINE.as_secs()),
        format!("guard.stuck_secs={}", 2 * DEADLINE.as_secs()),
        "guard.slow_secs=1.0".to_owned(),
        "guard.slow_factor=3.0".to_owned(),
        // Beside training it is a matter of time which collective is the nth.
        "checkpoint.background=false".to_owned(),
    ];
    let recipe = scenario.undisturbed().recipe.clone();
    Play { recipe, out: run.to_owned(), set: set.into(), over: true, rank, ..Play::default() }
}

/// Between two steps.
const NEXT: &str = "between steps";

fn slow_step(faults: &mut Faults) {
    for scenario in either(vec![&STREAMING], vec![&STREAMING, &CHANGING, &REPLICAS]) {
        let folder = folder(&format!("slow-{}", scenario.name));
        let labels = play(scenario, &folder.join("sound"), None).labels_of();
        let ends: Vec<usize> = labels
            .iter()
            .enumerate()
            .filter(|(_, label)| *label == NEXT)
            .map(|(at, _)| at)
            .collect();
        for step in either(&[9][..], &[7, 9, 11, 13]) {
            // The last collective of the step: the other rank goes on to what comes between steps.
            let at = ends[step - 1] as u64;
            let run = folder.join(format!("run-{step}"));
            let said =
                format!("{} after `{}` of step {step}", scenario.name, labels[at as usize - 1]);
            faults.try_one(&said, || {
                let fault = Fault { rank: FAULTY, at, wrong: Wrong::SilentAfter(3.5) };
                child::play(&play(scenario, &run, Some(fault))).needs(0)?;
                let slow = events(&run, "slow_step")?;
                let told = slow.iter().any(|event| {
                    let ranks = event.detail.get("ranks");
                    event.step + 1 == *step as u64 && ranks == Some(&serde_json::json!([FAULTY]))
                });
                if !told {
                    return Err(format!("no event names rank {FAULTY} in step {step}: {slow:?}"));
                }
                same_end(scenario, &run)
            });
        }
    }
}

fn slow_save(faults: &mut Faults) {
    let scenario = &STREAMING;
    let folder = folder("slow-save");
    for step in either(&[10][..], &[8, 10, 12]) {
        let run = folder.join(format!("run-{step}"));
        faults.try_one(&format!("{} in the save of step {step}", scenario.name), || {
            let part = format!("step-{step:08}/shard-{FAULTY}-of-2.safetensors");
            let mut play = play(scenario, &run, None);
            play.calls = vec![WrongCall::at(Call::Finish, &part, 1, How::Slow(3500))];
            child::play(&play).needs(0)?;
            let slow = events(&run, "slow_step")?;
            if !slow.iter().any(|event| event.detail["activity"] == "save" && event.step <= *step) {
                return Err(format!("no event tells of a slow save: {slow:?}"));
            }
            same_end(scenario, &run)
        });
    }
}
