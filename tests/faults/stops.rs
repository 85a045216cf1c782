//! SIGTERM at instants by chance, and targets that deny writing or removing.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use fulmar::train::checkpoint::{candidates, folder as checkpoints, step_name};
use fulmar::train::storage::Call;
use libtest_mimic::Trial;

use crate::child::{self, Life};
use crate::form::{Draw, either};
use crate::oracle::{events, newest_whole, same_end, starts, storage_of, whole};
use crate::play::{How, Play, Wrong};
use crate::scenario::{ALL, CHANGING, STEPS, STREAMING, Scenario, folder};
use crate::tally::{Faults, Kind};

const EACCES: i32 = 13;
const EROFS: i32 = 30;

pub(crate) fn trials() -> Vec<Trial> {
    let stops = (0..either(4, 24)).map(|number| {
        let scenario = ALL[number % ALL.len()];
        let name = format!("stops::at_instant_{number:02}_{}", scenario.name);
        Faults::trial(Kind::Stop, name, move |faults| stop(faults, scenario, number))
    });
    let targets = [
        Faults::trial(Kind::Target, "target::is_read_only_before_the_first_step", read_only),
        Faults::trial(Kind::Target, "target::becomes_read_only", becomes_read_only),
        Faults::trial(Kind::Target, "target::denies_removing", denies_removing),
        Faults::trial(Kind::Target, "target::is_denied_by_permissions", permissions),
        Faults::trial(Kind::Target, "target::has_a_folder_where_a_file_goes", in_the_way),
    ];
    stops.chain(targets).collect()
}

fn stop(faults: &mut Faults, scenario: &Scenario, number: usize) {
    let undisturbed = scenario.undisturbed();
    let part = Draw::of(&format!("stop {number}")).part();
    let run = folder(&format!("stop-{number}")).join("run");
    let place = format!("{} at part {part:.3} of {:?}", scenario.name, undisturbed.took);
    faults.try_one(&place, || {
        let mut life = child::run(&undisturbed.recipe, &run, &[]);
        life.lives(undisturbed.took.mul_f64(part));
        terminate(&life);
        let end = life.end();
        let stopped = events(&run, "stopped")?;
        match end.status.signal() {
            // Before it listens there is nothing to save.
            Some(15) if starts(&run)?.is_empty() => {}
            _ => {
                end.needs(0)?;
                let at = stopped.last().map_or(STEPS, |event| event.step);
                whole(&run, at)?;
            }
        }
        let from = newest_whole(&run);
        child::run(&undisturbed.recipe, &run, &[]).end().needs(0)?;
        if starts(&run)?.last() != Some(&from) {
            return Err(format!("started from {:?}, needed {from} last", starts(&run)?));
        }
        same_end(scenario, &run)
    });
}

fn terminate(life: &Life) {
    let killed = Command::new("kill").args(["-TERM", &life.id().to_string()]).output();
    // It may have ended.
    killed.expect("`kill` runs");
}

fn play(scenario: &Scenario, run: &Path, calls: Vec<Wrong>) -> Play {
    let recipe = scenario.undisturbed().recipe.clone();
    Play { recipe, out: run.to_owned(), calls, ..Play::default() }
}

fn says(code: i32) -> String {
    std::io::Error::from_raw_os_error(code).to_string()
}

/// A run that cannot save does not begin.
fn read_only(faults: &mut Faults) {
    let folder = folder("read-only");
    for (number, (call, code)) in
        [(Call::Create, EROFS), (Call::Create, EACCES), (Call::Write, EROFS), (Call::Finish, EROFS)]
            .into_iter()
            .enumerate()
    {
        let run = folder.join(format!("run-{number}"));
        faults.try_one(&format!("{call:?} always fails with {code}"), || {
            let calls = vec![Wrong::from(call, "", 1, How::Fails(code))];
            let end = child::play(&play(&STREAMING, &run, calls));
            end.needs(6)?;
            end.needs_said(&says(code))?;
            end.needs_said(&checkpoints(&run).to_string_lossy())?;
            match starts(&run)?.len() {
                0 => {}
                _ => return Err("it began".to_owned()),
            }
            child::run(&STREAMING.undisturbed().recipe, &run, &[]).end().needs(0)?;
            same_end(&STREAMING, &run)
        });
    }
}

