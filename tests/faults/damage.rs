//! What lies in a checkpoint, altered: refused with the file named, and the older one taken.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser as _;
use fulmar::train::checkpoint::resume::resume;
use fulmar::train::checkpoint::{Run, step_folder};
use fulmar::train::cli::Cli;
use fulmar::train::history::Event;
use fulmar::train::launch::on_ranks;
use fulmar::train::operations::Position;
use fulmar::train::storage::open_storage;
use fulmar::train::{DeviceChoice, RunConfig, TrainError, assemble, device};
use libtest_mimic::Trial;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child;
use crate::form::{Draw, either, spread};
use crate::kills::copy;
use crate::oracle::{events, same_end, starts, whole};
use crate::play::Play;
use crate::scenario::{CHANGING, EVERY, REPLICAS, STREAMING, Scenario, folder};
use crate::tally::{Faults, Kind};

pub(crate) fn trials() -> Vec<Trial> {
    let name = "damage::is_named_and_the_older_checkpoint_taken";
    let everywhere = Faults::trial(Kind::Damage, name, everywhere);
    let to_the_end = [&STREAMING, &CHANGING, &REPLICAS].map(|scenario| {
        let name = format!("damage::does_not_change_the_end_{}", scenario.name);
        Faults::trial(Kind::Damage, name, move |faults| to_the_end(faults, scenario))
    });
    [everywhere].into_iter().chain(to_the_end).collect()
}

/// What is done to a file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Damage {
    file: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// A bit of a byte is flipped.
    Flip {
        byte: usize,
        bit: u8,
    },
    /// A byte is left out.
    Cut {
        byte: usize,
    },
    /// Eight bytes are zeros, or ones where they were zeros.
    Zeros {
        byte: usize,
    },
    /// It ends here.
    Ends {
        byte: usize,
    },
    Missing,
    /// It has the name of another one, which has its name.
    Swapped {
        with: String,
    },
    /// It is that of another step.
    Of {
        step: u64,
    },
}

impl Damage {
    /// Does it to the checkpoint of `step`.
    fn inflict(&self, run: &Path, step: u64) {
        let folder = step_folder(run, step);
        let path = folder.join(&self.file);
        let read = |path: &Path| std::fs::read(path).expect("read");
        let sound = read(&path);
        let mut bytes = sound.clone();
        match &self.what {
            What::Flip { byte, bit } => bytes[*byte] ^= 1 << bit,
            What::Cut { byte } => drop(bytes.remove(*byte)),
            What::Zeros { byte } => {
                let end = (byte + 8).min(bytes.len());
                let zeros = bytes[*byte..end].iter().all(|byte| *byte == 0);
                bytes[*byte..end].fill(if zeros { 0xff } else { 0 });
            }
            What::Ends { byte } => bytes.truncate(*byte),
            What::Missing => return std::fs::remove_file(&path).expect("removed"),
            What::Swapped { with } => {
                bytes = read(&folder.join(with));
                std::fs::write(folder.join(with), &sound).expect("written");
            }
            What::Of { step } => bytes = read(&step_folder(run, *step).join(&self.file)),
        }
        assert!(bytes != sound, "{self:?} alters nothing");
        std::fs::write(path, bytes).expect("written");
    }

    /// Files of which one has to be named.
    fn files(&self) -> Vec<&str> {
        match &self.what {
            What::Swapped { with } => vec![&self.file, with],
            _ => vec![&self.file],
        }
    }
}

/// A number of places spread evenly over all bytes of all files of a checkpoint, what is done there
/// in turn, and what happens to whole files.
fn damages(run: &Path, step: u64, other: u64, places: u64) -> Vec<Damage> {
    let folder = step_folder(run, step);
    let files = std::fs::read_dir(&folder).expect("a checkpoint").map(|file| {
        let file = file.expect("listed");
        let name = file.file_name().to_string_lossy().into_owned();
        (name, file.metadata().expect("a file").len())
    });
    let files: BTreeMap<String, u64> = files.collect();
    let mut draw = Draw::of("damage");
    let at = |place: u64, number: usize, draw: &mut Draw| {
        let mut byte = place;
        for (file, bytes) in &files {
            if byte < *bytes {
                let byte = byte as usize;
                let what = match number % 4 {
                    0 | 1 => What::Flip { byte, bit: draw.below(8) as u8 },
                    2 => What::Cut { byte },
                    _ => What::Zeros { byte },
                };
                return Damage { file: file.clone(), what };
            }
            byte -= bytes;
        }
        unreachable!("a place within all files")
    };
    let all = files.values().sum();
    let places = spread(places, all).into_iter().enumerate();
    let mut damages: Vec<Damage> =
        places.map(|(number, place)| at(place, number, &mut draw)).collect();
    // Each file has its share however small it is.
    for (number, (file, bytes)) in files.iter().enumerate() {
        let byte = draw.below(*bytes) as usize;
        let flip = What::Flip { byte, bit: draw.below(8) as u8 };
        let ends = What::Ends { byte: draw.below(*bytes) as usize };
        let mut whats = vec![flip, ends, What::Missing, What::Of { step: other }];
        let with = files.keys().nth((number + 1) % files.len()).expect("several").clone();
        whats.push(What::Swapped { with });
        damages.extend(whats.into_iter().map(|what| Damage { file: file.clone(), what }));
    }
    let differs = |damage: &Damage| match damage.what {
        What::Of { step: other } => {
            let read =
                |step| std::fs::read(step_folder(run, step).join(&damage.file)).expect("read");
            read(step) != read(other)
        }
        _ => true,
    };
    damages.retain(differs);
    damages
}

const NEWEST: u64 = 10;

