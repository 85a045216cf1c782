//! `train checkpoint pin` and `unpin` as a process.

use std::path::{Path, PathBuf};
use std::process::Command;

use fulmar_train::history::History;

const RECIPE: &str = r#"
name = "pins"
[model]
preset = "mini_d96"
[batch]
rows = 4
[schedule]
steps = 1
"#;

/// A run with checkpoints of steps 20 and 40.
fn run(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    for step in ["step-00000020", "step-00000040"] {
        let step = folder.join("checkpoints").join(step);
        std::fs::create_dir_all(&step).expect("a folder");
        std::fs::write(step.join("manifest.json"), "{}").expect("written");
    }
    std::fs::write(folder.join("recipe.toml"), RECIPE).expect("written");
    folder
}

/// Exit status, and what was said.
fn train(what: &str, run: &Path, step: &str, reason: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(["checkpoint", what]).arg(run).arg(step).args(reason);
    let output = command.output().expect("the binary starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_pin_is_written_told_and_taken_back() {
    let run = run("pins");
    let (status, said) = train("pin", &run, "40", &["--reason", "the loss was best"]);
    assert_eq!(status, Some(0), "{said}");
    let place = run.join("checkpoints/step-00000040").display().to_string();
    assert_eq!(said, format!("pinned: {place} (the loss was best)\n"));
    let pins = std::fs::read_dir(run.join("checkpoints/pins")).expect("a folder").count();
    assert_eq!(pins, 1);
    let (status, said) = train("unpin", &run, "40", &["--reason", "looked at"]);
    assert_eq!(status, Some(0), "{said}");
    let events = History::read(&run).expect("the history");
    let told: Vec<_> =
        events.iter().map(|event| (&*event.what, event.step, &*event.text)).collect();
    assert_eq!(told, [("pinned", 40, "the loss was best"), ("unpinned", 40, "looked at")]);
    // Once more there is nothing to take back.
    let (status, said) = train("unpin", &run, "40", &["--reason", "twice"]);
    assert_eq!(status, Some(6), "{said}");
    assert!(said.contains(&format!("checkpoint {place}: is not pinned")), "{said}");
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let run = run("pins-refused");
    let (status, said) = train("pin", &run, "30", &["--reason", "why"]);
    assert_eq!(status, Some(6), "{said}");
    assert!(said.contains("no whole checkpoint, needed one of the steps: 20, 40"), "{said}");
    let (status, said) = train("pin", &run, "40", &[]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--reason <TEXT>"), "{said}");
    let (status, said) = train("pin", &run.join("none"), "40", &["--reason", "why"]);
    assert_ne!(status, Some(0), "{said}");
    assert!(said.contains("recipe.toml"), "{said}");
}
