//! Faults, one after the other, on small runs: what was trained must come out as if nothing had
//! been.
//!
//! `tests/README.md` has the commands of the short and the long form. This binary is also the
//! trainer that is killed: told so by the environment, it does what `train` does (`child`).

#[allow(dead_code, reason = "shared with the suite, which uses all of it")]
#[path = "../suite/tiny.rs"]
mod tiny;

mod child;
mod form;
mod oracle;
mod play;
mod scenario;
mod tally;

mod deadly;
mod unsound;

mod clock;
mod damage;
mod kills;
#[cfg(feature = "mpi")]
mod processes;
mod ranks;
mod stops;
mod writes;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(status) = child::act() {
        return status;
    }
    let args = form::take_own(std::env::args());
    let folder = tempfile::tempdir().expect("a temporary folder");
    scenario::work_in(folder.path());
    let args = Arguments::from_iter(args);
    let conclusion = libtest_mimic::run(&args, trials());
    let whole = args.list || tally::print();
    drop(folder);
    if conclusion.has_failed() || !whole { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn trials() -> Vec<Trial> {
    let mut trials = kills::trials();
    #[cfg(feature = "mpi")]
    trials.extend(processes::trials());
    trials.extend(writes::trials());
    trials.extend(damage::trials());
    trials.extend(ranks::trials());
    trials.extend(clock::trials());
    trials.extend(stops::trials());
    trials
}
