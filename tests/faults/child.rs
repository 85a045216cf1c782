//! Trainers in processes of their own: this binary, told by the environment what to be.

use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::play::Play;

/// `train` for the binary's own command line, else a [`Play`].
const ACT: &str = "FULMAR_FAULTS_ACT";
const TRAIN: &str = "train";

/// No process takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// Does what the environment says, in a process that was started for it.
pub(crate) fn act() -> Option<ExitCode> {
    let act = std::env::var(ACT).ok()?;
    if act == TRAIN {
        #[cfg(feature = "mpi")]
        crate::processes::leave_number();
        return Some(fulmar::train::cli::main());
    }
    let play: Play = serde_json::from_str(&act).expect("a play");
    Some(play.act())
}

fn this(act: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.env(ACT, act).env("RAYON_NUM_THREADS", "2");
    command
}

/// `train` with these arguments.
pub(crate) fn train(args: &[&str]) -> Command {
    let mut command = this(TRAIN);
    command.args(args);
    command
}

/// `train run` of a recipe into `out`, going on from what is there.
pub(crate) fn run(recipe: &Path, out: &Path, more: &[&str]) -> Life {
    Life::of(run_command(recipe, out, more))
}

pub(crate) fn run_command(recipe: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = train(&["run", "--device=cpu", "--resume"]);
    command.arg(recipe).arg("--out").arg(out).args(more);
    command
}

/// A play, to its end.
pub(crate) fn play(play: &Play) -> End {
    Life::of(this(&serde_json::to_string(play).expect("plain values"))).end()
}

/// A process that lives.
pub(crate) struct Life {
    child: Child,
    began: Instant,
    said: tempfile::NamedTempFile,
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
    pub(crate) took: Duration,
}

impl Life {
    pub(crate) fn of(mut command: Command) -> Self {
        // Both streams into one file: nobody has to read while it lives.
        let said = tempfile::NamedTempFile::new().expect("a temporary file");
        let at_end =
            || std::fs::OpenOptions::new().append(true).open(said.path()).expect("opened again");
        let child = command.stdin(Stdio::null()).stdout(at_end()).stderr(at_end()).spawn();
        Self { child: child.expect("this binary starts"), began: Instant::now(), said }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still lived `after` so long.
    pub(crate) fn lives(&mut self, after: Duration) -> bool {
        while self.began.elapsed() < after {
            if self.child.try_wait().expect("waited for").is_some() {
                return false;
            }
            let left = after.saturating_sub(self.began.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
        self.child.try_wait().expect("waited for").is_none()
    }

    /// Kills it and waits.
    pub(crate) fn kill(mut self) -> End {
        self.child.kill().expect("killed");
        self.end()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it hangs.
    pub(crate) fn end(mut self) -> End {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waited for") {
                break status;
            }
            if self.began.elapsed() > PATIENCE {
                self.child.kill().expect("killed");
                self.child.wait().expect("dead");
                panic!("hangs for {PATIENCE:?}; it said:\n{}", self.text());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        End { status, said: self.text(), took: self.began.elapsed() }
    }

    fn text(&self) -> String {
        let bytes = std::fs::read(self.said.path()).expect("read");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for an end with status 0.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub(crate) fn done(self) {
        let end = self.end();
        assert!(end.status.success(), "{end}");
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<&str> = self.said.lines().collect();
        let last = lines[lines.len().saturating_sub(25)..].join("\n    ");
        write!(f, "{}, it said last:\n    {last}", self.status)
    }
}

impl End {
    /// Fails unless it ended with this status.
    pub(crate) fn needs(&self, status: i32) -> Result<(), String> {
        if self.status.code() == Some(status) {
            return Ok(());
        }
        Err(format!("needed exit status {status}, found {self}"))
    }

    /// Fails unless it said this.
    pub(crate) fn needs_said(&self, text: &str) -> Result<(), String> {
        if self.said.contains(text) {
            return Ok(());
        }
        Err(format!("did not say {text:?}; {self}"))
    }
}
