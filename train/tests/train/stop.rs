//! A run that is asked to stop saves, ends well and can go on as if nothing had been.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{Folder, said, tensors};

/// How long a step of the small model may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn stops_and_goes_on(name: &str, set: &[&str]) {
    let folder = Folder::new(name);
    // Long enough that it cannot end by itself before the signal.
    let endless = [set, &["schedule.steps=100000"]].concat();
    let child =
        folder.run("stopped", &endless).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the binary starts");
    wait_for_steps(&folder, &mut child, 5);
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.expect("`kill` runs").success());
    let output = child.wait_with_output().expect("an end");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let step = stopped_after(&text);
    assert!(step >= 5, "{text}");
    let names = tensors(&folder.path("stopped"), step);
    assert!(!names.is_empty(), "{text}");
    let go_on = "go on with: train run recipe.toml --out stopped --resume";
    assert!(text.contains(go_on) && text.contains("was asked to stop by a signal"), "{text}");
    assert!(!text.contains("held-out at step"), "no long evaluation after a signal: {text}");
    let history = std::fs::read_to_string(folder.path("stopped/history.jsonl")).expect("read");
    assert!(history.contains("\"what\":\"stopped\""), "{history}");

    let end = step + 4;
    let steps = format!("--steps={end}");
    for (out, flag) in [("stopped", Some("--resume")), ("whole", None)] {
        let output = folder.run(out, &endless).arg(&steps).args(flag).output().expect("runs");
        assert!(output.status.success(), "{}", said(&output));
    }
    let [stopped, whole] = ["stopped", "whole"].map(|run| tensors(&folder.path(run), end));
    assert!(stopped == whole, "{name}: a stopped and resumed run ends with other bits");
}

/// Waits until the log has `steps` lines.
fn wait_for_steps(folder: &Folder, child: &mut Child, steps: usize) {
    let started = Instant::now();
    let log = folder.path("stopped/metrics.jsonl");
    while std::fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < steps {
        assert!(started.elapsed() < PATIENCE, "no {steps} steps in {PATIENCE:?}");
        assert!(child.try_wait().expect("waited for").is_none(), "ended before the signal");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The step that the run says it has stopped after.
fn stopped_after(text: &str) -> u64 {
    let rest = text.split("stopped after ").nth(1).unwrap_or_else(|| panic!("no step in {text}"));
    rest.split(' ').next().and_then(|step| step.parse().ok()).expect("a number")
}

#[test]
fn a_run_that_gets_sigterm_saves_and_resumes_with_equal_bits() {
    stops_and_goes_on("stop_alone", &[]);
}

#[test]
fn two_ranks_that_get_sigterm_save_and_resume_with_equal_bits() {
    let ranks =
        ["parallel.shards=2", "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=2}"];
    stops_and_goes_on("stop_ranks", &ranks);
}
