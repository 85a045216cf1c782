//! A test's second half in a process of its own.
//!
//! The test binary runs itself again for the one test, with a folder in the environment; the test
//! asks first whether it is that second process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FOLDER: &str = "FULMAR_SUITE_FOLDER";

/// The folder that the first process handed over, in the second one.
pub(crate) fn handed_over() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Runs `test` (as libtest names it) in a fresh process and returns how that ended.
pub(crate) fn start(test: &str, folder: &Path) -> Output {
    start_with(test, folder, &[])
}

/// As [`start`], with variables in the environment.
fn start_with(test: &str, folder: &Path, variables: &[(&str, &str)]) -> Output {
    let program = std::env::current_exe().expect("the path of this test binary");
    Command::new(program)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(FOLDER, folder)
        .envs(variables.iter().copied())
        .output()
        .expect("the test binary starts")
}

/// Runs `test` in a fresh process and returns what it printed.
///
/// # Panics
/// If the second process fails, with all that it printed.
pub(crate) fn again(test: &str, folder: &Path) -> String {
    again_with(test, folder, &[])
}

/// As [`again`], with variables in the environment.
pub(crate) fn again_with(test: &str, folder: &Path, variables: &[(&str, &str)]) -> String {
    let output = start_with(test, folder, variables);
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let text = text.concat();
    assert!(output.status.success(), "the second process failed:\n{text}");
    assert!(text.contains("1 passed"), "the second process ran no test `{test}`:\n{text}");
    text
}