fn stopped(scenario: &Scenario, folder: &Path) -> Play {
    let recipe = scenario.undisturbed().recipe.clone();
    let out = folder.join("run");
    child::run(&recipe, &out, &[&format!("--steps={NEWEST}")]).done();
    Play { recipe, out, ..Play::default() }
}

/// Lines between which a process says what it found.
fn begins(number: usize, what: &str) -> String {
    format!("## damage {number}: {what}")
}

fn everywhere(faults: &mut Faults) {
    let mut play = stopped(&STREAMING, &folder("damage"));
    let older = NEWEST - EVERY;
    play.damages = damages(&play.out, NEWEST, older, either(16, 100));
    let end = child::play(&play);
    assert!(end.status.success(), "{end}");
    for (number, damage) in play.damages.iter().enumerate() {
        faults.try_one(&format!("step {NEWEST} of {}: {damage:?}", STREAMING.name), || {
            let between = |from: &str, to: &str| -> Result<&str, String> {
                let found = end.said.split_once(&begins(number, from)).and_then(|(_, rest)| {
                    rest.split_once(&begins(number, to)).map(|(said, _)| said)
                });
                found.ok_or_else(|| format!("said nothing of it; {end}"))
            };
            let verified = between("verify", "resume")?;
            let resumed = between("resume", "end")?;
            let folder = step_folder(&play.out, NEWEST);
            let named = |said: &str| {
                let files = damage.files();
                files.iter().any(|file| said.contains(&*folder.join(file).to_string_lossy()))
            };
            if !verified.contains("not whole") || !named(verified) {
                return Err(format!("`checkpoint verify` said {verified}"));
            }
            let passed: String =
                resumed.lines().filter(|line| line.starts_with("passed over")).collect();
            if !named(&passed) || !resumed.contains(&format!("resumed at Ok(Some({older}))")) {
                return Err(format!("a resume said {resumed}"));
            }
            Ok(())
        });
    }
}

impl Play {
    /// Each damage by itself: what `checkpoint verify` says and what a resume takes.
    pub(crate) fn look_at_damages(&self, config: &RunConfig) -> Result<(), TrainError> {
        let storage = open_storage(config, &self.out)?;
        let data = assemble::data(config)?;
        let newest = step_folder(&self.out, NEWEST);
        let sound = self.out.with_extension("sound");
        copy(&newest, &sound);
        for (number, damage) in self.damages.iter().enumerate() {
            damage.inflict(&self.out, NEWEST);
            println!("{}", begins(number, "verify"));
            let run = self.out.to_str().expect("a plain path");
            let args = ["train", "checkpoint", "verify", run, "--step", "10"];
            let verified = Cli::try_parse_from(args).expect("flags").command.execute();
            println!("{}", verified.map_or_else(|error| error.chain(), |()| "whole".to_owned()));
            println!("{}", begins(number, "resume"));
            let found = on_ranks(config, |world| {
                let plan_at = |at: Position, _: &[u64]| {
                    Ok((config.clone(), data.consumed(config.rows_taken(at.batches))))
                };
                let of_run = Run::new(&storage, config, &data.digest);
                let device = device::open(DeviceChoice::Cpu)?.device;
                let resumed = resume(&of_run, &plan_at, &self.out, world, &device)?;
                Ok(resumed.from.map(|manifest| manifest.step))
            });
            println!("resumed at {:?}", found.map_err(|error| error.chain()));
            println!("{}", begins(number, "end"));
            copy(&sound, &newest);
        }
        Ok(())
    }
}

/// A run that goes on beside a damaged checkpoint, and over it.
fn to_the_end(faults: &mut Faults, scenario: &Scenario) {
    let folder = folder(&format!("damaged-{}", scenario.name));
    let play = stopped(scenario, &folder);
    // Nothing but the newest may be left; an older one is kept beside it here.
    let steps = [NEWEST, NEWEST - EVERY, NEWEST - 2 * EVERY];
    let older = steps.into_iter().skip(1).find(|step| whole(&play.out, *step).is_ok());
    let Some(older) = older else {
        return faults.skip(scenario.name, "no older checkpoint is kept");
    };
    let damages = damages(&play.out, NEWEST, older, either(2, 8));
    let mut draw = Draw::of(&format!("to the end {}", scenario.name));
    for number in 0..either(2, 10) {
        let damage = damages[draw.below(damages.len() as u64) as usize].clone();
        let run = folder.join(format!("run-{number}"));
        faults.try_one(
            &format!("step {NEWEST} of {}, to the end: {damage:?}", scenario.name),
            || {
                copy(&play.out, &run);
                damage.inflict(&run, NEWEST);
                let end = child::run(&play.recipe, &run, &[]).end();
                end.needs(0)?;
                end.needs_said("passed over: ")?;
                if starts(&run)?.last() != Some(&older) {
                    return Err(format!("started from {:?}, needed {older} last", starts(&run)?));
                }
                same_end(scenario, &run)?;
                // Trained again, the damaged one is whole where it was saved again, unless it is pruned
                // since. Beside training it is not, if an earlier save still goes on at its turn.
                let there = step_folder(&run, NEWEST).join("manifest.json").exists();
                if there && (!scenario.background || saved_by_the_last_start(&run, NEWEST)?) {
                    whole(&run, NEWEST)?;
                }
                Ok(())
            },
        );
    }
}

/// Whether the newest attempt of a run has recorded that it saved `step`.
fn saved_by_the_last_start(run: &Path, step: u64) -> Result<bool, String> {
    let attempt = events(run, "started")?.last().map(|event| event.attempt);
    let saved = events(run, "saved")?;
    let of_step = |event: &Event| event.detail.get("of").and_then(Value::as_u64) == Some(step);
    Ok(saved.iter().any(|event| Some(event.attempt) == attempt && of_step(event)))
}
