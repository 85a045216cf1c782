//! Ranks as processes over MPI, one of which is killed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fulmar_tests::mpi::ENVIRONMENT;
use libtest_mimic::Trial;

use crate::child::{self, Life};
use crate::form::{Draw, either};
use crate::oracle::{loss_of_death, same_end, starts};
use crate::scenario::{ALL, Scenario, folder};
use crate::tally::{Faults, Kind};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |number: usize| {
        let scenario = ALL[number % ALL.len()];
        let name = format!("processes::one_is_killed_{number:02}_{}", scenario.name);
        Faults::trial(Kind::KillOfAProcess, name, move |faults| one_dies(faults, scenario, number))
    };
    (0..either(2, 16)).map(trial).collect()
}

/// Where each rank leaves the number of its process.
const NUMBERS: &str = "FULMAR_FAULTS_NUMBERS";

/// Leaves the number of this process for whoever kills it.
pub(crate) fn leave_number() {
    let rank = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"].map(std::env::var);
    let rank = rank.into_iter().find_map(Result::ok);
    if let (Ok(folder), Some(rank)) = (std::env::var(NUMBERS), rank) {
        let [part, whole] =
            [format!("{rank}.part"), rank].map(|name| Path::new(&folder).join(name));
        std::fs::write(&part, std::process::id().to_string()).expect("written");
        std::fs::rename(part, whole).expect("renamed");
    }
}

/// `train run` of two processes.
fn run(scenario: &Scenario, out: &Path, numbers: &Path) -> Life {
    let of_rank =
        child::run_command(&scenario.undisturbed().recipe, out, &["--set=parallel.ranks=mpi"]);
    let mut command = Command::new("mpirun");
    command.args(["-n", "2"]).arg(of_rank.get_program()).args(of_rank.get_args());
    command.envs(of_rank.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.envs(ENVIRONMENT).env(NUMBERS, numbers);
    Life::of(command)
}

fn one_dies(faults: &mut Faults, scenario: &Scenario, number: usize) {
    let mut draw = Draw::of(&format!("process {number}"));
    let (rank, part) = (draw.below(2), draw.part());
    let undisturbed = scenario.undisturbed();
    let place =
        format!("{}, rank {rank} at part {part:.3} of {:?}", scenario.name, undisturbed.took);
    faults.try_one(&place, || {
        // What ends before its death is run again, and dies earlier.
        for shorter in [1.0, 0.6, 0.3, 0.1] {
            let folder = folder(&format!("process-{number}-{shorter}"));
            let (out, numbers) = (folder.join("run"), folder.join("numbers"));
            std::fs::create_dir_all(&numbers).expect("a folder");
            let mut life = run(scenario, &out, &numbers);
            let process = number_of(&numbers.join(rank.to_string()));
            let begun = Instant::now();
            while begun.elapsed() < undisturbed.took.mul_f64(part * shorter)
                && life.lives(Duration::ZERO)
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            let killed = Command::new("kill").args(["-KILL", &process]).output().expect("`kill`");
            let end = life.end();
            if end.status.success() || !killed.status.success() {
                continue;
            }
            let from = loss_of_death(scenario, &out)?;
            let before = starts(&out)?.len();
            let numbers = folder.join("more-numbers");
            std::fs::create_dir_all(&numbers).expect("a folder");
            run(scenario, &out, &numbers).end().needs(0)?;
            if starts(&out)?[before..] != [from] {
                return Err(format!("started from {:?}, needed {from} last", starts(&out)?));
            }
            return same_end(scenario, &out);
        }
        Err("it always ended before it could be killed".to_owned())
    });
}

/// Of a process that has just started.
fn number_of(file: &Path) -> String {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Ok(number) = std::fs::read_to_string(file) {
            return number;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("no rank left its number in {}", file.display());
}
