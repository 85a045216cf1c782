//! The examination of one operation in a process of its own.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum as _;

use super::Outcome;
use crate::device::DeviceChoice;
use crate::error::TrainError;

/// Lines that a process which died is quoted with.
const LAST_LINES: usize = 4;

/// `train doctor` for one operation, whose output [`examine`] reads.
pub(super) fn command(program: &Path, choice: DeviceChoice, op: &str) -> Command {
    let choice = choice.to_possible_value().expect("every choice has a name");
    let mut command = Command::new(program);
    command.args(["doctor", "--device", choice.get_name(), "--op", op, "--json"]);
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Runs it to its end.
pub(super) fn examine(command: &mut Command) -> Result<Outcome, TrainError> {
    let output = command.output().map_err(|source| {
        let path = command.get_program().into();
        TrainError::Io { doing: "run", path, source }
    })?;
    if let Ok(findings) = serde_json::from_slice(&output.stdout) {
        return Ok(Outcome::Ran(findings));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> =
        said.lines().map(str::trim).filter(|line| !line.is_empty() && !is_advice(line)).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("; ");
    Ok(Outcome::Died { cause: format!("{}: {last}", output.status) })
}

fn is_advice(line: &str) -> bool {
    line.starts_with("note: run with `RUST_BACKTRACE")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::doctor::{Findings, Worst};

    fn shell(script: &str) -> Outcome {
        examine(Command::new("sh").args(["-c", script])).expect("a shell")
    }

    #[test]
    fn a_process_that_dies_is_quoted() {
        let script = "echo a kernel did not compile >&2; kill -ABRT $$";
        let Outcome::Died { cause } = shell(script) else { panic!("it died") };
        assert!(cause.contains("signal: 6"), "{cause}");
        assert!(cause.ends_with(": a kernel did not compile"), "{cause}");
        assert!(!shell(script).is_healthy());
    }

    #[test]
    fn findings_are_read() {
        let worst = Worst {
            shape: "[3, 7]".to_owned(),
            output: "y".to_owned(),
            relative: None,
            allowed: 1e-5,
        };
        let failures = vec![worst.clone()];
        let findings = Findings { shapes: 2, worst, failures, kernel_ms: 1.5, reference_ms: 2.0 };
        let json = serde_json::to_string(&findings).expect("plain values");
        assert_eq!(shell(&format!("echo '{json}'")), Outcome::Ran(findings));
    }
}
