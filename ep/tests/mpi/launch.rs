//! Starts the ranks of a case, and looks at how they ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use fulmar_tests::mpi::ENVIRONMENT;

use crate::STATUS;
use crate::{Case, Needed, RANKS};

/// No case may take longer; a failure must end all ranks long before.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a case. How long it took, or what was wrong and everything that was printed.
pub(crate) fn judge(case: &Case) -> Result<Duration, String> {
    let started = Instant::now();
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{}.log", case.name));
    let mut ranks = start(case, &log).map_err(|error| {
        format!("mpirun does not start ({error}); needed: an MPI, as in openmpi-bin")
    })?;
    let status = end(&mut ranks);
    let took = started.elapsed();
    let printed = fs::read(&log).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    let problem = match status {
        None => Some(format!("it still ran after {LIMIT:?}")),
        Some(status) => problem(&case.needed, status, &printed),
    };
    match problem {
        None => Ok(took),
        Some(problem) => Err(format!("{problem}; it printed:\n{printed}")),
    }
}

fn start(case: &Case, log: &PathBuf) -> std::io::Result<Child> {
    let log = File::create(log)?;
    Command::new("mpirun")
        .args(["-n", &RANKS.to_string()])
        .arg(std::env::current_exe()?)
        .args(["--case", case.name])
        .envs(ENVIRONMENT)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

fn end(ranks: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if let Some(status) = ranks.try_wait().expect("a child of this process") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    // Ranks end when they lose mpirun.
    ranks.kill().expect("a child of this process");
    ranks.wait().expect("a child of this process");
    None
}

fn problem(needed: &Needed, status: ExitStatus, printed: &str) -> Option<String> {
    let starting = |word| printed.lines().filter(|line| line.starts_with(word)).collect::<Vec<_>>();
    let Needed::Failure { says, errors } = needed else {
        return (!status.success()).then(|| format!("{status}, needed success"));
    };
    let (first, found) = (starting("first: "), starting("error: ").len());
    if status.success() || (!says.is_empty() && status.code() != Some(STATUS.into())) {
        return Some(format!("{status}, needed {STATUS} if a rank reports, or another failure"));
    }
    if first.len() != usize::from(!says.is_empty()) {
        return Some(format!("{} ranks reported, needed one at most", first.len()));
    }
    if let Some(missing) = says.iter().find(|text| !first[0].contains(**text)) {
        return Some(format!("`{}` does not say `{missing}`", first[0]));
    }
    (found != *errors).then(|| format!("{found} bodies ended with an error, needed {errors}"))
}
