//! Jumps of the wall clock, which only people look at.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use fulmar::train::checkpoint::step_folder;
use fulmar::train::history::{Event, HISTORY_FILE, History};
use libtest_mimic::Trial;

use crate::child::{Life, run_command};
use crate::form::{Draw, either};
use crate::oracle::{events, loss_of_death, same_end, starts};
use crate::scenario::{BESIDE, CHANGING, STREAMING, Scenario, folder};
use crate::tally::{Faults, Kind};

const YEAR: u64 = 365 * 24 * 3600;

pub(crate) fn trials() -> Vec<Trial> {
    let scenarios: Vec<&Scenario> = either(vec![&CHANGING], vec![&STREAMING, &BESIDE, &CHANGING]);
    let mut trials = Vec::new();
    for scenario in scenarios {
        let name = format!("clock::jumps_{}", scenario.name);
        trials.push(Faults::trial(Kind::Clock, name, |faults| jumps(faults, scenario)));
        let name = format!("clock::dates_on_files_and_events_{}", scenario.name);
        trials.push(Faults::trial(Kind::Clock, name, |faults| dates(faults, scenario)));
    }
    trials
}

/// Adds `FULMAR_CLOCK_AHEAD` seconds to the wall clock, and takes them away again after every
/// seventh look at it.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*system_clock)(clockid_t, struct timespec *);
    static unsigned long looks;
    if (!system_clock)
        system_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = system_clock(id, now);
    const char *ahead = getenv("FULMAR_CLOCK_AHEAD");
    if (!result && id == CLOCK_REALTIME && ahead) {
        unsigned long look = __atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED);
        now->tv_sec += (look / 7 % 2 ? -1 : 1) * atol(ahead);
    }
    return result;
}
"#;

/// The shim as a library to be loaded before others; why not where that cannot be.
fn shim() -> Result<PathBuf, &'static str> {
    if !cfg!(target_os = "linux") {
        return Err("no `LD_PRELOAD`");
    }
    let folder = folder("clock");
    let [source, library] = ["shim.c", "shim.so"].map(|name| folder.join(name));
    std::fs::write(&source, SHIM).expect("written");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .status();
    match built {
        Ok(status) if status.success() => Ok(library),
        _ => Err("no C compiler `cc`"),
    }
}

/// Each attempt is a year ahead or behind, and jumps to the other side in its course.
fn jumps(faults: &mut Faults, scenario: &Scenario) {
    let place = format!("{}, years ahead of each attempt: 1, -1, 2", scenario.name);
    let library = match shim() {
        Ok(library) => library,
        Err(why) => return faults.skip(&place, why),
    };
    let undisturbed = scenario.undisturbed();
    let run = folder(&format!("jumps-{}", scenario.name)).join("run");
    let mut draw = Draw::of(&format!("jumps {}", scenario.name));
    faults.try_one(&place, || {
        let mut from = 0;
        for years in [1, -1, 2] {
            // A save by time must not become due by a jump.
            let mut command =
                run_command(&undisturbed.recipe, &run, &["--set=checkpoint.every_secs=600"]);
            let ahead = years * YEAR as i64;
            command.env("LD_PRELOAD", &library).env("FULMAR_CLOCK_AHEAD", ahead.to_string());
            let mut life = Life::of(command);
            let begun = starts(&run)?.len();
            if years != 2 {
                if life.lives(undisturbed.took.mul_f64(0.4 + 0.4 * draw.part())) {
                    life.kill();
                } else {
                    life.end().needs(0)?;
                }
            } else {
                life.end().needs(0)?;
            }
            let starts = starts(&run)?;
            if starts.len() > begun && starts.last() != Some(&from) {
                return Err(format!("started from {starts:?}, needed {from} last"));
            }
            from = loss_of_death(scenario, &run)?;
        }
        same_end(scenario, &run)?;
        let seconds: Vec<u64> = history(&run)?.iter().map(|event| event.unix_secs).collect();
        let spread = seconds.iter().max().zip(seconds.iter().min()).map(|(max, min)| max - min);
        if spread < Some(YEAR) {
            return Err(format!("the clock did not jump: events {seconds:?}"));
        }
        saved_when_due(&run)
    });
}

fn history(run: &Path) -> Result<Vec<Event>, String> {
    History::read(run).map_err(|error| error.chain())
}

/// Fails if anything was saved but every two steps and at the end.
fn saved_when_due(run: &Path) -> Result<(), String> {
    let saved = events(run, "saved")?;
    match saved.iter().find(|event| event.detail["of"].as_u64().is_none_or(|of| of % 2 == 1)) {
        Some(event) => Err(format!("{} without being due", event.text)),
        None => Ok(()),
    }
}

/// Between two attempts all dates are turned around: of files, and of what the history tells.
fn dates(faults: &mut Faults, scenario: &Scenario) {
    let undisturbed = scenario.undisturbed();
    for (name, years) in [("a year ahead", 1.0), ("fifty years behind", -50.0)] {
        let run = folder(&format!("dates-{}", scenario.name)).join(name.replace(' ', "-"));
        faults.try_one(&format!("{}, dates {name}, the newest first", scenario.name), || {
            let steps = "--steps=7";
            Life::of(run_command(&undisturbed.recipe, &run, &[steps])).end().needs(0)?;
            let before = loss_of_death(scenario, &run)?;
            turn_dates(&run, years)?;
            Life::of(run_command(&undisturbed.recipe, &run, &[])).end().needs(0)?;
            if starts(&run)? != [0, before] {
                return Err(format!("started from {:?}, needed 0, {before}", starts(&run)?));
            }
            same_end(scenario, &run)?;
            same_left(scenario, &run)
        });
    }
}

/// Fails unless the same checkpoints are left as in the undisturbed run, where that saves while
/// training waits: beside training it is a matter of time which are left out. Step 7 was saved by
/// the stop.
fn same_left(scenario: &Scenario, run: &Path) -> Result<(), String> {
    let left = |run: &Path| -> Vec<u64> {
        let there = |step: &u64| step_folder(run, *step).join("manifest.json").exists();
        (1..=crate::scenario::STEPS).filter(|step| *step != 7).filter(there).collect()
    };
    let [found, needed] = [run, &undisturbed_run(scenario)].map(left);
    if scenario.background || found == needed {
        return Ok(());
    }
    Err(format!("the steps {found:?} are left, needed {needed:?}"))
}

fn undisturbed_run(scenario: &Scenario) -> PathBuf {
    scenario.undisturbed().run.clone()
}

fn turn_dates(run: &Path, years: f64) -> Result<(), String> {
    let mut events = history(run)?;
    let now = events.iter().map(|event| event.unix_secs).max().expect("some events");
    let there = now.saturating_add_signed((years * YEAR as f64) as i64);
    for (number, event) in events.iter_mut().enumerate() {
        event.unix_secs = there.saturating_sub(1000 * number as u64);
    }
    let lines =
        events.iter().map(|event| serde_json::to_string(event).expect("plain values") + "\n");
    std::fs::write(run.join(HISTORY_FILE), lines.collect::<String>()).expect("written");
    for step in 0..crate::scenario::STEPS {
        let Ok(files) = std::fs::read_dir(step_folder(run, step)) else { continue };
        for file in files {
            let date =
                SystemTime::UNIX_EPOCH + Duration::from_secs(there.saturating_sub(5000 * step));
            let file = std::fs::OpenOptions::new().write(true).open(file.expect("listed").path());
            file.and_then(|file| file.set_modified(date)).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