/// In its course: it goes on to the end, says so, and keeps what it had.
fn becomes_read_only(faults: &mut Faults) {
    let folder = folder("becomes-read-only");
    for from in either(&[6][..], &[2, 4, 6, 10]) {
        let run = folder.join(format!("run-{from}"));
        faults.try_one(&format!("nothing can be written from the save of step {from} on"), || {
            let steps = (*from..=STEPS).map(step_name);
            let calls =
                steps.map(|s| Wrong::from(Call::Create, &s, 1, How::Fails(EROFS))).collect();
            let end = child::play(&play(&STREAMING, &run, calls));
            end.needs(6)?;
            end.needs_said(&says(EROFS))?;
            let (found, needed) = (newest_whole(&run), from - 2);
            if found != needed {
                return Err(format!("the newest whole is {found}, needed {needed}"));
            }
            if events(&run, "save_failed")?.is_empty() {
                return Err("no event `save_failed`".to_owned());
            }
            child::run(&STREAMING.undisturbed().recipe, &run, &[]).end().needs(0)?;
            if starts(&run)? != [0, needed] {
                return Err(format!("started from {:?}, needed 0, {needed}", starts(&run)?));
            }
            same_end(&STREAMING, &run)
        });
    }
}

/// Nothing is pruned, and nothing else changes.
fn denies_removing(faults: &mut Faults) {
    let folder = folder("denies-removing");
    for (number, calls) in [
        vec![Wrong::from(Call::Remove, "", 1, How::Fails(EACCES))],
        vec![Wrong::from(Call::Remove, "shard", 1, How::Fails(EROFS))],
        vec![Wrong::from(Call::Remove, "", 1, How::Lost(5))],
    ]
    .into_iter()
    .enumerate()
    {
        let run = folder.join(format!("run-{number}"));
        faults.try_one(&format!("{calls:?}"), || {
            let end = child::play(&play(&CHANGING, &run, calls.clone()));
            end.needs(0)?;
            same_end(&CHANGING, &run)?;
            if events(&run, "prune_failed")?.is_empty() {
                return Err(format!("no event `prune_failed`: {end}"));
            }
            let storage = storage_of(&run);
            for found in candidates(&storage).map_err(|error| error.chain())? {
                // Its manifest goes first, so what is half gone has none.
                if found.manifest.is_ok() {
                    whole(&run, found.step)?;
                }
            }
            // Another life that may remove ends what was begun.
            child::run(&CHANGING.undisturbed().recipe, &run, &[]).end().needs(0)?;
            same_end(&CHANGING, &run)
        });
    }
}

/// The same of a folder that the system itself denies.
fn permissions(faults: &mut Faults) {
    let place = "a folder of checkpoints without the right to write";
    let run = folder("permissions").join("run");
    let target = checkpoints(&run);
    std::fs::create_dir_all(&target).expect("a folder");
    let allow = |mode| {
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    allow(0o555);
    if std::fs::write(target.join("probe"), "").is_ok() {
        std::fs::remove_file(target.join("probe")).expect("removed");
        return faults.skip(place, "this user may write everywhere");
    }
    faults.try_one(place, || {
        let end = child::run(&STREAMING.undisturbed().recipe, &run, &[]).end();
        allow(0o755);
        end.needs(6)?;
        end.needs_said(&says(EACCES))?;
        child::run(&STREAMING.undisturbed().recipe, &run, &[]).end().needs(0)?;
        same_end(&STREAMING, &run)
    });
}

/// A real obstacle on a real disk, which no right can help.
fn in_the_way(faults: &mut Faults) {
    let folder = folder("in-the-way");
    for (number, file) in
        ["shard-0-of-2.safetensors", "shard-1-of-2.safetensors", "recipe.toml", "manifest.json"]
            .into_iter()
            .enumerate()
    {
        let run = folder.join(format!("run-{number}"));
        faults.try_one(&format!("a folder is where {file} of step 6 goes"), || {
            let name = format!("{}/{file}", step_name(6));
            std::fs::create_dir_all(checkpoints(&run).join(&name)).expect("a folder");
            child::run(&STREAMING.undisturbed().recipe, &run, &[]).end().needs(0)?;
            let failed = events(&run, "save_failed")?;
            if failed.len() != 1 || !failed[0].text.contains(&name) {
                return Err(format!("needed one event that names {name}, found {failed:?}"));
            }
            same_end(&STREAMING, &run)
        });
    }
}
